//! What can go wrong with the machines: their processes, their networks, their disks.

use std::time::Duration;

use super::fault::{A_WHILE, CONTROLLER, Disk, FOUND, Fault, HOST_WAITS, How, Link, MEMBER_WAITS, PODS_WAIT, Who};
use crate::clusters::control_plane::{API_SERVER, CONTROLLERS, ETCD, SCHEDULER};

const KUBELET: &str = "kubelet";
const CONTAINERD: &str = "containerd";
const PROVISIONER: &str = "host-csi-provisioner";
const ATTACHER: &str = "host-csi-attacher";
const RESIZER: &str = "host-csi-resizer";
const SNAPSHOTTER: &str = "host-csi-snapshotter";
const SNAPSHOT_CONTROLLER: &str = "host-snapshot-controller";

const CLAIMS_WAIT: &str = "New claims, and those that are deleted, wait without a word; what runs goes on";
const PODS_HAVE_NO_NODE: &str = "New pods, and claims that wait for one, wait; all else goes on";
const MOUNTS_WAIT: &str = "Pods that are new or deleted on the node wait; those that run there go on";
const ATTACHING_WAITS: &str = "New pods wait for their volumes; those that run go on";
const GROWTH_WAITS: &str = "Growth waits; all else goes on";
const SNAPSHOTS_WAIT: &str = "Snapshots wait; all else goes on";
const NODE_IS_LOST: &str = "New pods there wait, and after 50 s the member's node is not ready; pods that run go on";
const STORAGE_IS_FULL: &str = "New claims of that storage wait, and an event says why; all else goes on";
const BACKUP: &str = "A volume that was bound since says that its leaf is lost; all else goes on";

/// Longer than a node may be silent.
const TOO_LONG: Duration = Duration::from_mins(1);
/// A cluster's controllers, its node and the sidecars look for its API server one after the other.
const OUTAGE: Duration = Duration::from_mins(5);
/// A provisioner of local-path volumes waits for two minutes for a pod that has failed.
const HELPER: Duration = Duration::from_mins(6);

const fn of_host(name: &'static str, seen: &'static str, how: How) -> Fault {
    Fault { name, seen, lasts: A_WHILE, times: 1, within: FOUND, is_members: false, how }
}

const fn of_member(name: &'static str, seen: &'static str, how: How) -> Fault {
    Fault { is_members: true, ..of_host(name, seen, how) }
}

const fn outage(fault: Fault) -> Fault {
    Fault { within: OUTAGE, ..fault }
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
    of_member("member: kubelet stands still", PODS_WAIT, How::Paused(Who::Member(KUBELET))),
    of_member("member: kubelet is killed", PODS_WAIT, How::Killed(Who::Member(KUBELET))),
    of_member("member: containerd stands still", PODS_WAIT, How::Paused(Who::Member(CONTAINERD))),
    of_member("member: containerd is killed", PODS_WAIT, How::Killed(Who::Member(CONTAINERD))),
    cut_off("member: its node is heard by nobody", How::Dropped(Link::FromNode)),
    cut_off("member: its node hears nobody", How::Dropped(Link::ToNode)),
];

const fn cut_off(name: &'static str, how: How) -> Fault {
    Fault { lasts: TOO_LONG, within: OUTAGE, ..of_member(name, NODE_IS_LOST, how) }
}

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
    of_host("agent stands still", PODS_WAIT, How::Paused(Who::Agent)),
    of_host("agent is killed", PODS_WAIT, How::Killed(Who::Agent)),
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
    Fault {
        within: HELPER,
        ..of_member("member: the disk of its volumes is full", STORAGE_IS_FULL, How::Full(Disk::LocalPath))
    },
];

pub const OF_BACKUP: [Fault; 1] = [outage(of_member("member: etcd is restored from a backup", BACKUP, How::Restored))];
