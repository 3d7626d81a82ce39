//! A world of its own for each run: one thread, a clock that jumps from one event to the next, and chance drawn from one
//! seed. The same seed gives the same course of events, request by request.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::bench::lock;

/// No run has anything left to do after so long on its own clock.
const LONGEST: Duration = Duration::from_hours(24);
/// Runs at a time where they have no time to wait: one per core of a small machine.
pub const THREADS: usize = 2;

/// Runs a story to its end, or fails when that does not come.
pub fn run<T>(seed: u64, story: impl Future<Output = T>) -> T {
    // What the driver's pauses are jittered with.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let ended = runtime.block_on(async { tokio::time::timeout(LONGEST, story).await });
    ended.expect("the story comes to an end")
}

/// The same on the clock of the world.
pub fn run_in_real_time<T>(story: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(story)
}

/// Does the same with every item, some at a time, and collects what there is to tell.
pub fn each<I: Send, T: Send>(threads: usize, items: Vec<I>, work: impl Fn(I) -> Option<T> + Sync) -> Vec<T> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let items: Vec<Mutex<Option<I>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let take = || items.get(next.fetch_add(1, Ordering::Relaxed)).and_then(|item| lock(item).take());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = take() {
                    if let Some(told) = work(item) {
                        lock(&found).push(told);
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}
