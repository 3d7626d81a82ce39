//! What the clock of a cluster says: that of this machine may be ahead of it, and nobody here would know.

use http::{HeaderMap, header::DATE};
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use kube::{Client, api::GetParams, client::Body, core::Request};

/// As the head of its answer about an object says, whatever the answer is. None where something on the way takes that off.
pub async fn time_of(client: &Client, path: &str, name: &str) -> Result<Option<Timestamp>, kube::Error> {
    let request = Request::new(path).get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    let answer = client.send(request.map(Body::from)).await?;
    Ok(told_in(answer.headers()))
}

fn told_in(head: &HeaderMap) -> Option<Timestamp> {
    let date = head.get(DATE)?.to_str().ok()?;
    DateTimeParser::new().parse_timestamp(date).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_as_http_writes_it_and_what_is_written_otherwise_tells_none() {
        for (date, time) in
            [("Sun, 29 Nov 2026 23:56:04 GMT", Some("2026-11-29T23:56:04Z")), ("1796000000", None), ("", None)]
        {
            let head: HeaderMap = [(DATE, date.parse().unwrap())].into_iter().collect();
            assert_eq!(told_in(&head), time.map(|time| time.parse().unwrap()), "{date}");
        }
        assert_eq!(told_in(&HeaderMap::new()), None);
    }
}
