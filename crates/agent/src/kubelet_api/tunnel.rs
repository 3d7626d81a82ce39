//! A request to a member's API server, and what follows it: an answer that is passed on as it comes, or two connections
//! that are one from then on. What speaks there (SPDY, WebSocket) is not looked into.

use std::{io, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{SEC_WEBSOCKET_PROTOCOL, UPGRADE},
};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    sync::watch,
    time::timeout,
};

use super::{
    AuthenticatedCaller,
    conversations::{Answer, Conversation},
    http_error::HttpError,
};
use cluster::with_causes;

/// What a change of protocols needs. Whoever asks brings no credentials of his own.
const TO_MEMBER: &[&str] = &[
    "connection",
    "upgrade",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    STREAM_PROTOCOL,
];
/// With the change of protocols.
const FROM_MEMBER: &[&str] = &[
    "connection",
    "upgrade",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    STREAM_PROTOCOL,
];
/// As such a protocol, a caller over a WebSocket may show his token to the host's API server, which takes it out only where it goes by it.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.";
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
/// With an answer that stays one.
const OF_ANSWER: &[&str] = &["content-type"];

/// A conversation in which nobody says anything for so long is over, as with a kubelet.
const SILENCE: Duration = Duration::from_hours(4);
const PIECE: usize = 16 * 1024;
/// TLS has a word for the end, which nobody may be there to take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Asks the member and passes on what it answers.
pub(super) async fn pass(
    client: &Client,
    mut request: Request<Incoming>,
    target: &str,
    who: &AuthenticatedCaller,
    conversation: Conversation,
) -> Result<Response<Answer>, HttpError> {
    let conversation = Arc::new(conversation);
    let upgrades = request.headers().contains_key(UPGRADE);
    let here = upgrades.then(|| hyper::upgrade::on(&mut request));
    let mut asked = Request::builder().method(request.method()).uri(target);
    if let (Some(headers), true) = (asked.headers_mut(), upgrades) {
        pass_headers(TO_MEMBER, request.headers(), headers);
        leave_out_tokens(headers);
    }
    let asked = asked.body(nothing()).map_err(|error| HttpError::bad_request(&error.to_string()))?;
    let mut answer = client.send(asked).await.map_err(|error| HttpError::unreachable(&with_causes(&error)))?;
    let mut passed = Response::new(nothing());
    *passed.status_mut() = answer.status();
    match here {
        Some(here) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            pass_headers(FROM_MEMBER, answer.headers(), passed.headers_mut());
            let joined = join(here, hyper::upgrade::on(&mut answer));
            let (stop, kept) = (who.stop.clone(), (who.place.clone(), Arc::clone(&conversation)));
            tokio::spawn(async move {
                stop.run_until_cancelled_owned(joined).await;
                drop(kept);
            });
        }
        _ => {
            pass_headers(OF_ANSWER, answer.headers(), passed.headers_mut());
            *passed.body_mut() = answer.into_body();
        }
    }
    Ok(passed.map(|body| Answer::of(conversation, body)))
}

fn nothing() -> Body {
    Body::from(Vec::new())
}

fn pass_headers(which: &[&'static str], from: &HeaderMap, to: &mut HeaderMap) {
    for name in which {
        for value in from.get_all(*name) {
            to.append(HeaderName::from_static(name), value.clone());
        }
    }
}

fn leave_out_tokens(headers: &mut HeaderMap) {
    let spoken = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let spoken = spoken.flat_map(|value| value.split(',')).map(str::trim).filter(|one| !one.starts_with(TOKEN));
    let spoken = spoken.collect::<Vec<_>>().join(", ");
    match HeaderValue::from_str(&spoken) {
        Ok(spoken) if !spoken.is_empty() => headers.insert(SEC_WEBSOCKET_PROTOCOL, spoken),
        _ => headers.remove(SEC_WEBSOCKET_PROTOCOL),
    };
}

/// Both connections end as soon as one of them does: whoever is left has nobody to talk to.
async fn join(here: OnUpgrade, there: OnUpgrade) {
    let (here, there) = match tokio::try_join!(here, there) {
        Ok((here, there)) => (TokioIo::new(here), TokioIo::new(there)),
        Err(error) => return tracing::debug!(%error, "a connection was not taken over"),
    };
    converse(here, there).await;
}

async fn converse<S: AsyncRead + AsyncWrite>(here: S, there: S) {
    let (mut from_host, mut to_host) = split(here);
    let (mut from_member, mut to_member) = split(there);
    let heard = watch::Sender::new(());
    let ended = tokio::select! {
        ended = carry(&mut from_host, &mut to_member, &heard) => ended,
        ended = carry(&mut from_member, &mut to_host, &heard) => ended,
        () = silence(&heard) => Err(io::ErrorKind::TimedOut.into()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a conversation ended");
    }
    let ends = async { tokio::join!(to_host.shutdown(), to_member.shutdown()) };
    let _ = timeout(GOODBYE, ends).await;
}

async fn carry(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    heard: &watch::Sender<()>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        heard.send_replace(());
        to.write_all(&piece[..read]).await?;
        to.flush().await?;
    }
}

/// Returns once nobody has said anything for long.
async fn silence(heard: &watch::Sender<()>) {
    let mut news = heard.subscribe();
    while timeout(SILENCE, news.changed()).await.is_ok() {}
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, time::Instant};

    use super::*;

    #[test]
    fn token_that_is_shown_as_a_protocol_goes_to_no_member() {
        let passed = |told: &[&'static str]| {
            let values = told.iter().map(|value| (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(value)));
            let (from, mut to) = (values.collect::<HeaderMap>(), HeaderMap::new());
            pass_headers(TO_MEMBER, &from, &mut to);
            leave_out_tokens(&mut to);
            to.get(SEC_WEBSOCKET_PROTOCOL).map(|value| value.to_str().unwrap().to_owned())
        };
        let token = "base64url.bearer.authorization.k8s.io.Y2FuYXJ5";
        assert_eq!(
            passed(&["v5.channel.k8s.io, v4.channel.k8s.io"]).as_deref(),
            Some("v5.channel.k8s.io, v4.channel.k8s.io")
        );
        assert_eq!(
            passed(&["base64url.bearer.authorization.k8s.io.Y2FuYXJ5,v5.channel.k8s.io"]).as_deref(),
            Some("v5.channel.k8s.io")
        );
        assert_eq!((passed(&[token]), passed(&[])), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn conversation_ends_by_hours_of_silence_and_with_whoever_leaves() {
        let ((mut host, here), (there, mut member)) = (duplex(64), duplex(64));
        let talk = async {
            let mut word = [0; 5];
            for _ in 0..3 {
                tokio::time::sleep(SILENCE.mul_f64(0.9)).await;
                host.write_all(b"hello").await.unwrap();
                member.read_exact(&mut word).await.unwrap();
            }
            let silent_since = Instant::now();
            assert_eq!(member.read(&mut word).await.unwrap(), 0, "the end");
            silent_since.elapsed()
        };
        let ((), silent) = tokio::join!(converse(here, there), talk);
        assert!(silent >= SILENCE && silent < SILENCE + Duration::from_secs(2), "{silent:?}");

        let ((host, here), (there, mut member)) = (duplex(64), duplex(64));
        drop(host);
        let begun = Instant::now();
        tokio::join!(converse(here, there), async { assert_eq!(member.read(&mut [0]).await.unwrap(), 0) });
        assert!(begun.elapsed() < SILENCE);
    }
}
