//! Delays and failures that a class asks for, and calls that a test holds up. How often a call has failed already is
//! forgotten at a restart.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use crate::error::Error;
use crate::parameters::Fault;

/// Between two looks whether a call is still held up.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The failures of each call, by its key.
    counts: Mutex<HashMap<String, u32>>,
    /// Calls wait while a file of their name is in it.
    held: PathBuf,
}

impl Faults {
    pub(crate) fn new(held: PathBuf) -> Self {
        Self { counts: Mutex::default(), held }
    }

    /// Waits while the folder holds a file with the call's name.
    pub(crate) async fn held(&self, method: &str) {
        while self.held.join(method).exists() {
            sleep(PAUSE).await;
        }
    }

    /// Waits, and then fails as often as the class wants.
    pub(crate) async fn pass(&self, key: &str, fault: &Fault) -> Result<(), Error> {
        sleep(fault.delay).await;
        let Some(failure) = &fault.failure else {
            return Ok(());
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.to_owned()).or_default();
        if failure.times.is_some_and(|times| *count >= times) {
            counts.remove(key);
            return Ok(());
        }
        *count = count.saturating_add(1);
        Err(Error::VolumeRequest(failure.code))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::timeout;
    use tonic::Code;

    use super::*;
    use crate::parameters::Failure;

    fn fault(times: Option<u32>) -> Fault {
        Fault { delay: Duration::ZERO, failure: Some(Failure { code: Code::Unavailable, times }) }
    }

    #[tokio::test]
    async fn the_first_calls_of_each_volume_fail() {
        let faults = Faults::default();
        let failed = Err(Error::VolumeRequest(Code::Unavailable));
        assert_eq!(faults.pass("a", &fault(Some(2))).await, failed);
        assert_eq!(faults.pass("b", &fault(Some(2))).await, failed);
        assert_eq!(faults.pass("a", &fault(Some(2))).await, failed);
        assert_eq!(faults.pass("a", &fault(Some(2))).await, Ok(()));
        assert_eq!(faults.pass("b", &fault(Some(2))).await, failed);
    }

    #[tokio::test]
    async fn without_a_number_every_call_fails() {
        let faults = Faults::default();
        for _ in 0..5 {
            assert!(faults.pass("a", &fault(None)).await.is_err());
        }
    }

    #[tokio::test]
    async fn without_a_failure_a_call_only_waits() {
        assert_eq!(Faults::default().pass("a", &Fault::default()).await, Ok(()));
    }

    #[tokio::test]
    async fn a_call_waits_while_a_file_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let faults = Faults::new(folder.path().to_owned());
        let file = folder.path().join("NodeStageVolume");
        fs::write(&file, "").unwrap();
        assert!(timeout(PAUSE * 2, faults.held("NodeStageVolume")).await.is_err());
        faults.held("NodePublishVolume").await;
        fs::remove_file(&file).unwrap();
        faults.held("NodeStageVolume").await;
    }
}
