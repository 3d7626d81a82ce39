//! How a list is asked for whose items are taken while it comes.

use std::{io, pin::pin, time::Duration};

use futures::AsyncBufReadExt;
use http::Request;
use kube::Client;
use tokio::time::timeout;

use super::{
    items::{Head, Items},
    measure::Reading,
};

/// Between two pieces.
const PAUSE: Duration = Duration::from_secs(4);

/// Reads the answer to one request for a list, or for a page of one. `take` feeds each piece to the items, and may end it.
pub async fn read_list<E: From<kube::Error>>(
    client: &Client,
    mut request: Request<Vec<u8>>,
    mut items: Items,
    mut take: impl FnMut(&mut Items, &[u8]) -> Result<(), E>,
) -> Result<Head, E> {
    request.extensions_mut().insert(Reading::InPieces);
    let mut text = pin!(client.request_stream(request).await?);
    loop {
        let piece = timeout(PAUSE, text.fill_buf()).await.map_err(io::Error::from).flatten();
        let piece = piece.map_err(kube::Error::ReadEvents)?;
        if piece.is_empty() {
            return items.head().map_err(|error| kube::Error::SerdeError(error).into());
        }
        let read = piece.len();
        take(&mut items, piece)?;
        text.consume_unpin(read);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt, stream};
    use http::Response;
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use kube::client::Body;

    use super::*;

    static LIST: [&str; 3] = [r#"{"metadata": {"continue": "t"}, "items": [{"a""#, r#": 1}, {"b": 2}"#, "]}"];

    /// What has come of a list whose pieces are these, and what followed from it.
    async fn read(pieces: &'static [&'static str], is_ended: bool) -> (Vec<String>, Result<Head, kube::Error>) {
        let client = Client::new(
            tower::service_fn(move |_: Request<Body>| async move {
                let come = stream::iter(pieces).map(|piece| Bytes::from_static(piece.as_bytes()));
                let all = come.chain(stream::pending().take(usize::from(!is_ended)));
                let body = StreamBody::new(all.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
                Ok::<_, Infallible>(Response::new(body))
            }),
            "default",
        );
        let mut found = Vec::new();
        let head = read_list(&client, Request::new(Vec::new()), Items::of_list(), |items, piece| {
            items.feed(piece, &mut |item| {
                found.push(String::from_utf8_lossy(item).into_owned());
                Ok::<_, kube::Error>(())
            })
        });
        let head = head.await;
        (found, head)
    }

    #[tokio::test]
    async fn items_are_taken_as_they_come_and_the_head_says_what_follows() {
        let (found, head) = read(&LIST, true).await;
        assert_eq!(found, [r#"{"a": 1}"#, r#"{"b": 2}"#]);
        assert_eq!(head.unwrap().next, "t");
    }

    #[tokio::test(start_paused = true)]
    async fn list_that_pauses_for_too_long_or_ends_too_early_is_given_up_with_what_has_come_taken() {
        let (found, head) = read(&LIST[..2], false).await;
        assert_eq!(found.len(), 2);
        assert!(matches!(head, Err(kube::Error::ReadEvents(_))), "{head:?}");
        let (found, head) = read(&LIST[..2], true).await;
        assert_eq!(found.len(), 2);
        assert!(matches!(head, Err(kube::Error::SerdeError(_))), "{head:?}");
    }
}
