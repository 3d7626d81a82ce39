//! Of which volumes any member has something: who looks for one volume through a thousand members asks here first, and most often there is
//! nothing to look for. It may say too much, and never too little.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use domain::volume::VolumeHash;

#[derive(Debug, Default)]
pub struct Sightings(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// In how many members, by the first half of the hash: another volume that has the same counts with it.
    volumes: HashMap<u64, u32>,
    /// Members in which something cannot be read.
    unread: usize,
}

impl Sightings {
    /// Where not, no member has a row of it, nor anything that cannot be read and says that it is of it.
    pub fn may_have(&self, hash: VolumeHash) -> bool {
        let seen = self.lock();
        seen.unread > 0 || seen.volumes.contains_key(&hash.seed())
    }

    pub(super) fn add(&self, hash: VolumeHash) {
        *self.lock().volumes.entry(hash.seed()).or_default() += 1;
    }

    pub(super) fn remove(&self, hash: VolumeHash) {
        if let Entry::Occupied(mut members) = self.lock().volumes.entry(hash.seed()) {
            *members.get_mut() -= 1;
            if *members.get() == 0 {
                members.remove();
            }
        }
    }

    /// One more has something that cannot be read, or one less.
    pub(super) fn note_unread(&self, is_unread: bool) {
        let mut seen = self.lock();
        seen.unread = if is_unread { seen.unread + 1 } else { seen.unread - 1 };
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
