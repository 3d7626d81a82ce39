//! What stands in the clusters before the driver comes: classes, member Secrets, and objects of others that it must never
//! touch, some of which look much like its own.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::{Value, json};
use simulate::{
    storage::{Binding, Class, Reclaim, Settings, Work},
    text,
};

use crate::{
    authority::AUTHORITY,
    bench::{Bench, DRIVER_NAMESPACE, SHOP, lock},
    snapshotter::{CLASSES, CONTENTS, SNAPSHOTS},
};

/// In a schedule.
pub const MEMBERS: usize = 20;

/// Classes in every member: bound at once, bound when a pod comes, and one whose volumes outlive their claims.
pub const NOW: &str = "now";
pub const LATER: &str = "later";
pub const KEPT: &str = "kept";

/// A VolumeAttributesClass in every member.
pub const GOLD: &str = "gold";

/// The namespace in members where other people's things are.
pub const ELSEWHERE: &str = "elsewhere";
/// Somebody else's storage driver, and the class of its snapshots.
pub const THEIRS: &str = "theirs";
/// On what a backup tool has restored.
const RESTORED: &str = "example.com/restored";
/// Before the names of volumes that people have made for leaf claims.
pub const BY_HAND: &str = "by-hand-";
/// A claim's name of so many letters and a few more has no room in a handle.
pub const LONG: usize = 100;
pub const OTHER_HOST: &str = "0b7c2a52-0000-4000-8000-000000000000";

/// Storage that takes exactly so long for each of its steps.
pub fn steady(step: Duration) -> Settings {
    let kept = Class { reclaim: Reclaim::Retain, ..Class::new(KEPT, Binding::Immediate) };
    let classes = vec![Class::new(NOW, Binding::Immediate), Class::new(LATER, Binding::WaitForFirstConsumer), kept];
    let work = || Work::takes(step..=step);
    let (provisioning, deleting, resizing, snapshotting) = (work(), work(), work(), work());
    Settings { classes, provisioning, deleting, resizing, snapshotting, ..Settings::default() }
}

const GIB: u64 = 1 << 30;
/// What a member with a limit may hold in all, and what somebody takes who leaves no room.
const ALL_ROOM: u64 = 1000 * GIB;
const HOG: &str = "hog";

/// Steady storage that can be filled up.
pub fn tight(step: Duration) -> Settings {
    Settings { capacity: Some(ALL_ROOM), ..steady(step) }
}

/// Somebody in a member takes all the room that its storage has but half a gibibyte; so much is taken already.
pub fn fill_beside(bench: &Bench, at: usize, taken: u64) {
    let mut claim = claim(SHOP, HOG, &json!({}));
    claim["spec"]["storageClassName"] = json!(NOW);
    claim["spec"]["resources"]["requests"]["storage"] = json!((ALL_ROOM - GIB / 2 - taken).to_string());
    let _ = bench.members[at].create("persistentvolumeclaims", claim);
}

pub fn fill(bench: &Bench, at: usize) {
    fill_beside(bench, at, 0);
}

/// And gives it back.
pub fn empty(bench: &Bench, at: usize) {
    let _ = bench.members[at].delete("persistentvolumeclaims", SHOP, HOG);
}

/// Storage as it is on a bad day.
pub fn moody() -> Settings {
    let work = |most: u64| Work { takes: Duration::ZERO..=Duration::from_millis(most), fails_per_mille: 50 };
    let mut moody =
        Settings { provisioning: work(20_000), deleting: work(8_000), resizing: work(8_000), ..tight(Duration::ZERO) };
    moody.pods.goes_by_former_claims = Duration::from_secs(5);
    moody
}

pub fn kubeconfig_text(server: &str) -> String {
    let authority = if server.starts_with("https") { AUTHORITY } else { "" };
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: m, cluster: {{server: '{server}',\n\
         certificate-authority-data: '{authority}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
    )
}

pub fn kubeconfig(member: &str) -> Value {
    let text = kubeconfig_text(&format!("https://{member}"));
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(member.to_owned()),
            namespace: Some(DRIVER_NAMESPACE.to_owned()),
            labels: Some(BTreeMap::from([("kosmos.csi.io/member".to_owned(), member.to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("kubeconfig".to_owned(), ByteString(text.into_bytes()))])),
        ..Secret::default()
    };
    json!(secret)
}

/// Objects of others, as they were when they were put there.
#[derive(Clone, Debug, Default)]
pub struct Planted(Vec<(usize, &'static str, Value)>);

impl Planted {
    /// In every member: a claim and a volume of another host's, with labels like ours, and ones whose labels are nearly ours.
    pub fn everywhere(bench: &Bench) -> Self {
        let mut planted = Self::default();
        let host = bench.host_id();
        let other = labels(OTHER_HOST, "00000000000000000000000000000001");
        let half = json!({"kosmos.csi.io/host": host, "kosmos.csi.io/volume": "00000000000000000000000000000002"});
        for (at, member) in bench.members.iter().enumerate() {
            member.create("namespaces", json!({"metadata": {"name": ELSEWHERE}})).unwrap();
            planted.put(bench, at, "persistentvolumeclaims", claim(ELSEWHERE, "other-host", &other));
            planted.put(bench, at, "persistentvolumeclaims", claim(ELSEWHERE, "half", &half));
            planted.put(bench, at, "persistentvolumeclaims", claim(SHOP, "stranger", &json!({})));
            planted.put(bench, at, "persistentvolumes", volume("other-host", &other));
            planted.put(bench, at, "persistentvolumes", volume("unlabelled", &json!({})));
            // Where there are such kinds at all.
            planted.put(
                bench,
                at,
                CLASSES,
                json!({"metadata": {"name": THEIRS}, "driver": THEIRS, "deletionPolicy": "Delete"}),
            );
            planted.put(bench, at, SNAPSHOTS, snapshot(SHOP, "other-host", &other));
            planted.put(bench, at, CONTENTS, content("other-host", &other));
            planted.put(bench, at, CONTENTS, content("unlabelled", &json!({})));
        }
        planted
    }

    /// Somebody else's claim under a name that the driver will want.
    pub fn squatter(&mut self, bench: &Bench, at: usize, name: &str) {
        let squatter = claim(SHOP, name, &json!({"app.kubernetes.io/managed-by": "Helm"}));
        self.put(bench, at, "persistentvolumeclaims", squatter);
    }

    /// The same, as another host's driver makes its leaves.
    pub fn leaf_of_another_host(&mut self, bench: &Bench, at: usize, name: &str) {
        let mut leaf = claim(SHOP, name, &labels(OTHER_HOST, "00000000000000000000000000000003"));
        leaf["metadata"]["finalizers"] = json!(["kosmos.csi.io/protect"]);
        self.put(bench, at, "persistentvolumeclaims", leaf);
    }

    /// A volume that people have made for a leaf claim to come, with what they have on it.
    pub fn volume_by_hand(&mut self, bench: &Bench, at: usize, claim: &str) {
        let mut by_hand = volume(&format!("{BY_HAND}{claim}"), &json!({}));
        by_hand["spec"]["storageClassName"] = json!(NOW);
        by_hand["spec"]["capacity"]["storage"] = json!("4Gi");
        by_hand["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "namespace": SHOP, "name": claim});
        self.put(bench, at, "persistentvolumes", by_hand);
    }

    /// Another host's claim in the place of a leaf that has gone, for a volume with the same hash.
    pub fn namesake(&mut self, bench: &Bench, at: usize, leaf: &Value) {
        let mut labels = leaf["metadata"]["labels"].clone();
        labels["kosmos.csi.io/host"] = json!(OTHER_HOST);
        let (namespace, name) = (text(leaf, "/metadata/namespace"), text(leaf, "/metadata/name"));
        self.put(bench, at, "persistentvolumeclaims", claim(namespace, name, &labels));
    }

    /// A copy of a leaf claim in another namespace, perhaps of another member, labels and annotations and all, as backup tools
    /// make them. They leave finalizers out.
    pub fn copy(&mut self, bench: &Bench, at: usize, leaf: &Value) {
        let name = format!("copy-of-{}", text(leaf, "/metadata/name"));
        let mut copy = claim(ELSEWHERE, &name, &leaf["metadata"]["labels"]);
        copy["metadata"]["annotations"] = leaf["metadata"]["annotations"].clone();
        self.put(bench, at, "persistentvolumeclaims", copy);
    }

    /// The same by the leaf claim's own name, as backup tools restore it.
    pub fn restore(&mut self, bench: &Bench, at: usize, leaf: &Value) {
        let mut restored = claim(ELSEWHERE, text(leaf, "/metadata/name"), &leaf["metadata"]["labels"]);
        restored["metadata"]["annotations"] = notes_of_restored(leaf);
        self.put(bench, at, "persistentvolumeclaims", restored);
    }

    /// The same as a copy, with its volume, to which it is bound.
    pub fn copy_with_volume(bench: &Bench, at: usize, leaf: &Value, of: &Value) {
        let name = format!("copy-of-{}", text(leaf, "/metadata/name"));
        let mut copy = claim(ELSEWHERE, &name, &leaf["metadata"]["labels"]);
        copy["metadata"]["annotations"] = leaf["metadata"]["annotations"].clone();
        copy["spec"]["volumeName"] = json!(name);
        copy["spec"]["storageClassName"] = json!("");
        let mut copied = volume(&name, &of["metadata"]["labels"]);
        copied["metadata"]["annotations"] = of["metadata"]["annotations"].clone();
        copied["spec"]["storageClassName"] = json!("");
        copied["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "namespace": ELSEWHERE, "name": name});
        let copied = bench.members[at].create("persistentvolumes", copied).unwrap();
        let made = bench.members[at].create("persistentvolumeclaims", copy).unwrap();
        for made in [&copied, &made] {
            lock(&bench.guard.history).plant(made);
        }
    }

    /// Takes note of what the member has made of a copy and its volume.
    pub fn copy_is_bound(&mut self, bench: &Bench, at: usize, leaf: &Value) {
        let name = format!("copy-of-{}", text(leaf, "/metadata/name"));
        for (kind, namespace) in [("persistentvolumeclaims", ELSEWHERE), ("persistentvolumes", "")] {
            let is = bench.members[at].get(kind, namespace, &name).unwrap();
            assert_eq!(text(&is, "/status/phase"), "Bound", "{is}");
            self.0.push((at, kind, Value::clone(&is)));
        }
    }

    /// Copies of a leaf snapshot and of what stands behind it, labels and all.
    pub fn copy_snapshot(&mut self, bench: &Bench, at: usize, leaf: &Value) {
        let name = format!("copy-of-{}", text(leaf, "/metadata/name"));
        let mut copy = snapshot(ELSEWHERE, &name, &leaf["metadata"]["labels"]);
        copy["metadata"]["annotations"] = leaf["metadata"]["annotations"].clone();
        self.put(bench, at, SNAPSHOTS, copy);
        self.put(bench, at, CONTENTS, content(&name, &leaf["metadata"]["labels"]));
    }

    /// A leaf snapshot as a backup tool restores it into another namespace: by its own name, labels and annotations and all.
    pub fn restore_snapshot(&mut self, bench: &Bench, at: usize, leaf: &Value) {
        let mut restored = snapshot(ELSEWHERE, text(leaf, "/metadata/name"), &leaf["metadata"]["labels"]);
        restored["metadata"]["annotations"] = notes_of_restored(leaf);
        self.put(bench, at, SNAPSHOTS, restored);
    }

    /// Whoever made the copies does as the driver's message tells, and removes them.
    pub fn remove_copies(&mut self, bench: &Bench) {
        self.0.retain(|(at, kind, object)| {
            let name = text(object, "/metadata/name");
            let copy = name.starts_with("copy-of-") || object["metadata"]["annotations"][RESTORED].is_string();
            if copy {
                let _ = bench.members[*at].delete(kind, text(object, "/metadata/namespace"), name);
            }
            !copy
        });
    }

    fn put(&mut self, bench: &Bench, at: usize, kind: &'static str, object: Value) {
        if let Ok(made) = bench.members[at].create(kind, object) {
            lock(&bench.guard.history).plant(&made);
            self.0.push((at, kind, Value::clone(&made)));
        }
    }

    /// What has changed of them.
    pub fn touched(&self, bench: &Bench) -> Vec<String> {
        let is_as_it_was = |(at, kind, was): &&(usize, &'static str, Value)| {
            let (namespace, name) = (text(was, "/metadata/namespace"), text(was, "/metadata/name"));
            let is = bench.members[*at].get(kind, namespace, name);
            let same = |is: &Value, path: &str| is.pointer(path) == was.pointer(path);
            let kept = ["/metadata/uid", "/metadata/deletionTimestamp", "/spec/persistentVolumeReclaimPolicy"];
            let untouched = ["/metadata/labels", "/spec/claimRef", "/spec/volumeName", "/spec/deletionPolicy"];
            // It is for a leaf, which it is bound to and marked for.
            let untouched = if name.starts_with(BY_HAND) { &[][..] } else { &untouched[..] };
            is.is_some_and(|is| kept.iter().chain(untouched).all(|path| same(&is, path)))
        };
        let touched = self.0.iter().filter(|planted| !is_as_it_was(planted));
        touched.map(|(at, kind, was)| format!("I3: m{at}: {kind} of somebody else's is not as it was: {was}")).collect()
    }
}

fn notes_of_restored(leaf: &Value) -> Value {
    let mut notes = leaf["metadata"]["annotations"].clone();
    notes[RESTORED] = json!("yes");
    notes
}

pub fn labels(host: &str, hash: &str) -> Value {
    json!({
        "app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": host, "kosmos.csi.io/volume": hash,
        "kosmos.csi.io/snapshot": hash,
    })
}

/// Of a class that nobody serves: it stays as it is.
fn claim(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "nobody-serves-this",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

/// A claim of somebody's in a member, for a volume that is there.
pub fn claim_for(volume: &Value, name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "accessModes": volume["spec"]["accessModes"], "storageClassName": volume["spec"]["storageClassName"],
            "volumeName": volume["metadata"]["name"], "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

pub fn volume(name: &str, labels: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "nobody-serves-this-either",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": format!("/srv/{name}")},
        },
    })
}

fn snapshot(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"volumeSnapshotClassName": THEIRS, "source": {"persistentVolumeClaimName": "stranger"}},
    })
}

/// It would outlive its snapshot.
fn content(name: &str, labels: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "deletionPolicy": "Retain", "driver": THEIRS, "source": {"snapshotHandle": name},
            "volumeSnapshotRef": {"namespace": ELSEWHERE, "name": name, "uid": format!("uid-of-{name}")},
        },
    })
}
