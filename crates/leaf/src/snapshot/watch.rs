//! The standing watch on a member's leaf snapshots. It begins when there is one to see, so that members without snapshots
//! are never asked.

use std::time::Duration;

use futures::{StreamExt, stream::select_all};
use kube::runtime::{
    WatchStreamExt,
    watcher::{self, Event, ExponentialBackoff, watcher},
};

use super::kinds::VolumeSnapshot;
use crate::{MemberClient, ownership};
use cluster::{AFTER_TOO_MUCH, pauses, unmanaged::Unmanaged, with_causes};

/// Before what was lost is listed again, or a kind that is not served is looked for again.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the rows true. Runs until it is dropped.
pub async fn keep(cluster: &MemberClient) {
    loop {
        cluster.snapshots.unsync();
        cluster.snapshots.are_wanted().await;
        follow(cluster).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns when a watch has lost its thread, or the member does not serve the kind.
async fn follow(cluster: &MemberClient) {
    let known = &cluster.snapshots;
    let ours = watcher::Config::default().labels(&ownership::selector(&cluster.host));
    let namespaces = cluster.namespaces.each();
    let watches = namespaces.iter().map(|&namespace| {
        let events = watcher(cluster.within::<Unmanaged<VolumeSnapshot>>(namespace), ours.clone());
        events.backoff(ExponentialBackoff::from(pauses())).boxed()
    });
    let mut events = select_all(watches);
    let (mut begun, mut unlisted) = (0, namespaces.len());
    known.begin();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) if begun < namespaces.len() => begun += 1,
            // Its first list has failed.
            Ok(Event::Init) if namespaces.len() == 1 && unlisted == 1 => known.begin(),
            // One list that begins once more may leave out what it has told before, and which that was is not known.
            Ok(Event::Init) => return,
            Ok(event @ (Event::InitApply(_) | Event::Apply(_))) => {
                match event {
                    Event::InitApply(snapshot) => known.put_listed(&snapshot),
                    Event::Apply(snapshot) => drop(known.put(&snapshot)),
                    _ => {}
                }
                if let Some(reason) = known.too_much() {
                    tracing::error!(member = %cluster.member, reason, "the driver cannot follow the member's snapshots");
                    tokio::time::sleep(AFTER_TOO_MUCH).await;
                    return;
                }
            }
            Ok(Event::InitDone) => {
                unlisted -= 1;
                if unlisted == 0 {
                    known.complete();
                }
            }
            Ok(Event::Delete(snapshot)) => known.lose(&snapshot),
            Err(error) => {
                if is_unserved(&error) {
                    known.are_not_served();
                    return;
                }
                let error = with_causes(&error);
                tracing::debug!(member = %cluster.member, error, "the watch on snapshots was interrupted");
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
