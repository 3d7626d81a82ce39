//! What keeps a leaf that a move has from being made where it belongs, as whoever heals leaves has found a moment ago. The move tells it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

use super::ROUND;
use domain::volume::VolumeHash;

/// By member and volume, and since when. What stays in the way is found again twice a minute.
#[derive(Debug, Default)]
pub struct Obstacles(Mutex<HashMap<(String, VolumeHash), (Instant, String)>>);

impl Obstacles {
    pub(crate) fn note(&self, member: &str, hash: VolumeHash, what: &str) {
        let mut all = self.all();
        all.retain(|_, (found, _)| found.elapsed() < ROUND);
        all.insert((member.to_owned(), hash), (Instant::now(), what.to_owned()));
    }

    pub(crate) fn forget(&self, member: &str, hash: VolumeHash) {
        self.all().remove(&(member.to_owned(), hash));
    }

    pub(super) fn of(&self, member: &str, hash: VolumeHash) -> Option<String> {
        let all = self.all();
        let (found, what) = all.get(&(member.to_owned(), hash))?;
        (found.elapsed() < ROUND).then(|| what.clone())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<(String, VolumeHash), (Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
