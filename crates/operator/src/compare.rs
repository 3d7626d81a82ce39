//! The host's volumes against the leaves of the members, both listed whole: what has lost its other half. What is judged
//! here may be removed by a person, so whatever could explain a difference counts as an explanation.

mod snapshots;

use std::collections::{BTreeMap, BTreeSet};

use domain::volume::{LeafPlace, VolumeHash, VolumeId, quantity};
use leaf::ownership::{MOVE, PLACE};
pub use snapshots::{HostSnapshots, LeafSnapshot};

/// The host, as one look has seen it.
#[derive(Clone, Debug, Default)]
pub struct HostSide {
    pub volumes: Vec<HostVolume>,
    /// UIDs of claims that have no volume: not yet, or not any more.
    pub claims: BTreeSet<String>,
    /// Of which volumes these claims may get the data that is there, as where the host was restored from a backup.
    pub awaited: BTreeSet<VolumeHash>,
    pub snapshots: HostSnapshots,
    /// Of second names of members: the name that is on record, and serves.
    pub aliases: BTreeMap<String, String>,
    /// What handles say and no record knows: a second name of a member that does not answer by it now, or has lost its kubeconfig.
    pub unknown: BTreeSet<String>,
}

impl HostSide {
    fn serving<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, String::as_str)
    }

    /// In whatever member: a move has a leaf in two, and the host's volume leads to one of them.
    fn has_volume_of(&self, hash: VolumeHash) -> bool {
        let mut ids = self.volumes.iter().filter_map(|volume| VolumeId::parse(&volume.handle));
        ids.any(|id| id.hashes().contains(&hash))
    }

    /// A volume of a member that nobody knows may have any leaf of its hash.
    fn may_use(&self, hash: VolumeHash) -> bool {
        let mut ids = self.volumes.iter().filter_map(|volume| VolumeId::parse(&volume.handle));
        !self.unknown.is_empty() && ids.any(|id| self.unknown.contains(&id.member) && id.hashes().contains(&hash))
    }
}

/// A volume of this driver's.
#[derive(Clone, Debug, Default)]
pub struct HostVolume {
    pub name: String,
    pub uid: String,
    pub handle: String,
    pub capacity: u64,
    /// It is being removed: its leaf goes first.
    pub leaving: bool,
}

/// A member whose lists were read to their end.
#[derive(Clone, Debug, Default)]
pub struct MemberSide {
    pub member: String,
    pub leaves: Vec<Leaf>,
    pub volumes: Vec<LeafVolume>,
    /// Claims that were there before and may be used by this host.
    pub imported: BTreeSet<(String, String)>,
    pub snapshots: Vec<LeafSnapshot>,
    /// Why these could not be read.
    pub unread_snapshots: Option<String>,
}

/// A leaf claim with our labels.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct Leaf {
    pub place: LeafPlace,
    pub uid: String,
    pub hash: VolumeHash,
    /// Seconds since it was made.
    pub age: i64,
    pub lost: bool,
    pub terminating: bool,
    /// 0 where it has none yet.
    pub capacity: u64,
    pub had_volume: bool,
    /// A move to another member has it.
    pub moving: bool,
    /// UID of the host's claim.
    pub claim_uid: String,
}

/// A leaf volume with our labels.
#[derive(Clone, Debug)]
pub struct LeafVolume {
    pub name: String,
    pub uid: String,
    pub hash: VolumeHash,
    pub age: i64,
    /// A move to another member has it.
    pub moving: bool,
    /// UID of the leaf claim it is or was bound to.
    pub claim_uid: String,
}

/// Something that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it is called when it is typed.
    pub name: String,
    /// Of the object it is about: another one under the same name is another finding.
    pub uid: String,
    pub message: String,
}

impl Finding {
    pub fn new(kind: &str, about: &str, message: String) -> Self {
        Self { name: format!("{kind}:{about}"), uid: String::new(), message }
    }

    fn of(uid: &str, kind: &str, about: &str, message: String) -> Self {
        Self { uid: uid.to_owned(), ..Self::new(kind, about, message) }
    }
}

/// What one comparison comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    pub findings: Vec<Finding>,
    /// Leaves without a host volume that are too young to be judged.
    pub young: usize,
}

/// The name of the finding that a leaf claim is an orphan.
pub fn leaf_name(member: &str, place: &LeafPlace) -> String {
    format!("leaf:{member}/{place}")
}

/// The member and the place in such a name.
pub fn parse_leaf_name(name: &str) -> Option<(String, LeafPlace)> {
    let parts: Vec<&str> = name.strip_prefix("leaf:")?.split('/').collect();
    let [member, namespace, claim] = parts.as_slice() else { return None };
    let place = LeafPlace { namespace: (*namespace).to_owned(), claim: (*claim).to_owned() };
    Some(((*member).to_owned(), place))
}

/// What was found by both of two looks.
pub fn twice(first: &[Finding], second: Vec<Finding>) -> Vec<Finding> {
    let before = |finding: &Finding| first.iter().any(|old| old.name == finding.name && old.uid == finding.uid);
    second.into_iter().filter(before).collect()
}

/// Only members that were listed whole are handed in; volumes of others are not judged.
pub fn compare(host: &HostSide, members: &[MemberSide], older_than: i64) -> Compared {
    let mut compared = Compared::default();
    let mut used: BTreeMap<String, Vec<(VolumeId, &HostVolume)>> = BTreeMap::new();
    for volume in &host.volumes {
        match VolumeId::parse(&volume.handle) {
            Some(id) => used.entry(host.serving(&id.member).to_owned()).or_default().push((id, volume)),
            None if !volume.leaving => compared.findings.push(strange_handle(volume)),
            None => {}
        }
    }
    if let Some(reason) = &host.snapshots.unread {
        let message = format!("doctor cannot list its snapshots, and compared none: {reason}");
        compared.findings.push(Finding::new("host", "snapshots", message));
    }
    for side in members {
        let here = Here::new(host, side, used.remove(&side.member).unwrap_or_default(), older_than);
        here.judge_leaves(&mut compared);
        here.judge_kept(&mut compared);
        here.judge_volumes(&mut compared.findings);
        host.snapshots.judge(side, older_than, &mut compared);
    }
    compared
}

fn strange_handle(volume: &HostVolume) -> Finding {
    let message = format!("its handle {:?} is not one of this driver, so no leaf is behind it", volume.handle);
    Finding::of(&volume.uid, "volume", &volume.name, message)
}

/// One member, and the host's volumes that lead there. All by the half of their hash that every handle carries.
struct Here<'a> {
    host: &'a HostSide,
    side: &'a MemberSide,
    older_than: i64,
    used: BTreeMap<String, Vec<(VolumeId, &'a HostVolume)>>,
    leaves: BTreeMap<String, Vec<&'a Leaf>>,
    kept: BTreeMap<String, Vec<&'a LeafVolume>>,
    claim_uids: BTreeSet<&'a str>,
}

impl<'a> Here<'a> {
    fn new(
        host: &'a HostSide,
        side: &'a MemberSide,
        volumes: Vec<(VolumeId, &'a HostVolume)>,
        older_than: i64,
    ) -> Self {
        let (mut used, mut leaves, mut kept) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (id, volume) in volumes {
            used.entry(id.hashes().start().prefix()).or_insert_with(Vec::new).push((id, volume));
        }
        for leaf in &side.leaves {
            leaves.entry(leaf.hash.prefix()).or_insert_with(Vec::new).push(leaf);
        }
        for volume in &side.volumes {
            kept.entry(volume.hash.prefix()).or_insert_with(Vec::new).push(volume);
        }
        let claim_uids = side.leaves.iter().map(|leaf| leaf.uid.as_str()).collect();
        Self { host, side, older_than, used, leaves, kept, claim_uids }
    }

    fn users_of(&self, hash: VolumeHash) -> impl Iterator<Item = &(VolumeId, &'a HostVolume)> {
        self.used.get(&hash.prefix()).into_iter().flatten().filter(move |(id, _)| id.hashes().contains(&hash))
    }

    fn leaves_of(&self, id: &VolumeId) -> impl Iterator<Item = &'a Leaf> {
        let hashes = id.hashes();
        let near = self.leaves.get(&hashes.start().prefix()).into_iter().flatten().copied();
        near.filter(move |leaf| hashes.contains(&leaf.hash))
    }

    /// The host's volume of a leaf claim. A claim recreated under another name is found by its hash alone; a copy is not, as
    /// long as the leaf itself is in its place.
    fn user(&self, leaf: &Leaf) -> Option<&'a HostVolume> {
        let is_user = |id: &VolumeId| {
            let place = id.place();
            let in_place = |other: &Leaf| place.as_ref() == Some(&other.place);
            in_place(leaf) || !self.leaves_of(id).any(in_place)
        };
        self.users_of(leaf.hash).find(|(id, _)| is_user(id)).map(|(_, volume)| *volume)
    }

    fn judge_leaves(&self, compared: &mut Compared) {
        for leaf in &self.side.leaves {
            match self.user(leaf) {
                Some(volume) if !volume.leaving => compared.findings.extend(self.judge_pair(leaf, volume)),
                Some(_) => {}
                None if leaf.moving && self.host.has_volume_of(leaf.hash) => {}
                // Its volume is being made, or was deleted under its claim.
                None if self.host.claims.contains(&leaf.claim_uid) || self.host.may_use(leaf.hash) => {}
                None if leaf.age < self.older_than => compared.young += 1,
                None if leaf.moving => compared.findings.push(self.left_by_a_move(leaf)),
                None => compared.findings.push(self.orphan(leaf)),
            }
        }
    }

    /// It is no orphan to be removed: a move that is under way, and whose claim somebody has deleted, may have it still.
    fn left_by_a_move(&self, leaf: &Leaf) -> Finding {
        let message = format!(
            "the leaf claim says that a move has it, and the host has neither a volume nor a claim for it. If the host has no such \
             move either, nobody goes on with it: restore the volume in the host to have the data. If nobody wants that, take \
             annotation {MOVE} off the leaf claim and {PLACE} off its leaf volume, and `kosmos-csi doctor` says what removes it"
        );
        Finding::of(&leaf.uid, "moving", &format!("{}/{}", self.side.member, leaf.place), message)
    }

    fn orphan(&self, leaf: &Leaf) -> Finding {
        let mut message = "the leaf claim has no volume in the host, and no claim there waits for it".to_owned();
        message += if leaf.terminating { "; it is being deleted, and a finalizer or a pod holds it" } else { "" };
        let name = leaf_name(&self.side.member, &leaf.place);
        let remedy = if leaf.had_volume {
            format!(
                "; a volume of the host used it once, so somebody may want its data. If nobody does, `kosmos-csi doctor remove {name} \
                 --data-will-be-lost` removes it"
            )
        } else {
            format!(": `kosmos-csi doctor remove {name}` removes it and keeps its data")
        };
        Finding { name, uid: leaf.uid.clone(), message: format!("{message}{remedy}") }
    }

    fn judge_pair(&self, leaf: &Leaf, volume: &HostVolume) -> Option<Finding> {
        let about = format!("{}/{}", self.side.member, leaf.place);
        if leaf.lost {
            let message = format!(
                "the leaf claim of host volume {} has lost its leaf volume: restore that volume in the member, or delete the claim in the host",
                volume.name
            );
            return Some(Finding::of(&leaf.uid, "lost", &about, message));
        }
        let smaller = leaf.capacity > 0 && leaf.capacity < volume.capacity;
        smaller.then(|| {
            let (has, told) = (quantity::print(leaf.capacity), quantity::print(volume.capacity));
            let message = format!(
                "the leaf claim has {has}, but host volume {} says {told}: make the leaf claim larger",
                volume.name
            );
            Finding::of(&leaf.uid, "size", &about, message)
        })
    }

    /// Leaf volumes that outlived their claim and the host's volume.
    fn judge_kept(&self, compared: &mut Compared) {
        for kept in &self.side.volumes {
            let near = self.leaves.get(&kept.hash.prefix()).into_iter().flatten();
            let has_claim = self.claim_uids.contains(kept.claim_uid.as_str())
                || near.into_iter().any(|leaf| leaf.hash == kept.hash);
            let has_user = self.users_of(kept.hash).next().is_some() || self.host.may_use(kept.hash);
            let is_awaited = self.host.awaited.contains(&kept.hash);
            let has_move = kept.moving && self.host.has_volume_of(kept.hash);
            if has_claim || has_move || has_user || is_awaited {
                continue;
            }
            if kept.age < self.older_than {
                compared.young += 1;
                continue;
            }
            let message = format!(
                "the leaf volume is retained, and no volume or claim of the host leads to it. If nobody wants its data, remove the \
                 storage behind it, and then type `kubectl delete pv {}` in the member",
                kept.name
            );
            let about = format!("{}/{}", self.side.member, kept.name);
            compared.findings.push(Finding::of(&kept.uid, "kept", &about, message));
        }
    }

    fn judge_volumes(&self, findings: &mut Vec<Finding>) {
        for (id, volume) in self.used.values().flatten().filter(|(_, volume)| !volume.leaving) {
            let near = self.kept.get(&id.hashes().start().prefix()).into_iter().flatten();
            let kept = near.into_iter().any(|kept| id.hashes().contains(&kept.hash));
            let place = id.place().map(|place| (place.namespace, place.claim));
            let imported = place.is_some_and(|place| self.side.imported.contains(&place));
            if kept || imported || self.leaves_of(id).next().is_some() {
                continue;
            }
            let message = format!(
                "member {} has no leaf with this driver's labels for it ({}): restore the leaf there under its name, or delete the claim in the \
                 host; the driver makes nothing in its place",
                self.side.member, volume.handle
            );
            findings.push(Finding::of(&volume.uid, "volume", &volume.name, message));
        }
    }
}

#[cfg(test)]
mod tests;
