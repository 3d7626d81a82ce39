//! Whose turn it is on the shared fleet. Most tests only wait for clusters, so those that disturb no other one run a few at
//! a time; the others come after them, each alone.

use std::{
    future::Future,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use tokio::{
    sync::{Mutex, RwLock, RwLockReadGuard, Semaphore, watch},
    time::timeout,
};

use crate::rig::{self, Rig};

/// As many as two cores can take without being late, besides the one that has the node.
const AT_ONCE: usize = 2;

/// The host's node.
static NODE: Mutex<()> = Mutex::const_new(());
static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);
static FLEET: RwLock<()> = RwLock::const_new(());
/// Somebody may have left the fleet in disorder.
static DISORDER: AtomicBool = AtomicBool::new(true);
/// Tests that may run beside others and have not ended.
static OTHERS: LazyLock<watch::Sender<usize>> = LazyLock::new(watch::Sender::default);
/// All that have not ended, but for the one that comes after them.
static ALL: LazyLock<watch::Sender<usize>> = LazyLock::new(watch::Sender::default);
/// Threads begin their first test, or the next one, sooner.
const NO_MORE: Duration = Duration::from_secs(3);

/// After all tests that are there and may run beside others.
pub async fn alone<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    let _counted = Counted::among(&ALL);
    no_more(&OTHERS).await;
    let _fleet = FLEET.write().await;
    let rig = rig::shared().await;
    DISORDER.store(true, Ordering::Relaxed);
    rig.as_it_should_be().await.unwrap();
    judge(name, rig, test).await;
}

pub async fn beside_others<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    let _counted = [Counted::among(&ALL), Counted::among(&OTHERS)];
    let _place = PLACES.acquire().await.unwrap();
    in_its_turn(name, test).await;
}

/// Beside others, but for those that want the node as well. There are many of those: they wait for each other alone.
pub async fn on_node<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    let _counted = [Counted::among(&ALL), Counted::among(&OTHERS)];
    let _node = NODE.lock().await;
    in_its_turn(name, test).await;
}

async fn in_its_turn<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    let rig = rig::shared().await;
    let _fleet = in_order(rig).await;
    judge(name, rig, test).await;
}

/// Once there is no other one any more, nor comes.
pub async fn after_all<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    no_more(&ALL).await;
    judge(name, rig::shared().await, test).await;
}

/// There is none of them, and none comes.
async fn no_more(tests: &watch::Sender<usize>) {
    let mut tests = tests.subscribe();
    loop {
        tests.wait_for(|tests| *tests == 0).await.unwrap();
        if timeout(NO_MORE, tests.wait_for(|tests| *tests > 0)).await.is_err() {
            return;
        }
    }
}

/// A failed test leaves its logs.
async fn judge<F>(name: &str, rig: &'static Rig, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    let _logs = rig.fleet.test(name);
    if let Err(error) = test(rig).await {
        DISORDER.store(true, Ordering::Relaxed);
        panic!("{error:#}");
    }
}

async fn in_order(rig: &Rig) -> RwLockReadGuard<'static, ()> {
    let fleet = FLEET.read().await;
    if !DISORDER.load(Ordering::Relaxed) {
        return fleet;
    }
    drop(fleet);
    let fleet = FLEET.write().await;
    if DISORDER.swap(false, Ordering::Relaxed) {
        rig.as_it_should_be().await.unwrap();
    }
    fleet.downgrade()
}

/// One of some tests, from before it waits for its turn.
struct Counted(&'static watch::Sender<usize>);

impl Counted {
    fn among(tests: &'static watch::Sender<usize>) -> Self {
        tests.send_modify(|tests| *tests += 1);
        Self(tests)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|tests| *tests -= 1);
    }
}
