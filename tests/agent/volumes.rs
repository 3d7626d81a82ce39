//! Volumes of pods: which claim of the member a pod mounts, and from when on.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{ATTACHMENTS, NAMESPACE, NODE, SHOP, World, standing, story, text, until};

const HASH: &str = "0123456789abcdef0123456789abcdef";
const CLAIMS: &str = "persistentvolumeclaims";

impl World {
    /// A bound claim of the host whose leaf is in the member.
    pub(super) fn claim(&self, name: &str) {
        self.open_namespace(SHOP);
        self.leaf(name, HASH, &json!(null));
        self.bound(name, &format!("m/{SHOP}/{name}/{}", &HASH[..16]));
    }

    fn leaf(&self, name: &str, hash: &str, annotations: &Value) {
        let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": self.host_id(),
            "kosmos.csi.io/volume": hash});
        let metadata = json!({"namespace": SHOP, "name": name, "labels": labels, "annotations": annotations});
        self.member.create(CLAIMS, json!({"metadata": metadata, "spec": spec()})).unwrap();
    }

    /// A claim of the host that is bound to a volume with this handle.
    fn bound(&self, name: &str, handle: &str) {
        let mut claim = json!({"metadata": {"namespace": SHOP, "name": name}, "spec": spec()});
        claim["spec"]["volumeName"] = json!("pv");
        let made = self.host.create(CLAIMS, claim).unwrap();
        let reference = json!({"namespace": SHOP, "name": name, "uid": made["metadata"]["uid"]});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "now",
            "claimRef": reference, "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle}});
        self.host.create("persistentvolumes", json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap();
    }

    pub(super) fn attach(&self) {
        let spec = json!({"attacher": "kosmos.csi.io", "nodeName": NODE, "source": {"persistentVolumeName": "pv"}});
        self.host.create(ATTACHMENTS, json!({"metadata": {"name": "csi-x"}, "spec": spec})).unwrap();
        self.host.change(ATTACHMENTS, "", "csi-x", |one| one["status"]["attached"] = json!(true)).unwrap();
        // As the attach controller says it, a moment later.
        let attached = json!([{"name": self.volume_name(), "devicePath": ""}]);
        let _ = self.host.change("nodes", "", NODE, |node| node["status"]["volumesAttached"] = attached);
    }

    /// As Kubernetes calls the volume on its node.
    pub(super) fn volume_name(&self) -> String {
        let volume = self.host.get("persistentvolumes", "", "pv").unwrap();
        format!("kubernetes.io/csi/kosmos.csi.io^{}", text(&volume, "/spec/csi/volumeHandle"))
    }

    /// The copy of a pod that the host has no more, with the claim `data`.
    fn former(&self, name: &str) {
        let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": self.host_id()});
        let metadata = json!({"namespace": SHOP, "name": name, "labels": labels,
            "annotations": {"kosmos.csi.io/pod-uid": "of-then"}});
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        let spec = json!({"containers": [{"name": "c", "image": "i:1"}], "volumes": volumes,
            "terminationGracePeriodSeconds": 120});
        self.member.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
    }

    fn mounted(&self, pod: &str) -> Value {
        self.copy(pod).unwrap()["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"].clone()
    }
}

fn spec() -> Value {
    let request = json!({"requests": {"storage": "1Gi"}});
    json!({"accessModes": ["ReadWriteOnce"], "resources": request, "storageClassName": "now"})
}

#[test]
fn pod_runs_in_the_member_once_its_volume_is_attached_and_ends_with_its_copy() {
    story(1, async {
        let world = standing(1).await;
        world.claim("data");
        world.run_pod("web", Some("data"));
        until("it says what it waits for", || world.says("web", "WaitsForVolume", "not attached")).await;
        sleep(Duration::from_mins(1)).await;
        assert!(world.copy("web").is_none(), "it runs before its volume is attached");
        world.attach();
        let begun = tokio::time::Instant::now();
        until("it runs", || world.phase("web") == "Running").await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        let (pod, copy) = (world.pod("web").unwrap(), world.copy("web").unwrap());
        assert_eq!(world.mounted("web"), "data");
        assert_eq!(copy["metadata"]["annotations"]["kosmos.csi.io/pod-uid"], pod["metadata"]["uid"]);
        assert_eq!(copy["metadata"]["labels"]["kosmos.csi.io/host"], *world.host_id());
        assert_eq!(pod["status"]["podIP"], copy["status"]["podIP"]);
        world.host.delete("pods", SHOP, "web").unwrap();
        until("the copy ends", || {
            world.copy("web").is_none_or(|copy| !text(&copy, "/metadata/deletionTimestamp").is_empty())
        })
        .await;
        until("the pod is gone", || {
            assert!(world.pod("web").is_some() || world.copy("web").is_none(), "the pod is gone before its copy");
            world.pod("web").is_none()
        })
        .await;
    });
}

/// An API server calls that of an account so, which is empty there where the pod is given no token.
#[test]
fn claim_is_mounted_whatever_its_volume_is_called_in_the_pod() {
    story(1, async {
        let world = standing(1).await;
        world.claim("data");
        let volume = json!({"name": "kube-api-access-data", "persistentVolumeClaim": {"claimName": "data"}});
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "volumes": [volume],
            "automountServiceAccountToken": false});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        world.attach();
        until("it runs", || world.phase("web") == "Running").await;
        assert_eq!(world.mounted("web"), "data");
    });
}

/// Whoever may make volumes in the host may write any handle; where nothing is attached, nobody else looks at it.
#[test]
fn claim_that_a_handle_only_names_is_mounted_by_no_pod() {
    story(1, async {
        let world = standing(1).await;
        let driver = json!({"metadata": {"name": "kosmos.csi.io"}, "spec": {"attachRequired": false}});
        world.host.create("csidrivers.storage.k8s.io", driver).unwrap();
        world.open_namespace(SHOP);
        let theirs = json!({"metadata": {"namespace": SHOP, "name": "payroll"}, "spec": spec()});
        world.member.create(CLAIMS, theirs).unwrap();
        world.bound("mine", &format!("m/{SHOP}/payroll/0123456789abcdef"));
        world.run_pod("web", Some("mine"));
        until("it says why", || world.says("web", "VolumeNotCopied", "no leaf claim for its volume")).await;
        sleep(Duration::from_mins(1)).await;
        assert!(world.copy("web").is_none(), "it mounts somebody's claim");
        let consent = |claim: &mut Value| {
            claim["metadata"]["annotations"] = json!({"kosmos.csi.io/consent": world.host_id()});
        };
        world.member.change(CLAIMS, SHOP, "payroll", consent).unwrap();
        until("it runs with consent", || world.phase("web") == "Running").await;
        assert_eq!(world.mounted("web"), "payroll");
    });
}

/// It is empty, and carries all that the leaf carried.
#[test]
fn leaf_that_came_late_is_mounted_by_no_pod_and_the_one_that_is_restored_is() {
    story(1, async {
        let world = standing(1).await;
        world.claim("data");
        let given_out = |volume: &mut Value| {
            volume["spec"]["csi"]["volumeAttributes"] =
                json!({"leafClaimUID": "u-of-then", "leafVolume": "pv-of-then"});
        };
        world.host.change("persistentvolumes", "", "pv", given_out).unwrap();
        let hold = |claim: &mut Value| claim["metadata"]["finalizers"] = json!(["kosmos.csi.io/protect"]);
        world.member.change(CLAIMS, SHOP, "data", hold).unwrap();
        world.attach();
        world.run_pod("web", Some("data"));
        until("it says why", || world.says("web", "WaitsForVolume", "until the driver has put that one back")).await;
        sleep(Duration::from_mins(1)).await;
        assert!(world.copy("web").is_none(), "it mounts an empty volume");
        let restored = |claim: &mut Value| claim["metadata"]["finalizers"] = json!([]);
        world.member.change(CLAIMS, SHOP, "data", restored).unwrap();
        until("it runs", || world.phase("web") == "Running").await;
        assert_eq!(world.mounted("web"), "data");
    });
}

/// A volume that moves away and back has the same handle again.
#[test]
fn leaf_of_before_its_volume_was_moved_is_mounted_by_no_pod_until_somebody_says_that_it_is_meant() {
    story(1, async {
        let world = standing(1).await;
        world.claim("data");
        let moved = |volume: &mut Value| {
            volume["metadata"]["annotations"] = json!({"kosmos.csi.io/replaces": "of-before"});
            volume["spec"]["csi"]["volumeAttributes"] = json!({"leafClaimUID": "of-now", "leafVolume": "pv-of-now"});
        };
        let volume = world.host.change("persistentvolumes", "", "pv", moved).unwrap();
        let says_had_by = |uid: &str| {
            let had = json!({"kosmos.csi.io/had-pv": uid});
            world.member.change(CLAIMS, SHOP, "data", |claim| claim["metadata"]["annotations"] = had.clone()).unwrap();
        };
        says_had_by("of-before");
        world.attach();
        world.run_pod("web", Some("data"));
        until("it says why", || world.says("web", "WaitsForVolume", "may be from before its volume was moved")).await;
        sleep(Duration::from_mins(1)).await;
        assert!(world.copy("web").is_none(), "it mounts what is older");
        says_had_by(text(&volume, "/metadata/uid"));
        until("it runs", || world.phase("web") == "Running").await;
        assert_eq!(world.mounted("web"), "data");
    });
}

#[test]
fn pod_whose_volume_is_moved_waits_and_is_told_by_what() {
    story(1, async {
        let world = standing(1).await;
        world.claim("data");
        let mark = json!({"kosmos.csi.io/move": "shop/to-n/01234567-89ab-cdef-0123-456789abcdef/source"});
        world.member.change(CLAIMS, SHOP, "data", |claim| claim["metadata"]["annotations"] = mark.clone()).unwrap();
        world.attach();
        world.run_pod("web", Some("data"));
        until("it says why", || world.says("web", "WaitsForVolume", "VolumeMove shop/to-n moves its volume")).await;
        sleep(Duration::from_mins(1)).await;
        assert!(world.copy("web").is_none(), "it mounts what is moved");
        world.member.change(CLAIMS, SHOP, "data", |claim| claim["metadata"]["annotations"] = json!({})).unwrap();
        until("it runs", || world.phase("web") == "Running").await;
    });
}

/// The host's volume leads to it, and its mark goes soon.
#[test]
fn pod_whose_volume_has_just_been_moved_waits_for_no_more() {
    story(1, async {
        let world = standing(1).await;
        world.claim("data");
        let mark = json!({"kosmos.csi.io/move": "shop/to-n/01234567-89ab-cdef-0123-456789abcdef/copy"});
        world.member.change(CLAIMS, SHOP, "data", |claim| claim["metadata"]["annotations"] = mark.clone()).unwrap();
        world.attach();
        world.run_pod("web", Some("data"));
        until("it runs", || world.phase("web") == "Running").await;
    });
}

#[test]
fn volume_used_again_under_another_name_is_mounted_and_not_what_has_taken_its_place() {
    story(1, async {
        let world = standing(1).await;
        let handle = format!("m/{SHOP}/data/{}", &HASH[..16]);
        world.open_namespace(SHOP);
        world.leaf("data", "fedcba9876543210fedcba9876543210", &json!(null));
        world.leaf("again", HASH, &json!({"kosmos.csi.io/handle": handle}));
        world.bound("again", &handle);
        world.attach();
        world.run_pod("web", Some("again"));
        until("it runs", || world.phase("web") == "Running").await;
        assert_eq!(world.mounted("web"), "again");
    });
}

/// Of a former cluster of this host, or one that was deleted by force: two writers would destroy what is on a volume for one node.
#[test]
fn pod_waits_until_the_copy_of_a_pod_that_the_host_has_no_more_has_ended_unless_the_volume_is_for_several() {
    for (mode, waits) in [("ReadWriteOnce", true), ("ReadWriteOncePod", true), ("ReadWriteMany", false)] {
        story(1, async {
            let world = World::whose_pods_stop_after(1, Duration::from_mins(2)).await;
            world.claim("data");
            world.host.change(CLAIMS, SHOP, "data", |claim| claim["spec"]["accessModes"] = json!([mode])).unwrap();
            world.attach();
            world.former("former");
            world.start("first");
            until("the node is ready", || world.is_ready()).await;
            world.run_pod("web", Some("data"));
            if waits {
                until("it says why it waits", || world.says("web", "WaitsForVolume", "shop/former of member m")).await;
                sleep(Duration::from_mins(1)).await;
                assert!(world.copy("web").is_none() && world.copy("former").is_some(), "{mode}: beside the former one");
                sleep(Duration::from_mins(1)).await;
            }
            until("it runs", || world.phase("web") == "Running").await;
            assert_eq!(world.copy("former").is_some(), !waits, "{mode}");
        });
    }
}

/// As the pods of a StatefulSet whose host was recreated, or that were deleted by force.
#[test]
fn pod_whose_former_one_of_the_same_name_is_still_there_says_so_once_and_runs_when_that_has_ended() {
    story(1, async {
        let world = World::whose_pods_stop_after(1, Duration::from_mins(2)).await;
        world.claim("data");
        world.attach();
        world.former("web");
        world.start("first");
        until("the node is ready", || world.is_ready()).await;
        world.run_pod("web", Some("data"));
        let says = || world.says("web", "NameTaken", "pod shop/web of member m still has the name of this pod");
        until("it says why it waits", says).await;
        let told = || world.host.list("events").iter().filter(|event| event["reason"] == "NameTaken").count();
        until("an event says so", || told() == 1).await;
        let version = || world.pod("web").unwrap()["metadata"]["resourceVersion"].clone();
        let before = version();
        sleep(Duration::from_mins(1)).await;
        assert_eq!((told(), version()), (1, before));
        let copy_of = || world.copy("web").unwrap()["metadata"]["annotations"]["kosmos.csi.io/pod-uid"].clone();
        assert_eq!(copy_of(), "of-then", "beside the former one");
        until("it runs", || world.phase("web") == "Running").await;
        assert_ne!(copy_of(), "of-then");
        assert!(world.says("web", "Copied", "member m"));
    });
}

/// Somebody in the member takes off what says whose it is, so that it is nobody's copy, and puts it back; an etcd that is restored does the same.
#[test]
fn copy_that_runs_on_although_its_pod_has_ended_is_ended_before_its_volume_is_given_to_another_pod() {
    story(1, async {
        let world = World::whose_pods_stop_after(1, Duration::from_secs(40)).await;
        world.start("first");
        until("the node is ready", || world.is_ready()).await;
        world.claim("data");
        world.attach();
        world.run_pod("old", Some("data"));
        until("it runs", || world.phase("old") == "Running").await;
        let marks = |copy: &Value| ["labels", "annotations"].map(|kind| (kind, copy["metadata"][kind].clone()));
        let before = marks(&world.copy("old").unwrap());
        let strip = |copy: &mut Value| {
            for kind in ["labels", "annotations"] {
                copy["metadata"][kind] = json!({});
            }
            copy["spec"]["terminationGracePeriodSeconds"] = json!(60);
        };
        world.member.change("pods", SHOP, "old", strip).unwrap();
        until("its pod has failed", || world.phase("old") == "Failed").await;
        let put_back = |copy: &mut Value| before.into_iter().for_each(|(kind, marks)| copy["metadata"][kind] = marks);
        world.member.change("pods", SHOP, "old", put_back).unwrap();
        let is_leaving = |copy: &Value| !text(copy, "/metadata/deletionTimestamp").is_empty();
        until("its copy is to end", || world.copy("old").is_some_and(|copy| is_leaving(&copy))).await;
        world.run_pod("web", Some("data"));
        until("it says why it waits", || world.says("web", "WaitsForVolume", "shop/old of member m")).await;
        until("the copy has ended", || {
            assert!(world.copy("web").is_none() || world.copy("old").is_none(), "both have the volume");
            world.copy("old").is_none()
        })
        .await;
        until("the other runs", || world.phase("web") == "Running").await;
        assert_eq!(world.phase("old"), "Failed", "it began again");
    });
}

/// As somebody deletes it who does not want to wait. The agent does not end that copy, which writes on its volume.
#[test]
fn pod_waits_for_the_volume_of_a_copy_without_labels_whose_pod_was_deleted_by_force() {
    story(1, async {
        let world = standing(1).await;
        world.claim("data");
        world.attach();
        world.run_pod("old", Some("data"));
        until("it runs", || world.phase("old") == "Running").await;
        world.member.change("pods", SHOP, "old", |copy| copy["metadata"]["labels"] = json!({})).unwrap();
        until("it says so", || world.says("old", "LabelsChanged", "member m still runs")).await;
        world.host.delete_now("pods", SHOP, "old").unwrap();
        world.run_pod("web", Some("data"));
        until("it says why it waits", || world.says("web", "WaitsForVolume", "has changed its labels")).await;
        sleep(Duration::from_mins(2)).await;
        assert!(world.copy("web").is_none() && world.copy("old").is_some(), "both have the volume");
        world.member.delete("pods", SHOP, "old").unwrap();
        until("the other runs", || world.phase("web") == "Running").await;
    });
}

/// As of one that was made while another name served.
#[test]
fn pod_runs_with_a_volume_whose_handle_has_another_name_of_its_member() {
    story(1, async {
        let world = standing(1).await;
        let mut second = Value::clone(&world.host.get("secrets", NAMESPACE, "m").unwrap());
        second["metadata"] =
            json!({"name": "second", "namespace": NAMESPACE, "labels": {"kosmos.csi.io/member": "second"}});
        world.host.create("secrets", second).unwrap();
        world.open_namespace(SHOP);
        world.leaf("data", HASH, &json!(null));
        world.bound("data", &format!("second/{SHOP}/data/{}", &HASH[..16]));
        sleep(Duration::from_secs(30)).await;
        world.run_pod("web", Some("data"));
        world.attach();
        until("it runs", || world.phase("web") == "Running").await;
        assert_eq!(world.mounted("web"), "data");
    });
}
