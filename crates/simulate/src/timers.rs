//! Things to be done later, in the order in which they fall due.

use std::{collections::BTreeMap, future::pending, time::Duration};

use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(super) struct Timers<T> {
    due: BTreeMap<(Instant, u64), T>,
    added: u64,
}

impl<T> Timers<T> {
    pub(super) fn new() -> Self {
        Self { due: BTreeMap::new(), added: 0 }
    }

    pub(super) fn add(&mut self, after: Duration, what: T) {
        self.added += 1;
        self.due.insert((Instant::now() + after, self.added), what);
    }

    /// The next thing once it is due; never, while there is none. Nothing is lost if the wait is given up.
    pub(super) async fn next(&mut self) -> T {
        let Some((at, _)) = self.due.keys().next().copied() else {
            return pending().await;
        };
        if at > Instant::now() {
            sleep_until(at).await;
        }
        match self.due.pop_first() {
            Some((_, what)) => what,
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_due_first_comes_first_and_ties_keep_their_order() {
        let mut timers = Timers::new();
        timers.add(Duration::from_secs(2), "late");
        timers.add(Duration::from_secs(1), "one");
        timers.add(Duration::from_secs(1), "two");
        assert_eq!([timers.next().await, timers.next().await, timers.next().await], ["one", "two", "late"]);
        assert!(tokio::time::timeout(Duration::from_secs(9), timers.next()).await.is_err());
    }
}
