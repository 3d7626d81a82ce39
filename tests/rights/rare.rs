//! Rights of the chart that the life of one release need not use, and what they are for. Those that the tests on the shared
//! fleet use are looked for in its audit log (tests/e2e/rights.rs).

/// A right of a role.
pub struct Rare {
    pub role: &'static str,
    /// Verb and kind; `*` for a kind is any.
    pub kind: &'static str,
    #[allow(dead_code, reason = "for who reads the table")]
    pub why: &'static str,
    /// Not used on the fleet either.
    #[allow(dead_code, reason = "one of two readers asks")]
    pub unseen: bool,
}

const fn seen(role: &'static str, kind: &'static str, why: &'static str) -> Rare {
    Rare { role, kind, why, unseen: false }
}

const fn unseen(role: &'static str, kind: &'static str, why: &'static str) -> Rare {
    Rare { role, kind, why, unseen: true }
}

#[rustfmt::skip] // one right, one line
pub const RARE: &[Rare] = &[
    seen("kosmos-csi-controller", "get nodes", "which machine a real node is"),
    unseen("kosmos-csi-controller", "list nodes", "nodes that a label names as a member's machine"),
    seen("kosmos-csi-controller", "get csinodes.storage.k8s.io", "how many volumes a real node takes"),
    seen("kosmos-csi-controller", "get persistentvolumes", "whether a claim that is gone has become a volume"),
    seen("kosmos-csi-controller", "list clusters.kosmos.io", "hosts that Kosmos manages"),
    seen("kosmos-csi-controller", "watch clusters.kosmos.io", "the same"),
    seen("kosmos-csi-controller", "list persistentvolumeclaims", "the same"),
    seen("kosmos-csi-controller", "watch persistentvolumeclaims", "the same"),
    seen("kosmos-csi/kosmos-csi-controller", "create configmaps", "a controller that meets a member before any agent has"),
    seen("kosmos-csi/kosmos-csi-controller", "patch configmaps", "the same"),
    seen("kosmos-csi-secrets/kosmos-csi-controller", "get secrets", "leaf drivers that want Secrets on real nodes"),
    seen("kosmos-csi-secrets/kosmos-csi-controller", "create secrets", "the same"),
    unseen("kosmos-csi-secrets/kosmos-csi-controller", "patch secrets", "such a Secret that changes"),
    seen("kosmos-csi/kosmos-csi-sidecars", "update csistoragecapacities.storage.k8s.io", "a member whose room changes"),
    seen("kosmos-csi/kosmos-csi-sidecars", "delete csistoragecapacities.storage.k8s.io", "a class or a member that goes"),
    unseen("kosmos-csi-sidecars", "get volumeattributesclasses.storage.k8s.io", "a claim that is made with such a class"),
    seen("kosmos-csi-virtual-node", "list clusters.kosmos.io", "hosts that Kosmos manages"),
    seen("kosmos-csi-virtual-node", "watch clusters.kosmos.io", "the same"),
    unseen("kosmos-csi/kosmos-csi-virtual-node", "create configmaps", "an agent that meets a member before any controller has"),
    unseen("kosmos-csi/kosmos-csi-virtual-node", "patch configmaps", "the same"),
    unseen("kosmos-csi-sidecars", "list *", "API servers that cannot send a list as the beginning of a watch"),
    unseen("kosmos-csi/kosmos-csi-sidecars", "list csistoragecapacities.storage.k8s.io", "the same"),
    unseen("kosmos-csi-sidecars", "patch volumegroupsnapshotcontents/status.groupsnapshot.storage.k8s.io", "a group that a member refuses"),
];
