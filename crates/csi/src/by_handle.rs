//! Work by the handle of what another call names: a removal that was asked for before the host was restored from a backup would take what
//! is given out now.

use domain::volume::{VolumeHash, VolumeId};

/// Work on the same volume, snapshot or group.
pub(super) struct ByHandle {
    /// What the key of such work begins with.
    kind: &'static str,
    hash: VolumeHash,
    /// A handle ends with one of these, and what does not is not taken apart.
    endings: [String; 2],
}

impl ByHandle {
    pub(super) fn of(kind: &'static str, hash: VolumeHash) -> Self {
        Self { kind, hash, endings: [hash.prefix(), hash.to_string()] }
    }

    pub(super) fn is(&self, key: &str) -> bool {
        let may_be = self.endings.iter().any(|ending| key.ends_with(ending.as_str()));
        let named = key.strip_prefix(self.kind).and_then(|key| key.strip_prefix(' ')).filter(|_| may_be);
        named.and_then(VolumeId::parse).is_some_and(|id| id.names(self.hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::volume::{HostId, snapshot::leaf_name};

    fn host() -> HostId {
        HostId("h".to_owned())
    }

    #[test]
    fn work_by_handle_is_that_on_the_volume_itself() {
        let hash = |name: &str| VolumeHash::new(&host(), name);
        let id = VolumeId::new("m", "shop", "data", hash("pvc-1"));
        let long = VolumeId::new("m", "shop", &"d".repeat(120), hash("pvc-1"));
        for (key, is_it) in [
            (format!("volume {id}"), true),
            (format!("volume {long}"), true),
            (format!("volume {}", VolumeId::new("m", "shop", "data", hash("pvc-2"))), false),
            (format!("volume {id} on node "), false),
            (format!("volume {id} on node virtual/m"), false),
            (format!("snapshot {id}"), false),
            (format!("volume m/shop/data/{}", hash("pvc-1")), false),
            ("volume pvc-1".to_owned(), false),
        ] {
            assert_eq!(ByHandle::of("volume", hash("pvc-1")).is(&key), is_it, "{key}");
        }
    }

    #[test]
    fn work_by_handle_on_a_snapshot_or_a_group_is_that_on_what_has_its_name() {
        let (snapshot, group) = (VolumeHash::of_snapshot(&host(), "photo"), VolumeHash::of_group(&host(), "photo"));
        let of_snapshot = VolumeId::new("m", "shop", &leaf_name(snapshot), snapshot);
        let of_group = VolumeId::new("m", "shop", "g", group);
        for (kind, hash, key, is_it) in [
            ("snapshot", snapshot, format!("snapshot {of_snapshot}"), true),
            ("snapshot", snapshot, "snapshot photo".to_owned(), false),
            ("snapshot", snapshot, format!("snapshot {of_group}"), false),
            ("group", group, format!("group {of_group}"), true),
            ("group", group, format!("snapshot {of_group}"), false),
        ] {
            assert_eq!(ByHandle::of(kind, hash).is(&key), is_it, "{key}");
        }
    }
}
