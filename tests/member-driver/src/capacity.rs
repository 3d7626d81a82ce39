//! The room that volumes share. What is being made counts as soon as it is asked for, so that two calls cannot have the
//! same room.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::table::Table;
use crate::volume::Volume;

#[derive(Debug)]
pub(crate) struct Capacity {
    total: u64,
    reserved: Mutex<u64>,
}

/// Room that is held until its volume has a record, or is given up.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    capacity: &'a Capacity,
    bytes: u64,
}

impl Capacity {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            reserved: Mutex::new(0),
        }
    }

    /// The room that is left beside these volumes.
    pub(crate) fn left(&self, volumes: &Table<Volume>) -> u64 {
        self.beside(*self.lock(), volumes)
    }

    pub(crate) fn reserve(
        &self,
        volumes: &Table<Volume>,
        bytes: u64,
    ) -> Result<Reservation<'_>, Error> {
        let mut reserved = self.lock();
        let left = self.beside(*reserved, volumes);
        if bytes > left {
            return Err(Error::NoRoom(format!(
                "{bytes} bytes are asked for and {left} are left"
            )));
        }
        *reserved += bytes;
        Ok(Reservation {
            capacity: self,
            bytes,
        })
    }

    fn beside(&self, reserved: u64, volumes: &Table<Volume>) -> u64 {
        let used: u64 = volumes.all().iter().map(|volume| volume.bytes).sum();
        self.total.saturating_sub(used).saturating_sub(reserved)
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        *self.capacity.lock() -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_runs_out_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let volumes = Table::open(folder.path().to_owned()).unwrap();
        let capacity = Capacity::new(10);
        let first = capacity.reserve(&volumes, 7).unwrap();
        assert_eq!(capacity.left(&volumes), 3);
        assert!(matches!(
            capacity.reserve(&volumes, 4),
            Err(Error::NoRoom(_))
        ));
        drop(first);
        assert!(capacity.reserve(&volumes, 10).is_ok());
    }
}
