//! How many members are being opened at the same time: connected to, asked who they are, and listed. And how many that were open are asked
//! again, because a request to them has failed: after a short break of the network that is all of them.

use std::{pin::pin, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ConstantBuilder};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, sleep_until},
};

/// A thousand that are opened at once are not done before their time is over, fail together, and begin again together.
const AT_ONCE: usize = 32;
/// Whoever has not come to an end by then is waited for, which costs nothing: that one shall not hold up the others.
const HELD: Duration = Duration::from_secs(1);
/// The same of one that was open and is asked again: those that are well are to be open again soon.
const ASKED_AGAIN: Duration = Duration::from_millis(250);
/// Before one that finds no place asks for the next, and as much again by chance: they come in no order, and several replicas do not
/// open the same members at the same moment.
const APART: Duration = Duration::from_millis(100);

/// The places, of all members of a process.
#[derive(Clone, Debug)]
pub struct Openings {
    opened: Arc<Semaphore>,
    /// As many, of their own: who was open does not wait for all that are not yet.
    asked_again: Arc<Semaphore>,
}

impl Default for Openings {
    fn default() -> Self {
        let places = || Arc::new(Semaphore::new(AT_ONCE));
        Self { opened: places(), asked_again: places() }
    }
}

impl Openings {
    /// Waits for a place to open a member.
    pub async fn begin(&self) -> Opening {
        Opening::begin(&self.opened, HELD).await
    }

    /// Waits for a place to ask one again that was open. How long that takes says nothing of it.
    pub(super) async fn ask_again(&self) -> Opening {
        Opening::begin(&self.asked_again, ASKED_AGAIN).await
    }
}

fn by_chance() -> Duration {
    ConstantBuilder::default().with_delay(APART).with_jitter().build().next().unwrap_or(APART)
}

/// One that is being opened, and its place as long as it has one.
#[derive(Debug)]
pub struct Opening {
    place: Option<OwnedSemaphorePermit>,
    until: Instant,
}

impl Opening {
    async fn begin(places: &Arc<Semaphore>, held: Duration) -> Self {
        let place = if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            Some(place)
        } else {
            sleep(by_chance()).await;
            Arc::clone(places).acquire_owned().await.ok()
        };
        Self { place, until: Instant::now() + held }
    }

    /// Of a member that did not come to an end in time when it had a place: where many are silent, each would hold one at every try.
    pub(super) fn without_place() -> Self {
        Self { place: None, until: Instant::now() + HELD }
    }

    /// Whether it was, or would have been, waited for without its place.
    pub(super) fn has_outlived(&self) -> bool {
        Instant::now() >= self.until
    }

    /// With a place, which is waited for where it has none.
    pub(super) async fn placed(self, openings: &Openings) -> Self {
        if self.place.is_some() { self } else { openings.begin().await }
    }

    /// Does a part of it, to its end: the place may be given back before.
    pub async fn go_on<T>(&mut self, part: impl Future<Output = T>) -> T {
        let mut part = pin!(part);
        tokio::select! {
            biased;
            done = &mut part => return done,
            () = sleep_until(self.until) => self.place = None,
        }
        part.await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_are_opened_at_the_same_time_and_no_more() {
        let openings = Openings::default();
        let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut all = JoinSet::new();
        for _ in 0..10 * AT_ONCE {
            let (openings, now, most) = (openings.clone(), Arc::clone(&now), Arc::clone(&most));
            all.spawn(async move {
                let mut opening = openings.begin().await;
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                opening.go_on(sleep(HELD / 2)).await;
                now.fetch_sub(1, Ordering::Relaxed);
            });
        }
        all.join_all().await;
        assert_eq!(most.load(Ordering::Relaxed), AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_come_to_no_end_hold_up_the_others_for_a_moment_and_are_waited_for() {
        let openings = Openings::default();
        let mut silent = JoinSet::new();
        for _ in 0..AT_ONCE {
            let openings = openings.clone();
            silent.spawn(async move { openings.begin().await.go_on(pending::<()>()).await });
        }
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let mut opening = openings.begin().await;
        assert!(begun.elapsed() >= HELD, "there was a place");
        assert!(begun.elapsed() <= HELD + 2 * APART, "it took {:?}", begun.elapsed());
        opening.go_on(async {}).await;
        assert!(silent.try_join_next().is_none(), "what has no place goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn member_that_was_open_is_asked_again_beside_all_that_are_being_opened() {
        let openings = Openings::default();
        let (mut opened, mut silent) = (Vec::new(), JoinSet::new());
        for _ in 0..AT_ONCE {
            opened.push(openings.begin().await);
        }
        for _ in 0..3 * AT_ONCE {
            let openings = openings.clone();
            silent.spawn(async move { openings.ask_again().await.go_on(pending::<()>()).await });
        }
        tokio::task::yield_now().await;
        let begun = Instant::now();
        openings.ask_again().await.go_on(async {}).await;
        assert!(begun.elapsed() >= ASKED_AGAIN, "there was a place");
        assert!(begun.elapsed() <= 4 * (ASKED_AGAIN + 2 * APART), "it took {:?}", begun.elapsed());
        assert!(opened.iter().all(|opening| opening.place.is_some()));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_find_no_place_come_in_no_order() {
        let openings = Openings::default();
        let opened = Arc::<std::sync::Mutex<Vec<usize>>>::default();
        let mut all = JoinSet::new();
        for number in 0..2 * AT_ONCE {
            let (openings, opened) = (openings.clone(), Arc::clone(&opened));
            all.spawn(async move {
                let mut opening = openings.begin().await;
                opened.lock().unwrap().push(number);
                opening.go_on(sleep(HELD / 2)).await;
            });
        }
        all.join_all().await;
        let opened = opened.lock().unwrap();
        assert_eq!(opened.len(), 2 * AT_ONCE);
        assert!(!opened[AT_ONCE..].is_sorted(), "{opened:?}");
    }
}
