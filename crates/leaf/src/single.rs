//! Waiting for one object of a member by a watch of its own, from the version in which it was seen.

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::TryStreamExt;
use kube::{
    Api, Resource,
    api::{WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout_at};

/// After a watch that was refused or broke: nobody is to look again at once.
const REFUSED: Duration = Duration::from_millis(500);

/// What a watch has shown.
#[derive(Debug)]
pub enum WatchOutcome<K> {
    There(K),
    Gone,
    /// Nothing of what was waited for: look again.
    Nothing,
}

/// Until the object is as wanted, or gone, or until a moment.
pub(super) async fn until<K>(
    objects: &Api<K>,
    (name, version): (&str, &str),
    moment: Instant,
    wanted: impl Fn(&K) -> bool,
) -> WatchOutcome<K>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let watching = async {
        let mut events = pin!(objects.watch(&only, version).await.ok()?);
        while let Some(event) = events.try_next().await.ok()? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) if wanted(&object) => {
                    return Some(WatchOutcome::There(object));
                }
                WatchEvent::Deleted(_) => return Some(WatchOutcome::Gone),
                WatchEvent::Error(_) => return None,
                _ => {}
            }
        }
        None
    };
    match timeout_at(moment, watching).await {
        Ok(Some(seen)) => seen,
        Ok(None) => {
            sleep_until(moment.min(Instant::now() + REFUSED)).await;
            WatchOutcome::Nothing
        }
        Err(_) => WatchOutcome::Nothing,
    }
}
