//! What there is to tell about an object of the host, as events that `kubectl describe` shows.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{Host, moves, volume::HostVolume};
use cluster::with_causes;
use domain::{
    printable::printable,
    volume::{Claim, DRIVER},
};

/// The apiserver takes 1024 bytes.
const LONGEST: usize = 900;
/// Nobody waits long for something to be told.
const QUICK: Duration = Duration::from_secs(2);
/// What is told again within it is not written again.
const MOMENT: Duration = Duration::from_mins(4);
const REMEMBERED: usize = 10_000;
/// Where events about objects without a namespace are kept.
const NAMESPACE: &str = "default";

/// Something that has happened, or that a person has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub reason: &'static str,
    pub message: String,
    pub warning: bool,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub kind: &'static str,
    /// Empty where there is none.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl From<&HostVolume> for About {
    fn from(volume: &HostVolume) -> Self {
        let (name, uid) = (volume.name.to_string(), volume.uid.to_string());
        Self { kind: "PersistentVolume", namespace: String::new(), name, uid }
    }
}

impl About {
    fn api_version(&self) -> String {
        let of_ours = moves::resource();
        if self.kind == of_ours.kind { of_ours.api_version } else { "v1".to_owned() }
    }

    /// The namespace its events are kept in.
    fn place(&self) -> &str {
        if self.namespace.is_empty() { NAMESPACE } else { &self.namespace }
    }
}

/// An event is named after what it says, and whoever tells it again finds it there, and counts. Best effort: what is told stands in
/// the log as well.
pub async fn tell(host: &Host, volume: &HostVolume, news: &News) {
    tracing::info!(volume = %volume.name, handle = %volume.handle, reason = news.reason, "{}", news.message);
    write_event(host, &volume.into(), news).await;
}

/// The same about what a member can bring about as often as it likes: an event is written where `permits` says so, which is not asked of
/// what was told a moment ago. Whether it was told.
pub async fn tell_within(host: &Host, volume: &HostVolume, news: &News, permits: impl FnOnce() -> bool) -> bool {
    let name = event(&volume.into(), news).metadata.name.unwrap_or_default();
    if host.recent.has(&name) || permits() {
        tell(host, volume, news).await;
        return true;
    }
    let (message, reason) = (&news.message, news.reason);
    tracing::info!(volume = %volume.name, handle = %volume.handle, reason, "the driver writes no event, because this volume or its member had many: {message}");
    false
}

/// The same about a claim.
pub async fn tell_claim(host: &Host, claim: &Claim, uid: &str, news: &News) {
    let (namespace, name) = (claim.namespace.clone(), claim.name.clone());
    tell_of(host, &About { kind: "PersistentVolumeClaim", namespace, name, uid: uid.to_owned() }, news).await;
}

/// The same about a node, or a pod on one.
pub async fn tell_of(host: &Host, about: &About, news: &News) {
    let About { kind, namespace, name, .. } = about;
    tracing::info!(kind, namespace, name, reason = news.reason, "{}", news.message);
    write_event(host, about, news).await;
}

/// The same about what a member can bring about as often as it likes, as of a volume.
pub async fn tell_of_within(host: &Host, about: &About, news: &News, permits: impl FnOnce() -> bool) {
    let written = event(about, news).metadata.name.unwrap_or_default();
    if host.recent.has(&written) || permits() {
        return tell_of(host, about, news).await;
    }
    let About { kind, namespace, name, .. } = about;
    tracing::info!(
        kind,
        namespace,
        name,
        reason = news.reason,
        "the driver writes no event, because this object had many: {}",
        news.message
    );
}

async fn write_event(host: &Host, about: &About, news: &News) {
    let event = event(about, news);
    let name = event.metadata.name.clone().unwrap_or_default();
    if host.recent.has(&name) {
        return;
    }
    host.lately.put(&name, about, News { message: event.message.clone().unwrap_or_default(), ..news.clone() });
    let events = Api::<Event>::namespaced(host.client.clone(), about.place());
    let writing = async {
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                // Where it could not be remembered, it would be counted each time.
                if host.recent.put(name) {
                    count(&events, &event).await;
                }
            }
            Err(error) => {
                tracing::warn!(about = about.name, error = with_causes(&error), "an event cannot be written");
            }
            Ok(_) => {
                host.recent.put(name);
            }
        }
    };
    let _ = tokio::time::timeout(QUICK, writing).await;
}

/// Events that were written a moment ago, by name: to tell them again so soon is no news, and costs the host requests.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<HashMap<String, Instant>>);

impl Recent {
    fn has(&self, name: &str) -> bool {
        self.all().get(name).is_some_and(|written| written.elapsed() < MOMENT)
    }

    fn put(&self, name: String) -> bool {
        let mut all = self.all();
        if all.len() >= REMEMBERED {
            all.retain(|_, written| written.elapsed() < MOMENT);
        }
        let has_room = all.len() < REMEMBERED;
        if has_room {
            all.insert(name, Instant::now());
        }
        has_room
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Once more, so that people see that it still is so. The first answer says how often it was told. Of two who count at the same
/// time one is enough, and who may not count has told it all the same.
async fn count(events: &Api<Event>, again: &Event) {
    let name = again.metadata.name.as_deref().unwrap_or_default();
    let counting = async {
        let told = json!({"lastTimestamp": again.last_timestamp});
        let told = events.patch(name, &PatchParams::default(), &Patch::Merge(told)).await?;
        let counted = json!({
            "metadata": {"resourceVersion": told.metadata.resource_version},
            "count": told.count.unwrap_or(1).saturating_add(1),
        });
        events.patch(name, &PatchParams::default(), &Patch::Merge(counted)).await.map(drop)
    };
    let counted: Result<(), kube::Error> = counting.await;
    if let Err(error) = counted {
        tracing::debug!(event = name, error = with_causes(&error), "the count of a repeated event cannot be written");
    }
}

fn event(about: &About, news: &News) -> Event {
    let now = Time(Timestamp::now());
    let mut message = printable(&news.message).into_owned();
    message.truncate(message.floor_char_boundary(LONGEST));
    Event {
        metadata: ObjectMeta {
            name: Some(name(about, news.reason, &message)),
            namespace: Some(about.place().to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(about.api_version()),
            kind: Some(about.kind.to_owned()),
            namespace: Some(about.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(about.name.clone()),
            uid: Some(about.uid.clone()),
            ..ObjectReference::default()
        },
        reason: Some(news.reason.to_owned()),
        message: Some(message),
        type_: Some(if news.warning { "Warning" } else { "Normal" }.to_owned()),
        source: Some(EventSource { component: Some(DRIVER.to_owned()), host: None }),
        reporting_component: Some(DRIVER.to_owned()),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        ..Event::default()
    }
}

fn name(about: &About, reason: &str, message: &str) -> String {
    let digest = Sha256::new().chain_update(&about.uid).chain_update(reason).chain_update(message).finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    let digits = u64::from_be_bytes(first);
    let name = about.name.get(..200).unwrap_or(&about.name).trim_end_matches(['-', '.']);
    format!("{name}.{digits:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> HostVolume {
        HostVolume { name: name.into(), uid: "u".into(), ..HostVolume::default() }
    }

    #[test]
    fn same_news_has_the_same_name_and_other_news_another() {
        let told = |reason, message: &str| {
            event(&(&volume("pv")).into(), &News { reason, message: message.to_owned(), warning: true }).metadata.name
        };
        assert_eq!(told("A", "x"), told("A", "x"));
        assert_ne!(told("A", "x"), told("A", "y"));
        assert_ne!(told("A", "x"), told("B", "x"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_told_a_moment_ago_is_remembered_for_that_moment_and_never_more_than_so_much() {
        let recent = Recent::default();
        assert!(!recent.has("a"));
        assert!(recent.put("a".to_owned()));
        tokio::time::advance(MOMENT / 2).await;
        assert!((1..REMEMBERED).all(|at| recent.put(at.to_string())));
        assert!(!recent.put("too much".to_owned()));
        assert!(recent.has("a") && !recent.has("too much"));
        tokio::time::advance(MOMENT / 2).await;
        assert!(recent.put("b".to_owned()));
        assert!(!recent.has("a") && recent.has("1") && recent.has("b"));
    }

    #[test]
    fn what_a_member_says_steers_no_terminal() {
        let news = News { reason: "A", message: "waits: \u{1b}[8m".to_owned(), warning: true };
        assert_eq!(event(&(&volume("pv")).into(), &news).message.as_deref(), Some("waits: �[8m"));
    }

    #[test]
    fn what_is_told_is_short_enough_to_be_kept() {
        let news = News { reason: "A", message: "ä".repeat(2000), warning: true };
        let told = event(&(&volume(&"v".repeat(253))).into(), &news);
        assert!(told.message.unwrap().len() <= LONGEST);
        assert!(told.metadata.name.unwrap().len() <= 253);
    }
}
