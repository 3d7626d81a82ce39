//! Which members exist, whether they can be asked, and where a new volume goes.

pub mod kubeconfig;
pub mod placement;
pub mod registry;
mod session;
pub mod source;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use crate::{
    cluster::Line,
    error::{Error, Result},
    leaf::Cluster,
    metrics::MemberNow,
};
use placement::{Candidate, Offer, Standing};
pub use registry::Registry;

/// One member cluster.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    cordoned: AtomicBool,
    link: Result<Link, String>,
}

/// The way to a member whose kubeconfig could be used.
#[derive(Debug)]
struct Link {
    leaf: Cluster,
    line: Line,
    trust: Mutex<Trust>,
}

/// How far a member is known to be the cluster it is taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trust {
    /// Not yet asked with success, and why.
    Unproven(String),
    /// About to be asked, and nothing has gone wrong yet.
    Connecting(&'static str),
    Proven,
    /// It is another cluster: nothing is created or deleted there.
    Quarantined(String),
}

impl Member {
    /// The member's leaves; an error at once where it cannot be asked now.
    pub fn leaf(&self) -> Result<&Cluster> {
        let closed = |reason: String| Error::Unreachable { member: self.name.clone(), reason };
        match &self.link {
            Ok(link) => link.trouble().map_or(Ok(&link.leaf), |reason| Err(closed(reason))),
            Err(reason) => Err(closed(reason.clone())),
        }
    }

    /// What was last known of its leaves, also while it cannot be asked.
    pub fn last_known(&self) -> Option<&Cluster> {
        self.link.as_ref().ok().map(|link| &link.leaf)
    }

    /// How it stands towards a new volume, if it has this to offer.
    pub fn candidate(&self, offer: Offer) -> Candidate {
        let standing = match self.leaf() {
            Err(Error::Unreachable { reason, .. }) => Standing::Closed(reason),
            _ if self.cordoned.load(Ordering::Relaxed) => Standing::Cordoned,
            _ => Standing::Open,
        };
        Candidate { name: self.name.clone(), standing, offer }
    }

    /// Whether nothing keeps it closed but that it has just been begun with: what is known of it says nothing yet.
    pub fn is_starting(&self) -> bool {
        let Ok(link) = &self.link else { return false };
        let trust = link.trust.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let silent = || link.line.breaker.open().is_none() && link.leaf.rows.obstacle().is_none();
        match trust {
            Trust::Connecting(_) => true,
            Trust::Proven => !link.leaf.rows.synced() && silent(),
            Trust::Unproven(_) | Trust::Quarantined(_) => false,
        }
    }

    fn now(&self) -> MemberNow {
        let Ok(link) = &self.link else { return MemberNow { member: self.name.clone(), ..MemberNow::default() } };
        let census = link.leaf.rows.census();
        MemberNow {
            member: self.name.clone(),
            up: link.proven(),
            requests_under_way: link.line.under_way(),
            breaker_open: link.line.breaker.open().is_some(),
            oldest_creation: age(census.oldest_creation),
            oldest_deletion: age(census.oldest_deletion),
            volumes: vec![
                ("pending", census.pending),
                ("bound", census.bound),
                ("lost", census.lost),
                ("terminating", census.terminating),
                ("released", census.released),
            ],
        }
    }

    fn set_cordoned(&self, cordoned: bool) {
        self.cordoned.store(cordoned, Ordering::Relaxed);
    }
}

/// How long ago something began, by the member's clock and ours.
fn age(begun: Option<i64>) -> Duration {
    let begun = begun.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let since = begun.and_then(|begun| (UNIX_EPOCH + begun).elapsed().ok());
    since.unwrap_or_default()
}

impl Link {
    fn trouble(&self) -> Option<String> {
        match &*self.trust.lock().unwrap_or_else(PoisonError::into_inner) {
            Trust::Unproven(reason) | Trust::Quarantined(reason) => return Some(reason.clone()),
            Trust::Connecting(reason) => return Some((*reason).to_owned()),
            Trust::Proven => {}
        }
        if let Some(reason) = self.line.breaker.open().or_else(|| self.leaf.rows.obstacle()) {
            return Some(reason);
        }
        (!self.leaf.rows.synced()).then(|| "its claims and volumes are still being listed".to_owned())
    }

    fn proven(&self) -> bool {
        *self.trust.lock().unwrap_or_else(PoisonError::into_inner) == Trust::Proven
    }

    fn set(&self, trust: Trust) {
        *self.trust.lock().unwrap_or_else(PoisonError::into_inner) = trust;
    }
}
