//! The standing watch on a member's leaf snapshots. It begins when there is one to see, so that members without snapshots
//! are never asked.

use std::time::Duration;

use futures::StreamExt;
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};

use super::kinds::VolumeSnapshot;
use crate::{
    cluster::{AFTER_TOO_MUCH, pauses, with_causes},
    leaf::{Cluster, ownership},
};

/// Before what was lost is listed anew, or a kind that is not served is looked for again.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the rows true. Runs until it is dropped.
pub async fn keep(cluster: &Cluster) {
    loop {
        cluster.snapshots.unsync();
        cluster.snapshots.are_wanted().await;
        follow(cluster).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns when the watch has lost its thread, or the member does not serve the kind.
async fn follow(cluster: &Cluster) {
    let known = &cluster.snapshots;
    let ours = watcher::Config::default().labels(&ownership::selector(&cluster.host));
    let events = watcher(Api::<VolumeSnapshot>::all(cluster.client.clone()), ours);
    let mut events = std::pin::pin!(events.backoff(ExponentialBackoff::from(pauses())));
    let mut listed = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) if listed => return,
            Ok(Event::Init) => known.begin(),
            Ok(Event::InitApply(snapshot) | Event::Apply(snapshot)) => {
                drop(known.put(&snapshot));
                if let Some(reason) = known.too_much() {
                    tracing::error!(member = %cluster.member, reason, "its snapshots are not followed");
                    tokio::time::sleep(AFTER_TOO_MUCH).await;
                    return;
                }
            }
            Ok(Event::InitDone) => {
                known.complete();
                listed = true;
            }
            Ok(Event::Delete(snapshot)) => known.lose(&snapshot),
            Err(error) => {
                if is_unserved(&error) {
                    known.are_not_served();
                    return;
                }
                let error = with_causes(&error);
                tracing::debug!(member = %cluster.member, error, "watch on snapshots interrupted");
            }
        }
    }
}

fn is_unserved(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 404
    )
}
