//! Rights that tests need not use, and what they are for. Of the chart: those that the life of one release need not use; the tests on
//! the shared fleet use them, and they are looked for in its audit log (tests/e2e/rights.rs). Of the accounts
//! in members: those that only simulated clusters, or no API server, see used.

/// A right of a role.
pub struct Rare {
    pub role: &'static str,
    /// Verb and kind.
    pub kind: &'static str,
    #[allow(dead_code, reason = "for who reads the table")]
    pub why: &'static str,
}

const fn rare(role: &'static str, kind: &'static str, why: &'static str) -> Rare {
    Rare { role, kind, why }
}

#[rustfmt::skip] // one right, one line
pub const RARE: &[Rare] = &[
    rare("kosmos-csi-controller", "get nodes", "which machine a real node is"),
    rare("kosmos-csi-controller", "list nodes", "nodes that a label names as a member's machine"),
    rare("kosmos-csi-controller", "get csinodes.storage.k8s.io", "how many volumes a real node takes"),
    rare("kosmos-csi-controller", "get volumeattachments.storage.k8s.io", "whether a real node is to have a volume again"),
    rare("kosmos-csi-controller", "list volumeattachments.storage.k8s.io", "a volume without a claim that is attached still"),
    rare("kosmos-csi-controller", "delete volumeattachments.storage.k8s.io", "the same, to a virtual node"),
    rare("kosmos-csi-controller", "get persistentvolumes", "whether a claim that is gone has become a volume"),
    rare("kosmos-csi-controller", "list clusters.kosmos.io", "hosts that Kosmos manages"),
    rare("kosmos-csi-controller", "watch clusters.kosmos.io", "the same"),
    rare("kosmos-csi-controller", "list persistentvolumeclaims", "the same"),
    rare("kosmos-csi-controller", "watch persistentvolumeclaims", "the same"),
    rare("kosmos-csi/kosmos-csi-controller", "create configmaps", "which member is which cluster, where `member add` did not write it"),
    rare("kosmos-csi/kosmos-csi-controller", "patch configmaps", "the same"),
    rare("kosmos-csi-virtual-node", "create tokenreviews.authentication.k8s.io", "who asks by a token what pods use"),
    rare("kosmos-csi-virtual-node", "patch events", "what a member goes on saying of a pod that does not get ready"),
    rare("kosmos-csi-pods/kosmos-csi-virtual-node", "create configmaps", "which member is which cluster, where `member add` did not write it"),
    rare("kosmos-csi-pods/kosmos-csi-virtual-node", "patch configmaps", "the same"),
    rare("kosmos-csi/kosmos-csi-controller", "get secrets", "a member's token that is renewed"),
    rare("kosmos-csi/kosmos-csi-controller", "patch secrets", "the same"),
    rare("kosmos-csi-pods/kosmos-csi-virtual-node", "get secrets", "the same, and whether a member that comes back is named still, before its nodes are opened"),
    rare("kosmos-csi-pods/kosmos-csi-virtual-node", "patch secrets", "a member's token that is renewed"),
    rare("kosmos-csi-secrets/kosmos-csi-controller", "get secrets", "leaf drivers that want Secrets on real nodes"),
    rare("kosmos-csi-secrets/kosmos-csi-controller", "create secrets", "the same"),
    rare("kosmos-csi-secrets/kosmos-csi-controller", "patch secrets", "such a Secret that changes"),
    rare("kosmos-csi/kosmos-csi-sidecars", "update csistoragecapacities.storage.k8s.io", "a member whose room changes"),
    rare("kosmos-csi/kosmos-csi-sidecars", "delete csistoragecapacities.storage.k8s.io", "a class or a member that goes"),
    rare("kosmos-csi-controller", "patch events", "something that is told again, minutes later or by another replica"),
    rare("kosmos-csi-sidecars", "get volumeattributesclasses.storage.k8s.io", "a claim that is made with such a class"),
    rare("kosmos-csi-virtual-node", "list clusters.kosmos.io", "hosts that Kosmos manages"),
    rare("kosmos-csi-virtual-node", "watch clusters.kosmos.io", "the same"),
    rare("kosmos-csi-sidecars", "list persistentvolumes", "API servers that cannot send a list as the beginning of a watch"),
    rare("kosmos-csi-sidecars", "list persistentvolumeclaims", "the same"),
    rare("kosmos-csi-sidecars", "list nodes", "the same"),
    rare("kosmos-csi-sidecars", "list storageclasses.storage.k8s.io", "the same"),
    rare("kosmos-csi-sidecars", "list csinodes.storage.k8s.io", "the same"),
    rare("kosmos-csi-sidecars", "list volumeattachments.storage.k8s.io", "the same"),
    rare("kosmos-csi-sidecars", "list volumeattributesclasses.storage.k8s.io", "the same"),
    rare("kosmos-csi-sidecars", "list volumesnapshots.snapshot.storage.k8s.io", "the same"),
    rare("kosmos-csi-sidecars", "list volumesnapshotclasses.snapshot.storage.k8s.io", "the same"),
    rare("kosmos-csi-sidecars", "list volumesnapshotcontents.snapshot.storage.k8s.io", "the same"),
    rare("kosmos-csi-sidecars", "list volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io", "the same"),
    rare("kosmos-csi-sidecars", "list volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io", "the same"),
    rare("kosmos-csi/kosmos-csi-sidecars", "list csistoragecapacities.storage.k8s.io", "the same"),
    rare("kosmos-csi-sidecars", "patch volumegroupsnapshotcontents/status.groupsnapshot.storage.k8s.io", "a group that a member refuses"),
];

#[rustfmt::skip] // one right, one line
pub const RARE_IN_MEMBERS: &[Rare] = &[
    rare("kosmos-csi", "delete volumesnapshotcontents.snapshot.storage.k8s.io", "what outlives its snapshot"),
    rare("kosmos-csi", "list volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io", "what outlives its group"),
    rare("kosmos-csi", "patch volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io", "a class that retains"),
    rare("kosmos-csi", "delete volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io", "what outlives its group"),
    rare("kosmos-csi", "patch volumeattachments.storage.k8s.io", "an attachment that is withdrawn"),
    rare("kosmos-csi", "create pods/portforward in kosmos-csi-movers", "from Kubernetes 1.35 on a WebSocket takes it besides get, and no audit log says so"),
    rare("kosmos-csi-virtual-node", "get pods/exec", "an API server before Kubernetes 1.30 passes a WebSocket on as it comes"),
    rare("kosmos-csi-virtual-node", "get pods/attach", "the same"),
    rare("kosmos-csi-virtual-node", "get pods/portforward", "the same"),
    rare("kosmos-csi-stats", "get nodes/stats", "kubelets are asked for that themselves, which no audit log of an API server has"),
    rare("kosmos-csi-virtual-node", "patch configmaps", "a ConfigMap that changes while a pod has it: not in each order of these tests"),
];
