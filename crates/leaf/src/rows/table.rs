//! What there is to say of one volume among all, and what is forgotten of them. Pure.

use super::{Kind, NOTICED, Table};
use crate::limits::Extent;
use cluster::Unread;
use domain::volume::VolumeHash;

fn may_be_of(unread: &Unread<Option<VolumeHash>>, hash: VolumeHash) -> bool {
    unread.any(|whose| whose.is_none_or(|whose| whose == hash))
}

/// Of one volume, what a change of it may change among all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    /// Something may have become of its leaf that nobody asked for.
    pub(super) is_remarkable: bool,
    pub(super) versions: (usize, u64),
    pub(super) extent: Extent,
    pub(super) settled: Option<u64>,
}

impl Table {
    pub(super) fn sight_of(&self, hash: VolumeHash) -> Sight {
        self.rows.get(&hash).map_or_else(Sight::default, |entry| Sight {
            is_remarkable: entry.needs_repair() || entry.follows() || entry.is_moving(),
            versions: entry.versions(),
            extent: entry.extent(),
            settled: entry.settled(),
        })
    }

    pub(super) fn count_again(&mut self, hash: VolumeHash, settled: Option<u64>) -> bool {
        self.tally.change(hash, settled, self.rows.get(&hash).map(|entry| &**entry))
    }

    /// For who takes notice of changes. Where nobody does any more, volumes that come and go are not remembered for ever: all may have
    /// changed then.
    pub(super) fn note_change(&mut self, hash: VolumeHash) {
        let most = self.rows.len().max(NOTICED);
        let Some(changed) = &mut self.changed else { return };
        changed.insert(hash);
        if changed.len() > most {
            self.changed = None;
        }
    }

    pub(super) fn note_unread(&mut self) {
        let is_unread = self.unread.iter().any(|unread| !unread.is_empty());
        self.rows.set_unread(is_unread);
    }

    /// Something may be there of this volume that cannot be read.
    pub(super) fn may_be_unread(&self, kind: Kind, hash: VolumeHash) -> bool {
        may_be_of(&self.unread[kind as usize], hash)
    }

    /// The list of a kind has come to its end. What cannot be read is there: what it may be is kept as it was.
    pub(super) fn lose_unlisted(&mut self, kind: Kind) {
        self.unread[kind as usize].complete();
        self.note_unread();
        if kind == Kind::Classes {
            return self.lose_unlisted_classes();
        }
        let unread = &self.unread[kind as usize];
        let (claims, volumes, mut changed) = (self.claim_round, self.volume_round, Vec::new());
        for (hash, entry) in self.rows.each_mut().filter(|(hash, _)| !may_be_of(unread, **hash)) {
            let before = entry.versions();
            if kind == Kind::Claims {
                entry.keep_claims(claims);
            } else {
                entry.keep_volumes(volumes);
            }
            if entry.versions() != before {
                changed.push(*hash);
            }
        }
        for hash in changed {
            self.note_change(hash);
        }
        self.rows.remove_empty();
    }

    fn lose_unlisted_classes(&mut self) {
        let gone = self.relisted_classes.end(self.classes.keys());
        if self.unread[Kind::Classes as usize].is_empty() {
            for name in &gone {
                self.classes.remove(name);
            }
        }
    }

    pub(super) fn tidy(&mut self, hash: VolumeHash) {
        if self.rows.get(&hash).is_some_and(|entry| entry.is_empty()) {
            self.rows.remove(hash);
        }
    }
}
