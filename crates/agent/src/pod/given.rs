//! Of what of its pod a copy was made, as far as that may change while it runs: images, labels, annotations, tolerations and the time
//! it may take. Pure.
//!
//! A member may have made something else of it: who compared pod and copy would undo that, and restart what runs there. So the copy
//! says of what each of these was made, and only what its pod has changed since is changed there.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::{
    MANAGED_BY,
    object::{items, mark, text},
};
use leaf::{ownership::OURS, scheduling};

/// On a copy: digests of what it was made of, by digests of their names: there may be many.
pub(super) const GIVEN: &str = "kosmos.csi.io/given";
/// What is kept of it of a copy that a watch tells begins so.
const WHOLE: &str = "whole-";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// By these annotations containers were confined before they had fields for it: they are not to be changed of a pod that is there.
const CONFINES: &str = "container.apparmor.security.beta.kubernetes.io/";

const LABELS: &str = "labels";
const ANNOTATIONS: &str = "annotations";
const TOLERATIONS: &str = "tolerations";
const DEADLINE: &str = "deadline";
const RESOURCES: &str = "resources";
/// Of a pod as a whole, where it asks for some.
const POD_RESOURCES: &str = "podResources";

type Given = BTreeMap<String, String>;

/// What is different of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// A JSON patch of this copy and of no other pod of its name, as long as it was given nothing since.
    pub(super) patch: Value,
    /// It, or its containers, ask for other resources, which a copy is not given.
    pub(super) is_resized: bool,
}

/// The labels or annotations that a copy has of its pod. By our own keys this host knows what is its own in a member: no pod says
/// that of itself.
pub(super) fn marks(pod: &Value, kind: &str) -> Value {
    let all = pod["metadata"][kind].as_object().into_iter().flatten();
    let theirs = all.filter(|(key, _)| !is_ours(key) && *key != LAST_APPLIED);
    theirs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn is_ours(key: &str) -> bool {
    key.starts_with(OURS) || key == MANAGED_BY
}

/// What a copy of the pod says of itself.
pub(super) fn given(pod: &Value) -> Value {
    json!(json!(of(pod)).to_string())
}

fn of(pod: &Value) -> Given {
    let mut given = Given::new();
    for kind in [LABELS, ANNOTATIONS] {
        for (key, value) in marks(pod, kind).as_object().into_iter().flatten() {
            given.insert(named(kind, key), digest(value));
        }
    }
    for (_, container) in containers(pod) {
        given.insert(named("image", text(container, "/name")), digest(&container["image"]));
    }
    let resources: Vec<Value> = containers(pod).map(|(_, one)| json!([one["name"], one["resources"]])).collect();
    given.insert(RESOURCES.to_owned(), digest(&json!(resources)));
    if let Some(of_whole) = pod["spec"].get("resources") {
        given.insert(POD_RESOURCES.to_owned(), digest(of_whole));
    }
    given.insert(TOLERATIONS.to_owned(), digest(&json!(tolerations(pod).collect::<Vec<_>>())));
    given.insert(DEADLINE.to_owned(), digest(&pod["spec"]["activeDeadlineSeconds"]));
    given
}

/// None of a copy that was made before copies said it: nothing is known of what the member has made of that.
fn told(copy: &Value) -> Option<Given> {
    serde_json::from_str(mark(copy, ANNOTATIONS, GIVEN)).ok()
}

fn named(kind: &str, name: &str) -> String {
    format!("{}{}", &kind[..1], digest(&json!(name)))
}

fn digest(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string());
    format!("{:08x}", u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
}

/// With the list that each is in.
fn containers(pod: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    let of = |list: &'static str| items(pod, list).map(move |one| (list, one));
    of("/spec/initContainers").chain(of("/spec/containers"))
}

fn tolerations(pod: &Value) -> impl Iterator<Item = &Value> {
    items(pod, "/spec/tolerations").filter(|one| !scheduling::is_of_virtual_nodes(one))
}

/// Whether the copy is to be changed, as far as it is known.
pub(super) fn is_due(pod: &Value, copy: &Value) -> bool {
    let note = mark(copy, ANNOTATIONS, GIVEN);
    let told = if note.starts_with(WHOLE) { Some(note.to_owned()) } else { kept(note) };
    told.is_some_and(|told| told != whole(&of(pod)))
}

/// Of what a copy says that it was made of, enough to see whether that is so still: a pod may have very many labels.
pub(super) fn kept(note: &str) -> Option<String> {
    let told: Given = serde_json::from_str(note).ok()?;
    Some(whole(&told))
}

fn whole(given: &Given) -> String {
    let mut first = [0; 16];
    first.copy_from_slice(&Sha256::digest(json!(given).to_string())[..16]);
    format!("{WHOLE}{:032x}", u128::from_be_bytes(first))
}

/// Whether a change of the one would be one of the other.
pub(super) fn is_same(copy: &Value, before: &Value) -> bool {
    let is_given_the_same = mark(copy, ANNOTATIONS, GIVEN) == mark(before, ANNOTATIONS, GIVEN);
    copy["metadata"]["uid"] == before["metadata"]["uid"] && is_given_the_same
}

/// None where there is nothing to do.
pub(super) fn change(pod: &Value, copy: &Value) -> Option<Change> {
    let (told, now) = (told(copy)?, of(pod));
    if told == now {
        return None;
    }
    let is_new = |item: &str| told.get(item) != now.get(item);
    // One that comes late is not to undo a later one.
    let note = format!("/metadata/annotations/{}", escaped(GIVEN));
    let mut changes = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": copy["metadata"]["uid"]}),
        json!({"op": "test", "path": note, "value": mark(copy, ANNOTATIONS, GIVEN)}),
        add("/metadata/annotations", GIVEN, &given(pod)),
    ];
    for kind in [LABELS, ANNOTATIONS] {
        changes.extend(changed_marks(kind, &told, pod, copy));
    }
    for (list, container) in containers(pod).filter(|(_, one)| is_new(&named("image", text(one, "/name")))) {
        if let Some(place) = items(copy, list).position(|there| there["name"] == container["name"]) {
            let path = format!("{list}/{place}/image");
            changes.push(json!({"op": "replace", "path": path, "value": container["image"]}));
        }
    }
    if is_new(TOLERATIONS) {
        changes.extend(changed_tolerations(pod, copy));
    }
    if is_new(DEADLINE) {
        changes.extend(deadline(&pod["spec"]["activeDeadlineSeconds"], &copy["spec"]["activeDeadlineSeconds"]));
    }
    // Copies of earlier versions do not say it of the pod as a whole.
    let is_resized = is_new(RESOURCES) || told.contains_key(POD_RESOURCES) && is_new(POD_RESOURCES);
    Some(Change { patch: Value::Array(changes), is_resized })
}

/// Those that were given and are not there any more go; those of the member's own stay.
fn changed_marks(kind: &str, told: &Given, pod: &Value, copy: &Value) -> Vec<Value> {
    let (wanted, path) = (marks(pod, kind), format!("/metadata/{kind}"));
    let may_change = |key: &str| !is_ours(key) && !key.starts_with(CONFINES);
    let wanted = wanted.as_object().into_iter().flatten();
    let (wanted, there) = (wanted.collect::<BTreeMap<_, _>>(), copy["metadata"][kind].as_object());
    let is_new = |key: &str, value: &Value| told.get(&named(kind, key)) != Some(&digest(value));
    let new = wanted.iter().filter(|(key, value)| may_change(key) && is_new(key, value));
    // Whoever writes in the member may have written that ours were given.
    let gone = there.into_iter().flatten().map(|(key, _)| key);
    let gone = gone.filter(|key| may_change(key) && told.contains_key(&named(kind, key)) && !wanted.contains_key(key));
    let gone = gone.map(|key| json!({"op": "remove", "path": format!("{path}/{}", escaped(key))}));
    new.map(|(key, value)| add(&path, key, value)).chain(gone).collect()
}

/// They can be added to a pod, and how long one holds can be changed.
fn changed_tolerations(pod: &Value, copy: &Value) -> Vec<Value> {
    let path = "/spec/tolerations";
    let without_time = |one: &Value| {
        let mut one = one.clone();
        one.as_object_mut().map(|fields| fields.remove("tolerationSeconds"));
        one
    };
    let mut changes = Vec::new();
    for one in tolerations(pod).filter(|one| items(copy, path).all(|there| there != *one)) {
        let place = items(copy, path).position(|there| without_time(there) == without_time(one));
        changes.push(match place {
            Some(place) => json!({"op": "replace", "path": format!("{path}/{place}"), "value": one}),
            None => json!({"op": "add", "path": format!("{path}/-"), "value": one}),
        });
    }
    if copy.pointer(path).is_none() && !changes.is_empty() {
        changes.insert(0, json!({"op": "add", "path": path, "value": []}));
    }
    changes
}

/// It can be set and shortened.
fn deadline(wanted: &Value, there: &Value) -> Option<Value> {
    let shortens = wanted.as_u64()? < there.as_u64().unwrap_or(u64::MAX);
    shortens.then(|| json!({"op": "add", "path": "/spec/activeDeadlineSeconds", "value": wanted}))
}

fn add(path: &str, key: &str, value: &Value) -> Value {
    json!({"op": "add", "path": format!("{path}/{}", escaped(key)), "value": value})
}

/// As a part of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// In a few words, for the log.
pub(super) fn words(change: &Change) -> String {
    let changes = change.patch.as_array().into_iter().flatten().filter(|one| one["op"] != "test");
    changes.map(|one| text(one, "/path")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> Value {
        let mut pod = json!({
            "metadata": {
                "uid": "u",
                "labels": {"app": "db", "role": "primary", MANAGED_BY: "Helm"},
                "annotations": {"a/b": "1", "kosmos.csi.io/x": "1"},
            },
            "spec": {
                "initContainers": [{"name": "prepare", "image": "i:1"}],
                "containers": [{"name": "main", "image": "db:1", "resources": {}}, {"name": "beside", "image": "b:1"}],
                "tolerations": [{"key": "kosmos.io/node"}, {"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}],
                "activeDeadlineSeconds": 100,
            },
        });
        change(&mut pod);
        pod
    }

    /// As a member has it: images of its own mirror, a label and a container of its own, a label and a deadline that it has changed.
    fn copy_of(pod: &Value) -> Value {
        let mut copy = pod.clone();
        copy["metadata"]["uid"] = json!("c");
        copy["metadata"]["labels"] =
            json!({"app": "theirs", "role": "primary", "mesh": "on", MANAGED_BY: "kosmos.csi.io"});
        copy["metadata"]["annotations"] = json!({"a/b": "1", GIVEN: given(pod)});
        copy["spec"]["tolerations"] = json!([{"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}]);
        copy["spec"]["containers"] = json!([
            {"name": "mesh", "image": "m"}, {"name": "main", "image": "mirror/db:1"}, {"name": "beside", "image": "mirror/b:1"}]);
        copy["spec"]["activeDeadlineSeconds"] = json!(50);
        copy
    }

    fn changes(change_pod: impl FnOnce(&mut Value)) -> Vec<Value> {
        let copy = copy_of(&pod(|_| ()));
        let change = change(&pod(change_pod), &copy).unwrap();
        let mut patch = change.patch.as_array().unwrap().clone();
        assert_eq!(patch.remove(0), json!({"op": "test", "path": "/metadata/uid", "value": "c"}));
        let note = "/metadata/annotations/kosmos.csi.io~1given";
        let before = &copy["metadata"]["annotations"][GIVEN];
        assert_eq!(patch.remove(0), json!({"op": "test", "path": note, "value": before}));
        assert_eq!(patch.remove(0)["path"], note);
        patch
    }

    #[test]
    fn what_a_member_has_made_of_a_copy_is_no_change_of_its_pod() {
        let (same, copy) = (pod(|_| ()), copy_of(&pod(|_| ())));
        assert!(!is_due(&same, &copy) && change(&same, &copy).is_none());
        for ours in ["kosmos.csi.io/x", MANAGED_BY] {
            let changed = pod(|pod| {
                pod["metadata"]["labels"][ours] = json!("2");
                pod["metadata"]["annotations"][ours] = json!("2");
            });
            let patch = change(&changed, &copy).map(|change| change.patch.to_string()).unwrap_or_default();
            assert!(!patch.contains("labels/"), "{ours}: our own marks are not given: {patch}");
        }
    }

    #[test]
    fn what_is_changed_of_a_pod_is_changed_of_its_copy_and_nothing_else() {
        for (name, change_pod, expected) in [
            (
                "an image",
                (|pod| pod["spec"]["containers"][1]["image"] = json!("b:2")) as fn(&mut Value),
                json!([{"op": "replace", "path": "/spec/containers/2/image", "value": "b:2"}]),
            ),
            (
                "labels, of which one has gone",
                |pod| pod["metadata"]["labels"] = json!({"app": "db", "tier": "1"}),
                json!([{"op": "add", "path": "/metadata/labels/tier", "value": "1"}, {"op": "remove", "path": "/metadata/labels/role"}]),
            ),
            (
                "an annotation",
                |pod| pod["metadata"]["annotations"]["a/b"] = json!("2"),
                json!([{"op": "add", "path": "/metadata/annotations/a~1b", "value": "2"}]),
            ),
            (
                "what confines a container",
                |pod| {
                    pod["metadata"]["annotations"]["container.apparmor.security.beta.kubernetes.io/main"] = json!("x");
                },
                json!([]),
            ),
            (
                "another toleration, and how long one holds",
                |pod| {
                    pod["spec"]["tolerations"] =
                        json!([{"key": "fpga"}, {"key": "gpu", "operator": "Exists", "tolerationSeconds": 9}]);
                },
                json!([
                    {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "fpga"}},
                    {"op": "replace", "path": "/spec/tolerations/0", "value": {"key": "gpu", "operator": "Exists", "tolerationSeconds": 9}},
                ]),
            ),
            (
                "a shorter time",
                |pod| pod["spec"]["activeDeadlineSeconds"] = json!(20),
                json!([{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 20}]),
            ),
            (
                "a time that the member has shortened more",
                |pod| pod["spec"]["activeDeadlineSeconds"] = json!(80),
                json!([]),
            ),
            (
                "resources",
                |pod| pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}}),
                json!([]),
            ),
        ] {
            assert_eq!(json!(changes(change_pod)), expected, "{name}");
        }
        let resized = pod(|pod| pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}}));
        assert!(change(&resized, &copy_of(&pod(|_| ()))).unwrap().is_resized);
    }

    #[test]
    fn other_resources_of_a_pod_as_a_whole_are_noticed_where_its_copy_says_what_they_were() {
        let asks = |cpu: &str| pod(|pod| pod["spec"]["resources"] = json!({"requests": {"cpu": cpu}}));
        let (before, resized) = (asks("4"), asks("2"));
        let is_resized = |copy: &Value| change(&resized, copy).map(|change| change.is_resized);
        assert_eq!(is_resized(&copy_of(&before)), Some(true));
        assert_eq!(is_resized(&copy_of(&pod(|_| ()))), Some(false), "of an earlier version");
        assert_eq!(is_resized(&copy_of(&resized)), None);
    }

    #[test]
    fn copy_that_was_changed_says_so_and_is_not_changed_again() {
        let new = pod(|pod| pod["metadata"]["labels"]["role"] = json!("replica"));
        let mut copy = copy_of(&pod(|_| ()));
        assert!(is_due(&new, &copy));
        copy["metadata"]["annotations"][GIVEN] = given(&new);
        assert!(!is_due(&new, &copy));
    }

    #[test]
    fn our_own_marks_stay_whatever_the_copy_says_that_it_was_given() {
        let mut copy = copy_of(&pod(|_| ()));
        let mut forged = of(&pod(|_| ()));
        for key in ["kosmos.csi.io/host", MANAGED_BY, "mesh"] {
            forged.insert(named(LABELS, key), String::new());
        }
        copy["metadata"]["labels"]["kosmos.csi.io/host"] = json!("h");
        copy["metadata"]["annotations"][GIVEN] = json!(json!(forged).to_string());
        let patch = change(&pod(|_| ()), &copy).unwrap().patch.to_string();
        assert!(
            patch.contains("labels/mesh") && !patch.contains("labels/kosmos") && !patch.contains("labels/app."),
            "{patch}"
        );
    }

    #[test]
    fn copy_of_an_earlier_version_stays_as_it_is() {
        let mut copy = copy_of(&pod(|_| ()));
        copy["metadata"]["annotations"] = json!({});
        assert!(!is_due(&pod(|pod| pod["metadata"]["labels"]["role"] = json!("replica")), &copy));
    }
}
