//! Has virtual nodes say which volumes copies use, from before a copy is made until the member shows that it has ended. Meanwhile the
//! host's attach controller leaves those attached, whatever becomes of their pods in the host.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{
    super::{
        member_pod::NOBODY,
        node::patch_of,
        object::{self, Place, is_leaving, is_over, read, text, whole},
        virtual_node::virtual_node_of,
    },
    AGAIN, MUCH_LATER, Pods,
    allowance::{Allowances, ONE_MORE_OF_NODE},
    claims::Leaves,
    in_use::{Mounted, has_any, is_attached, mounted, name_of, said, wanted},
    step::copy_of,
};
use cluster::with_causes;

/// The attach controller and the member's own news are written on the same Node.
const TRIES: usize = 5;
/// Between two looks at what copies use.
const APART: Duration = Duration::from_millis(200);
/// After which the member is asked about a copy that was to be made and of which no watch has told.
const UNTOLD: Duration = Duration::from_secs(15);

/// Codes by which a member does not take a copy.
pub(super) const REFUSALS: [u16; 3] = [400, 403, 422];

/// Whether a cluster does not take what it is asked to write, and would not a second later.
pub(super) fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if REFUSALS.contains(&status.code))
}

/// Volumes of copies that are being made, by the UIDs of their pods: no watch tells of those copies yet.
#[derive(Debug)]
pub(crate) struct Holds {
    begun: Mutex<BTreeMap<String, Begun>>,
    /// Who writes on a Node writes for all who have begun meanwhile.
    writing: tokio::sync::Mutex<()>,
    changed: Notify,
    /// A copy may say something else of what it mounts all the time.
    tellings: Allowances,
}

impl Default for Holds {
    fn default() -> Self {
        let (begun, writing) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { begun, writing, changed: Notify::new(), tellings: Allowances::of_nodes() }
    }
}

#[derive(Clone, Debug)]
struct Begun {
    place: Place,
    node: String,
    names: BTreeSet<String>,
    /// Since when the node says it.
    said: Option<Instant>,
    /// When it was last tried.
    last: Instant,
    /// A try to make the copy has ended without a word on what came of it.
    unclear: bool,
}

impl Holds {
    /// Something has changed of what runs in the member, or of what is attached.
    pub(super) fn look(&self) {
        self.changed.notify_one();
    }

    fn begin(&self, pod: &Value, names: &BTreeSet<String>) {
        let (mut all, now) = (self.all(), Instant::now());
        let before = all.get(text(pod, "/metadata/uid")).filter(|before| before.names == *names);
        let said = before.and_then(|before| before.said);
        let unclear = all.get(text(pod, "/metadata/uid")).is_some_and(|before| before.unclear);
        let (place, node) = (Place::of(pod), text(pod, "/spec/nodeName").to_owned());
        let begun = Begun { place, node, names: names.clone(), said, last: now, unclear };
        all.insert(text(pod, "/metadata/uid").to_owned(), begun);
    }

    /// Since when the node says what this pod is about to use; it does from now on at the latest.
    fn said_since(&self, uid: &str) -> Instant {
        let now = Instant::now();
        self.all().get_mut(uid).map_or(now, |begun| *begun.said.get_or_insert(now))
    }

    fn of_node(&self, node: &str) -> BTreeSet<String> {
        let all = self.all();
        all.values().filter(|begun| begun.node == node).flat_map(|begun| begun.names.iter().cloned()).collect()
    }

    /// Where a copy is to be that may be made yet with this volume, though this is not so of its pod.
    pub(super) fn of_gone(&self, name: &str, is_there: impl Fn(&Place, &str) -> bool) -> Option<Place> {
        let all = self.all();
        let mut with_it = all.iter().filter(|(_, begun)| begun.names.contains(name));
        with_it.find(|(uid, begun)| !is_there(&begun.place, uid)).map(|(_, begun)| begun.place.clone())
    }

    /// Unless it was tried again since it was seen.
    fn end(&self, uid: &str, seen: &Begun) {
        let mut all = self.all();
        if all.get(uid).is_some_and(|begun| begun.last == seen.last) {
            all.remove(uid);
        }
    }

    /// The member does not take the copy: nothing is to be mounted until it is tried again, unless an earlier try may arrive yet.
    pub(super) fn let_go(&self, uid: &str) {
        if self.all().extract_if(.., |begun, hold| begun == uid && !hold.unclear).count() > 0 {
            self.look();
        }
    }

    /// What the member says to the copy. Until then nobody knows whether it was made, or will be: whoever asks for it may be given up before, as where
    /// the member does not answer.
    pub(super) async fn answer<T>(&self, uid: &str, asked: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let before = self.is_unclear(uid, true);
        let answer = asked.await;
        if answer.as_ref().is_err_and(is_refusal) {
            self.is_unclear(uid, before);
        }
        answer
    }

    /// Whether it was so before.
    fn is_unclear(&self, uid: &str, now: bool) -> bool {
        self.all().get_mut(uid).is_some_and(|begun| mem::replace(&mut begun.unclear, now))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a copy may be made that mounts these: its node says that they are in use, and they stay attached because of that.
///
/// Before the attach controller detaches a volume it takes it from those that it calls attached, and only then looks for it among those
/// in use. So where one version of the Node has it among both, it stays. The controller may also not know that it is attached, as after
/// it has failed to attach it: then it detaches nothing, or has done so a second later, which the next look sees.
pub(super) async fn hold(pods: &Pods<'_>, pod: &Value, leaves: &Leaves) -> kube::Result<bool> {
    let names: BTreeSet<String> = leaves.handles.values().map(|handle| name_of(handle)).collect();
    if names.is_empty() {
        return Ok(true);
    }
    pods.holds.begin(pod, &names);
    let node = text(pod, "/spec/nodeName");
    let more = |seen: &Value| -> BTreeSet<String> {
        let begun = pods.holds.of_node(node);
        said(seen).into_iter().chain(begun).collect()
    };
    let Some(seen) = say(pods, node, more).await? else { return Ok(false) };
    let uid = text(pod, "/metadata/uid");
    let since = pods.holds.said_since(uid);
    if !names.iter().all(|name| is_attached(&seen, name)) && since.elapsed() < AGAIN {
        return Ok(false);
    }
    let is_to_run = is_still_to_run(pods, pod).await?;
    if !is_to_run {
        pods.holds.let_go(uid);
    }
    Ok(is_to_run)
}

/// What it names may have taken long to come to the member: it may be gone since it was looked at, and another one have its volumes. From
/// now on that one waits.
async fn is_still_to_run(pods: &Pods<'_>, pod: &Value) -> kube::Result<bool> {
    let Place { namespace, name } = Place::of(pod);
    let now = read(&object::pods(&pods.host.client, &namespace), &name).await?;
    let is_it = |now: &Value| now["metadata"]["uid"] == pod["metadata"]["uid"];
    Ok(now.is_some_and(|now| is_it(&now) && !is_leaving(&now) && !is_over(&now)))
}

/// Keeps true what the virtual nodes say, until it is dropped. All that there is in host and member has been told by then.
pub(super) async fn keep(pods: &Pods<'_>) {
    loop {
        let pause = look(pods).await.unwrap_or_else(|error| {
            let (member, error) = (&pods.member.name, with_causes(&error));
            tracing::warn!(
                member,
                error,
                "the agent cannot write on the member's virtual nodes which volumes are in use"
            );
            AGAIN
        });
        sleep(APART).await;
        let _ = timeout(pause, pods.holds.changed.notified()).await;
    }
}

/// How soon the next look is due, if nothing changes.
async fn look(pods: &Pods<'_>) -> kube::Result<Duration> {
    forget_what_is_told(pods).await;
    let ours = pods.view.nodes.of(&pods.member.name).into_iter().filter(|node| is_ours(pods, node));
    let is_begun = |node: &Value| !pods.holds.of_node(text(node, "/metadata/name")).is_empty();
    let nodes: Vec<Arc<Value>> = ours.filter(|node| has_any(node) || is_begun(node)).collect();
    if nodes.is_empty() {
        return Ok(MUCH_LATER);
    }
    let (mounted, mut pause) = (mounted_there(pods), MUCH_LATER);
    for node in nodes {
        let name = text(&node, "/metadata/name");
        let now = |seen: &Value| wanted(seen, &mounted, pods.holds.of_node(name));
        if now(&node) == said(&node) {
            continue;
        }
        if !pods.holds.tellings.is_left(name) {
            pause = ONE_MORE_OF_NODE;
            continue;
        }
        pods.holds.tellings.take(name);
        say(pods, name, now).await?;
    }
    Ok(pause)
}

fn mounted_there(pods: &Pods<'_>) -> Mounted {
    let (ours, disowned) = (pods.there.kept_of(&pods.host.id.0), pods.there.kept_of(NOBODY));
    let copies = ours.into_iter().chain(disowned).filter(|(_, copy)| copy.mounts().next().is_some());
    let node_of = |place: &Place, uid: &str| {
        let pod = pods.view.pods.kept(place).filter(|pod| pod.uid() == uid)?;
        Some(pod.node().unwrap_or_default())
    };
    mounted(copies, &pods.host.id.0, node_of)
}

/// Once a watch has told of a copy, the copy itself says what it mounts, and the hold ends. Where no watch has, the member is asked: no copy, no
/// use; no answer, and this hold alone stays. One that is not there uses nothing, as the member itself says; where it says nothing,
/// that one's volumes alone are held on.
async fn forget_what_is_told(pods: &Pods<'_>) {
    let (all, mut answers) = (pods.holds.all().clone(), true);
    for (uid, begun) in all {
        let is_its = |there: &Value| copy_of(there, &pods.host.id.0) == Some(uid.as_str());
        if pods.there.kept(&begun.place).is_some_and(|there| there.is_copy_of(&pods.host.id.0, &uid)) {
            pods.holds.end(&uid, &begun);
        } else if answers && begun.last.elapsed() >= UNTOLD {
            match read(&object::pods(pods.client, &begun.place.namespace), &begun.place.name).await {
                Ok(there) if there.as_ref().is_some_and(is_its) => {}
                Ok(_) => pods.holds.end(&uid, &begun),
                Err(error) => {
                    // Where there is no answer at all, each one would be waited for.
                    answers = matches!(error, kube::Error::Api(_));
                    let (member, pod, error) = (&pods.member.name, &begun.place, with_causes(&error));
                    tracing::warn!(member, %pod, error, "the agent cannot tell whether the pod's copy uses its volumes");
                }
            }
        }
    }
}

fn is_ours(pods: &Pods<'_>, node: &Value) -> bool {
    virtual_node_of(node).is_some_and(|virtual_node| virtual_node.member == pods.member.name)
}

/// Has a virtual node say what it is to say; the Node as it is then. None where it is gone or not ours, or others write on it all the time.
async fn say(pods: &Pods<'_>, name: &str, wanted: impl Fn(&Value) -> BTreeSet<String>) -> kube::Result<Option<Value>> {
    let _turn = pods.holds.writing.lock().await;
    let nodes = object::nodes(&pods.host.client);
    for _ in 0..TRIES {
        let Some(node) = read(&nodes, name).await?.filter(|node| is_ours(pods, node)) else { return Ok(None) };
        let names = wanted(&node);
        if names == said(&node) {
            return Ok(Some(node));
        }
        tracing::debug!(node = name, ?names, "the virtual node says which volumes are in use");
        let change = Patch::Merge(patch_of(&node, json!({"status": {"volumesInUse": names}})));
        match nodes.patch_status(name, &PatchParams::default(), &change).await {
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            written => return written.map(|written| Some(whole(written))),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use kube::core::Status;

    use super::*;

    fn pod(uid: &str, node: &str) -> Value {
        json!({"metadata": {"namespace": "shop", "name": "web", "uid": uid}, "spec": {"nodeName": node}})
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_tried_again_since_it_was_seen_is_held_still_and_has_been_said_since_the_first_time() {
        let (holds, names) = (Holds::default(), BTreeSet::from(["v".to_owned()]));
        holds.begin(&pod("u", "n"), &names);
        let (first, seen) = (holds.said_since("u"), holds.all()["u"].clone());
        tokio::time::advance(AGAIN).await;
        holds.begin(&pod("u", "n"), &names);
        holds.end("u", &seen);
        assert_eq!((holds.of_node("n"), holds.of_node("other")), (names, BTreeSet::new()));
        assert_eq!(holds.said_since("u"), first);
        let seen = holds.all()["u"].clone();
        holds.end("u", &seen);
        assert_eq!(holds.of_node("n"), BTreeSet::new());
        assert_eq!(holds.said_since("u"), Instant::now(), "nothing is held any more");
        holds.begin(&pod("u", "n"), &BTreeSet::from(["v".to_owned()]));
        holds.let_go("u");
        assert_eq!(holds.of_node("n"), BTreeSet::new());
        assert!(timeout(APART, holds.changed.notified()).await.is_ok(), "its node is to say so");
    }

    async fn is_refused(holds: &Holds) {
        let refused = kube::Error::Api(Box::new(Status { code: 403, ..Status::default() }));
        assert!(holds.answer("u", async { Err::<(), _>(refused) }).await.is_err());
        holds.let_go("u");
    }

    #[tokio::test]
    async fn copy_that_may_arrive_yet_keeps_its_volumes_whatever_a_later_try_was_answered() {
        let names = BTreeSet::from(["v".to_owned()]);
        let begun = || {
            let holds = Holds::default();
            holds.begin(&pod("u", "n"), &names);
            holds
        };
        let holds = begun();
        is_refused(&holds).await;
        assert_eq!(holds.of_node("n"), BTreeSet::new(), "nothing may arrive");
        let (lost, given_up) = (begun(), begun());
        let no_answer = kube::Error::Service("it does not answer".into());
        assert!(lost.answer("u", async { Err::<(), _>(no_answer) }).await.is_err());
        let mut asked = Box::pin(given_up.answer("u", pending::<kube::Result<()>>()));
        assert!(futures::poll!(&mut asked).is_pending());
        drop(asked);
        for holds in [lost, given_up] {
            holds.begin(&pod("u", "n"), &names);
            is_refused(&holds).await;
            assert_eq!(holds.of_node("n"), names);
        }
    }
}
