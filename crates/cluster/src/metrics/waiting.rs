//! Claims of the host that wait for a volume, as their provisioner asks for them: one for which no member was found has no leaf that
//! could be counted.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::time::Instant;

/// external-provisioner asks again after five minutes at the latest. What it asks for no more, nobody waits for.
const ASKED_AGAIN: Duration = Duration::from_mins(7);
/// Of a call whose caller gave up.
const GIVEN_UP: &str = "Cancelled";
/// Of a reason, in letters; and of so many it is kept.
const LONGEST: usize = 500;
const EXPLAINED: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WithCode {
    code: String,
}

/// Why a call gave no volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: String,
    pub message: String,
}

#[derive(Clone, Debug)]
struct Wait {
    claim: Option<String>,
    since: Instant,
    last: Instant,
    refusal: Refusal,
}

/// A claim that waits, as of now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingClaim {
    pub volume: String,
    /// `NAMESPACE/NAME`, where the provisioner names it.
    pub claim: Option<String>,
    /// Since the first call.
    pub waits: Duration,
    pub refusal: Refusal,
}

#[derive(Clone, Default)]
pub struct Waiting {
    waits: Arc<Mutex<HashMap<String, Wait>>>,
    claims: Family<WithCode, Gauge>,
    oldest: Gauge,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Waiting").finish_non_exhaustive()
    }
}

/// A call that asks for a volume. One that is dropped has got no answer.
#[derive(Debug)]
pub struct Asked {
    waiting: Waiting,
    volume: String,
    claim: Option<String>,
    begun: Instant,
    answered: bool,
}

impl Waiting {
    pub(super) fn register(&self, registry: &mut Registry) {
        let claims = "Claims that wait for a volume, by the code of the last answer";
        registry.register("claims_waiting", claims, self.claims.clone());
        let oldest = "Time from the first to the last call for the claim that has waited longest, 0 where none waits";
        registry.register("oldest_waiting_claim_seconds", oldest, self.oldest.clone());
    }

    pub fn asks(&self, volume: &str, claim: Option<String>) -> Asked {
        Asked { waiting: self.clone(), volume: volume.to_owned(), claim, begun: Instant::now(), answered: false }
    }

    pub fn now(&self) -> Vec<WaitingClaim> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|_, wait| wait.last.elapsed() < ASKED_AGAIN);
        let waiting = waits.iter().map(|(volume, wait)| WaitingClaim {
            volume: volume.clone(),
            claim: wait.claim.clone(),
            waits: wait.since.elapsed(),
            refusal: wait.refusal.clone(),
        });
        waiting.collect()
    }

    fn waits(&self, asked: &Asked, mut refusal: Refusal) {
        refusal.message = refusal.message.chars().take(LONGEST).collect();
        let last = Instant::now();
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wait) = waits.get_mut(&asked.volume) {
            (wait.last, wait.refusal) = (last, refusal);
            return;
        }
        // Without anybody who reads the metrics, those that are asked for no more would be kept for ever.
        if waits.len() == waits.capacity() {
            waits.retain(|_, wait| wait.last.elapsed() < ASKED_AGAIN);
        }
        let (claim, since) = (asked.claim.clone(), asked.begun);
        // More than anybody reads.
        if waits.len() >= EXPLAINED {
            "…".clone_into(&mut refusal.message);
        }
        waits.insert(asked.volume.clone(), Wait { claim, since, last, refusal });
    }

    pub(super) fn refresh(&self) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|_, wait| wait.last.elapsed() < ASKED_AGAIN);
        self.claims.clear();
        for wait in waits.values() {
            self.claims.get_or_create(&WithCode { code: wait.refusal.code.clone() }).inc();
        }
        // Until the last call: nobody knows whether it is waited for since.
        let oldest = waits.values().map(|wait| wait.last - wait.since).max().unwrap_or_default();
        self.oldest.set(i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX));
    }
}

impl Asked {
    /// With the reason where the volume was not given.
    pub fn answered(mut self, refusal: Option<Refusal>) {
        self.answered = true;
        match refusal {
            Some(refusal) => self.waiting.waits(&self, refusal),
            None => drop(self.waiting.waits.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.volume)),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.answered {
            let message = "the caller gave up before there was an answer".to_owned();
            self.waiting.waits(self, Refusal { code: GIVEN_UP.to_owned(), message });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::{super::Metrics, *};

    fn refused(code: &str) -> Refusal {
        Refusal { code: code.to_owned(), message: "x".repeat(5000) }
    }

    #[track_caller]
    fn says(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.text().unwrap();
        let mut told: Vec<&str> =
            text.lines().filter(|line| line.contains("waiting") && !line.starts_with('#')).collect();
        told.sort_unstable();
        assert_eq!(told, lines);
    }

    #[tokio::test(start_paused = true)]
    async fn claim_waits_from_its_first_call_until_it_has_its_volume_or_is_asked_for_no_more() {
        let metrics = Metrics::new();
        let waiting = metrics.waiting();
        says(&metrics, &["kosmos_csi_oldest_waiting_claim_seconds 0"]);
        let asked = waiting.asks("a", None);
        advance(Duration::from_secs(30)).await;
        asked.answered(Some(refused("ResourceExhausted")));
        drop(waiting.asks("b", None));
        advance(Duration::from_mins(5)).await;
        waiting.asks("a", None).answered(Some(refused("FailedPrecondition")));
        waiting.asks("c", None).answered(None);
        says(
            &metrics,
            &[
                "kosmos_csi_claims_waiting{code=\"Cancelled\"} 1",
                "kosmos_csi_claims_waiting{code=\"FailedPrecondition\"} 1",
                "kosmos_csi_oldest_waiting_claim_seconds 330",
            ],
        );
        advance(Duration::from_mins(3)).await;
        says(
            &metrics,
            &[
                "kosmos_csi_claims_waiting{code=\"FailedPrecondition\"} 1",
                "kosmos_csi_oldest_waiting_claim_seconds 330",
            ],
        );
        waiting.asks("a", None).answered(None);
        says(&metrics, &["kosmos_csi_oldest_waiting_claim_seconds 0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_told_with_the_claim_and_the_newest_reason() {
        let waiting = Metrics::new().waiting();
        drop(waiting.asks("a", Some("shop/db".to_owned())));
        advance(Duration::from_secs(30)).await;
        waiting.asks("a", Some("shop/db".to_owned())).answered(Some(refused("ResourceExhausted")));
        advance(Duration::from_secs(4)).await;
        let [one] = waiting.now().try_into().unwrap();
        assert_eq!((one.claim.as_deref(), one.waits.as_secs()), (Some("shop/db"), 34));
        assert_eq!((one.refusal.code.as_str(), one.refusal.message.len()), ("ResourceExhausted", LONGEST));
        advance(ASKED_AGAIN).await;
        assert_eq!(waiting.now(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn claims_that_nobody_asks_for_take_no_memory_even_if_nobody_reads_the_metrics() {
        let waiting = Metrics::new().waiting();
        for round in 0..100 {
            for number in 0..100 {
                drop(waiting.asks(&format!("{round}-{number}"), None));
            }
            advance(ASKED_AGAIN).await;
        }
        assert!(waiting.waits.lock().unwrap().len() <= 400);
    }
}
