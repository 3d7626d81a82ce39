//! One piece of work at a time per volume, and never broken off: a call to the kernel cannot be. Whoever waits for it is
//! answered in time; the next call for the volume is refused until it has ended.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tracing::Instrument;

use domain::error::{Error, Result};

/// The keys at work.
#[derive(Clone, Debug)]
pub(super) struct OnePerVolume {
    keys: Arc<Mutex<HashSet<String>>>,
    freed: Arc<Notify>,
    most: usize,
}

/// Gives its key free when it goes, also after a panic.
struct Held {
    keys: Arc<Mutex<HashSet<String>>>,
    freed: Arc<Notify>,
    key: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        self.freed.notify_waiters();
    }
}

impl OnePerVolume {
    /// At most so many at once: work that hangs keeps a thread.
    pub(super) fn new(most: usize) -> Self {
        Self { keys: Arc::default(), freed: Arc::default(), most }
    }

    /// Until nothing is at work.
    pub(super) async fn ended(&self) {
        loop {
            let freed = self.freed.notified();
            if self.keys.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                return;
            }
            freed.await;
        }
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        key: &str,
        answer_by: Instant,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let held = self.hold(key)?;
        let work = async move {
            let done = work.await;
            drop(held);
            done
        };
        match timeout_at(answer_by, tokio::spawn(work.in_current_span())).await {
            Ok(Ok(done)) => done,
            Ok(Err(failed)) => Err(Error::InProgress(format!("the driver failed in its work on {key}: {failed}"))),
            Err(_) => Err(Error::InProgress(format!("the work on {key} goes on: it takes long"))),
        }
    }

    fn hold(&self, key: &str) -> Result<Held> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.contains(key) {
            return Err(Error::InProgress(format!("another call for {key} is under way")));
        }
        if keys.len() >= self.most {
            return Err(Error::InProgress(format!(
                "{} calls are under way on this node, which is the most that the node plugin does at once: {key} waits \
                 until one has ended",
                keys.len()
            )));
        }
        keys.insert(key.to_owned());
        Ok(Held { keys: Arc::clone(&self.keys), freed: Arc::clone(&self.freed), key: key.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, pin::pin, time::Duration};

    use tokio::{sync::oneshot, time::timeout};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_takes_long_is_told_and_keeps_its_volume() {
        let alone = OnePerVolume::new(8);
        let (go, wait) = oneshot::channel::<()>();
        let (ended, end) = oneshot::channel::<()>();
        let slow = async move {
            drop(wait.await);
            drop(ended);
            Ok(())
        };
        assert!(matches!(alone.run("a", soon(), slow).await, Err(Error::InProgress(_))));
        assert!(matches!(alone.run("a", soon(), async { Ok(()) }).await, Err(Error::InProgress(_))));
        assert_eq!(alone.run("b", soon(), async { Ok(1) }).await, Ok(1));
        go.send(()).unwrap();
        assert!(end.await.is_err(), "the work went on without its caller");
        tokio::task::yield_now().await;
        assert_eq!(alone.run("a", soon(), async { Ok(2) }).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn who_ends_waits_for_work_that_nobody_waits_for_any_more() {
        let alone = OnePerVolume::new(8);
        let (go, wait) = oneshot::channel::<()>();
        let slow = async move {
            drop(wait.await);
            Ok(())
        };
        assert!(matches!(alone.run("a", soon(), slow).await, Err(Error::InProgress(_))));
        let mut end = pin!(alone.ended());
        assert!(timeout(Duration::from_mins(1), &mut end).await.is_err());
        go.send(()).unwrap();
        end.await;
        alone.ended().await;
    }

    #[tokio::test]
    async fn work_that_fails_in_itself_gives_its_volume_free() {
        let alone = OnePerVolume::new(8);
        let failed = alone.run("a", soon(), async { panic!("on purpose") as Result<()> }).await;
        assert!(matches!(failed, Err(Error::InProgress(_))));
        assert_eq!(alone.run("a", soon(), async { Ok(1) }).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_hang_at_once() {
        let alone = OnePerVolume::new(1);
        drop(alone.run("a", soon(), pending::<Result<()>>()).await);
        assert!(matches!(alone.run("b", soon(), async { Ok(()) }).await, Err(Error::InProgress(_))));
    }
}
