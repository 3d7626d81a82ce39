//! By when a caller is answered, and how long what was begun for him goes on.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use domain::error::{Error, Result};

/// Long enough for slow storage; then the next call begins where this one stopped.
const GOES_ON: Duration = Duration::from_mins(10);

/// The deadline of one call. When it comes, the caller learns why he waits, and the work goes on without him.
#[derive(Clone, Debug)]
pub struct Deadline {
    asked: Instant,
    answer_by: Instant,
    work_until: Instant,
    caller: Arc<Mutex<Option<oneshot::Sender<Error>>>>,
}

impl Deadline {
    /// For a caller who takes an early answer.
    pub fn of_caller(answer_by: Instant, caller: oneshot::Sender<Error>) -> Self {
        let caller = Arc::new(Mutex::new(Some(caller)));
        Self { asked: Instant::now(), answer_by, work_until: answer_by + GOES_ON, caller }
    }

    /// When the caller has asked. The work may have begun later, once what was asked for before had ended.
    pub(super) fn asked(&self) -> Instant {
        self.asked
    }

    /// When to look up from waiting.
    pub(super) fn next(&self) -> Instant {
        if self.caller_waits() { self.answer_by } else { self.work_until }
    }

    pub(super) fn passed(&self) -> bool {
        Instant::now() >= self.next()
    }

    /// Once he has been answered or has hung up, nothing new is decided: he may have changed his mind.
    pub(super) fn caller_waits(&self) -> bool {
        let caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        caller.as_ref().is_some_and(|caller| !caller.is_closed())
    }

    /// The same for a driver that has stood still, and hears late that its caller has hung up.
    pub(super) fn caller_waits_still(&self) -> bool {
        self.caller_waits() && !self.passed()
    }

    /// Before the next look at something of which no news comes, which is taken by the deadline at the latest. At that, `late` says
    /// what to tell the caller.
    pub(super) async fn pause(&self, pause: Duration, late: impl FnOnce() -> Error) -> Result<()> {
        if self.passed() {
            self.tell(late())?;
        }
        tokio::time::sleep_until((Instant::now() + pause).min(self.next())).await;
        Ok(())
    }

    /// Tells the caller why it takes so long. An error, and the end of the work, where that was done before.
    pub(super) fn tell(&self, why: Error) -> Result<()> {
        match self.caller.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(caller) => {
                // One who gave up needs no answer.
                drop(caller.send(why));
                Ok(())
            }
            None => Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn caller_who_is_not_known_to_have_gone_waits_no_longer_than_until_he_is_to_be_answered() {
        let (caller, _told) = oneshot::channel();
        let deadline = Deadline::of_caller(Instant::now() + Duration::from_secs(30), caller);
        assert!(deadline.caller_waits_still());
        advance(Duration::from_secs(31)).await;
        assert!(deadline.caller_waits() && !deadline.caller_waits_still());
    }
}
