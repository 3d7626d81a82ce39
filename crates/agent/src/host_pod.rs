//! What is kept of the host's pod on a virtual node: all of it, as text, and beside that what is asked of many at once. Of one that is long, and
//! for which its namespace has no room, hardly more than which pod it is. Pure.

use std::sync::{Arc, OnceLock};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    cache::Cached,
    object::{MUCH, Place, is_over, items, room, short, text, unpacked},
};

/// Why a pod has no copy yet: nothing but that a volume is attached, or that a copy of another pod lets it go.
const WAITS_FOR_VOLUME: &str = "WaitsForVolume";

/// In bytes, of the text of a pod that is long, whatever is in it.
const LONG: usize = 256 << 10;
/// Of one that counts as long for its namespace. Pods that people write have some KiB.
const COUNTS: usize = 64 << 10;

/// What of a pod's metadata is kept in any case.
const METADATA: [&str; 6] =
    ["namespace", "name", "uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"];
/// Of the kind of its owner, in bytes.
const KIND: usize = 63;

/// The condition by which a pod tells of its copy, or why it has none. It outlives this process.
pub(super) const COPIED: &str = "kosmos.csi.io/Copied";

#[derive(Debug)]
pub(super) struct HostPod {
    node: Box<str>,
    uid: Box<str>,
    is_over: bool,
    waits_for_volume: bool,
    takes_much: bool,
    /// Of the text of all of it.
    length: usize,
    text: Box<str>,
    /// Read when somebody asks for it first: where what pods use is asked for, that is every few seconds, and else never.
    parts: OnceLock<Box<Parts>>,
}

/// One of them, with where it is.
pub(super) type KeptPod = (Place, Arc<HostPod>);

/// What of a pod is told by whoever tells what pods use.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) had_copy: bool,
    pub(super) started: Option<Timestamp>,
    /// Also sidecars, and those that were added.
    pub(super) containers: Vec<Container>,
    /// The claims that it mounts, by its volumes.
    pub(super) claims: Vec<(String, String)>,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    /// Since when it runs.
    pub(super) started: Option<Timestamp>,
}

impl HostPod {
    /// The node to which it is bound.
    pub(super) fn node(&self) -> Option<String> {
        Some((*self.node).to_owned()).filter(|node| !node.is_empty())
    }

    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether work on it takes much memory. One that is cut is read again for that.
    pub(super) fn is_long(&self) -> bool {
        self.length > LONG || self.takes_much || self.is_cut()
    }

    /// In bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Whether only what `cut` leaves of it is kept.
    pub(super) fn is_cut(&self) -> bool {
        self.text.len() < self.length
    }

    /// Whether what is attached to its node concerns it: it has claims, and says that it waits for a volume, or nothing yet.
    pub(super) fn waits_for_volume(&self) -> bool {
        self.waits_for_volume
    }

    pub(super) fn parts(&self) -> &Parts {
        self.parts.get_or_init(|| Box::new(Parts::of(&unpacked(&self.text))))
    }
}

impl Parts {
    fn of(pod: &Value) -> Self {
        let kinds = ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"];
        let containers = kinds.into_iter().flat_map(|kind| items(pod, kind)).map(|one| {
            let name = text(one, "/name");
            Container { name: name.to_owned(), image: text(one, "/image").to_owned(), started: started(pod, name) }
        });
        Self {
            had_copy: had_copy(pod),
            started: text(pod, "/status/startTime").parse().ok(),
            containers: containers.collect(),
            claims: claims_of(pod).into_iter().map(|(volume, claim, _)| (volume, claim)).collect(),
        }
    }
}

impl Cached for HostPod {
    fn pack(object: Value) -> Self {
        let whole = object.to_string();
        Self {
            node: text(&object, "/spec/nodeName").into(),
            uid: text(&object, "/metadata/uid").into(),
            is_over: is_over(&object),
            waits_for_volume: waits_for_volume(&object),
            takes_much: room(&object) > MUCH,
            length: whole.len(),
            text: whole.into(),
            parts: OnceLock::new(),
        }
    }

    fn read(kept: &Arc<Self>, _: &Place) -> Arc<Value> {
        unpacked(&kept.text)
    }

    fn weight(&self) -> usize {
        size_of::<Self>() + self.node.len() + self.uid.len() + self.text.len()
    }

    fn long(&self) -> usize {
        Some(self.text.len()).filter(|length| *length > COUNTS && !self.is_cut()).unwrap_or_default()
    }

    fn cut(self) -> Self {
        let text = cut(&unpacked(&self.text)).to_string().into();
        Self { text, parts: OnceLock::new(), ..self }
    }
}

/// Which pod it is and where, whether it is to end or has ended, and what it says of its copy. Nothing of that may have any length.
fn cut(pod: &Value) -> Value {
    let metadata = METADATA.iter().filter_map(|field| Some(((*field).to_owned(), pod["metadata"].get(field)?.clone())));
    let mut metadata: Map<String, Value> = metadata.collect();
    let owner = items(pod, "/metadata/ownerReferences").find(|owner| owner["controller"] == true);
    let owner = owner.map(|owner| json!({"kind": short(text(owner, "/kind"), KIND), "controller": true}));
    metadata.insert("ownerReferences".to_owned(), owner.into_iter().collect());
    let (spec, status) = (&pod["spec"], &pod["status"]);
    json!({
        "metadata": metadata,
        "spec": {"nodeName": spec["nodeName"]},
        "status": {"phase": status["phase"], "conditions": status["conditions"]},
    })
}

fn waits_for_volume(pod: &Value) -> bool {
    let mut told = items(pod, "/status/conditions").filter(|one| one["type"] == COPIED);
    !claims_of(pod).is_empty() && told.next().is_none_or(|one| text(one, "/reason") == WAITS_FOR_VOLUME)
}

/// Whether a pod has been told of its copy.
pub(super) fn had_copy(pod: &Value) -> bool {
    items(pod, "/status/conditions").any(|one| one["type"] == COPIED && one["status"] == "True")
}

/// The claims a pod mounts, by its volumes, and whether one was made for the pod.
pub(super) fn claims_of(pod: &Value) -> Vec<(String, String, bool)> {
    let volumes = items(pod, "/spec/volumes").filter_map(|volume| {
        let name = text(volume, "/name").to_owned();
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        match volume.get("ephemeral") {
            Some(_) => {
                let claim = format!("{}-{name}", text(pod, "/metadata/name"));
                Some((name, claim, true))
            }
            None if claim.is_empty() => None,
            None => Some((name, claim.to_owned(), false)),
        }
    });
    volumes.collect()
}

/// Since when a container runs.
fn started(pod: &Value, container: &str) -> Option<Timestamp> {
    let kinds = ["/status/containerStatuses", "/status/initContainerStatuses", "/status/ephemeralContainerStatuses"];
    let status = kinds.into_iter().flat_map(|kind| items(pod, kind)).find(|one| text(one, "/name") == container)?;
    text(status, "/state/running/startedAt").parse().ok()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::{
        super::{
            cache::{MOST_LONG, ObjectCache},
            object::parsed,
        },
        *,
    };

    #[test]
    fn pod_is_kept_whole_in_little_more_than_its_text() {
        let env = json!([{"name": "A", "value": "b".repeat(500)}]);
        let spec = json!({"nodeName": "kosmos-m", "unheard": {"of": [1, 2.5, null]}, "containers": [{"name": "c", "env": env}]});
        for (phase, is_over) in [("Running", false), ("Succeeded", true), ("Failed", true)] {
            let whole = json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": {"phase": phase}});
            let kept = Arc::new(HostPod::pack(whole.clone()));
            assert_eq!(*HostPod::read(&kept, &Place::default()), whole);
            assert_eq!((kept.node().as_deref(), kept.uid(), kept.is_over()), (Some("kosmos-m"), "u", is_over));
            assert!(kept.weight() < whole.to_string().len() + 100, "{} bytes", kept.weight());
        }
        assert_eq!(HostPod::pack(json!({"spec": {}})).node(), None);
    }

    /// Of the same text, one takes fifty times what another does.
    #[test]
    fn pod_is_long_by_what_it_takes_in_memory_as_well() {
        let with = |container: &Value| {
            let spec = json!({"containers": [container]});
            HostPod::pack(json!({"metadata": {"name": "p"}, "spec": spec}))
        };
        let (args, env) = (vec!["a".repeat(8); 5000], vec![json!({"name": "a"}); 5000]);
        let (short, much) = (with(&json!({"args": args})), with(&json!({"env": env})));
        assert!(short.length().max(much.length()) < LONG && short.length().min(much.length()) > 50_000);
        assert_eq!((short.is_long(), much.is_long()), (false, true));
    }

    /// A tenant makes as many of these as he likes.
    #[test]
    fn long_pods_of_a_namespace_beyond_its_room_are_known_by_what_has_no_length_and_whole_again_once_there_is_room() {
        let pods = ObjectCache::by(HostPod::node);
        let long = |namespace: &str, name: &str, length: usize| {
            let owner = json!([{"kind": "ReplicaSet", "name": "r", "controller": true}]);
            let conditions = json!([{"type": COPIED, "status": "True"}]);
            let container = json!({"name": "c", "args": ["a".repeat(length)]});
            let labels = json!({"a": "b".repeat(length)});
            json!({
                "metadata": {"namespace": namespace, "name": name, "uid": name, "ownerReferences": owner, "labels": labels},
                "spec": {"nodeName": "kosmos-m", "containers": [container]},
                "status": {"phase": "Running", "conditions": conditions},
            })
        };
        let tell = |pod: &Value| pods.take(Event::Apply(parsed(pod.clone()).unwrap()), |_| true);
        let kept = |pod: &Value| pods.kept(&Place::of(pod)).unwrap();
        let (first, second) = (long("attic", "first", MOST_LONG / 3), long("attic", "second", MOST_LONG / 3));
        let (small, other) = (long("attic", "small", COUNTS / 3), long("shop", "other", MOST_LONG / 3));
        for pod in [&first, &second, &small, &other] {
            tell(pod);
        }
        for (pod, is_cut) in [(&first, false), (&second, true), (&small, false), (&other, false)] {
            assert_eq!(kept(pod).is_cut(), is_cut, "{}", pod["metadata"]["name"]);
        }
        let there = kept(&second);
        assert!(there.weight() < 1000 && there.length() > MOST_LONG / 2 && there.is_long(), "{} bytes", there.weight());
        assert_eq!((there.node().as_deref(), there.uid(), there.is_over()), (Some("kosmos-m"), "second", false));
        let known = pods.get(&Place::of(&second)).unwrap();
        assert!(had_copy(&known) && text(&known, "/metadata/ownerReferences/0/kind") == "ReplicaSet", "{known}");
        assert!(there.length() > pods.room("attic") && there.length() <= pods.room("elsewhere"));
        pods.take(Event::Delete(parsed(first).unwrap()), |_| true);
        assert!(there.length() <= pods.room("attic"));
        tell(&second);
        assert!(!kept(&second).is_cut() && pods.get(&Place::of(&second)).unwrap()["spec"] == second["spec"]);
    }

    #[test]
    fn what_is_attached_concerns_pods_with_claims_that_wait_for_a_volume_or_have_said_nothing_yet() {
        let with = |claims: &Value, conditions: &Value| {
            let pod =
                json!({"metadata": {"name": "p"}, "spec": {"volumes": claims}, "status": {"conditions": conditions}});
            HostPod::pack(pod).waits_for_volume()
        };
        let claims = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "db"}}]);
        let says = |reason: &str| json!([{"type": "PodScheduled", "reason": "x"}, {"type": COPIED, "reason": reason}]);
        for (reason, concerns) in [(WAITS_FOR_VOLUME, true), ("WaitsForObject", false), ("Copied", false)] {
            assert_eq!(with(&claims, &says(reason)), concerns, "{reason}");
        }
        assert!(with(&claims, &json!([])) && !with(&json!([]), &json!([])));
    }

    #[test]
    fn what_is_told_of_what_a_pod_uses_is_read_once_and_of_containers_of_every_kind() {
        let (at, named) = ("2026-01-02T03:04:05Z", |name: &str| json!([{"name": name, "image": format!("{name}:1")}]));
        let spec = json!({"containers": named("a"), "initContainers": named("b"), "ephemeralContainers": named("c"),
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "db"}}, {"name": "tmp", "emptyDir": {}}]});
        let runs = json!([{"name": "c", "state": {"running": {"startedAt": at}}}]);
        let conditions = json!([{"type": COPIED, "status": "True"}]);
        let status = json!({"startTime": at, "ephemeralContainerStatuses": runs, "conditions": conditions});
        let pod = HostPod::pack(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status}));
        let parts = pod.parts();
        assert!(std::ptr::eq(parts, pod.parts()), "it is read again");
        let at: Timestamp = at.parse().unwrap();
        let told: Vec<_> = parts.containers.iter().map(|one| (one.image.as_str(), one.started)).collect();
        assert_eq!(told, [("a:1", None), ("b:1", None), ("c:1", Some(at))]);
        assert_eq!((parts.had_copy, parts.started), (true, Some(at)));
        assert_eq!(parts.claims, [("data".to_owned(), "db".to_owned())]);
    }
}
