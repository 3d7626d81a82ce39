//! Which volumes a virtual node says are in use (`status.volumesInUse`), as a kubelet says it of those that it has mounted. Pure.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::super::{
    member_pod::MemberPod,
    object::{Place, items, text},
};
use domain::volume::{DRIVER, VolumeId};

/// Kubernetes calls a volume by this, its storage driver, `^` and its handle.
const OF_CSI: &str = "kubernetes.io/csi/";

/// Leaves that copies mount, by handle, or by place where a copy does not say the handle; each with the virtual node that its pod is on.
/// None: the host has that pod no more, and it may have been on any.
pub(super) type Mounted = HashSet<(String, Option<String>)>;

pub(super) fn name_of(handle: &str) -> String {
    format!("{OF_CSI}{DRIVER}^{handle}")
}

/// None of a volume that is not one of ours.
fn handle_of(name: &str) -> Option<&str> {
    name.strip_prefix(OF_CSI)?.strip_prefix(DRIVER)?.strip_prefix('^')
}

/// What a node says.
pub(super) fn said(node: &Value) -> BTreeSet<String> {
    items(node, "/status/volumesInUse").filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What the host's attach controller says on a node, from when it has attached a volume until it begins to detach it.
fn attached(node: &Value) -> impl Iterator<Item = &str> {
    items(node, "/status/volumesAttached").map(|one| text(one, "/name"))
}

pub(super) fn is_attached(node: &Value, name: &str) -> bool {
    attached(node).any(|there| there == name)
}

/// Whether anything on a node is, or may be, in use.
pub(super) fn has_any(node: &Value) -> bool {
    !said(node).is_empty() || attached(node).any(|name| handle_of(name).is_some())
}

/// By what stands beside the text of each copy: whenever one of them changes, all are gone through. `node_of`: the node of the host's pod at this
/// place that has this UID.
pub(super) fn mounted(
    copies: impl Iterator<Item = (Place, Arc<MemberPod>)>,
    host: &str,
    node_of: impl Fn(&Place, &str) -> Option<String>,
) -> Mounted {
    let mut mounted = Mounted::new();
    let copies = copies.filter(|(_, copy)| copy.is_of_host(host) || copy.is_disowned());
    for (place, copy) in copies.filter(|(_, copy)| !copy.is_over()) {
        let Some(uid) = copy.says_copy_of() else { continue };
        let node = node_of(&place, uid);
        mounted.extend(copy.mounts().map(|leaf| (leaf.to_owned(), node.clone())));
    }
    mounted
}

/// What a node is to say: of what is attached to it, and of what it says already, what a copy mounts; and what is about to be mounted.
/// A copy adds nothing that the host has not attached: whoever makes pods in the member may write on them what he likes.
pub(super) fn wanted(node: &Value, mounted: &Mounted, begun: BTreeSet<String>) -> BTreeSet<String> {
    let is_mounted = |handle: &str| is_mounted(handle, text(node, "/metadata/name"), mounted);
    let known = said(node).into_iter().filter(|name| handle_of(name).is_none_or(is_mounted));
    let attached = attached(node).filter(|name| handle_of(name).is_some_and(is_mounted)).map(str::to_owned);
    known.chain(attached).chain(begun).collect()
}

fn is_mounted(handle: &str, node: &str, mounted: &Mounted) -> bool {
    let place = VolumeId::parse(handle).and_then(|id| id.place()).map(|place| place.to_string());
    let nodes = [Some(node.to_owned()), None];
    let leaves = || [Some(handle.to_owned()), place.clone()].into_iter().flatten();
    nodes.into_iter().any(|node| leaves().any(|leaf| mounted.contains(&(leaf, node.clone()))))
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use serde_json::json;

    use super::{
        super::{
            super::{HOST, MANAGED_BY, member_pod::MOUNTS},
            step::COPY_OF,
        },
        *,
    };

    const HANDLE: &str = "m/shop/data/0123456789abcdef";
    const NAME: &str = "kubernetes.io/csi/kosmos.csi.io^m/shop/data/0123456789abcdef";
    const HASHED: &str = "m///0123456789abcdef0123456789abcdef";

    fn node(name: &str, in_use: &[&str], attached: &[&str]) -> Value {
        let attached: Vec<Value> = attached.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
        json!({"metadata": {"name": name}, "status": {"volumesInUse": in_use, "volumesAttached": attached}})
    }

    fn copy(of: &str, phase: &str, claim: &str, mounts: &str) -> Value {
        let volumes =
            json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}, {"name": "w", "emptyDir": {}}]);
        json!({
            "metadata": {"namespace": "shop", "name": "web", "labels": {MANAGED_BY: DRIVER, HOST: "h"},
                "annotations": {COPY_OF: of, MOUNTS: mounts}},
            "spec": {"volumes": volumes},
            "status": {"phase": phase},
        })
    }

    fn kept(copy: &Value) -> (Place, Arc<MemberPod>) {
        (Place::of(copy), Arc::new(MemberPod::of(copy)))
    }

    /// What the node is to say, where the host has the pod `u` alone, on the node `kosmos-m-a`.
    fn says(node: &Value, copy: &Value) -> Vec<String> {
        let of_host = |_: &Place, uid: &str| (uid == "u").then(|| "kosmos-m-a".to_owned());
        let mounted = mounted(std::iter::once(kept(copy)), "h", of_host);
        wanted(node, &mounted, BTreeSet::new()).into_iter().collect()
    }

    #[test]
    fn volume_is_called_as_kubernetes_calls_it() {
        assert_eq!(name_of(HANDLE), NAME);
        assert_eq!(handle_of(NAME), Some(HANDLE));
        assert_eq!(handle_of("kubernetes.io/csi/ebs.csi.aws.com^vol-1"), None);
    }

    #[test]
    fn volume_is_in_use_as_long_as_a_copy_mounts_it_on_its_node_or_the_host_has_its_pod_no_more() {
        for (case, at, copy, in_use) in [
            ("running", "kosmos-m-a", copy("u", "Running", "data", ""), true),
            ("waiting for an image", "kosmos-m-a", copy("u", "Pending", "data", ""), true),
            ("on another node", "kosmos-m-b", copy("u", "Running", "data", ""), false),
            ("of a pod that is gone", "kosmos-m-b", copy("gone", "Running", "data", ""), true),
            ("over", "kosmos-m-a", copy("u", "Failed", "data", ""), false),
            ("with another claim", "kosmos-m-a", copy("u", "Running", "other", ""), false),
        ] {
            let expected = if in_use { vec![NAME] } else { vec![] };
            assert_eq!(says(&node(at, &[NAME], &[]), &copy), expected, "{case}");
            assert_eq!(says(&node(at, &[], &[NAME]), &copy), expected, "{case}, of an earlier agent");
        }
        let mut disowned = copy("u", "Running", "data", "");
        disowned["metadata"]["labels"] = json!({MANAGED_BY: "Helm", HOST: "h"});
        assert_eq!(says(&node("kosmos-m-a", &[NAME], &[]), &disowned), [NAME], "it runs on");
        let mut of_another_host = copy("u", "Running", "data", "");
        of_another_host["metadata"]["labels"][HOST] = json!("other");
        assert_eq!(says(&node("kosmos-m-a", &[NAME], &[]), &of_another_host), Vec::<String>::new());
    }

    #[test]
    fn leaf_under_another_name_is_known_by_what_its_copy_says() {
        let hashed = name_of(HASHED);
        let again = |handle: &str| copy("u", "Running", "again", &json!({"again": handle}).to_string());
        for (name, handle) in [(NAME, HANDLE), (hashed.as_str(), HASHED)] {
            assert_eq!(says(&node("kosmos-m-a", &[name], &[]), &again(handle)), [name]);
        }
        let taken = copy("u", "Running", "data", &json!({"data": HASHED}).to_string());
        assert_eq!(says(&node("kosmos-m-a", &[NAME], &[]), &taken), Vec::<String>::new(), "another leaf is there now");
    }

    #[test]
    fn member_adds_nothing_that_the_host_has_not_attached() {
        let planted = copy("x", "Running", "data", "");
        let theirs = "kubernetes.io/csi/ebs.csi.aws.com^vol-1";
        assert_eq!(says(&node("kosmos-m-a", &[], &[]), &planted), Vec::<String>::new());
        assert_eq!(says(&node("kosmos-m-a", &[], &[theirs]), &planted), Vec::<String>::new());
        assert_eq!(says(&node("kosmos-m-a", &[theirs], &[]), &planted), [theirs], "it is not ours to take away");
        assert!(has_any(&node("n", &[], &[NAME])) && !has_any(&node("n", &[], &[theirs])));
    }

    /// Else he would keep attached what is another namespace's, and no other node would get it.
    #[test]
    fn who_makes_pods_in_one_namespace_of_a_member_names_no_place_in_another() {
        for (said, in_use) in [("shop/data", false), (HANDLE, true)] {
            let mut planted = copy("x", "Pending", "bait", &json!({"bait": said}).to_string());
            planted["metadata"]["namespace"] = json!("attic");
            let expected = if in_use { vec![NAME] } else { vec![] };
            assert_eq!(says(&node("kosmos-m-a", &[NAME], &[NAME]), &planted), expected, "{said}");
        }
    }

    #[test]
    fn copies_are_looked_at_one_by_one_and_none_is_held_meanwhile() {
        let mut last = Weak::new();
        let copies = (0..3).map(|_| {
            assert!(last.upgrade().is_none(), "the one before is still there");
            let one = kept(&copy("u", "Running", "data", ""));
            last = Arc::downgrade(&one.1);
            one
        });
        assert_eq!(mounted(copies, "h", |_, _| None).len(), 1);
    }

    #[test]
    fn what_is_about_to_be_mounted_is_in_use() {
        let begun = BTreeSet::from([NAME.to_owned()]);
        assert_eq!(wanted(&node("kosmos-m-a", &[], &[]), &Mounted::new(), begun.clone()), begun);
    }
}
