//! What can go wrong with a request. A plan is asked about every request that comes from outside, and the log keeps what
//! came, in order.

pub mod rules;

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

use super::Cluster;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A request, as far as a fault or a count may depend on it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its place among all requests of this cluster, from 1.
    pub number: u64,
    pub client: String,
    pub verb: Verb,
    /// Empty for what is about no kind, such as discovery.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    pub query: String,
    pub body: Arc<Value>,
}

impl fmt::Display for Asked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {:?} {} {}/{}", self.client, self.verb, self.resource, self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Pass,
    /// Then as usual.
    Delay(Duration),
    /// The connection fails and nothing is applied.
    Refuse,
    /// Nothing is applied.
    Answer {
        code: u16,
        reason: &'static str,
    },
    /// Nothing is applied and nothing ever answered.
    Hang,
    /// Carried out so much later, on the state of then; nobody is answered. Whoever sent it has given up by then.
    Late(Duration),
    /// Applied; then the connection breaks.
    ApplyThenLose,
    /// Applied and never answered.
    ApplyThenHang,
    ApplyThenAnswer {
        code: u16,
        reason: &'static str,
    },
    /// Then as usual, once a webhook has written this where there is something at the pointer.
    Rewrite {
        at: &'static str,
        value: &'static str,
    },
    /// A read is answered from this many changes ago. Which kinds there are is told as before any was defined.
    Stale(u64),
    /// A list that is asked for in pages has so many objects in each, at most.
    Pages(u64),
    /// A watch ends after this many events.
    Cut(u64),
    /// A watch says nothing more after this many events.
    Silence(u64),
    /// A watch says everything twice.
    Duplicate,
    /// Carried out and answered by the cluster to which [`Faults::lead_to`] leads, as where a load balancer takes it for one of this one's.
    Elsewhere,
    /// Then as usual, taken under the FlowSchema of this number and not under the usual one, which is 0.
    Under(u8),
    /// A watch says everything so much later.
    Lag(Duration),
}

type Plan = Arc<dyn Fn(&Asked) -> Action + Send + Sync>;

#[derive(Default)]
pub struct Faults {
    plan: Mutex<Option<Plan>>,
    count: AtomicU64,
    recording: AtomicBool,
    log: Mutex<Vec<Asked>>,
    elsewhere: Mutex<Option<Cluster>>,
    behind: Mutex<Duration>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Faults").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Faults {
    pub fn set(&self, plan: impl Fn(&Asked) -> Action + Send + Sync + 'static) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(plan));
    }

    pub fn clear(&self) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// For [`Action::Elsewhere`].
    pub fn lead_to(&self, other: &Cluster) {
        *self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner) = Some(other.clone());
    }

    pub(super) fn elsewhere(&self) -> Option<Cluster> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The clock by which answers are dated.
    pub fn set_clock_back(&self, by: Duration) {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    pub(super) fn behind(&self) -> Duration {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    pub fn log(&self) -> Vec<Asked> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn decide(&self, mut asked: Asked) -> Action {
        asked.number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let action = plan.map_or(Action::Pass, |plan| plan(&asked));
        if self.recording.load(Ordering::Relaxed) {
            self.log.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        }
        action
    }
}
