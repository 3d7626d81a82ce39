//! The standing watches on one member: claims and volumes with our labels, and the StorageClasses. Each resumes after
//! an interruption and ends only when its future is dropped.

use std::{fmt::Debug, time::Duration};

use backon::ExponentialBuilder;
use futures::StreamExt;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use serde::de::DeserializeOwned;

use super::{Cluster, lean::Lean, ownership, row, rows::Kind};
use crate::{cluster::with_causes, volume::VolumeHash};

/// Keeps the rows of a member true. Returns when a watch has lost its thread and would have to list anew: before that is
/// believed, somebody has to ask again which cluster this is.
pub async fn keep(cluster: &Cluster) {
    cluster.rows.unsync();
    let ours = watcher::Config::default().labels(&ownership::selector(&cluster.host));
    let known = &cluster.rows;
    let claims =
        follow(cluster, Kind::Claims, ours.clone(), |change: Change<Lean<PersistentVolumeClaim>>| match change {
            Change::Put { object, .. } => known.put_claim(&object),
            Change::Drop(object) => {
                drop_row(cluster, &object, |hash, uid| known.drop_claim(hash, uid, row::version(&object)));
            }
        });
    let volumes = follow(cluster, Kind::Volumes, ours, |change: Change<Lean<PersistentVolume>>| match change {
        Change::Put { object, .. } => known.put_volume(&object),
        Change::Drop(object) => drop_row(cluster, &object, |hash, uid| known.drop_volume(hash, uid)),
    });
    let all = watcher::Config::default();
    let classes = follow(cluster, Kind::Classes, all, |change: Change<StorageClass>| match change {
        Change::Put { object, listing } => known.put_class(&object, listing),
        Change::Drop(object) => known.drop_class(&object.name_any()),
    });
    tokio::select! {
        biased;
        () = claims => {}
        () = volumes => {}
        () = classes => {}
    }
}

enum Change<K> {
    Put { object: K, listing: bool },
    Drop(K),
}

async fn follow<K>(cluster: &Cluster, kind: Kind, config: watcher::Config, mut take: impl FnMut(Change<K>))
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times();
    let backoff = ExponentialBackoff::from(backoff);
    let events = watcher(Api::<K>::all(cluster.client.clone()), config).backoff(backoff);
    let mut events = std::pin::pin!(events);
    let mut listed = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) if listed => return,
            Ok(Event::Init) => cluster.rows.begin(kind),
            Ok(Event::InitApply(object)) => take(Change::Put { object, listing: true }),
            Ok(Event::InitDone) => {
                cluster.rows.set_obstacle(kind, None);
                cluster.rows.complete(kind);
                listed = true;
            }
            Ok(Event::Apply(object)) => take(Change::Put { object, listing: false }),
            Ok(Event::Delete(object)) => take(Change::Drop(object)),
            Err(error) => {
                let refused = refusal(&error);
                // A right that is missing now: a list will say whether it still is.
                if listed && refused.is_some() {
                    return;
                }
                cluster.rows.set_obstacle(kind, refused);
                let error = with_causes(&error);
                tracing::debug!(member = %cluster.member, kind = ?kind, error, "watch interrupted");
            }
        }
    }
}

/// A right that is missing, in the member's words; other interruptions pass.
fn refusal(error: &watcher::Error) -> Option<String> {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return None;
    };
    matches!(status.code, 401 | 403).then(|| status.message.clone())
}

/// The last state of an object that left the watch still carries the labels by which it was ours.
fn drop_row<K: ResourceExt>(cluster: &Cluster, object: &K, remove: impl FnOnce(VolumeHash, &str)) {
    if let (Some(hash), Some(uid)) = (ownership::volume_of(object.meta(), &cluster.host), object.uid()) {
        remove(hash, &uid);
    }
}
