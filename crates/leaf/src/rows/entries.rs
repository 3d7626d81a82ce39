//! The rows of one member. Whatever is here was told before to those who look through all members, and they hear that it is gone after that:
//! only here is a row put in or taken out.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::Deref,
    sync::Arc,
};

use crate::{sightings::Sightings, volume_objects::VolumeObjects};
use domain::volume::VolumeHash;

type ByVolume = BTreeMap<VolumeHash, Box<VolumeObjects>>;

#[derive(Debug, Default)]
pub(super) struct Entries {
    rows: ByVolume,
    /// Something is there besides that cannot be read.
    is_unread: bool,
    sightings: Option<Arc<Sightings>>,
}

impl Deref for Entries {
    type Target = ByVolume;

    fn deref(&self) -> &ByVolume {
        &self.rows
    }
}

impl Entries {
    pub(super) fn told_to(sightings: Option<Arc<Sightings>>) -> Self {
        Self { rows: ByVolume::new(), is_unread: false, sightings }
    }

    /// None, told to the same.
    pub(super) fn emptied(&self) -> Self {
        Self::told_to(self.sightings.clone())
    }

    /// The row of a volume, which is made where there is none.
    pub(super) fn entry(&mut self, hash: VolumeHash) -> &mut VolumeObjects {
        match self.rows.entry(hash) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                if let Some(sightings) = &self.sightings {
                    sightings.add(hash);
                }
                new.insert(Box::default())
            }
        }
    }

    pub(super) fn get_mut(&mut self, hash: VolumeHash) -> Option<&mut VolumeObjects> {
        self.rows.get_mut(&hash).map(Box::as_mut)
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (&VolumeHash, &mut Box<VolumeObjects>)> {
        self.rows.iter_mut()
    }

    pub(super) fn remove(&mut self, hash: VolumeHash) {
        if self.rows.remove(&hash).is_some()
            && let Some(sightings) = &self.sightings
        {
            sightings.remove(hash);
        }
    }

    pub(super) fn remove_empty(&mut self) {
        let empty = self.rows.iter().filter(|(_, entry)| entry.is_empty()).map(|(hash, _)| *hash);
        for hash in empty.collect::<Vec<_>>() {
            self.remove(hash);
        }
    }

    pub(super) fn set_unread(&mut self, is_unread: bool) {
        if std::mem::replace(&mut self.is_unread, is_unread) != is_unread
            && let Some(sightings) = &self.sightings
        {
            sightings.note_unread(is_unread);
        }
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        self.set_unread(false);
        if let Some(sightings) = &self.sightings {
            self.rows.keys().for_each(|hash| sightings.remove(*hash));
        }
    }
}
