//! Which members exist, whether they can be asked, and where a new volume goes.
//!
//! Its page: `docs/design/clusters.md`.

pub mod kubeconfig;
mod openings;
pub mod placement;
pub mod policy;
pub mod registry;
pub mod renewal;
mod session;
pub mod source;
mod tasks;
pub mod token;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use kube::Client;
use tokio::sync::{Notify, watch};

use cluster::{Connection, metrics::MemberNow, with_causes};
pub use cluster::{Writes, traces};
use domain::error::{Error, Result};
use leaf::MemberClient;
pub use openings::{Opening, Openings};
use placement::{Candidate, Offer, Standing};
use policy::Policy;
pub use registry::Registry;
pub use session::{quarantined, refusal};
use source::MemberDefinition;
pub use tasks::MemberTasks;
use token::Token;

/// One member cluster.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    policy: watch::Sender<Policy>,
    /// Whether a Kosmos `MemberClient` object names it.
    clustertree: AtomicBool,
    /// Leaves that no volume of the host has, as they were last counted.
    strays: AtomicU64,
    token: Mutex<TokenSource>,
    /// What is in it takes more room than there is for it.
    overfull: AtomicBool,
    link: Result<Link, String>,
}

/// For as long as it is there, a member says too much to be followed.
#[derive(Debug)]
pub struct Overfull<'a>(&'a AtomicBool);

impl Drop for Overfull<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Where a member's token is read from, and what it says of itself.
#[derive(Clone, Debug, Default)]
struct TokenSource {
    secret: Option<String>,
    token: Option<Token>,
}

impl TokenSource {
    fn of(definition: &MemberDefinition) -> Self {
        Self { secret: definition.secret.clone(), token: Token::of(&definition.kubeconfig) }
    }
}

/// What is kept track of in a member, besides whether it is there and who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Leaves,
    Nothing,
}

impl Scope {
    /// Whose work it is, in the log: one process may play both.
    fn role(self) -> &'static str {
        match self {
            Self::Leaves => "controller",
            Self::Nothing => "virtual-node",
        }
    }
}

/// The way to a member whose kubeconfig could be used.
#[derive(Debug)]
struct Link {
    tracked: Scope,
    leaf: MemberClient,
    line: Connection,
    identity: Mutex<Identity>,
    /// Somebody wants to hear again who it is.
    doubted: Notify,
}

/// How far a member is known to be the cluster it is taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    /// Not yet asked with success, and why.
    Unproven(String),
    /// About to be asked, and nothing has gone wrong yet.
    Connecting(&'static str),
    /// By the UID that it has said.
    Proven(String),
    /// It is another cluster: nothing is created or deleted there.
    Quarantined(String),
    /// A second name of the cluster that this member serves.
    Alias(String),
}

/// While one that was proven is asked again who it is.
const CONNECTING_AGAIN: &str = "it is not connected again yet";

/// Why a member cannot be asked now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    pub reason: String,
    /// Only because it has just been begun with: what is known of it says nothing yet.
    pub starting: bool,
}

impl Closed {
    fn by(reason: String) -> Self {
        Self { reason, starting: false }
    }

    fn at_first(reason: &str) -> Self {
        Self { reason: reason.to_owned(), starting: true }
    }
}

impl Member {
    /// The member's leaves; an error at once where it cannot be asked now.
    pub fn leaf(&self) -> Result<&MemberClient> {
        let unreachable = |reason: String| Error::Unreachable { member: self.name.clone(), reason };
        match &self.link {
            Ok(link) => link.closed().map_or(Ok(&link.leaf), |closed| Err(unreachable(closed.reason))),
            Err(reason) => Err(unreachable(reason.clone())),
        }
    }

    /// A way to it for one long conversation; an error at once where it cannot be asked now.
    pub fn unbounded(&self) -> Result<Client> {
        self.leaf()?;
        let unreachable = |reason: String| Error::Unreachable { member: self.name.clone(), reason };
        let link = self.link.as_ref().map_err(|reason| unreachable(reason.clone()))?;
        link.line.unbounded().map_err(|error| unreachable(with_causes(&error)))
    }

    /// What was read there is not the past of what is there now: it says again who it is before anything else is asked of it, after a
    /// pause that grows while that goes on.
    pub fn connect_again(&self) {
        if let Ok(link) = &self.link {
            link.set(Identity::Connecting(CONNECTING_AGAIN));
            link.doubted.notify_one();
        }
    }

    /// In one look: asked twice, it may have opened in between.
    pub fn closed(&self) -> Option<Closed> {
        match &self.link {
            Ok(link) => link.closed(),
            Err(reason) => Some(Closed::by(reason.clone())),
        }
    }

    /// Whether it is not asked now because it has said more than is read.
    pub fn has_said_too_much(&self) -> bool {
        self.link.as_ref().is_ok_and(|link| link.line.breaker.has_said_too_much())
    }

    /// What was last known of its leaves, also while it cannot be asked.
    pub fn last_known(&self) -> Option<&MemberClient> {
        self.link.as_ref().ok().map(|link| &link.leaf)
    }

    /// How it stands towards a new volume, if it has this to offer.
    pub fn candidate(&self, offer: Offer) -> Candidate {
        let standing = match (self.alias_of(), self.leaf()) {
            (Some(serving), _) => Standing::Alias(serving),
            (None, Err(Error::Unreachable { reason, .. })) => Standing::Closed(reason),
            _ if self.is_cordoned() => Standing::Cordoned,
            _ => Standing::Open,
        };
        Candidate { name: self.name.clone(), standing, offer }
    }

    /// The member that serves this one's cluster, where that is another one.
    pub fn alias_of(&self) -> Option<String> {
        match &*self.link.as_ref().ok()?.identity.lock().unwrap_or_else(PoisonError::into_inner) {
            Identity::Alias(serving) => Some(serving.clone()),
            _ => None,
        }
    }

    /// The UID of its cluster, while that is known.
    pub fn cluster_uid(&self) -> Option<String> {
        match &*self.link.as_ref().ok()?.identity.lock().unwrap_or_else(PoisonError::into_inner) {
            Identity::Proven(uid) => Some(uid.clone()),
            _ => None,
        }
    }

    /// The Secret that names it, where one does, in the namespace of who uses it.
    pub fn secret(&self) -> Option<String> {
        self.token_source().secret
    }

    /// The Secret in which its token is, and the token as it says it is.
    fn renewable(&self) -> Option<(String, Token)> {
        let TokenSource { secret, token } = self.token_source();
        secret.zip(token)
    }

    fn token_source(&self) -> TokenSource {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Goes on with a new token, where nothing else is new but what may change at any time.
    fn renew(&self, before: &MemberDefinition, after: &MemberDefinition) -> bool {
        let Ok(link) = &self.link else { return false };
        let token = kubeconfig::new_token(&before.kubeconfig, &after.kubeconfig);
        let renewed = before.source == after.source && token.is_some_and(|token| link.line.renew(&token));
        if renewed {
            self.set(after);
        }
        renewed
    }

    /// What there is to tell of it at this moment.
    pub fn now(&self) -> MemberNow {
        let token = self.token_source().token;
        let token_late = token.as_ref().map(|token| token.is_late(k8s_openapi::jiff::Timestamp::now().as_second()));
        let token_ends = token.map(|token| token.ends);
        let Ok(link) = &self.link else {
            return MemberNow {
                member: self.name.clone(),
                state: "unusable",
                token_ends,
                token_late,
                ..MemberNow::default()
            };
        };
        let counts = link.leaf.rows.counts();
        MemberNow {
            member: self.name.clone(),
            alias: self.alias_of().is_some(),
            up: link.proven(),
            state: if self.overfull.load(Ordering::Relaxed) { "unreadable" } else { link.state() },
            requests_under_way: link.line.under_way(),
            breaker_open: link.line.breaker.open().is_some(),
            oldest_creation: age(counts.oldest_creation),
            oldest_deletion: age(counts.oldest_deletion),
            token_ends,
            token_late,
            volumes: vec![
                ("pending", counts.pending),
                ("bound", counts.bound),
                ("lost", counts.lost),
                ("terminating", counts.terminating),
                ("released", counts.released),
                ("stray", self.strays.load(Ordering::Relaxed)),
            ],
        }
    }

    /// Metrics say so until it is dropped.
    pub fn overfull(&self) -> Overfull<'_> {
        self.overfull.store(true, Ordering::Relaxed);
        Overfull(&self.overfull)
    }

    pub fn set_strays(&self, count: usize) {
        self.strays.store(count as u64, Ordering::Relaxed);
    }

    pub fn is_cordoned(&self) -> bool {
        self.policy.borrow().cordoned
    }

    /// What the host's administrator says of it, and each change of that.
    pub fn policy(&self) -> watch::Receiver<Policy> {
        self.policy.subscribe()
    }

    /// What may change without the member being another one.
    fn set(&self, definition: &MemberDefinition) {
        self.policy
            .send_if_modified(|policy| std::mem::replace(policy, definition.policy.clone()) != definition.policy);
        self.clustertree.store(definition.clustertree, Ordering::Relaxed);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = TokenSource::of(definition);
    }
}

/// How long ago something began, by the member's clock and ours.
fn age(begun: Option<i64>) -> Duration {
    let begun = begun.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let since = begun.and_then(|begun| (UNIX_EPOCH + begun).elapsed().ok());
    since.unwrap_or_default()
}

impl Link {
    fn closed(&self) -> Option<Closed> {
        match &*self.identity.lock().unwrap_or_else(PoisonError::into_inner) {
            Identity::Unproven(reason) | Identity::Quarantined(reason) => return Some(Closed::by(reason.clone())),
            Identity::Alias(serving) => return Some(Closed::by(format!("it is another name of member {serving}"))),
            Identity::Connecting(reason) => return Some(Closed::at_first(reason)),
            Identity::Proven(_) => {}
        }
        if let Some(reason) = self.line.breaker.open() {
            return Some(Closed::by(reason));
        }
        if self.tracked == Scope::Nothing {
            return None;
        }
        if let Some(reason) = self.leaf.rows.obstacle() {
            return Some(Closed::by(reason));
        }
        (!self.leaf.rows.synced()).then(|| Closed::at_first("its claims and volumes are still being listed"))
    }

    /// How it stands, in a word of `docs/metrics.md`.
    fn state(&self) -> &'static str {
        let closed = self.closed();
        match &*self.identity.lock().unwrap_or_else(PoisonError::into_inner) {
            Identity::Quarantined(_) => "quarantined",
            identity => match closed {
                None => "ok",
                Some(closed) if closed.starting => "starting",
                Some(_) if matches!(identity, Identity::Proven(_)) && self.line.breaker.open().is_none() => {
                    "unreadable"
                }
                Some(_) => "unreachable",
            },
        }
    }

    fn proven(&self) -> bool {
        matches!(*self.identity.lock().unwrap_or_else(PoisonError::into_inner), Identity::Proven(_))
    }

    fn set(&self, identity: Identity) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Answers, Dial, metrics::Metrics};
    use domain::volume::HostId;

    fn link(tracked: Scope) -> Link {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let line = cluster::connect("m", config, Answers::Bounded, &Dial::default(), &Metrics::new()).unwrap();
        let leaf = MemberClient::new("m", HostId("host".to_owned()), line.client.clone());
        let identity = Mutex::new(Identity::Connecting("it is not connected yet"));
        Link { tracked, leaf, line, identity, doubted: Notify::new() }
    }

    #[tokio::test]
    async fn what_keeps_a_member_closed_is_told_from_what_only_takes_a_moment() {
        let link = link(Scope::Leaves);
        let starting = || (link.closed().map(|closed| closed.starting), link.state());
        assert_eq!(starting(), (Some(true), "starting"), "connecting");
        link.set(Identity::Proven("u".to_owned()));
        assert_eq!(starting(), (Some(true), "starting"), "listing");
        link.line.breaker.failed("no answer");
        assert_eq!(starting(), (Some(false), "unreachable"), "silent");
        link.line.breaker.close();
        for (identity, state) in [
            (Identity::Unproven("refused".to_owned()), "unreachable"),
            (Identity::Quarantined("another".to_owned()), "quarantined"),
        ] {
            link.set(identity);
            assert_eq!(starting(), (Some(false), state));
        }
    }

    #[tokio::test]
    async fn member_whose_leaves_are_not_followed_is_open_once_it_is_proven() {
        let link = link(Scope::Nothing);
        assert!(link.closed().is_some());
        link.set(Identity::Proven("u".to_owned()));
        assert_eq!((link.closed(), link.state()), (None, "ok"));
        link.line.breaker.failed("no answer");
        assert!(link.closed().is_some());
    }
}
