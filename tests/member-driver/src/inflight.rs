//! Keeps two calls from working on one thing at once. The standard lets a caller that has lost its memory send a call
//! twice; the second one is answered at once and may come again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;

#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashSet<String>>>);

/// Holds its keys until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    held: InFlight,
    keys: Vec<String>,
}

impl InFlight {
    /// Takes all of these keys or none.
    pub(crate) fn begin<Key: Into<String>>(
        &self,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<Guard, Error> {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        let mut held = self.lock();
        if let Some(key) = keys.iter().find(|key| held.contains(*key)) {
            return Err(Error::InProgress(format!(
                "another call for {key} has not ended"
            )));
        }
        held.extend(keys.iter().cloned());
        Ok(Guard {
            held: self.clone(),
            keys,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        for key in &self.keys {
            held.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_call_is_told_to_come_again() {
        let calls = InFlight::default();
        let first = calls.begin(["a"]).unwrap();
        assert!(matches!(calls.begin(["a"]), Err(Error::InProgress(_))));
        assert!(calls.begin(["b"]).is_ok());
        drop(first);
        assert!(calls.begin(["a"]).is_ok());
    }

    #[test]
    fn a_refused_call_holds_nothing() {
        let calls = InFlight::default();
        let _first = calls.begin(["b"]).unwrap();
        assert!(calls.begin(["a", "b"]).is_err());
        assert!(calls.begin(["a"]).is_ok());
    }
}
