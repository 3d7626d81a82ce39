//! A request to a member's API server, and what follows it: an answer that is passed on as it comes, or two connections
//! that are one from then on. What speaks there (SPDY, WebSocket) is not looked into.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header::UPGRADE};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use tokio::{
    io::{AsyncWriteExt, copy, split},
    time::timeout,
};

use super::{Guest, refusal::Refusal};
use crate::cluster::with_causes;

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
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
/// With an answer that stays one.
const OF_ANSWER: &[&str] = &["content-type"];

/// TLS has a word for the end, which nobody may be there to take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Asks the member and passes on what it answers.
pub(super) async fn pass(
    client: &Client,
    mut request: Request<Incoming>,
    target: &str,
    guest: &Guest,
) -> Result<Response<Body>, Refusal> {
    let upgrades = request.headers().contains_key(UPGRADE);
    let here = upgrades.then(|| hyper::upgrade::on(&mut request));
    let mut asked = Request::builder().method(request.method()).uri(target);
    if let (Some(headers), true) = (asked.headers_mut(), upgrades) {
        pass_headers(TO_MEMBER, request.headers(), headers);
    }
    let asked = asked.body(nothing()).map_err(|error| Refusal::bad_request(&error.to_string()))?;
    let mut answer = client.send(asked).await.map_err(|error| Refusal::unreachable(&with_causes(&error)))?;
    let mut passed = Response::new(nothing());
    *passed.status_mut() = answer.status();
    match here {
        Some(here) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            pass_headers(FROM_MEMBER, answer.headers(), passed.headers_mut());
            let joined = join(here, hyper::upgrade::on(&mut answer));
            let (stop, place) = (guest.stop.clone(), guest.place.clone());
            tokio::spawn(async move {
                stop.run_until_cancelled_owned(joined).await;
                drop(place);
            });
        }
        _ => {
            pass_headers(OF_ANSWER, answer.headers(), passed.headers_mut());
            *passed.body_mut() = answer.into_body();
        }
    }
    Ok(passed)
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

/// Both connections end as soon as one of them does: whoever is left has nobody to talk to.
async fn join(here: OnUpgrade, there: OnUpgrade) {
    let (here, there) = match tokio::try_join!(here, there) {
        Ok((here, there)) => (TokioIo::new(here), TokioIo::new(there)),
        Err(error) => return tracing::debug!(%error, "a connection was not taken over"),
    };
    let (mut from_host, mut to_host) = split(here);
    let (mut from_member, mut to_member) = split(there);
    let ended = tokio::select! {
        ended = copy(&mut from_host, &mut to_member) => ended,
        ended = copy(&mut from_member, &mut to_host) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a conversation ended");
    }
    let ends = async { tokio::join!(to_host.shutdown(), to_member.shutdown()) };
    let _ = timeout(GOODBYE, ends).await;
}
