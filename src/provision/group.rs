//! Group snapshots.

use crate::{
    leaf::Cluster,
    volume::{VolumeHash, VolumeId, snapshot::leaf_group_name},
};

/// The handle of a group in a namespace of a member.
pub(super) fn id(leaf: &Cluster, namespace: &str, hash: VolumeHash) -> VolumeId {
    VolumeId::new(&leaf.member, namespace, &leaf_group_name(hash), hash)
}
