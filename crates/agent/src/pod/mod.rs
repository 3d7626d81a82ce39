//! Runs the host's pods in a member: what is to be done about each is decided beside this, on what watches have told and,
//! before anything is made or removed, once more on what was read just now.

mod account_tokens;
mod address;
mod allowance;
mod awaited;
mod bounds;
mod change;
mod claims;
mod config_sync;
mod copy;
mod debug;
mod dropped;
mod elsewhere;
mod ending;
mod ephemeral;
mod events;
mod failure;
mod former;
mod generation;
mod given;
mod hold;
mod in_use;
mod length;
mod level;
mod missing;
mod names;
mod namespace;
mod refresh;
mod refusal;
mod rejection;
mod removal;
mod retold;
mod short_lived;
mod status;
mod step;
mod told;
mod trim;
mod unkept;
mod wanted;
mod work_queue;

use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use super::{
    Settings,
    cache::ObjectCache,
    host_pod::COPIED,
    member_pod::MemberPod,
    node::{about, ignore_conflict, now},
    object::{self, Place, is_leaving, parsed, read, text},
    view::{HostCache, KnownMembers, News},
    virtual_node::virtual_node_of,
};
pub(super) use allowance::{Allowances, Tellings};
pub(super) use awaited::AwaitedSecrets;
pub(super) use change::Turns;
use cluster::{traces::TRACES, with_causes};
use config_sync::Synced;
use copy::{Made, copy};
pub(super) use dropped::Uncompared;
pub(super) use ending::Endings;
pub(super) use events::relay as relay_events;
pub(super) use hold::Holds;
use host::{Host, events::News as HostEvent};
use member::Member;
use rejection::{Here, PodRejection};
use status::Source;
pub(super) use step::COPY_OF;
use step::{PodStep, step};
pub(super) use told::RelayedEvents;
pub(super) use trim::trim as trim_pod;
use work_queue::{Next, Tries, WorkQueue, in_turn, is_long, note_all, note_attached, pause};

/// Pods that are worked on at a time and are not long, of which those of one namespace are half at most.
const AT_ONCE: usize = 32;
/// How soon what waits is looked at again; most of it is told of by a watch.
const AGAIN: Duration = Duration::from_secs(1);
const MUCH_LATER: Duration = Duration::from_secs(15);
/// What is waited for longer than this is told: most volumes are attached sooner.
const PATIENCE: u32 = 3;

/// The work on the pods of one member.
#[derive(Clone, Copy)]
pub(super) struct Pods<'a> {
    pub(super) host: &'a Host,
    pub(super) view: &'a HostCache,
    pub(super) member: &'a Member,
    pub(super) client: &'a Client,
    pub(super) known_as: &'a KnownMembers,
    /// The member's pods; the copies of pods of this host by its id.
    pub(super) there: &'a ObjectCache<MemberPod>,
    pub(super) news: &'a News,
    pub(super) settings: &'a Settings,
    pub(super) turns: &'a Turns,
    pub(super) holds: &'a Holds,
    pub(super) tellings: &'a Tellings,
    pub(super) token_asks: &'a Allowances,
    pub(super) short_lived: &'a Allowances,
    pub(super) uncompared: &'a Uncompared,
    pub(super) awaited: &'a AwaitedSecrets,
    pub(super) endings: &'a Endings,
}

impl Pods<'_> {
    /// Works until it is dropped.
    pub(super) async fn run(&self) {
        let mut policy = self.member.policy();
        self.there.synced().await;
        tokio::join!(self.keep_named(), hold::keep(self), async {
            let is_long = |place: &Place| is_long(self, place);
            let mut queue = WorkQueue::new(&is_long);
            note_all(self, &mut queue);
            let mut under_way = FuturesUnordered::new();
            loop {
                while let Some((place, tries)) = queue.take(Instant::now()) {
                    under_way.push(async move { (in_turn(self, &place, self.attend(&place, tries)).await, place) });
                }
                let due = queue.due().unwrap_or_else(|| Instant::now() + MUCH_LATER);
                tokio::select! {
                    places = self.news.pods.take() => {
                        for place in places {
                            queue.note(place);
                        }
                        self.holds.look();
                    }
                    nodes = self.news.attached.take() => {
                        for node in &nodes {
                            note_attached(self, &mut queue, node);
                        }
                        self.holds.look();
                    }
                    Ok(()) = policy.changed() => note_all(self, &mut queue),
                    Some((ended, place)) = under_way.next() => self.ended(&mut queue, place, ended),
                    () = sleep_until(due) => {}
                }
            }
        });
    }

    fn ended(&self, queue: &mut WorkQueue<'_>, place: Place, ended: kube::Result<Next>) {
        match ended {
            Ok(Next::Settled) => queue.settled(&place),
            Ok(Next::After(pause)) => queue.again(place, pause),
            Err(error) => {
                tracing::warn!(member = self.member.name, pod = %place, error = with_causes(&error), "the agent cannot take the next step for a pod, and tries again");
                queue.failed(place);
            }
        }
    }

    /// Whether a pod is bound to a virtual node of ours for this member.
    fn serves(&self, pod: &Value) -> bool {
        self.view.member_of_node(text(pod, "/spec/nodeName")).is_some_and(|member| member == self.member.name)
    }

    fn here(&self) -> Here<'_> {
        let privileged = self.member.policy().borrow().privileged_pods;
        Here { host: &self.host.id.0, member: &self.member.name, privileged }
    }

    fn decide(&self, pod: Option<&Value>, there: Option<&Value>) -> PodStep {
        let pod = pod.filter(|pod| !elsewhere::is_elsewhere(self, pod));
        step(pod, pod.is_some_and(|pod| self.serves(pod)), there, self.here())
    }

    /// That looks at a pod fail again and again is told of it. Where its member does not answer at all, this work ends, and its node says so.
    async fn attend(&self, place: &Place, tries: Tries) -> kube::Result<Next> {
        let looked = self.look(place, tries.looks).await;
        if let Err(error) = &looked
            && tries.are_told()
            && let Some(pod) = length::known(self, place).await?
        {
            self.tell_failure(&pod, error).await?;
        }
        looked
    }

    async fn tell_failure(&self, pod: &Value, error: &kube::Error) -> kube::Result<()> {
        let (member, there) = (&self.member.name, self.there.get(&Place::of(pod)));
        let why = match self.decide(Some(pod), there.as_deref()) {
            PodStep::Copy => return self.wait(pod, &PodRejection::not_copied(member, error), AGAIN).await.map(drop),
            // By events alone: its condition says that it had a copy.
            PodStep::RemoveCopy(_) if self.serves(pod) => PodRejection::not_removed(member, error),
            PodStep::Tell => PodRejection::not_told(member, error),
            _ => return Ok(()),
        };
        self.warn(pod, &why).await;
        Ok(())
    }

    /// Goes as far as it can be gone now.
    async fn look(&self, place: &Place, looks: u32) -> kube::Result<Next> {
        let there = self.there.get(place);
        if let Some((pod, why)) = length::refusal(self, place, there.as_deref()) {
            return self.refuse(&pod, &why).await;
        }
        let pod = length::known(self, place).await?;
        if pod.is_none() {
            self.uncompared.forget(place);
            self.endings.forget(place);
        }
        let step = self.decide(pod.as_deref(), there.as_deref());
        let is_compared = there.is_none() || !pod.as_ref().is_some_and(|pod| self.uncompared.has(pod));
        if step == PodStep::Nothing && is_compared {
            return Ok(Next::Settled);
        }
        let span = tracing::trace_span!(
            target: TRACES, "step of a pod", member = self.member.name, pod = %place, step = step.name()
        );
        self.take(step, place, (pod.as_deref(), there.as_deref()), looks).instrument(span).await
    }

    async fn take(
        &self,
        step: PodStep,
        place: &Place,
        (pod, there): (Option<&Value>, Option<&Value>),
        looks: u32,
    ) -> kube::Result<Next> {
        match (step, pod, there) {
            // No watch's word on a copy is kept whole.
            (_, Some(pod), Some(_)) if self.uncompared.has(pod) => {}
            (PodStep::Tell, Some(pod), Some(there)) => return self.tell(pod, there).await,
            (PodStep::Change, Some(pod), Some(there)) => {
                if let Some(wait) = self.turns.waits(place) {
                    return Ok(self.tell(pod, there).await?.sooner(Next::After(wait)));
                }
            }
            (PodStep::Refuse(why), Some(pod), _) => return self.refuse(pod, &why).await,
            _ => {}
        }
        let pod = read(&object::pods(&self.host.client, &place.namespace), &place.name).await?;
        let there = read(&object::pods(self.client, &place.namespace), &place.name).await?;
        if let (Some(pod), Some(there)) = (&pod, &there) {
            dropped::compare(self, pod, there).await;
        }
        let step = self.decide(pod.as_ref(), there.as_ref());
        tracing::debug!(member = self.member.name, pod = %place, ?step, "next step of a pod");
        match (step, &pod, &there) {
            (PodStep::Nothing, pod, there) => Ok(elsewhere::next(pod.as_ref(), there.as_ref())),
            (PodStep::Tell, Some(pod), Some(there)) => self.tell(pod, there).await,
            (PodStep::TellOfEnd, Some(pod), Some(there)) => ending::tell(self, pod, there).await,
            (PodStep::TellOfLabels, Some(pod), _) => ending::tell_of_labels(self, pod).await,
            (PodStep::Refuse(why), Some(pod), _) => self.refuse(pod, &why).await,
            (PodStep::Copy, Some(pod), _) => self.begin(pod, looks).await,
            (PodStep::RemoveCopy(grace), pod, Some(there)) => removal::of_copy(self, pod.as_ref(), there, grace).await,
            (PodStep::EndPod, Some(pod), _) => removal::of_pod(self, pod).await,
            (PodStep::AddContainer, Some(pod), Some(there)) => {
                let told = self.tell(pod, there).await;
                Ok(debug::add(self, pod, there, looks).await?.sooner(told?))
            }
            (PodStep::Change, Some(pod), Some(there)) => {
                let told = self.tell(pod, there).await;
                Ok(change::pass_on(self, pod, there, looks).await?.sooner(told?))
            }
            (PodStep::FailPod, Some(pod), _) => short_lived::fail(self, pod).await,
            _ => Ok(Next::After(AGAIN)),
        }
    }

    /// Copies the pod, once it has all it needs.
    async fn begin(&self, pod: &Value, looks: u32) -> kube::Result<Next> {
        if let Some(why) = short_lived::refusal(self, pod) {
            return self.wait(pod, &why, MUCH_LATER).await;
        }
        let claims = match claims::leaves(self, pod).await? {
            Ok(claims) => claims,
            Err(why) if why.reason == claims::MOVED => return self.fail(pod, why).await,
            Err(why) if looks < PATIENCE => {
                tracing::debug!(pod = %Place::of(pod), why = why.message, "the pod is not copied yet");
                return Ok(Next::After(AGAIN));
            }
            Err(why) => return self.wait(pod, &why, pause(looks)).await,
        };
        if let Some(why) = former::has_still(self, pod, &claims).await? {
            return self.wait(pod, &why, pause(looks)).await;
        }
        if let Some(why) = namespace::enter(self, pod).await? {
            return self.wait(pod, &why, MUCH_LATER).await;
        }
        let kept = match self.sync_for(pod).await.map_err(rejection::without_words)? {
            Ok(kept) => kept,
            Err(why) => return self.wait(pod, &why, MUCH_LATER).await,
        };
        self.create(pod, &claims, &kept, looks).await
    }

    async fn create(&self, pod: &Value, claims: &claims::Leaves, kept: &Synced, looks: u32) -> kube::Result<Next> {
        if kept.is_awaited && looks < PATIENCE || !hold::hold(self, pod, claims).await? {
            return Ok(Next::After(AGAIN));
        }
        let Some(at) = self.view.node(text(pod, "/spec/nodeName")).and_then(|node| virtual_node_of(&node)) else {
            return Ok(Next::After(AGAIN));
        };
        let address = self.settings.host_address.as_ref().map(|(host, port)| (host.as_str(), *port));
        let given = kept.given(text(pod, "/metadata/uid"), &self.host.id.0);
        let (claims, handles) = (&claims.by_volume, &claims.handles);
        let node = at.node.as_deref();
        let made = copy(pod, &Made { host: &self.host.id.0, claims, handles, given, node, address });
        let place = Place::of(pod);
        let pods = object::pods(self.client, &place.namespace);
        self.uncompared.keep(pod, &made);
        let (uid, made) = (text(pod, "/metadata/uid"), parsed(made)?);
        match self.holds.answer(uid, pods.create(&PostParams::default(), &made)).await {
            Ok(there) => {
                tracing::info!(member = self.member.name, pod = %place, "the agent copied the pod to the member");
                let there = object::whole(there);
                dropped::compare(self, pod, &there).await;
                if let Some(why) = &kept.why_without {
                    self.warn(pod, why).await;
                }
                self.tell(pod, &there).await
            }
            // A namespace that was just made takes no pods before its account is there.
            Err(kube::Error::Api(status)) if status.code == 403 && looks < PATIENCE => Ok(Next::After(AGAIN)),
            Err(kube::Error::Api(status)) if hold::REFUSALS.contains(&status.code) => {
                self.holds.let_go(uid);
                self.wait(pod, &PodRejection::pod_refused(&self.member.name, &status.message), MUCH_LATER).await
            }
            Err(error) => Err(error),
        }
    }

    async fn tell(&self, pod: &Value, there: &Value) -> kube::Result<Next> {
        let networks = self.member.policy().borrow().pod_networks.clone();
        let who = Source { member: &self.member.name, networks: &networks };
        let ends = ending::wait(self, pod, there).await;
        let Some(change) = status::mirrored(pod, there, who, &now()) else { return Ok(ends) };
        if let Some(wait) = self.tellings.hold_back(pod, &change) {
            return Ok(Next::After(wait).sooner(ends));
        }
        let fails = change["status"]["phase"] == "Failed";
        if self.write(pod, change).await? && fails {
            short_lived::note_end(self, pod);
        }
        Ok(ends)
    }

    /// Says why a pod has no copy; it is looked at again when something of it changes.
    async fn refuse(&self, pod: &Value, why: &PodRejection) -> kube::Result<Next> {
        if is_leaving(pod) {
            return Ok(Next::Settled);
        }
        self.wait(pod, why, MUCH_LATER * 4).await
    }

    async fn wait(&self, pod: &Value, why: &PodRejection, pause: Duration) -> kube::Result<Next> {
        let Some(change) = status::pending(pod, why, &now()) else { return Ok(Next::After(pause)) };
        Ok(self.say(pod, change, why).await?.sooner(Next::After(pause)))
    }

    /// Changes what stands in the pod, and tells why by an event.
    async fn say(&self, pod: &Value, change: Value, why: &PodRejection) -> kube::Result<Next> {
        if let Some(wait) = self.tellings.hold_back(pod, &change) {
            return Ok(Next::After(wait));
        }
        self.write(pod, change).await?;
        self.warn(pod, why).await;
        Ok(Next::Settled)
    }

    async fn warn(&self, pod: &Value, why: &PodRejection) {
        let news = HostEvent { reason: why.reason, message: why.message.clone(), warning: true };
        host::events::tell_of_within(self.host, &about(pod), &news, || self.tellings.lets_warn(pod)).await;
    }

    /// False: it has changed, or gone, since it was seen.
    async fn write(&self, pod: &Value, change: Value) -> kube::Result<bool> {
        let (place, params) = (Place::of(pod), PatchParams::default());
        let pods = object::pods(&self.host.client, &place.namespace);
        let written = pods.patch_status(&place.name, &params, &Patch::Merge(change)).await.map(drop);
        let is_written = written.is_ok();
        ignore_conflict(written).map(|()| is_written)
    }

    async fn fail(&self, pod: &Value, why: PodRejection) -> kube::Result<Next> {
        self.write(pod, failure::failed(pod, &why, &now())).await?;
        self.warn(pod, &why).await;
        Ok(Next::Settled)
    }
}
