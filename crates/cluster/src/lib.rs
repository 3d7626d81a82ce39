//! How any cluster is spoken to, host or member: every request has a time limit, a place in a limited number of requests
//! under way, and fails at once while the cluster is known to be down. Nothing is retried out of sight.
//!
//! Its page: `docs/design/clusters.md`.

mod bounds;
mod credential;
pub mod events;
pub mod items;
pub mod json_patch;
pub mod lease;
mod measure;
pub mod metrics;
mod named;
mod one_by_one;
mod origin;
mod pieces;
mod recent;
mod relist;
mod restored;
mod subject;
mod time;
pub mod traces;
pub mod trimmed;
pub mod unmanaged;
mod unread;
mod writes;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backon::ExponentialBuilder;
use http::{Request, Response, Uri};
use kube::{
    Client, Config,
    client::{AuthError, Body, ClientBuilder, DynBody},
    core::Status,
};
use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, sleep_until},
};
use tower::{BoxError, util::BoxService};

pub use self::{
    bounds::Aside,
    measure::{Answers, Reading},
    named::{field_in, metadata_in, object_in},
    one_by_one::watch_one_by_one,
    origin::{Origin, Origins, QUESTIONS, WhoAnswers},
    pieces::read_list,
    recent::Recent,
    relist::Relist,
    restored::{Versions, is_before, newest},
    time::time_of,
    unread::Unread,
    writes::Writes,
};
use self::{
    bounds::{Bounds, UNDER_WAY, begins_within},
    credential::Credential,
};
use crate::metrics::Metrics;

const CONNECT: Duration = Duration::from_secs(3);
/// A watch ends by itself before this much silence.
const SILENCE: Duration = Duration::from_secs(310);
/// How long a watch is asked for, and when it is given up though the cluster has not ended it.
pub const WATCH_SECONDS: u32 = 290;
pub const WATCH_SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Between tries of what goes on for ever. Not all who ask a cluster that fails ask again at the same time.
pub fn pauses() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
}

/// The ways to one cluster.
#[derive(Clone)]
pub struct Connection {
    /// Fails at once while the cluster is known not to answer.
    pub client: Client,
    /// Asks in any case: for who finds out whether it answers again, and who it is.
    pub probe: Client,
    pub breaker: Breaker,
    /// By what its answers are known, once it has said who it is.
    pub origins: Origins,
    places: Arc<Semaphore>,
    dial: Dial,
    /// Without the token, which is the credential's.
    config: Config,
    credential: Credential,
}

impl Connection {
    /// A way of its own for one long conversation, in which nobody may say anything for hours. What bounds the others would
    /// end it, and take its silence for the cluster's.
    pub fn unbounded(&self) -> Result<Client, kube::Error> {
        let mut config = self.config.clone();
        (config.read_timeout, config.write_timeout) = (None, None);
        let shown = self.credential.layer();
        Ok(match &self.dial {
            Dial::Network => ClientBuilder::try_from(config)?.with_layer(&shown).build(),
            Dial::Within(open) => {
                ClientBuilder::new(open(&config.cluster_url), config.default_namespace).with_layer(&shown).build()
            }
        })
    }

    /// Requests that are made from now on show this token. False: none can.
    pub fn renew(&self, token: &str) -> bool {
        self.credential.renew(token)
    }

    /// How many requests wait for an answer now.
    pub fn under_way(&self) -> usize {
        UNDER_WAY.saturating_sub(self.places.available_permits())
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Line").field("breaker", &self.breaker).finish_non_exhaustive()
    }
}

/// What carries requests to a cluster, below their bounds.
pub type Transport = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// How clusters are reached.
#[derive(Clone, Default)]
pub enum Dial {
    #[default]
    Network,
    /// Clusters inside this process, by the address in their kubeconfig.
    Within(Arc<dyn Fn(&Uri) -> Transport + Send + Sync>),
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Network => "Network",
            Self::Within(_) => "Within",
        })
    }
}

impl Dial {
    fn client(&self, config: Config, bounds: &Bounds, credential: &Credential) -> Result<Client, kube::Error> {
        let shown = credential.layer();
        Ok(match self {
            Self::Network => ClientBuilder::try_from(config)?.with_layer(&shown).with_layer(bounds).build(),
            Self::Within(open) => {
                let builder = ClientBuilder::new(open(&config.cluster_url), config.default_namespace);
                builder.with_layer(&shown).with_layer(bounds).build()
            }
        })
    }
}

pub fn connect(
    cluster: &str,
    mut config: Config,
    answers: Answers,
    dial: &Dial,
    metrics: &Metrics,
) -> Result<Connection, kube::Error> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(begins_within(answers));
    let breaker = Breaker::default();
    let places = Arc::new(Semaphore::new(UNDER_WAY));
    // Who asks whether it answers must not wait behind those who do not get an answer.
    let own = Arc::new(Semaphore::new(UNDER_WAY));
    let credential = Credential::take(&mut config);
    let bounds = Bounds::new(cluster, answers, None, own, metrics);
    let probe = dial.client(config.clone(), &bounds, &credential)?;
    let origins = Origins::default();
    let bounds = Bounds::new(cluster, answers, Some(breaker.clone()), Arc::clone(&places), metrics);
    let client = dial.client(config.clone(), &bounds.believing(&origins), &credential)?;
    Ok(Connection { client, probe, breaker, origins, places, dial: dial.clone(), config, credential })
}

/// How long a cluster that has said too much is not asked again: it would say it again.
pub const AFTER_TOO_MUCH: Duration = Duration::from_mins(1);

/// Open from the first request that gets no answer until somebody has asked again, and who answers is who should. One that
/// answers too much is who it should be, and stays closed for a while all the same.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    opened: Arc<Mutex<Option<Opened>>>,
    news: Arc<Notify>,
}

#[derive(Clone, Debug)]
struct Opened {
    reason: String,
    /// Nobody closes it before.
    until: Option<Instant>,
}

impl Opened {
    fn holds(&self) -> bool {
        self.until.is_some_and(|until| until > Instant::now())
    }
}

impl Breaker {
    /// Why the cluster is not asked now.
    pub fn open(&self) -> Option<String> {
        self.lock().as_ref().map(|opened| opened.reason.clone())
    }

    pub fn close(&self) {
        self.lock().take_if(|opened| !opened.holds());
    }

    pub fn failed(&self, reason: &str) {
        self.open_until(reason, None);
    }

    /// Whether that is why it is not asked now.
    pub fn has_said_too_much(&self) -> bool {
        self.lock().as_ref().is_some_and(Opened::holds)
    }

    fn said_too_much(&self, reason: &str) {
        self.open_until(reason, Some(Instant::now() + AFTER_TOO_MUCH));
    }

    fn open_until(&self, reason: &str, until: Option<Instant>) {
        let mut opened = self.lock();
        if !opened.as_ref().is_some_and(Opened::holds) {
            *opened = Some(Opened { reason: reason.to_owned(), until });
        }
        drop(opened);
        self.news.notify_one();
    }

    /// Returns when it may be closed.
    pub async fn may_close(&self) {
        let until = self.lock().as_ref().and_then(|opened| opened.until);
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }

    /// Returns when a request has failed.
    pub async fn failure(&self) {
        while self.open().is_none() {
            self.news.notified().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An object as it was read, or none where the cluster itself says that there is none of this name. What a proxy on the
/// way calls "not found" proves nothing.
pub fn read<T>(answer: Result<T, kube::Error>, name: &str) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if is_absence(&status, name) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_absence(status: &Status, name: &str) -> bool {
    says_what_is_missing(status) && status.details.as_ref().is_some_and(|details| details.name == name)
}

/// A "not found" of the cluster's own names the object. One that does not is about the path, or from a proxy.
pub fn says_what_is_missing(status: &Status) -> bool {
    status.code == 404
        && status.reason == "NotFound"
        && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// A right is there, and a ResourceQuota has no more room.
pub fn exceeds_quota(status: &Status) -> bool {
    status.code == 403 && status.message.contains("exceeded quota")
}

/// A right is there, and what is being deleted takes nothing new.
pub fn is_of_what_ends(status: &Status) -> bool {
    status.code == 403 && status.message.contains("being terminated")
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// An error and what caused it, each said once. A cluster's own answer is said in its words.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(kube::Error::Api(status)) = error.downcast_ref() {
        return format!("HTTP {}: {}", status.code, status.message);
    }
    // What a command for credentials has printed may hold them, and its error repeats that.
    let is_of_the_command =
        |error: Option<&AuthError>| matches!(error, Some(AuthError::AuthExecRun { .. } | AuthError::AuthExecParse(_)));
    if causes(error).any(|cause| is_of_the_command(cause.downcast_ref())) {
        return "the command that the kubeconfig names for credentials has failed, or prints none".to_owned();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn breaker_stays_open_until_it_is_closed() {
        let breaker = Breaker::default();
        assert_eq!(breaker.open(), None);
        breaker.failed("connection refused");
        breaker.failure().await;
        assert_eq!(breaker.open().as_deref(), Some("connection refused"));
        breaker.close();
        assert_eq!(breaker.open(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_that_said_too_much_is_not_asked_before_its_time_whoever_finds_it_well() {
        let breaker = Breaker::default();
        breaker.said_too_much("64 MiB");
        breaker.failed("connection refused");
        breaker.close();
        assert_eq!(breaker.open().as_deref(), Some("64 MiB"));
        breaker.may_close().await;
        breaker.close();
        assert_eq!(breaker.open(), None);
        breaker.may_close().await;
    }

    #[test]
    fn answer_of_a_cluster_is_told_in_its_own_words() {
        let status = Status { code: 403, message: "no right to list pods".to_owned(), ..Status::default() };
        assert_eq!(with_causes(&kube::Error::Api(Box::new(status))), "HTTP 403: no right to list pods");
        let printed = std::process::Output {
            status: std::os::unix::process::ExitStatusExt::from_raw(256),
            stdout: b"canary".to_vec(),
            stderr: Vec::new(),
        };
        let failed = AuthError::AuthExecRun { cmd: "credentials".to_owned(), out: Box::new(printed) };
        let told = with_causes(&kube::Error::Service(Box::new(failed)));
        assert!(told.contains("for credentials has failed") && !told.contains("canary"), "{told}");
    }

    #[test]
    fn absence_is_believed_only_from_the_cluster_itself() {
        let status = |reason: &str, name: &str| -> Status {
            serde_json::from_value(serde_json::json!({"code": 404, "reason": reason, "details": {"name": name}}))
                .unwrap()
        };
        assert!(is_absence(&status("NotFound", "data"), "data"));
        assert!(!is_absence(&status("NotFound", "other"), "data"));
        assert!(!is_absence(&status("Failed to parse error data", "data"), "data"));
        assert!(!is_absence(&Status { code: 404, reason: "NotFound".to_owned(), ..Status::default() }, "data"));
    }
}
