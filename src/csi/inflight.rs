//! One call at a time per volume: the interface asks for ABORTED while another one is under way.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use crate::error::{Error, Result};

#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<HashSet<String>>>);

/// The place of one call; given back when it is dropped, also by a caller who gave up.
#[derive(Debug)]
pub struct Place {
    calls: InFlight,
    key: String,
}

impl InFlight {
    pub fn enter(&self, key: &str) -> Result<Place> {
        let entered = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        if entered {
            return Ok(Place { calls: self.clone(), key: key.to_owned() });
        }
        Err(Error::InProgress(format!("another call for volume {key} is under way")))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.calls.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_call_for_a_volume_is_refused_until_the_first_has_ended() {
        let calls = InFlight::default();
        let first = calls.enter("a").unwrap();
        assert!(matches!(calls.enter("a"), Err(Error::InProgress(_))));
        assert!(calls.enter("b").is_ok());
        drop(first);
        assert!(calls.enter("a").is_ok());
    }
}
