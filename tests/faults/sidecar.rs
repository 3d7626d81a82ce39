//! The provisioner that runs beside the driver: what it knows only in its memory, and what becomes of the class that it reads.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use crate::bench::lock;

/// The host's class, as people leave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    #[default]
    AsItWas,
    /// Recreated with a parameter that nobody knows.
    WithASlip,
    /// Recreated with another class of the members.
    OfOtherLeaves,
    Gone,
}

#[derive(Default)]
pub struct Sidecar {
    lives: AtomicU64,
    class: Mutex<Class>,
    /// Volumes of the host that it has found to be removed, and when it asks for that.
    late: Mutex<BTreeMap<String, Instant>>,
}

impl Sidecar {
    /// It is restarted, and knows of no claim that it is at work.
    pub fn restart(&self) {
        self.lives.fetch_add(1, Ordering::Relaxed);
    }

    pub fn set_class(&self, class: Class) {
        *lock(&self.class) = class;
    }

    pub fn class(&self) -> Class {
        *lock(&self.class)
    }

    /// It has looked at a volume, and stands still before it asks for the removal of that.
    pub async fn stand_still(&self, volume: &str, time: Duration) {
        let until = Instant::now() + time;
        lock(&self.late).insert(volume.to_owned(), until);
        sleep_until(until).await;
        lock(&self.late).remove(volume);
    }

    /// Volumes of which it has looked, and does not ask before so long.
    pub fn stands_still(&self, least: Duration) -> Vec<String> {
        let soonest = Instant::now() + least;
        let late = lock(&self.late);
        late.iter().filter(|(_, until)| **until >= soonest).map(|(volume, _)| volume.clone()).collect()
    }
}

/// What one claim's work has left in its memory.
pub struct Memory {
    life: u64,
    at_work: bool,
    /// It tells the driver of which claim it asks. Where it does not, nobody could find out that it has forgotten.
    tells: bool,
}

impl Memory {
    pub fn new(sidecar: &Sidecar, tells: bool) -> Self {
        Self { life: sidecar.lives.load(Ordering::Relaxed), at_work: false, tells }
    }

    /// A volume may be on its way: asked for until that is certain, whatever becomes of the claim.
    pub fn is_at_work(&mut self, sidecar: &Sidecar) -> bool {
        let life = sidecar.lives.load(Ordering::Relaxed);
        // Without the class it cannot even ask, which it takes for an end.
        if self.tells && (self.life != life || sidecar.class() == Class::Gone) {
            *self = Self { life, at_work: false, ..*self };
        }
        self.at_work
    }

    pub fn set(&mut self, at_work: bool) {
        self.at_work = at_work;
    }
}
