//! What the clock of a cluster says: that of this machine may be ahead of it, and nobody here would know.

use http::header::DATE;
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use kube::{Client, api::GetParams, client::Body, core::Request};

/// As the head of its answer about an object says, whatever the answer is. None where something on the way takes that off.
pub async fn time_of(client: &Client, path: &str, name: &str) -> Result<Option<Timestamp>, kube::Error> {
    let request = Request::new(path).get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    let answer = client.send(request.map(Body::from)).await?;
    let said = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    Ok(said.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok()))
}
