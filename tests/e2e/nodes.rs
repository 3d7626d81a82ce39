//! Pods on a real node of the host: the real attacher, the real kubelet, the driver's node plugin, and below it the node
//! plugin of the member's own storage.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{Node, Secret},
    storage::v1::VolumeAttachment,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    clusters::wait_for,
    healing::import,
    host_node::{FAR, HostNode, LOCKED, MEMBER, NEAR, Storage, storage_objects},
    objects::{Place, nothing_of_ours, pod},
    operator::{Operator, TROUBLE},
    pool::{on_fleet, on_node},
    rig::{DRIVER_NAMESPACE, NOW, PATIENCE, Rig, SHARED},
};

/// Where the driver keeps copies of what leaf drivers want.
const SECRETS_FOR_NODES: &str = include_str!("../../deploy/host-attach.yaml");
/// On a node of the host: which node of the member it is.
const MEMBER_NODE: &str = "kosmos.node-restriction.kubernetes.io/member-node";
/// The kubelet looks at its pods and volumes only now and then.
const LOOKS: Duration = Duration::from_mins(2);

/// A claim of the node's storage, and where it is on both sides.
struct Used<'a> {
    node: HostNode<'a>,
    host: Place<'a>,
    member: Place<'a>,
}

impl<'a> Used<'a> {
    async fn new(rig: &'a Rig, namespace: &str, leaf_class: &str) -> Result<Self> {
        Self::of(rig, namespace, json!({"leafStorageClass": leaf_class}), NEAR, |_| {}).await
    }

    /// With a claim that is not as usual.
    async fn of(
        rig: &'a Rig,
        namespace: &str,
        parameters: Value,
        storage: Storage,
        change: impl FnOnce(&mut Value),
    ) -> Result<Self> {
        let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        for object in storage_objects(storage) {
            member.cluster.apply(&object.to_string()).await?;
        }
        let node = HostNode::start(rig, storage).await?;
        let host = Place::new(rig.fleet.host(), namespace).await?;
        host.class(namespace, "WaitForFirstConsumer", parameters, &[MEMBER]).await?;
        let mut claim = json!({
            "metadata": {"name": "data"},
            "spec": {"storageClassName": namespace, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "320Mi"}}}, // xfs is never smaller
        });
        change(&mut claim);
        host.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        Ok(Self { node, host, member })
    }

    async fn end(self) -> Result<()> {
        let volume = self.host.bound("data").await?.name_any();
        self.host.delete_claim("data").await?;
        self.host.volume_is_gone(&volume).await?;
        nothing_of_ours(self.member.cluster, &self.host.namespace).await?;
        self.node.is_clean().await?;
        self.node.end().await
    }

    /// A pod that goes on, once it runs.
    async fn running(&self, name: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        self.create(name, change).await?;
        self.phase(name, "Running").await
    }

    async fn create(&self, name: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut pod = pod(name, &["data"], "trap 'exit 0' TERM; while true; do sleep 0.1; done");
        change(&mut pod);
        self.host.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    async fn phase(&self, name: &str, wanted: &str) -> Result<()> {
        wait_for(&format!("pod {name} is {wanted}"), PATIENCE, || async {
            let phase = self.host.pods().get(name).await?.status.and_then(|status| status.phase);
            Ok((phase.as_deref() == Some(wanted)).then_some(()))
        })
        .await
    }

    async fn exec(&self, pod: &str, script: &str) -> Result<String> {
        self.host.cluster.kubectl(&["exec", "-n", &self.host.namespace, pod, "--", "sh", "-c", script]).await
    }

    async fn finds_its_file(&self, pod: &str) -> Result<()> {
        ensure!(self.exec(pod, "cat /data/file").await?.trim() == "kept", "pod {pod} has lost the file");
        Ok(())
    }

    async fn ask_for(&self, size: &str) -> Result<()> {
        let bigger = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        self.host.claims().patch("data", &PatchParams::default(), &Patch::Merge(bigger)).await?;
        Ok(())
    }

    /// To the 640Mi asked for, less what the filesystem takes.
    async fn has_grown(&self, pod: &str) -> Result<()> {
        wait_for("the pod sees the new size", LOOKS, || async {
            let size: u64 = self.exec(pod, "df -k /data | awk 'END {print $2}'").await?.trim().parse()?;
            Ok((size > 550_000).then_some(()))
        })
        .await
    }

    async fn remove(&self, pod: &str) -> Result<()> {
        self.host.pods().delete(pod, &DeleteParams::default()).await?;
        self.gone(pod).await
    }

    async fn is_detached(&self) -> Result<()> {
        let volume = self.host.bound("data").await?.name_any();
        let attachments: Api<VolumeAttachment> = Api::all(self.host.client.clone());
        wait_for("the volume is detached", LOOKS, || async {
            let all = attachments.list(&ListParams::default()).await?.items;
            let of = |one: &VolumeAttachment| one.spec.source.persistent_volume_name.as_ref() == Some(&volume);
            Ok((!all.iter().any(of)).then_some(()))
        })
        .await
    }

    async fn gone(&self, pod: &str) -> Result<()> {
        wait_for("the pod is gone", PATIENCE, || async {
            Ok(self.host.pods().get_opt(pod).await?.is_none().then_some(()))
        })
        .await
    }
}

#[test]
fn pod_on_a_real_node_finds_its_data_again() {
    on_node("real-node", async |rig| {
        let used = Used::new(rig, "real-node", "ext4").await?;
        used.host.run("first", &["data"], "echo kept >/data/file && sync").await?;
        used.host.run("second", &["data"], "test \"$(cat /data/file)\" = kept").await?;
        used.end().await
    });
}

#[test]
fn pod_on_a_real_node_goes_on_when_plugin_and_kubelet_are_started_again() {
    on_node("real-node-restarts", async |rig| {
        let mut used = Used::new(rig, "real-node-restarts", "ext4").await?;
        used.running("web", |_| {}).await?;
        used.exec("web", "echo kept >/data/file").await?;
        used.node.kill_plugin().await?;
        rig.fleet.host().stop("kubelet").await?;
        rig.fleet.host().start_again("kubelet")?;
        ensure!(used.exec_when_back("web", "cat /data/file").await?.trim() == "kept", "the file is there");
        used.remove("web").await?;
        used.waits_for_the_nodes_permission().await?;
        used.end().await
    });
}

impl Used<'_> {
    /// A node that is told of no storage driver calls none.
    async fn waits_for_the_nodes_permission(&mut self) -> Result<()> {
        self.node.permit_nothing().await?;
        self.create("late", |_| {}).await?;
        self.host.warned("late", &["which this node does not use for a member", "--leaf-driver"]).await?;
        self.node.kill_plugin().await?;
        self.phase("late", "Running").await?;
        self.finds_its_file("late").await?;
        self.remove("late").await
    }

    /// What one pod writes to the device, the next one reads, and may do no more where it says so.
    async fn keeps_as_device(&self) -> Result<()> {
        let device = |pod: &mut Value| {
            let container = &mut pod["spec"]["containers"][0];
            container["volumeMounts"] = json!([]);
            container["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/data"}]);
        };
        self.running("first", device).await?;
        self.exec("first", "echo kept | dd of=/dev/data conv=fsync").await?;
        self.remove("first").await?;
        let reading = |pod: &mut Value| {
            device(pod);
            pod["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] = json!(true);
        };
        self.running("second", reading).await?;
        ensure!(self.exec("second", "echo lost | dd of=/dev/data conv=fsync").await.is_err(), "it can be written to");
        ensure!(self.exec("second", "dd if=/dev/data count=1 | head -n 1").await?.contains("kept"), "it is there");
        self.remove("second").await
    }

    /// Once the kubelet serves again.
    async fn exec_when_back(&self, pod: &str, script: &str) -> Result<String> {
        wait_for("the kubelet serves again", PATIENCE, || async { Ok(self.exec(pod, script).await.ok()) }).await
    }
}

#[test]
fn pod_reads_only_shares_a_part_and_has_its_group() {
    on_node("real-node-ways", async |rig| {
        let used = Used::new(rig, "real-node-ways", "ext4").await?;
        let grouped = |pod: &mut Value| {
            pod["spec"]["securityContext"] = json!({"fsGroup": 4321, "runAsUser": 1234, "runAsGroup": 1234});
            pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = json!("part");
        };
        used.running("grouped", grouped).await?;
        used.exec("grouped", "echo kept >/data/file").await?;
        let owner = used.exec("grouped", "stat -c %g /data/file").await?;
        ensure!(owner.trim() == "4321", "the file's group is {owner}");
        used.remove("grouped").await?;
        let reading = |pod: &mut Value| {
            pod["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] = json!(true);
        };
        used.running("reading", reading).await?;
        ensure!(used.exec("reading", "cat /data/part/file").await?.trim() == "kept", "the file is there");
        ensure!(used.exec("reading", "touch /data/new").await.is_err(), "it can be written to");
        used.remove("reading").await?;
        used.end().await
    });
}

#[test]
fn volume_grows_under_its_pod_and_the_kubelet_measures_it() {
    on_node("real-node-growth", async |rig| {
        // xfs: this machine's kernel may not let a mounted ext4 grow.
        let used = Used::new(rig, "real-node-growth", "xfs").await?;
        used.running("web", |_| {}).await?;
        used.ask_for("640Mi").await?;
        used.has_grown("web").await?;
        let path = format!("/api/v1/nodes/{}/proxy/metrics", used.node.name());
        let line = format!("kubelet_volume_stats_capacity_bytes{{namespace=\"{}\"", used.host.namespace);
        wait_for("the kubelet measures the volume", LOOKS, || async {
            let metrics = used.host.cluster.kubectl(&["get", "--raw", &path]).await?;
            Ok(metrics.lines().any(|there| there.starts_with(&line)).then_some(()))
        })
        .await?;
        used.remove("web").await?;
        used.end().await
    });
}

#[test]
fn plugin_killed_in_the_middle_of_a_call_finds_on() {
    on_node("real-node-kills", async |rig| {
        let mut used = Used::new(rig, "real-node-kills", "xfs").await?;
        used.node.hold_up("NodeStageVolume")?;
        used.create("first", |_| {}).await?;
        used.node.kill_within("NodeStageVolume").await?;
        used.phase("first", "Running").await?;
        used.exec("first", "echo kept >/data/file").await?;
        used.node.hold_up("NodePublishVolume")?;
        used.create("second", |_| {}).await?;
        used.node.kill_within("NodePublishVolume").await?;
        used.phase("second", "Running").await?;
        used.finds_its_file("second").await?;
        used.node.hold_up("NodeExpandVolume")?;
        used.ask_for("640Mi").await?;
        used.node.kill_within("NodeExpandVolume").await?;
        used.has_grown("first").await?;
        used.node.hold_up("NodeUnpublishVolume")?;
        used.host.pods().delete("second", &DeleteParams::default()).await?;
        used.node.kill_within("NodeUnpublishVolume").await?;
        used.gone("second").await?;
        used.finds_its_file("first").await?;
        used.node.hold_up("NodeUnstageVolume")?;
        used.host.pods().delete("first", &DeleteParams::default()).await?;
        used.node.kill_within("NodeUnstageVolume").await?;
        used.gone("first").await?;
        used.running("third", |_| {}).await?;
        used.finds_its_file("third").await?;
        used.remove("third").await?;
        used.end().await
    });
}

#[test]
fn device_is_given_to_a_pod_as_it_is() {
    on_node("real-node-device", async |rig| {
        let used = Used::of(rig, "real-node-device", json!({"leafStorageClass": "ext4"}), NEAR, |claim| {
            claim["spec"]["volumeMode"] = json!("Block");
        })
        .await?;
        used.keeps_as_device().await?;
        used.end().await
    });
}

#[test]
fn secret_that_the_members_driver_wants_reaches_it_and_goes_with_the_volume() {
    on_node("real-node-secret", async |rig| {
        rig.fleet.host().apply(SECRETS_FOR_NODES).await?;
        let mut class = json!({"leafStorageClass": LOCKED});
        for purpose in ["node-stage", "node-publish"] {
            class[format!("csi.storage.k8s.io/{purpose}-secret-name")] = json!(format!("${{pv.name}}-{purpose}"));
            class[format!("csi.storage.k8s.io/{purpose}-secret-namespace")] = json!("kosmos-csi-secrets");
        }
        let used = Used::of(rig, "real-node-secret", class, NEAR, |_| {}).await?;
        used.host.run("first", &["data"], "echo kept >/data/file && sync").await?;
        let change = Patch::Merge(json!({"stringData": {"since": "today"}}));
        let theirs: Api<Secret> = Api::namespaced(used.member.client.clone(), DRIVER_NAMESPACE);
        theirs.patch(LOCKED, &PatchParams::default(), &change).await?;
        // Who attaches while a volume is attached still is not asked again.
        used.is_detached().await?;
        used.host.run("second", &["data"], "test \"$(cat /data/file)\" = kept").await?;
        let secrets: Api<Secret> = Api::namespaced(used.host.client.clone(), "kosmos-csi-secrets");
        let copies = secrets.list(&ListParams::default()).await?.items;
        ensure!(copies.len() == 2, "one for each purpose");
        let is_changed = |copy: &Secret| copy.data.as_ref().is_some_and(|data| data.contains_key("since"));
        ensure!(copies.iter().all(is_changed), "the second pod has what changed after the first one");
        used.end().await?;
        wait_for("the Secrets have gone with the volume", PATIENCE, || async {
            Ok(secrets.list(&ListParams::default()).await?.items.is_empty().then_some(()))
        })
        .await
    });
}

#[test]
fn volume_for_one_pod_is_refused_to_a_second_one() {
    on_node("real-node-one-pod", async |rig| {
        let used = Used::of(rig, "real-node-one-pod", json!({"leafStorageClass": "ext4"}), NEAR, |claim| {
            claim["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        })
        .await?;
        used.running("first", |_| {}).await?;
        // Past the scheduler, which would refuse it first.
        used.create("second", |pod| pod["spec"]["nodeName"] = json!(used.node.name())).await?;
        used.host.warned("second", &["ReadWriteOncePod"]).await?;
        used.remove("second").await?;
        used.remove("first").await?;
        used.end().await
    });
}

#[test]
fn folder_of_the_machine_is_used_where_the_machine_is_the_member_node() {
    on_node("real-node-folder", async |rig| {
        let namespace = "real-node-folder";
        let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        let node = HostNode::start(rig, NEAR).await?;
        let label = format!("{MEMBER_NODE}={}", node.name());
        rig.fleet.host().kubectl(&["label", "--overwrite", "node", &node.name(), &label]).await?;
        let folder = rig.fleet.folder().join("disk");
        std::fs::create_dir(&folder).context("make the folder")?;
        let local = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "64Mi"}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name()]}]}]}},
        });
        let volume = json!({"metadata": {"name": namespace}, "spec": local});
        member.volumes().create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        let claim = json!({
            "metadata": {"name": "ledger"},
            "spec": {"storageClassName": "", "volumeName": namespace, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "64Mi"}}},
        });
        member.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        member.bound("ledger").await?;
        let host = import(rig, &member).await?;
        host.run("writer", &["ledger"], "echo kept >/ledger/file").await?;
        let there = std::fs::read_to_string(folder.join("file")).context("read what the pod wrote")?;
        ensure!(there.trim() == "kept", "the file says {there}");
        host.delete_claim("ledger").await?;
        host.volume_is_gone(namespace).await?;
        ensure!(folder.join("file").exists(), "the data is the member's");
        rig.fleet.host().kubectl(&["label", "node", &node.name(), &format!("{MEMBER_NODE}-")]).await?;
        node.is_clean().await?;
        node.end().await
    });
}

#[test]
fn member_attaches_the_volume_to_the_machine_and_its_own_controllers_leave_it_there() {
    on_fleet("real-node-attached", async |rig| {
        let class = json!({"leafStorageClass": "far-ext4", "attachMode": "volume-attachment"});
        let used = Used::of(rig, "real-node-attached", class, FAR, |_| {}).await?;
        let attachments: Api<VolumeAttachment> = Api::all(used.member.client.clone());
        let ours = async || -> Result<Vec<VolumeAttachment>> {
            let all = attachments.list(&ListParams::default()).await?.items;
            Ok(all.into_iter().filter(|one| one.spec.attacher == FAR.driver).collect())
        };
        used.running("web", |_| {}).await?;
        used.exec("web", "echo kept >/data/file").await?;
        let there = ours().await?;
        ensure!(there.len() == 1 && there[0].name_any().starts_with("kosmos-csi-"), "{there:?}");
        ensure!(there[0].spec.node_name == used.node.name(), "it is on {}", there[0].spec.node_name);
        let manager = "kube-controller-manager";
        used.member.cluster.stop(manager).await?;
        used.member.cluster.start_again(manager)?;
        // It works again once it has bound a claim.
        used.member.claim("other", NOW).await?;
        used.member.bound("other").await?;
        used.member.delete_claim("other").await?;
        ensure!(ours().await?.len() == 1, "the attachment has gone");
        used.finds_its_file("web").await?;
        used.remove("web").await?;
        wait_for("the member has detached it", PATIENCE, || async { Ok(ours().await?.is_empty().then_some(())) })
            .await?;
        used.host.run("reader", &["data"], "test \"$(cat /data/file)\" = kept").await?;
        used.end().await
    });
}

#[test]
fn volume_becomes_a_disk_of_the_machine_and_its_content_stays_with_it() {
    on_node("real-node-machine", async |rig| {
        let machine = rig.fleet.host().node_name();
        let nodes: Api<Node> = Api::all(rig.fleet.host().client().await?);
        let info = nodes.get(&machine).await?.status.and_then(|status| status.node_info);
        let identity = info.context("a kubelet tells its machine")?.system_uuid;
        let disks = rig.fleet.folder().join("by-id");
        let operator = Operator::start(rig.fleet.member(MEMBER), &machine, &identity, &disks).await?;
        for filesystem in ["ext4", "xfs"] {
            let class = json!({
                "leafStorageClass": SHARED, "attachMode": "virtual-machine", "leafNamespace": DRIVER_NAMESPACE,
                "csi.storage.k8s.io/fstype": filesystem,
            });
            let used = Used::of(rig, &format!("real-node-{filesystem}"), class, NEAR, |_| {}).await?;
            used.create("first", |_| {}).await?;
            used.host.warned("first", &[TROUBLE]).await?;
            operator.is_well(true);
            used.phase("first", "Running").await?;
            used.exec("first", "echo kept >/data/file").await?;
            let kind = used.exec("first", "grep ' /data ' /proc/mounts").await?;
            ensure!(kind.contains(filesystem), "it is {kind}");
            used.remove("first").await?;
            used.host.run("second", &["data"], "test \"$(cat /data/file)\" = kept").await?;
            used.end().await?;
            operator.is_well(false);
        }
        operator.is_well(true);
        let class = json!({
            "leafStorageClass": NOW, "attachMode": "virtual-machine", "leafNamespace": DRIVER_NAMESPACE,
        });
        let raw = |claim: &mut Value| claim["spec"]["volumeMode"] = json!("Block");
        let used = Used::of(rig, "real-node-raw", class, NEAR, raw).await?;
        used.keeps_as_device().await?;
        used.end().await?;
        operator.end().await
    });
}
