//! Logs and metrics of the pods of driver and agent.

use std::{pin::pin, time::Duration};

use futures::{AsyncBufRead, AsyncReadExt, StreamExt, stream};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use serde_json::Value;

use cluster::with_causes;
use host::Host;
use operator::bundle::{Bundle, Log, Scrape, logs_of, scrapes_of};

const AT_ONCE: usize = 4;
/// The newest of each text, so that one that is written without end leaves room for the others.
const BYTES: usize = 8 << 20;
const LINES: i64 = 50_000;
const WHOLE: Duration = Duration::from_mins(1);

pub(super) async fn logs_and_metrics(host: &Host, since: Duration, pods: &[Value], bundle: &mut Bundle) {
    let since = i64::try_from(since.as_secs()).unwrap_or(i64::MAX).max(1);
    let mut logs = stream::iter(pods.iter().flat_map(logs_of))
        .map(async |log| (log.path.clone(), within(read(&host.client, &log, since)).await))
        .buffered(AT_ONCE);
    while let Some((path, text)) = logs.next().await {
        bundle.put(path, text);
    }
    let mut metrics = stream::iter(pods.iter().flat_map(scrapes_of))
        .map(async |of| (of.path.clone(), within(scraped(&host.client, &of)).await))
        .buffered(AT_ONCE);
    while let Some((path, text)) = metrics.next().await {
        bundle.put(path, text);
    }
}

async fn within(reading: impl Future<Output = anyhow::Result<String>>) -> Result<String, String> {
    let read = tokio::time::timeout(WHOLE, reading).await.map_err(|_| "it did not end in time".to_owned())?;
    read.map_err(|error| error.downcast_ref::<kube::Error>().map_or_else(|| error.to_string(), |of| with_causes(of)))
}

async fn read(client: &Client, log: &Log, since: i64) -> anyhow::Result<String> {
    let wanted = LogParams {
        container: Some(log.container.clone()),
        previous: log.previous,
        since_seconds: (!log.previous).then_some(since),
        tail_lines: Some(LINES),
        ..LogParams::default()
    };
    newest(Api::<Pod>::namespaced(client.clone(), &log.namespace).log_stream(&log.pod, &wanted).await?).await
}

/// Through the host's API server, which reaches its pods.
async fn scraped(client: &Client, of: &Scrape) -> anyhow::Result<String> {
    let Scrape { namespace, pod, port, .. } = of;
    let request = Request::get(format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics"));
    newest(client.request_stream(request.body(Vec::new())?).await?).await
}

/// What comes last of a text, whatever its bytes are, in whole lines: of a line that is cut nobody knows whether it was a credential.
async fn newest(text: impl AsyncBufRead) -> anyhow::Result<String> {
    let (mut text, mut piece, mut kept, mut is_cut) = (pin!(text), vec![0; 64 << 10], Vec::new(), false);
    loop {
        match text.read(&mut piece).await? {
            0 => break,
            some => kept.extend_from_slice(&piece[..some]),
        }
        if kept.len() > 2 * BYTES {
            kept.drain(..kept.len() - BYTES);
            is_cut = true;
        }
    }
    let mut last = &kept[kept.len().saturating_sub(BYTES)..];
    if is_cut || last.len() < kept.len() {
        let line = last.iter().position(|byte| *byte == b'\n').map_or(last.len(), |end| end + 1);
        last = &last[line..];
    }
    Ok(String::from_utf8_lossy(last).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn newest_lines_are_whole() {
        let read = async |text: String| newest(futures::io::Cursor::new(text)).await.unwrap();
        assert_eq!(read("one\ntwo\n".to_owned()).await, "one\ntwo\n");
        for lines in [BYTES / 8, BYTES / 2] {
            let kept = read("a-credential-in-a-line\n".repeat(lines)).await;
            assert!(kept.len() <= BYTES && kept.len() > BYTES - 100, "{}", kept.len());
            assert!(kept.lines().all(|line| line == "a-credential-in-a-line"), "{:?}", kept.lines().next());
        }
        assert_eq!(read("x".repeat(3 * BYTES)).await, "", "of one line without an end nothing is whole");
    }
}
