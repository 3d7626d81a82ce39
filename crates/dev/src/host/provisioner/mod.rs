//! Plays external-provisioner: asks the driver for the volumes of claims, writes what it made into the host, and has
//! removed what is released.
//!
//! Secrets named by a class are not handed over. Nothing is kept over a restart: the claims and volumes themselves say
//! what is to be done.

mod answer;
mod creation;
mod removal;
mod source;
pub(super) mod topology;
mod volume;

use std::time::Duration;

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

pub(super) use self::volume::capabilities;
use self::{answer::Next, creation::Creations, removal::Removals};
use super::{attacher::ATTACHMENTS, events::Speaker};
use csi::{
    client::{CallError, Client},
    v1,
};
use simulate::Cluster;

const SPEAKER: Speaker = Speaker("dev-provisioner");
/// As the driver's documentation recommends for `--timeout`.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
/// Where nothing is due.
const IDLE: Duration = Duration::from_hours(1);
const FOLLOWED: [&str; 6] = [
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses.storage.k8s.io",
    "nodes",
    "csinodes.storage.k8s.io",
    ATTACHMENTS,
];

/// A call that has ended, about the volume of this name.
#[derive(Debug)]
enum Answer {
    Created(String, Result<v1::Volume, CallError>),
    Removed(String, Result<(), CallError>),
}

type Calls = JoinSet<Answer>;

/// The calls for one volume: one at a time, with pauses that grow.
#[derive(Clone, Debug)]
pub(super) struct Attempts {
    count: u32,
    pub(super) due: Instant,
    pub(super) under_way: bool,
}

impl Attempts {
    pub(super) fn new(now: Instant) -> Self {
        Self { count: 0, due: now, under_way: false }
    }

    /// In a while, and later each time.
    pub(super) fn again(&mut self, now: Instant) {
        self.failed(Next::KeepAsking, now);
    }

    fn failed(&mut self, next: Next, now: Instant) {
        self.count += 1;
        self.due = now + answer::pause(next, self.count);
    }
}

pub(super) async fn run(host: Cluster, driver: Client) {
    let mut changes = simulate::follow::follow(&host, &FOLLOWED);
    let mut creations = Creations::new(host.clone(), driver.clone());
    let mut removals = Removals::new(host, driver);
    let mut calls = Calls::new();
    loop {
        while changes.try_next().is_some() {}
        let now = Instant::now();
        creations.look(now, &mut calls);
        removals.look(now, &mut calls);
        let waiting = creations.attempts().chain(removals.attempts());
        let due = waiting.filter(|attempts| attempts.due > now).map(|attempts| attempts.due).min();
        tokio::select! {
            _ = changes.next() => {}
            Some(ended) = calls.join_next() => match ended {
                Ok(Answer::Created(name, answer)) => creations.answered(&name, answer, Instant::now()),
                Ok(Answer::Removed(name, answer)) => removals.answered(&name, answer, Instant::now()),
                Err(error) => tracing::error!(%error, "a call of the driver has failed in itself"),
            },
            () = sleep_until(due.unwrap_or(now + IDLE)) => {}
        }
    }
}
