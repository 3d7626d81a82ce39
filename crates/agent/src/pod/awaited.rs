//! Secrets that a member was asked for. One may come yet, though nobody waits for the answer any more.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// An API server ends what takes longer.
pub(super) const AWAITED: Duration = Duration::from_secs(55);

/// When one was last asked for, by namespaces of the member.
#[derive(Debug, Default)]
pub(crate) struct AwaitedSecrets(Mutex<HashMap<String, Instant>>);

impl AwaitedSecrets {
    pub(super) fn note(&self, namespace: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, asked| asked.elapsed() <= AWAITED);
        all.insert(namespace.to_owned(), Instant::now());
    }

    pub(super) fn has(&self, namespace: &str) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(namespace).is_some_and(|asked| asked.elapsed() <= AWAITED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn secret_is_awaited_for_as_long_as_it_may_come() {
        let awaited = AwaitedSecrets::default();
        awaited.note("shop");
        tokio::time::advance(AWAITED / 2).await;
        assert!(awaited.has("shop") && !awaited.has("other"));
        awaited.note("shop");
        tokio::time::advance(AWAITED).await;
        assert!(awaited.has("shop"));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!awaited.has("shop"));
    }
}
