//! Whose turn it is on the shared fleet. Most tests only wait for clusters, so those that disturb no other one run a few at
//! a time; the others come after them, each alone.

use std::{
    future::Future,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Result;
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, Semaphore, watch};

use crate::rig::{self, Rig};

/// As many as two cores can take without being late.
const AT_ONCE: usize = 3;

/// The host's node.
static NODE: Mutex<()> = Mutex::const_new(());
static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);
static FLEET: RwLock<()> = RwLock::const_new(());
/// Somebody may have left the fleet in disorder.
static DISORDER: AtomicBool = AtomicBool::new(true);
/// Tests that may run beside others and have not ended.
static OTHERS: LazyLock<watch::Sender<usize>> = LazyLock::new(watch::Sender::default);

/// After all tests that are there and may run beside others.
pub async fn alone<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    OTHERS.subscribe().wait_for(|others| *others == 0).await.unwrap();
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
    let _counted = Counted::new();
    let _place = PLACES.acquire().await.unwrap();
    let rig = rig::shared().await;
    let _fleet = in_order(rig).await;
    judge(name, rig, test).await;
}

/// Beside others, but for those that want the node as well.
pub async fn on_node<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    let _counted = Counted::new();
    let _node = NODE.lock().await;
    beside_others(name, test).await;
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

/// One of the tests that may run beside others, from before it waits for its turn.
struct Counted;

impl Counted {
    fn new() -> Self {
        OTHERS.send_modify(|others| *others += 1);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OTHERS.send_modify(|others| *others -= 1);
    }
}
