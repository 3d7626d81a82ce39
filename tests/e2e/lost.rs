//! How long a claim of the host says that it has lost its volume, where that makes way for another one.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};

/// Where nobody is killed meanwhile, and nothing else keeps the controller busy: alerts wait for longer.
pub const MOST: Duration = Duration::from_secs(2);

/// What comes of some work, and how long the claim was lost each time, by a watch on it.
pub async fn lost_while<T>(
    claims: Api<PersistentVolumeClaim>,
    name: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Vec<Duration>)> {
    let of_name = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut changes = pin!(watcher(claims, of_name).default_backoff().applied_objects());
    let mut work = pin!(work);
    let (mut times, mut since) = (Vec::new(), None::<Instant>);
    let done = loop {
        tokio::select! {
            biased;
            Some(seen) = changes.next() => {
                let phase = seen.ok().and_then(|claim| claim.status?.phase);
                match phase.as_deref() {
                    Some("Lost") => since = since.or_else(|| Some(Instant::now())),
                    Some("Bound") => times.extend(since.take().map(|since| since.elapsed())),
                    _ => {}
                }
            }
            done = &mut work => break done?,
        }
    };
    ensure!(since.is_none(), "claim {name} has lost its volume");
    Ok((done, times))
}
