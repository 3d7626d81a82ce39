//! What keeps a leaf that a move has from being made where it belongs, as whoever heals leaves has found a moment ago. The move tells it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use domain::volume::VolumeHash;

/// What stays in the way is found again twice a minute, or later where much else is to be looked at.
const KEPT: Duration = Duration::from_mins(3);

/// By member and volume, and since when.
#[derive(Debug, Default)]
pub struct Obstacles(Mutex<HashMap<(String, VolumeHash), (Instant, String)>>);

impl Obstacles {
    pub(crate) fn note(&self, member: &str, hash: VolumeHash, what: &str) {
        let mut all = self.all();
        all.retain(|_, (found, _)| found.elapsed() < KEPT);
        all.insert((member.to_owned(), hash), (Instant::now(), what.to_owned()));
    }

    pub(crate) fn forget(&self, member: &str, hash: VolumeHash) {
        self.all().remove(&(member.to_owned(), hash));
    }

    pub(super) fn of(&self, member: &str, hash: VolumeHash) -> Option<String> {
        let all = self.all();
        let (found, what) = all.get(&(member.to_owned(), hash))?;
        (found.elapsed() < KEPT).then(|| what.clone())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<(String, VolumeHash), (Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::volume::HostId;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn what_is_in_the_way_is_told_between_two_looks_of_whoever_finds_it_and_not_much_longer() {
        let (all, hash) = (Obstacles::default(), VolumeHash::new(&HostId("host".to_owned()), "pvc"));
        all.note("m", hash, "a quota");
        for _ in 0..3 {
            advance(Duration::from_secs(50)).await;
            assert_eq!(all.of("m", hash).as_deref(), Some("a quota"));
        }
        assert_eq!(all.of("other", hash), None);
        advance(Duration::from_secs(50)).await;
        assert_eq!(all.of("m", hash), None);
        all.note("m", hash, "a name");
        all.forget("m", hash);
        assert_eq!(all.of("m", hash), None);
    }
}
