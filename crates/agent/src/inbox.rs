//! What is to be looked at: each thing once, however often it was told of, until somebody takes it.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::object::Place;

/// Read by one.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    told: Mutex<BTreeSet<Place>>,
    bell: Notify,
}

impl Inbox {
    pub(super) fn put(&self, place: Place) {
        self.lock().insert(place);
        self.bell.notify_one();
    }

    /// All that was told, as soon as there is something. Whoever stops waiting has taken nothing.
    pub(super) async fn take(&self) -> BTreeSet<Place> {
        loop {
            let told = std::mem::take(&mut *self.lock());
            if !told.is_empty() {
                return told;
            }
            self.bell.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Place>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn place(name: &str) -> Place {
        Place { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_is_taken_once_also_after_somebody_stopped_waiting() {
        let inbox = Inbox::default();
        let soon = || timeout(Duration::from_secs(1), inbox.take());
        assert!(soon().await.is_err());
        for name in ["a", "b", "a"] {
            inbox.put(place(name));
        }
        assert_eq!(soon().await.unwrap(), BTreeSet::from([place("a"), place("b")]));
        assert!(soon().await.is_err());
        let (taken, ()) = tokio::join!(soon(), async { inbox.put(place("c")) });
        assert_eq!(taken.unwrap(), BTreeSet::from([place("c")]));
    }
}
