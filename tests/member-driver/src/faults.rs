//! Delays and failures that a class asks for. How often a call has failed already is forgotten at a restart.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::sleep;

use crate::error::Error;
use crate::parameters::Fault;

/// Counts the failures of each call, by its key.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<HashMap<String, u32>>);

impl Faults {
    /// Waits, and then fails as often as the class wants.
    pub(crate) async fn pass(&self, key: &str, fault: &Fault) -> Result<(), Error> {
        sleep(fault.delay).await;
        let Some(failure) = &fault.failure else {
            return Ok(());
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.to_owned()).or_default();
        if failure.times.is_some_and(|times| *count >= times) {
            counts.remove(key);
            return Ok(());
        }
        *count = count.saturating_add(1);
        Err(Error::Wanted(failure.code))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::Code;

    use super::*;
    use crate::parameters::Failure;

    fn fault(times: Option<u32>) -> Fault {
        Fault {
            delay: Duration::ZERO,
            failure: Some(Failure {
                code: Code::Unavailable,
                times,
            }),
        }
    }

    #[tokio::test]
    async fn the_first_calls_of_each_volume_fail() {
        let faults = Faults::default();
        let failed = Err(Error::Wanted(Code::Unavailable));
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
}
