//! Which of several replicas does the work that nobody asked for: the one that holds a Lease in the driver's namespace.
//!
//! What that work does is safe when two do it at once, because every write tests what it was decided on. The lease only
//! keeps them from doing everything twice. It is believed for less time than others wait before they take it, and each
//! measures that by its own clock; the times that are written are for people. A process that is stopped gives it back.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use backon::{BackoffBuilder, ConstantBuilder};
use k8s_openapi::{
    api::coordination::v1::{Lease as Object, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use crate::{Recent, Versions, Writes, bounds::ANSWER, read, with_causes};

/// For what the controller does in the background.
pub const CONTROLLER: &str = "kosmos-csi-leader";
/// For the virtual nodes and the pods on them.
pub const VIRTUAL_NODE: &str = "kosmos-csi-virtual-node";
/// Who does not hold it waits so long without news before taking it.
const DURATION: Duration = Duration::from_secs(10);
/// Who holds it believes so for this long after a renewal was sent.
const BELIEVED: Duration = Duration::from_secs(6);
const RENEWAL: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);
/// Nobody waits any longer for the answer to one renewal: its connection may have died, and there is time for another.
const UNANSWERED: Duration = Duration::from_secs(3);
/// Before it is tried again then, and over a version that was read just now.
const AT_ONCE: Duration = Duration::from_millis(100);
/// How long a stop waits for the lease to be given back. Where that fails, the next one takes it when it is over.
const GIVEN_BACK: Duration = Duration::from_secs(1);

/// One process that may hold the lease.
#[derive(Debug)]
pub struct Lease {
    leases: Api<Object>,
    name: &'static str,
    holder: String,
    /// Its version, as it was last written, while this process holds it.
    held: Mutex<Option<String>>,
    /// As every process reads them that waits for the lease or holds it.
    versions: Mutex<Versions>,
    recent: watch::Sender<Recent>,
    restored: watch::Sender<()>,
    leads: watch::Sender<bool>,
    /// Of the work.
    writes: Writes,
}

/// What a process that does not hold the lease has seen of it.
struct Seen {
    version: String,
    since: Instant,
}

impl Seen {
    /// Until it is asked for again: after this pause, or once it may be taken, where that comes first.
    fn soonest(&self, pause: Duration) -> Duration {
        let left = DURATION.saturating_sub(self.since.elapsed());
        if left.is_zero() { pause } else { pause.min(left) }
    }
}

/// What keeps a process from asking for the lease. Where that is so of all, none does the work, and nothing else would say why.
#[derive(Debug, Default)]
struct Obstacle {
    since: Option<Instant>,
    is_told: bool,
}

impl Obstacle {
    /// It is there still: whether to tell of it now, which is done once, and of one that lasts.
    fn is_news(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_news = !self.is_told && since.elapsed() >= DURATION;
        self.is_told |= is_news;
        is_news
    }
}

impl Lease {
    /// Each kind of work has a lease of its own, by this name.
    pub fn new(client: Client, namespace: &str, name: &'static str) -> Self {
        let process = RandomState::new().build_hasher().finish();
        let machine = std::env::var("HOSTNAME").unwrap_or_default();
        let holder = format!("{machine}_{process:016x}");
        Self {
            leases: Api::namespaced(client, namespace),
            name,
            holder,
            held: Mutex::default(),
            versions: Mutex::default(),
            recent: watch::Sender::default(),
            restored: watch::Sender::default(),
            leads: watch::Sender::default(),
            writes: Writes::default(),
        }
    }

    /// Changes when the host was seen to have been restored from a backup, also while another process holds the lease: what is watched
    /// there is to be listed again.
    pub fn restored(&self) -> watch::Receiver<()> {
        self.restored.subscribe()
    }

    /// Its versions as they were read last, by which a watch of the host can be seen to be behind.
    pub fn recent(&self) -> watch::Receiver<Recent> {
        self.recent.subscribe()
    }

    /// Whether this process does the work.
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// Does the work whenever this process holds the lease, and drops it at once when it does not any more.
    pub async fn lead<F: Future<Output = ()>>(&self, work: impl Fn() -> F) {
        loop {
            let (version, sent) = self.acquire().await;
            *self.held() = Some(version);
            self.leads.send_replace(true);
            tracing::info!(
                lease = self.name,
                holder = self.holder,
                "this replica leads: it does the work in the background"
            );
            tokio::select! {
                biased;
                () = self.renew(sent) => tracing::warn!(lease = self.name, holder = self.holder, "this replica leads no longer"),
                () = self.writes.of(work()) => {}
            }
            *self.held() = None;
            self.leads.send_replace(false);
            // Where the lease still says that it is its own, this process is the next one: it is to read what came of that too.
            let _ = timeout(ANSWER, self.writes.ended()).await;
        }
    }

    /// Before the process ends, and after the work has: who waits for the lease need not wait until it is over. What the work has begun
    /// to write has ended by then: the next one is to read what came of it.
    pub async fn give_back(&self) {
        let Some(version) = self.held().take() else { return };
        if timeout(ANSWER, self.writes.ended()).await.is_err() {
            return tracing::warn!(lease = self.name, "the lease is not given back: something is still being written");
        }
        match timeout(GIVEN_BACK, self.try_give_back(version)).await {
            Ok(Ok(true)) => tracing::info!(lease = self.name, holder = self.holder, "the lease is given back"),
            Ok(Ok(false)) => tracing::info!(lease = self.name, "the lease is another replica's already"),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, error = with_causes(&error), "the lease is not given back");
            }
            Err(_) => tracing::warn!(lease = self.name, "the lease is not given back: the host does not answer"),
        }
    }

    /// False: somebody else has taken it.
    async fn try_give_back(&self, version: String) -> Result<bool, kube::Error> {
        let give = async |version: &str| {
            let change = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}});
            self.leases.patch(self.name, &PatchParams::default(), &Patch::Merge(change)).await.map(|_| true)
        };
        match give(&version).await {
            // A renewal came through just then, and its answer did not.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let lease = self.leases.get(self.name).await?;
                if self.holds(&lease) { give(&lease.resource_version().unwrap_or_default()).await } else { Ok(false) }
            }
            given => given,
        }
    }

    /// Tries until the lease is held. Its version, and when that was sent.
    async fn acquire(&self) -> (String, Instant) {
        // Replicas that were started together do not ask together for ever.
        let mut pauses = ConstantBuilder::default().with_delay(RETRY).with_jitter().without_max_times().build();
        let (mut seen, mut obstacle) = (None, Obstacle::default());
        loop {
            match self.try_acquire(&mut seen).await {
                Ok(Some(acquired)) => return acquired,
                Ok(None) => obstacle = Obstacle::default(),
                Err(error) if obstacle.is_news() => tracing::warn!(
                    lease = self.name,
                    error = with_causes(&error),
                    "this replica cannot ask for the lease: if no replica can, nobody does the work in the background"
                ),
                Err(error) => tracing::debug!(error = with_causes(&error), "the lease cannot be asked for"),
            }
            let pause = pauses.next().unwrap_or(RETRY);
            sleep(seen.as_ref().map_or(pause, |seen| seen.soonest(pause))).await;
        }
    }

    async fn try_acquire(&self, seen: &mut Option<Seen>) -> Result<Option<(String, Instant)>, kube::Error> {
        let Some(lease) = read(self.leases.get(self.name).await, self.name)? else {
            let lease = Object {
                metadata: ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() },
                spec: Some(LeaseSpec { acquire_time: Some(MicroTime(Timestamp::now())), ..self.spec() }),
            };
            let sent = Instant::now();
            let made = self.leases.create(&PostParams::default(), &lease).await?;
            self.note(&made);
            return Ok(made.resource_version().map(|version| (version, sent)));
        };
        self.note(&lease);
        let version = lease.resource_version().unwrap_or_default();
        let is_free = self.holds(&lease) || holder(&lease).is_empty();
        let since = match seen {
            Some(seen) if seen.version == version => seen.since,
            _ => Instant::now(),
        };
        *seen = Some(Seen { version: version.clone(), since });
        if !is_free && since.elapsed() < DURATION {
            return Ok(None);
        }
        let sent = Instant::now();
        Ok(Some((self.write(&version).await?, sent)))
    }

    /// Returns when the lease may be somebody else's.
    async fn renew(&self, mut sent: Instant) {
        let mut next = sent + RENEWAL;
        loop {
            let Some(version) = self.held().clone() else { return };
            let until = sent + BELIEVED;
            sleep_until(next.min(until)).await;
            let now = Instant::now();
            if now >= until {
                return;
            }
            match timeout_at(until.min(now + UNANSWERED), self.write(&version)).await {
                Ok(Ok(renewed)) => {
                    *self.held() = Some(renewed);
                    (sent, next) = (now, now + RENEWAL);
                }
                Ok(Err(kube::Error::Api(status))) if [404, 409].contains(&status.code) => {
                    let pause = match timeout_at(until, self.leases.get(self.name)).await {
                        // The work goes by watches: it begins again as well.
                        Ok(Ok(lease)) if self.note(&lease) => return,
                        // An earlier renewal came through, and its answer did not.
                        Ok(Ok(lease)) if self.holds(&lease) => {
                            *self.held() = Some(lease.resource_version().unwrap_or_default());
                            AT_ONCE
                        }
                        Ok(Err(_)) if status.code == 409 => RETRY,
                        _ => return,
                    };
                    next = Instant::now() + pause;
                }
                Ok(Err(_)) => next = Instant::now() + RETRY,
                Err(_) => next = Instant::now() + AT_ONCE,
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the host was restored since the lease was read or written before.
    fn note(&self, lease: &Object) -> bool {
        let version = lease.resource_version().unwrap_or_default();
        self.recent.send_modify(|recent| recent.note(&version));
        let goes_back = self.versions.lock().unwrap_or_else(PoisonError::into_inner).go_back(&version);
        if goes_back {
            tracing::warn!(
                lease = self.name,
                version,
                "the host has older versions than it had: it was restored from a backup"
            );
            self.restored.send_replace(());
        }
        goes_back
    }

    fn holds(&self, lease: &Object) -> bool {
        holder(lease) == self.holder
    }

    /// Only over the version that was seen: of two who want it at once, one gets it.
    async fn write(&self, version: &str) -> Result<String, kube::Error> {
        let change = json!({"metadata": {"resourceVersion": version}, "spec": self.spec()});
        let written = self.leases.patch(self.name, &PatchParams::default(), &Patch::Merge(change)).await?;
        self.note(&written);
        Ok(written.resource_version().unwrap_or_default())
    }

    fn spec(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }
    }
}

fn holder(lease: &Object) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lease_is_asked_for_when_it_may_be_taken_and_no_more_often_after_that() {
        let seen = Seen { version: "1".to_owned(), since: Instant::now() };
        assert_eq!(seen.soonest(RETRY), RETRY);
        sleep(DURATION.saturating_sub(RETRY / 4)).await;
        assert!(seen.soonest(RETRY) <= RETRY / 4, "it may be taken then");
        sleep(RETRY / 4).await;
        assert_eq!(seen.soonest(RETRY), RETRY, "it was not to be had");
    }

    #[tokio::test(start_paused = true)]
    async fn what_keeps_the_lease_from_being_asked_for_is_told_once_where_it_lasts() {
        let mut obstacle = Obstacle::default();
        assert!(!obstacle.is_news(), "it may be over at once");
        sleep(DURATION / 2).await;
        assert!(!obstacle.is_news());
        sleep(DURATION / 2).await;
        assert!(obstacle.is_news());
        sleep(DURATION * 2).await;
        assert!(!obstacle.is_news(), "it is told already");
    }

    #[test]
    fn lease_is_taken_once_what_its_holder_began_to_write_has_ended() {
        assert!(BELIEVED + ANSWER <= DURATION);
    }

    #[test]
    fn nobody_takes_it_from_one_who_believes_in_it_by_a_clock_that_differs_by_a_fifth_from_his() {
        let (slow, fast) = (BELIEVED.mul_f64(1.2), DURATION.div_f64(1.2));
        assert!(slow < fast, "it is believed for {slow:?} and taken after {fast:?}");
    }
}
