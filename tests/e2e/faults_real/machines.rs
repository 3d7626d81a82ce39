//! What can go wrong with the machines: their processes, their networks, their disks.

use std::time::Duration;

use super::fault::{
    A_WHILE, CONTROLLER, Disk, FOUND, Fault, HOST_WAITS, How, Link, MEMBER_WAITS, MINUTES, RESIZER, Who, Words,
};
use crate::clusters::control_plane::{API_SERVER, CONTROLLERS, ETCD, SCHEDULER};

const KUBELET: &str = "kubelet";
const CONTAINERD: &str = "containerd";
const PROVISIONER: &str = "host-csi-provisioner";
const ATTACHER: &str = "host-csi-attacher";
const SNAPSHOTTER: &str = "host-csi-snapshotter";
const SNAPSHOT_CONTROLLER: &str = "host-snapshot-controller";

const CLAIMS_WAIT: Words = Words {
    seen: "New claims, and those that are deleted, wait without a word; what runs goes on",
    does: "Users do nothing. The host's administrator restarts the process, which a Deployment or a static pod does by itself; `kosmos-csi \
           status` says [whether the driver is there](outages.md#the-driver-is-down)",
};
const AGENT_IS_AWAY: Words = Words {
    seen: "Pods that are new or deleted wait; those that run go on. After 50 s the virtual nodes are not ready",
    does: "Users do nothing. The host's administrator looks after [the agent](outages.md#the-agent-is-down)",
};
const NODE_WAITS: Words = Words {
    seen: "Pods that are new or deleted wait; those that run go on",
    does: "Users do nothing. The member's administrator looks after its node: `kubectl describe node` there",
};
const PODS_HAVE_NO_NODE: Words = Words {
    seen: "New pods, and claims that wait for one, wait; all else goes on",
    does: "Users do nothing. The administrator of that cluster restarts its scheduler, which a static pod does by itself",
};
const MOUNTS_WAIT: Words = Words {
    seen: "Pods that are new or deleted on the node wait; those that run there go on",
    does: "Users do nothing. The host's administrator looks after the node, and after the [plugin](real-nodes.md) on it",
};
const ATTACHING_WAITS: Words = Words {
    seen: "New pods wait for their volumes; those that run go on",
    does: "Users do nothing. The host's administrator looks at the container `csi-attacher` of the controller",
};
const GROWTH_WAITS: Words = Words {
    seen: "Growth waits; all else goes on",
    does: "Users do nothing. The host's administrator looks at the container `csi-resizer` of the controller",
};
const SNAPSHOTS_WAIT: Words = Words {
    seen: "Snapshots wait; all else goes on",
    does: "Users do nothing. The host's administrator looks at the container `csi-snapshotter` of the controller, and at the snapshot-controller",
};
const NODE_IS_LOST: Words = Words {
    seen: "New pods there wait, and after 50 s the member's node is not ready; pods that run go on",
    does: "Users do nothing within five minutes, after which Kubernetes replaces pods that do not tolerate it for longer. The member's \
           administrator brings the node back, or [ends its pods for good](outages.md#a-member-is-down)",
};
const NODE_IS_OFF: Words = Words {
    seen: "New pods there and what its storage has to do wait, and after 50 s the member's node is not ready. Pods begin again with the node",
    does: "Users do nothing within five minutes, after which Kubernetes replaces pods that do not tolerate it for longer. Whoever runs the \
           member brings the node back, or [ends its pods for good](outages.md#a-member-is-down)",
};
const REAL_NODE_IS_OFF: Words = Words {
    seen: "Pods that are new or deleted on the node wait, and after 50 s it is not ready. Pods that run there begin again with it",
    does: "Users do nothing within five minutes, after which Kubernetes replaces pods that do not tolerate it for longer. The host's administrator \
           brings the node back",
};
const STORAGE_IS_FULL: Words = Words {
    seen: "New claims of that storage wait, and an event says why; all else goes on",
    does: "Users make room there, or use another class. The member's administrator gives its storage more room",
};
const UPGRADE: Words = Words {
    seen: "What is asked for meanwhile waits for some seconds; all else goes on",
    does: "Nothing: an [upgrade](upgrading.md) does the same",
};
const CLOCK: Words = Words {
    seen: "Times of events and conditions are wrong; all goes on",
    does: "Users do nothing. Whoever runs the machine has the network set its clock",
};
const BACKUP: Words = Words {
    seen: "A volume that was bound since says that its leaf is lost; all else goes on",
    does: "Users delete the claim, as its data is not in the cluster any more, unless the member's administrator [has it \
           still](outages.md#a-cluster-was-restored-from-a-backup-of-its-etcd)",
};

const HOSTS_BACKUP: Words = Words {
    seen: "What was made since is gone. A claim that waited in the backup waits again, and gets its volume with its data once its pod is made \
           again; all else goes on",
    does: "Users make again what they had made since. The host's administrator has `kosmos-csi doctor` name what is left of it in \
           members, as [nobody's](outages.md#a-cluster-was-restored-from-a-backup-of-its-etcd)",
};

/// Longer than a node may be silent.
const TOO_LONG: Duration = Duration::from_mins(1);
/// In seconds.
const AN_HOUR: i64 = 3_600;
/// A cluster's controllers, its node and the sidecars look for its API server one after the other.
const OUTAGE: Duration = Duration::from_mins(5);
/// A provisioner of local-path volumes waits for two minutes for a pod that has failed.
const HELPER: Duration = Duration::from_mins(6);

const fn of_host(name: &'static str, words: Words, how: How) -> Fault {
    Fault { name, words, lasts: A_WHILE, times: 1, within: FOUND, takes: MINUTES, is_members: false, how }
}

const fn of_member(name: &'static str, words: Words, how: How) -> Fault {
    Fault { is_members: true, ..of_host(name, words, how) }
}

const fn outage(fault: Fault) -> Fault {
    Fault { within: OUTAGE, takes: OUTAGE, ..fault }
}

pub const OF_HOST: [Fault; 8] = [
    outage(of_host("host: etcd stands still", HOST_WAITS, How::Paused(Who::Host(ETCD)))),
    outage(of_host("host: etcd is killed", HOST_WAITS, How::Killed(Who::Host(ETCD)))),
    outage(of_host("host: API server stands still", HOST_WAITS, How::Paused(Who::Host(API_SERVER)))),
    outage(of_host("host: API server is killed", HOST_WAITS, How::Killed(Who::Host(API_SERVER)))),
    of_host("host: controller-manager stands still", CLAIMS_WAIT, How::Paused(Who::Host(CONTROLLERS))),
    of_host("host: controller-manager is killed", CLAIMS_WAIT, How::Killed(Who::Host(CONTROLLERS))),
    of_host("host: scheduler stands still", PODS_HAVE_NO_NODE, How::Paused(Who::Host(SCHEDULER))),
    of_host("host: scheduler is killed", PODS_HAVE_NO_NODE, How::Killed(Who::Host(SCHEDULER))),
];

pub const OF_MEMBER: [Fault; 14] = [
    outage(of_member("member: etcd stands still", MEMBER_WAITS, How::Paused(Who::Member(ETCD)))),
    outage(of_member("member: etcd is killed", MEMBER_WAITS, How::Killed(Who::Member(ETCD)))),
    outage(of_member("member: API server stands still", MEMBER_WAITS, How::Paused(Who::Member(API_SERVER)))),
    outage(of_member("member: API server is killed", MEMBER_WAITS, How::Killed(Who::Member(API_SERVER)))),
    of_member("member: controller-manager stands still", MEMBER_WAITS, How::Paused(Who::Member(CONTROLLERS))),
    of_member("member: controller-manager is killed", MEMBER_WAITS, How::Killed(Who::Member(CONTROLLERS))),
    of_member("member: scheduler stands still", PODS_HAVE_NO_NODE, How::Paused(Who::Member(SCHEDULER))),
    of_member("member: scheduler is killed", PODS_HAVE_NO_NODE, How::Killed(Who::Member(SCHEDULER))),
    of_member("member: kubelet stands still", NODE_WAITS, How::Paused(Who::Member(KUBELET))),
    of_member("member: kubelet is killed", NODE_WAITS, How::Killed(Who::Member(KUBELET))),
    of_member("member: containerd stands still", NODE_WAITS, How::Paused(Who::Member(CONTAINERD))),
    of_member("member: containerd is killed", NODE_WAITS, How::Killed(Who::Member(CONTAINERD))),
    cut_off("member: its node is heard by nobody", How::Dropped(Link::FromNode)),
    cut_off("member: its node hears nobody", How::Dropped(Link::ToNode)),
];

const fn cut_off(name: &'static str, how: How) -> Fault {
    outage(Fault { lasts: TOO_LONG, ..of_member(name, NODE_IS_LOST, how) })
}

/// Of the member's only node, on which its storage is.
pub const OF_POWER: [Fault; 1] = [Fault {
    lasts: TOO_LONG,
    within: OUTAGE,
    takes: OUTAGE,
    ..of_member("member: its node is without power", NODE_IS_OFF, How::PowerOff)
}];

/// Of the host's real node, with the driver's plugin on it.
pub const OF_NODES_POWER: [Fault; 1] = [Fault {
    lasts: TOO_LONG,
    within: OUTAGE,
    takes: OUTAGE,
    ..of_host("node: is without power", REAL_NODE_IS_OFF, How::HostPowerOff)
}];

/// The driver and what is beside it, and the agent.
pub const OF_OURS: [Fault; 14] = [
    of_host("driver stands still", CLAIMS_WAIT, How::Paused(Who::Ours(CONTROLLER))),
    of_host("driver is killed", CLAIMS_WAIT, How::Killed(Who::Ours(CONTROLLER))),
    of_host("csi-provisioner stands still", CLAIMS_WAIT, How::Paused(Who::Ours(PROVISIONER))),
    of_host("csi-provisioner is killed", CLAIMS_WAIT, How::Killed(Who::Ours(PROVISIONER))),
    of_host("csi-attacher stands still", ATTACHING_WAITS, How::Paused(Who::Ours(ATTACHER))),
    of_host("csi-attacher is killed", ATTACHING_WAITS, How::Killed(Who::Ours(ATTACHER))),
    of_host("csi-resizer stands still", GROWTH_WAITS, How::Paused(Who::Ours(RESIZER))),
    of_host("csi-resizer is killed", GROWTH_WAITS, How::Killed(Who::Ours(RESIZER))),
    of_host("csi-snapshotter stands still", SNAPSHOTS_WAIT, How::Paused(Who::Ours(SNAPSHOTTER))),
    of_host("csi-snapshotter is killed", SNAPSHOTS_WAIT, How::Killed(Who::Ours(SNAPSHOTTER))),
    of_host("snapshot-controller stands still", SNAPSHOTS_WAIT, How::Paused(Who::Ours(SNAPSHOT_CONTROLLER))),
    of_host("snapshot-controller is killed", SNAPSHOTS_WAIT, How::Killed(Who::Ours(SNAPSHOT_CONTROLLER))),
    of_host("agent stands still", AGENT_IS_AWAY, How::Paused(Who::Agent)),
    of_host("agent is killed", AGENT_IS_AWAY, How::Killed(Who::Agent)),
];

/// Of the driver and the agent themselves.
pub const OF_UPGRADE: [Fault; 1] = [Fault {
    lasts: TOO_LONG,
    within: OUTAGE,
    takes: OUTAGE,
    ..of_host("driver and agent are rolled back, and upgraded", UPGRADE, How::Before)
}];

/// Of a host that is a minor version behind its members.
pub const OF_OLDER: [Fault; 4] = [
    outage(of_host("older host: API server is killed", HOST_WAITS, How::Killed(Who::Host(API_SERVER)))),
    of_host("older host: driver is killed", CLAIMS_WAIT, How::Killed(Who::Ours(CONTROLLER))),
    of_host("older host: agent is killed", AGENT_IS_AWAY, How::Killed(Who::Agent)),
    outage(of_host("older host: is upgraded, and rolled back", HOST_WAITS, How::Upgraded)),
];

/// Of the machine on which driver and agent are.
pub const OF_CLOCK: [Fault; 2] = [
    Fault {
        lasts: TOO_LONG,
        ..of_host("clock of driver and agent is set an hour ahead, and back", CLOCK, How::Clock(AN_HOUR))
    },
    Fault {
        lasts: TOO_LONG,
        ..of_host("clock of driver and agent is set an hour back, and ahead", CLOCK, How::Clock(-AN_HOUR))
    },
];

/// Of the host's real node, where pods use a member's volumes.
pub const OF_NODE: [Fault; 6] = [
    of_host("node: plugin stands still", MOUNTS_WAIT, How::Paused(Who::NodePlugin)),
    of_host("node: plugin is killed", MOUNTS_WAIT, How::Killed(Who::NodePlugin)),
    of_host("node: kubelet stands still", MOUNTS_WAIT, How::Paused(Who::Host(KUBELET))),
    of_host("node: kubelet is killed", MOUNTS_WAIT, How::Killed(Who::Host(KUBELET))),
    of_host("node: containerd stands still", MOUNTS_WAIT, How::Paused(Who::Host(CONTAINERD))),
    of_host("node: containerd is killed", MOUNTS_WAIT, How::Killed(Who::Host(CONTAINERD))),
];

/// Between the driver and a member.
pub const OF_LINK: [Fault; 2] = [
    of_member("member does not hear the driver", MEMBER_WAITS, How::Dropped(Link::ToMember)),
    of_member("driver does not hear the member", MEMBER_WAITS, How::Dropped(Link::FromMember)),
];

pub const OF_DISK: [Fault; 2] = [
    outage(of_member("member: the disk of its etcd is full", MEMBER_WAITS, How::Full(Disk::Etcd))),
    // Until the pod that is to make the volume has failed, which nobody sees for two minutes.
    Fault {
        lasts: TOO_LONG,
        within: HELPER,
        takes: HELPER,
        ..of_member("member: the disk of its volumes is full", STORAGE_IS_FULL, How::Full(Disk::LocalPath))
    },
];

pub const OF_BACKUP: [Fault; 2] = [
    outage(of_member("member: etcd is restored from a backup", BACKUP, How::Restored)),
    outage(of_host("host: etcd is restored from a backup", HOSTS_BACKUP, How::HostRestored)),
];
