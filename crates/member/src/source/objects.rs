//! Members from objects of the host, of whatever kind: all of them are listed, then watched.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    time::Duration,
};

use futures::{Stream, StreamExt};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{MemberDefinition, MemberDefinitions};
use cluster::{Relist, pauses, with_causes};
use domain::volume::id::is_member_name;

/// Before a kind that was not served is asked for again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// What is said of a kind of objects.
#[derive(Debug)]
pub(super) struct Words {
    /// Told once, where there are none at first.
    pub(super) none_yet: &'static str,
    pub(super) unwatched: &'static str,
}

/// Follows the objects until nobody listens any more, or the host does not serve their kind.
pub(super) async fn follow<K>(
    objects: Api<K>,
    which: watcher::Config,
    define: impl Fn(&K) -> Option<(String, MemberDefinition)>,
    words: &Words,
    restored: &mut watch::Receiver<()>,
    news: &watch::Sender<Option<MemberDefinitions>>,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut found = DefinedMembers::default();
    loop {
        let events = watcher(objects.clone(), which.clone()).backoff(ExponentialBackoff::from(pauses()));
        tokio::select! {
            biased;
            // The watch of before hears nothing more: all are listed again, and what is not among them has gone.
            Ok(()) = restored.changed() => {}
            () = listen(events, &mut found, &define, words, news) => return,
        }
    }
}

async fn listen<K: ResourceExt>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    found: &mut DefinedMembers,
    define: &impl Fn(&K) -> Option<(String, MemberDefinition)>,
    words: &Words,
    news: &watch::Sender<Option<MemberDefinitions>>,
) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let complete = found.complete;
        match event {
            Ok(event) => found.take(event, define),
            Err(error) if is_unserved(&error) => return,
            Err(error) => tracing::warn!(error = with_causes(&error), "{}", words.unwatched),
        }
        if news.is_closed() {
            return;
        }
        if found.complete {
            let definitions = found.definitions();
            if definitions.is_empty() && !complete {
                tracing::info!("{}", words.none_yet);
            }
            tell(news, definitions);
        }
    }
}

/// Tells what the members are now, if that has changed.
pub(super) fn tell(news: &watch::Sender<Option<MemberDefinitions>>, definitions: MemberDefinitions) {
    news.send_if_modified(|known| {
        let changed = known.as_ref() != Some(&definitions);
        *known = Some(definitions);
        changed
    });
}

/// What objects that were listed once define.
pub(super) fn definitions<K: ResourceExt>(
    objects: &[K],
    define: impl Fn(&K) -> Option<(String, MemberDefinition)>,
) -> MemberDefinitions {
    let mut found = DefinedMembers::default();
    for object in objects {
        if let Some(entry) = found.named_well(define(object)) {
            found.objects.insert(object.name_any(), entry);
        }
    }
    found.definitions()
}

fn is_unserved(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 404
    )
}

/// The members by the objects that define them, and whether all have been seen once.
#[derive(Default)]
struct DefinedMembers {
    objects: BTreeMap<String, (String, MemberDefinition)>,
    relist: Relist<String>,
    /// Those of which it was told that their name will not do.
    refused: BTreeSet<String>,
    complete: bool,
}

impl DefinedMembers {
    fn take<K: ResourceExt>(&mut self, event: Event<K>, define: impl Fn(&K) -> Option<(String, MemberDefinition)>) {
        match event {
            Event::Init => self.relist.begin(),
            Event::InitDone => {
                for name in self.relist.end(self.objects.keys()) {
                    self.objects.remove(&name);
                }
                self.complete = true;
            }
            Event::InitApply(object) | Event::Apply(object) => {
                let name = object.name_any();
                self.relist.tell(&name);
                match self.named_well(define(&object)) {
                    Some(entry) => self.objects.insert(name, entry),
                    None => self.objects.remove(&name),
                };
            }
            Event::Delete(object) => drop(self.objects.remove(&object.name_any())),
        }
    }

    /// What has no member's name is ignored, and told of once.
    fn named_well(&mut self, entry: Option<(String, MemberDefinition)>) -> Option<(String, MemberDefinition)> {
        let (member, definition) = entry?;
        if is_member_name(&member) {
            return Some((member, definition));
        }
        if self.refused.insert(definition.origin.clone()) {
            let origin = definition.origin;
            tracing::warn!(
                origin,
                member,
                "the definition is ignored: a member's name is a DNS label of at most 40 characters"
            );
        }
        None
    }

    /// Where two objects name one member, the first by name counts.
    fn definitions(&self) -> MemberDefinitions {
        let mut definitions = MemberDefinitions::new();
        for (member, definition) in self.objects.values() {
            definitions.entry(member.clone()).or_insert_with(|| definition.clone());
        }
        definitions
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::ConfigMap,
        serde_json::{from_value, json},
    };

    use super::*;
    use crate::{kubeconfig::KubeconfigSource, policy::Policy};

    fn object(name: &str, member: &str) -> ConfigMap {
        from_value(json!({"metadata": {"name": name, "labels": {"member": member}}})).unwrap()
    }

    fn define(object: &ConfigMap) -> Option<(String, MemberDefinition)> {
        let definition = MemberDefinition {
            kubeconfig: object.name_any(),
            source: KubeconfigSource::Object,
            policy: Policy::default(),
            clustertree: false,
            secret: None,
            origin: object.name_any(),
        };
        Some((object.labels().get("member")?.clone(), definition))
    }

    fn member(found: &DefinedMembers, name: &str) -> Option<String> {
        found.definitions().get(name).map(|definition| definition.kubeconfig.clone())
    }

    #[test]
    fn nothing_is_told_before_all_were_listed_and_the_first_object_by_name_counts() {
        let mut found = DefinedMembers::default();
        found.take(Event::Init, define);
        found.take(Event::InitApply(object("two", "cluster38")), define);
        found.take(Event::InitApply(object("one", "cluster38")), define);
        assert!(!found.complete);
        found.take(Event::InitDone, define);
        assert!(found.complete);
        assert_eq!(member(&found, "cluster38").as_deref(), Some("one"));
        found.take(Event::Delete(object("one", "cluster38")), define);
        assert_eq!(member(&found, "cluster38").as_deref(), Some("two"));
    }

    #[test]
    fn object_without_a_members_name_is_no_member_and_is_told_of_once() {
        let mut found = DefinedMembers::default();
        found.take(Event::Apply(object("one", "cluster38")), define);
        found.take(Event::Apply(object("one", "Not A Name")), define);
        found.take(Event::Apply(object("one", "Not A Name")), define);
        assert_eq!((found.objects.len(), found.refused.len()), (0, 1));
        let told = found.refused.clone();
        found.take(Event::Apply(object("one", "also.not")), define);
        assert_eq!(found.refused, told, "it is the same object");
    }
}
