//! One call at a time per volume: the interface asks for ABORTED while another one is under way. The work of a call is a
//! task of its own, which goes on when the caller is answered early or gives up; the next call takes its place, once what it has
//! begun to write has come to an end.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use cluster::Writes;
use domain::error::{Error, Result};
use driver::provision::Deadline;

/// For the work itself to say by its deadline why it takes so long.
const GRACE: Duration = Duration::from_millis(600);

type RunningCalls = Mutex<HashMap<String, Work>>;

/// All work ends with the last clone.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<RunningCalls>);

#[derive(Debug)]
struct Work {
    /// Alive while somebody waits for it.
    caller: Weak<()>,
    task: AbortOnDropHandle<()>,
    /// What it, and the work before it, writes in any cluster.
    writes: Writes,
}

impl InFlight {
    /// Does the work for a key. Only one caller may wait for a key; what goes on without a caller is ended first.
    pub async fn run<T, F>(&self, key: &str, answer_by: Instant, work: impl FnOnce(Deadline) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let this = |works: &HashMap<String, Work>| if works.contains_key(key) { vec![key.to_owned()] } else { vec![] };
        self.run_over(key, this, answer_by, work).await
    }

    /// The same for what is also about other keys: no caller may wait for one of these, and their work is ended as well.
    pub async fn run_instead<T, F>(
        &self,
        key: &str,
        of: impl Fn(&str) -> bool,
        answer_by: Instant,
        work: impl FnOnce(Deadline) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        // Each key is looked at once: with a thousand callers there are a million such looks.
        self.run_over(key, |works| works.keys().filter(|key| of(key)).cloned().collect(), answer_by, work).await
    }

    async fn run_over<T, F>(
        &self,
        key: &str,
        meant: impl FnOnce(&HashMap<String, Work>) -> Vec<String>,
        answer_by: Instant,
        work: impl FnOnce(Deadline) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (early, told) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let work = work(Deadline::of_caller(answer_by, early));
        let caller = Arc::new(());
        self.begin(key, meant, &caller, |before, writes| async move {
            for before in before {
                before.abort();
                drop(before.await);
            }
            // What is read next has to show them.
            writes.ended().await;
            drop(ended.send(writes.of(work).await));
        })?;
        tokio::select! {
            biased;
            result = end => result.unwrap_or_else(|_| Err(Error::InProgress(format!("the work on {key} was ended")))),
            Ok(why) = told => Err(why),
            // It waits for a cluster, and could not look at the clock.
            () = tokio::time::sleep_until(answer_by + GRACE) => {
                Err(Error::InProgress(format!("the work on {key} goes on: a cluster takes long to answer")))
            }
        }
    }

    /// The keys at work, with or without a caller.
    pub fn under_way(&self) -> Vec<String> {
        lock(&self.0).keys().cloned().collect()
    }

    fn begin<F>(
        &self,
        key: &str,
        meant: impl FnOnce(&HashMap<String, Work>) -> Vec<String>,
        caller: &Arc<()>,
        work: impl FnOnce(Vec<AbortOnDropHandle<()>>, Writes) -> F,
    ) -> Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut works = lock(&self.0);
        let meant = meant(&works);
        let is_waited_for = |key: &&String| works.get(*key).is_some_and(|work| work.caller.strong_count() > 0);
        if let Some(key) = meant.iter().find(is_waited_for) {
            return Err(Error::InProgress(format!("another call for {key} is under way")));
        }
        let (mut before, writes) = (Vec::new(), Writes::default());
        for earlier in meant.iter().filter_map(|key| works.remove(key)) {
            writes.include(earlier.writes);
            before.push(earlier.task);
        }
        let work = work(before, writes.clone());
        let (mine, all, name) = (Arc::downgrade(caller), Arc::downgrade(&self.0), key.to_owned());
        let task = async move {
            work.await;
            remove(&all, &name, &mine);
        };
        let task = AbortOnDropHandle::new(tokio::spawn(task.in_current_span()));
        works.insert(key.to_owned(), Work { caller: Arc::downgrade(caller), task, writes });
        Ok(())
    }
}

fn remove(works: &Weak<RunningCalls>, key: &str, caller: &Weak<()>) {
    let Some(works) = works.upgrade() else { return };
    let mut works = lock(&works);
    if works.get(key).is_some_and(|work| work.caller.ptr_eq(caller)) {
        works.remove(key);
    }
}

fn lock(works: &RunningCalls) -> std::sync::MutexGuard<'_, HashMap<String, Work>> {
    works.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test]
    async fn second_call_for_a_key_is_refused_while_the_first_waits() {
        let calls = InFlight::default();
        let mut first = Box::pin(calls.run("a", soon(), |_| pending::<Result<()>>()));
        assert!(futures::poll!(&mut first).is_pending());
        assert!(matches!(calls.run("a", soon(), async |_| Ok(())).await, Err(Error::InProgress(_))));
        assert_eq!(calls.run("b", soon(), async |_| Ok(1)).await, Ok(1));
    }

    #[tokio::test]
    async fn work_goes_on_when_its_caller_gives_up() {
        let calls = InFlight::default();
        let (go, wait) = oneshot::channel::<()>();
        let (done, seen) = oneshot::channel();
        let mut call = Box::pin(calls.run("a", soon(), |_| async move {
            drop(wait.await);
            let _ = done.send(());
            Ok(())
        }));
        assert!(futures::poll!(&mut call).is_pending());
        drop(call);
        go.send(()).unwrap();
        seen.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn caller_is_answered_in_time_also_by_work_that_does_not_look_at_the_clock() {
        let calls = InFlight::default();
        let answer = calls.run("a", soon(), |_| pending::<Result<()>>()).await;
        assert!(matches!(answer, Err(Error::InProgress(_))));
        assert_eq!(calls.under_way(), ["a"]);
    }

    /// Begins work that never ends, and gives up waiting for it. The receiver hears when the work is ended.
    async fn abandoned(calls: &InFlight, key: &str) -> oneshot::Receiver<()> {
        let (alive, ended) = oneshot::channel();
        let mut call = Box::pin(calls.run(key, soon(), |_| async move {
            let _alive = alive;
            pending::<Result<()>>().await
        }));
        assert!(futures::poll!(&mut call).is_pending());
        ended
    }

    #[tokio::test]
    async fn next_call_takes_the_place_of_work_without_a_caller() {
        let calls = InFlight::default();
        let ended = abandoned(&calls, "a").await;
        assert_eq!(calls.run("a", soon(), async |_| Ok(2)).await, Ok(2));
        assert!(ended.await.is_err(), "the earlier work has ended");
        assert!(calls.under_way().is_empty());
    }

    #[tokio::test]
    async fn call_about_several_keys_takes_the_place_of_the_work_on_each() {
        let calls = InFlight::default();
        let (alive, ended) = oneshot::channel::<()>();
        let mut one = Box::pin(calls.run("a on 1", soon(), |_| async move {
            let _alive = alive;
            pending::<Result<()>>().await
        }));
        let mut other = Box::pin(calls.run("b on 1", soon(), |_| pending::<Result<()>>()));
        assert!(futures::poll!(&mut one).is_pending() && futures::poll!(&mut other).is_pending());
        let all = || calls.run_instead("a on ", |key| key.starts_with("a on "), soon(), async |_| Ok(2));
        let refused = Err(Error::InProgress("another call for a on 1 is under way".to_owned()));
        assert_eq!(all().await, refused);
        drop(one);
        assert_eq!(all().await, Ok(2));
        assert!(ended.await.is_err(), "the earlier work has ended");
        assert_eq!(calls.under_way(), ["b on 1"]);
    }

    #[tokio::test]
    async fn call_looks_at_each_key_at_work_once() {
        let calls = InFlight::default();
        let _at_work = [abandoned(&calls, "a").await, abandoned(&calls, "b").await];
        let looks = AtomicUsize::new(0);
        let of_none = |_: &str| {
            looks.fetch_add(1, Ordering::Relaxed);
            false
        };
        assert_eq!(calls.run_instead("c", of_none, soon(), async |_| Ok(1)).await, Ok(1));
        assert_eq!(looks.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn all_work_ends_with_the_last_clone() {
        let calls = InFlight::default();
        let ended = abandoned(&calls, "a").await;
        drop(calls);
        assert!(ended.await.is_err());
    }
}
