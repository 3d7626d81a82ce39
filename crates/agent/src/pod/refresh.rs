//! Keeps up to date what pods of the host were given in a member, and removes what none names any more.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use kube::api::ListParams;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    super::{
        HOST, MANAGED_BY,
        cache::Cached,
        host_pod::HostPod,
        member_pod::MemberPod,
        node::ignore_conflict,
        object::{Place, is_leaving, listed, mark, text},
    },
    Pods,
    account_tokens::{self, RENEW_AT, is_due},
    awaited::AWAITED,
    config_sync::{FORMER_MARK, seen},
    length, missing,
    names::{Kind, token_secret, tokens},
    refusal::refusal,
    rejection::PodRejection,
    removal::with_uid,
    unkept::{Failures, Silent, Unkept},
    wanted::{SyncedObject, things, to_have},
};
use domain::volume::DRIVER;

/// How soon a change in the host is seen in the members, as with a kubelet.
const LOOK: Duration = Duration::from_secs(30);
/// How long nothing has to name an object before it is removed: a pod may be about to.
const UNUSED: Duration = Duration::from_mins(2);

/// How often Secrets are looked for also where no mark says that there are any, and no copy names one: somebody may have removed the mark.
/// Else each member would be asked about each namespace of the host that gives Secrets.
const EVERYWHERE: Duration = Duration::from_mins(10);
/// About so many namespaces the host is asked at one look whether they still give no Secrets: anybody in the member writes our labels on
/// Secrets of his own, in as many as he likes. The next look asks about others.
const ASKED_AT_ONCE: usize = 100;

/// One that is to be looked at, as it is there.
type Due = (SyncedObject, Option<Value>);

/// Namespaces of the member that are marked as having Secrets of this host.
struct Marks {
    own: BTreeSet<String>,
    /// By the name that the marks of all hosts had.
    former: BTreeSet<String>,
}

/// What one look leaves to the next one.
#[derive(Default)]
struct Past {
    /// Since when nothing names what is there.
    unused: HashMap<SyncedObject, Instant>,
    /// Namespaces in which Secrets were when they were last listed, or may be. They are listed there until none is left: somebody may have
    /// removed the mark, or the namespace takes none.
    holding: BTreeSet<String>,
    silent: Silent,
    unkept: Unkept,
}

/// What one look goes by.
struct Look<'a> {
    /// With one of the host's pods that name it.
    wanted: BTreeMap<SyncedObject, (Place, Arc<HostPod>)>,
    named_by_copies: BTreeSet<SyncedObject>,
    /// Namespaces of the host that give Secrets, as they were listed, and of those that did not what they say now.
    open: Arc<BTreeSet<String>>,
    asked: BTreeMap<String, bool>,
    /// Since when nothing names what is there.
    unused: &'a mut HashMap<SyncedObject, Instant>,
    unkept: &'a mut Unkept,
}

impl Pods<'_> {
    /// Keeps everything up to date that pods of the host name there, and removes what no copy names any more, or what the host no
    /// longer gives, until it is dropped.
    pub(super) async fn keep_named(&self) {
        let (mut past, mut last_thorough) = (Past::default(), None::<Instant>);
        loop {
            let is_thorough = last_thorough.is_none_or(|since| since.elapsed() >= EVERYWHERE);
            let looked = self.look_at_named(&mut past, is_thorough).await;
            past.unkept.tell_of_all(&self.member.name, looked.as_ref().err());
            length::note_fitting(self);
            if is_thorough && looked.is_ok() {
                last_thorough = Some(Instant::now());
            }
            sleep(LOOK).await;
        }
    }

    async fn look_at_named(&self, past: &mut Past, is_thorough: bool) -> kube::Result<()> {
        let (mut failures, named_by_copies) = (Failures::new(), self.named_by_copies());
        let mut there = self.ours_in(Kind::ConfigMap, "").await?;
        let marks = self.marks(&there);
        let open = self.view.open_namespaces.list(&self.host.client).await?;
        let namespaces = with_secrets(is_thorough.then_some(&*open), &marks, &past.holding, &named_by_copies);
        there.extend(self.secrets_there(namespaces, &marks, &mut past.holding, &mut failures).await?);
        there.retain(|(thing, _)| !self.marks_secrets(thing, &marks, &past.holding));
        let is_there: BTreeSet<SyncedObject> = there.iter().map(|(thing, _)| thing.clone()).collect();
        let is_known = |thing: &SyncedObject| is_there.contains(thing) || failures.contains_key(&thing.1.namespace);
        past.unused.retain(|thing, _| is_known(thing) && !named_by_copies.contains(thing));
        let (unused, unkept, asked) = (&mut past.unused, &mut past.unkept, BTreeMap::new());
        let mut look = Look { wanted: self.wanted(&named_by_copies), named_by_copies, open, asked, unused, unkept };
        let there = there.into_iter().map(|(thing, object)| (thing, Some(object)));
        let lacking = look.lacking(&is_there).into_iter().map(|thing| (thing, None));
        let due = past.silent.last(there.chain(lacking).collect());
        let ended = self.attend_to_all(&mut look, due, &mut failures).await;
        let (silent, unseen) = ended.map(|(thing, unseen)| (Some(thing), unseen)).unwrap_or_default();
        past.silent.now(silent);
        look.unkept.tell_of_namespaces(&self.member.name, failures, &unseen);
        Ok(())
    }

    /// Where no answer comes in time, nothing more is asked: it may be the cluster that does not answer. Which one that was of, and the
    /// namespaces of what was left.
    async fn attend_to_all(
        &self,
        look: &mut Look<'_>,
        due: Vec<Due>,
        failures: &mut Failures,
    ) -> Option<(SyncedObject, BTreeSet<String>)> {
        let is_due = |thing: &SyncedObject| due.iter().any(|(one, _)| one == thing);
        let is_known = |thing: &SyncedObject| is_due(thing) || failures.contains_key(&thing.1.namespace);
        look.unkept.end_all_but(&self.member.name, is_known);
        let mut due = due.into_iter();
        while let Some((thing, object)) = due.next() {
            let error = match self.attend_to(look, &thing, object.as_ref()).await {
                Ok(why) => {
                    look.unkept.tell_of_object(&self.member.name, &thing, why);
                    continue;
                }
                Err(error) => error,
            };
            let is_silent = !matches!(error, kube::Error::Api(_) | kube::Error::SerdeError(_));
            failures.entry(thing.1.namespace.clone()).or_insert(error);
            if is_silent {
                return Some((thing, due.map(|((_, place), _)| place.namespace).collect()));
            }
        }
        None
    }

    /// Why it is not kept up to date; none where it is, or is not to be. `object`: none where somebody in the member has removed it.
    async fn attend_to(
        &self,
        look: &mut Look<'_>,
        thing: &SyncedObject,
        object: Option<&Value>,
    ) -> kube::Result<Option<String>> {
        let Some(object) = object else {
            return match look.wanted.get(thing) {
                Some(pod) => self.refresh(thing, None, pod).await,
                None => Ok(None),
            };
        };
        let gives = if look.is_given(thing) {
            Some(true)
        } else if is_leaving(object) {
            // What somebody's finalizer keeps there would be among the first to be asked about at every look.
            None
        } else {
            self.is_open_now(&thing.1.namespace, &mut look.asked).await?
        };
        // A mark stays for Secrets that were asked for, also by a process before this one.
        let (is_mark, namespace) = (self.is_mark(thing), &thing.1.namespace);
        let is_idle = gives == Some(true) && look.is_idle(thing, if is_mark { AWAITED } else { UNUSED });
        let is_idle = is_idle && !(is_mark && self.awaited.has(namespace)) && !length::hides_names(self, namespace);
        match (gives, look.wanted.get(thing)) {
            (Some(false), _) => {
                self.remove(thing, object, "members are given no Secrets of its namespace in the host any more")
                    .await?;
            }
            (Some(true), Some(pod)) => return self.refresh(thing, Some(object), pod).await,
            (Some(true), None) if is_idle => self.remove(thing, object, "no pod names it").await?,
            (Some(true) | None, _) => {}
        }
        Ok(None)
    }

    async fn secrets_there(
        &self,
        namespaces: BTreeSet<String>,
        marks: &Marks,
        holding: &mut BTreeSet<String>,
        failures: &mut Failures,
    ) -> kube::Result<Vec<(SyncedObject, Value)>> {
        let mut there = Vec::new();
        for namespace in namespaces {
            match self.ours_in(Kind::Secret, &namespace).await {
                Ok(secrets) if secrets.is_empty() => {
                    holding.remove(&namespace);
                }
                Ok(secrets) => {
                    if !marks.own.contains(&namespace) {
                        self.mark_again(&namespace).await?;
                    }
                    there.extend(secrets);
                    holding.insert(namespace);
                }
                // Where the member gives no right to Secrets, and no mark says otherwise, there are none of ours.
                Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) && !marks.has(&namespace) => {
                    holding.remove(&namespace);
                }
                Err(error @ kube::Error::Api(_)) => {
                    failures.insert(namespace.clone(), error);
                    holding.insert(namespace);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(there)
    }

    fn marks(&self, config_maps: &[(SyncedObject, Value)]) -> Marks {
        let named = |mark: &str| {
            let marks = config_maps.iter().filter(|((_, place), _)| place.name == mark);
            marks.map(|((_, place), _)| place.namespace.clone()).collect()
        };
        Marks { own: named(&self.namespace_mark()), former: named(FORMER_MARK) }
    }

    fn is_mark(&self, (kind, place): &SyncedObject) -> bool {
        *kind == Kind::ConfigMap && (place.name == FORMER_MARK || place.name == self.namespace_mark())
    }

    /// A mark that stays. One of before does until the namespace has one of this host's own.
    fn marks_secrets(&self, thing: &SyncedObject, marks: &Marks, holding: &BTreeSet<String>) -> bool {
        let (_, place) = thing;
        let is_needed = place.name != FORMER_MARK || !marks.own.contains(&place.namespace);
        self.is_mark(thing) && holding.contains(&place.namespace) && is_needed
    }

    /// One that takes no mark, as by its quota or because it ends, keeps no other from being looked at: what it has is known by `holding`.
    async fn mark_again(&self, namespace: &str) -> kube::Result<()> {
        match self.mark_namespace(namespace).await {
            Err(kube::Error::Api(status)) => {
                let (member, message) = (&self.member.name, status.message);
                tracing::debug!(
                    member,
                    namespace,
                    message,
                    "the namespace takes no mark that there are Secrets of this host in it"
                );
                Ok(())
            }
            marked => marked,
        }
    }

    /// It may have been opened since that was listed. Each namespace is asked about once; none: not at this look any more.
    async fn is_open_now(&self, namespace: &str, asked: &mut BTreeMap<String, bool>) -> kube::Result<Option<bool>> {
        if !asked.contains_key(namespace) && asked.len() < ASKED_AT_ONCE {
            asked.insert(namespace.to_owned(), self.is_open(namespace).await?);
        }
        Ok(asked.get(namespace).copied())
    }

    async fn remove(&self, (kind, place): &SyncedObject, object: &Value, why: &str) -> kube::Result<()> {
        tracing::info!(member = self.member.name, %kind, object = %place, "the agent deletes an object in the member: {why}");
        let objects = self.of_kind(*kind, &place.namespace, false);
        ignore_conflict(objects.delete(&place.name, &with_uid(object)).await.map(drop))
    }

    /// What the copies name, which is not removed. More does not follow from it: in the member anybody may write our labels on a
    /// pod of his own, and would be given what the host has under the names that he writes there.
    fn named_by_copies(&self) -> BTreeSet<SyncedObject> {
        let copies = self.there.kept_of(&self.host.id.0);
        let named = copies.iter().flat_map(|(place, kept)| {
            let copy = MemberPod::read(kept, place);
            things(&copy, &copy["spec"])
        });
        named.collect()
    }

    /// What the host's pods name that run there, each with one of them: tokens with the pod whose they are. They are read one by one: all of
    /// them as trees would take several times what they are kept in.
    fn wanted(&self, named_by_copies: &BTreeSet<SyncedObject>) -> BTreeMap<SyncedObject, (Place, Arc<HostPod>)> {
        let mut wanted = BTreeMap::new();
        for (place, kept) in self.view.kept_pods_for(&self.member.name) {
            // Nothing of it reads any of that any more.
            if kept.is_over() {
                continue;
            }
            let pod = HostPod::read(&kept, &place);
            if self.runs(&pod) {
                let own = token_secret(kept.uid());
                for thing in to_have(&pod, &self.host.id.0, named_by_copies) {
                    let by = (place.clone(), Arc::clone(&kept));
                    if thing.1.name == own {
                        wanted.insert(thing, by);
                    } else {
                        wanted.entry(thing).or_insert(by);
                    }
                }
            }
        }
        wanted
    }

    /// Whether a pod of the host has its copy in the member. One that has lost its labels goes on reading what it was given.
    pub(super) fn runs(&self, pod: &Value) -> bool {
        let there = self.there.kept(&Place::of(pod));
        let has_copy = there.is_some_and(|there| there.may_be_copy_of(&self.host.id.0, text(pod, "/metadata/uid")));
        has_copy && self.serves(pod) && refusal(pod, self.here()).is_none()
    }

    /// What is gone by of them.
    async fn ours_in(&self, kind: Kind, namespace: &str) -> kube::Result<Vec<(SyncedObject, Value)>> {
        let ours = ListParams::default().labels(&format!("{MANAGED_BY}={DRIVER},{HOST}={}", self.host.id));
        let keep = |object: Value| self.is_ours(&object).then(|| seen(&object));
        let objects = listed(self.client, &self.of_kind(kind, namespace, false), &ours, keep).await?;
        Ok(objects.into_iter().map(|object| ((kind, Place::of(&object)), object)).collect())
    }

    /// Why it could not be. `there`: none where somebody in the member has removed it. `pod`: one of the host's that names it.
    async fn refresh(
        &self,
        thing: &SyncedObject,
        there: Option<&Value>,
        (pod_place, pod): &(Place, Arc<HostPod>),
    ) -> kube::Result<Option<String>> {
        let (kind, place) = thing;
        let of_tokens = *kind == Kind::Secret && token_secret(pod.uid()) == place.name;
        let is_another = |there: &Value| mark(there, "annotations", RENEW_AT).is_empty() == of_tokens;
        if there.is_some_and(|there| is_another(there) || of_tokens && !is_due(there)) {
            return Ok(None);
        }
        let kept = if of_tokens {
            let pod = HostPod::read(pod, pod_place);
            account_tokens::sync(self, &pod, &tokens(&pod["spec"])).await?
        } else {
            self.keep_one(thing, there).await?
        };
        Ok(kept.err().map(|why| why.message))
    }

    async fn keep_one(&self, thing: &SyncedObject, there: Option<&Value>) -> kube::Result<Result<(), PodRejection>> {
        let (kind, place) = thing;
        let name = (*kind, place.name.clone());
        match self.sync_one(&name, &place.namespace, there).await? {
            Ok(false) if missing::is_to_be_emptied(self, thing, there) => {
                missing::empty(self, &name, &place.namespace).await
            }
            synced => Ok(synced.map(drop)),
        }
    }
}

impl Marks {
    fn has(&self, namespace: &str) -> bool {
        self.own.contains(namespace) || self.former.contains(namespace)
    }
}

impl Look<'_> {
    fn is_given(&self, (kind, place): &SyncedObject) -> bool {
        *kind == Kind::ConfigMap || self.open.contains(&place.namespace)
    }

    fn is_idle(&mut self, thing: &SyncedObject, after: Duration) -> bool {
        if self.wanted.contains_key(thing) || self.named_by_copies.contains(thing) {
            return false;
        }
        let since = self.unused.entry(thing.clone()).or_insert_with(Instant::now);
        since.elapsed() > after
    }

    /// What copies are to have, and somebody in the member has removed.
    fn lacking(&self, there: &BTreeSet<SyncedObject>) -> Vec<SyncedObject> {
        let lacks = |thing: &&SyncedObject| {
            self.named_by_copies.contains(*thing) && !there.contains(*thing) && self.is_given(thing)
        };
        self.wanted.keys().filter(lacks).cloned().collect()
    }
}

/// Where there may be Secrets of ours.
fn with_secrets(
    open: Option<&BTreeSet<String>>,
    marks: &Marks,
    holding: &BTreeSet<String>,
    named: &BTreeSet<SyncedObject>,
) -> BTreeSet<String> {
    let named = named.iter().filter(|(kind, _)| *kind == Kind::Secret).map(|(_, place)| &place.namespace);
    let marked = marks.own.iter().chain(&marks.former);
    open.into_iter().flatten().chain(marked).chain(holding).chain(named).cloned().collect()
}
