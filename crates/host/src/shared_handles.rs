//! Which leaves several volumes of the host may have, as people make them: what one of them gives up another may want. And which leaf was
//! given out with one that a move has made: another may be at its place, as one of before.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, timeout_at},
};

use super::{
    Host,
    replacement::REPLACES,
    volume::{self, GivenOutDigest, HostVolume, LiveVolume},
    volumes::{HostVolumes, member_of},
};
use cluster::trimmed::{Reads, Trimmed};
use domain::{
    error::Result,
    volume::{VolumeId, healing::Wish},
};

/// For the watch to tell what whoever asks has seen already.
const MOMENT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct SharedHandles {
    /// As this replica follows them.
    volumes: Arc<HostVolumes>,
    leads: watch::Receiver<bool>,
    listed: Mutex<Option<Listed>>,
}

/// What the host has with a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithHandle {
    /// Several volumes may have its leaf.
    pub shared: bool,
    /// One is not to go, by a list that was begun after it was asked.
    pub wanted: bool,
    /// The leaf that was given out with it: of a volume that a move has made at least.
    pub leaf: Option<GivenOutDigest>,
}

/// As they were listed last.
#[derive(Debug)]
struct Listed {
    began: Instant,
    halves: HashSet<u64>,
    /// Of those that are not to go.
    wanted: HashSet<u64>,
    /// Which leaf was given out with each volume that a move has made.
    moved: HashMap<Box<str>, GivenOutDigest>,
}

/// What is gone by of one volume.
struct ListedVolume {
    handle: Box<str>,
    is_to_go: bool,
    /// Where a move has made it.
    leaf: Option<GivenOutDigest>,
}

impl Listed {
    fn new(began: Instant, all: Vec<ListedVolume>) -> Self {
        let moved = all.iter().filter_map(|one| Some((one.handle.clone(), one.leaf?))).collect();
        let stay = all.iter().filter(|one| !one.is_to_go);
        let wanted = stay.filter_map(|one| Some(half_of(&VolumeId::parse(&one.handle)?))).collect();
        Self { began, halves: shared(all.into_iter().map(|one| one.handle)), wanted, moved }
    }

    fn says(&self, id: &VolumeId, handle: &str) -> WithHandle {
        let half = half_of(id);
        WithHandle {
            shared: self.halves.contains(&half),
            wanted: self.wanted.contains(&half),
            leaf: self.moved.get(handle).copied(),
        }
    }
}

/// Who goes by what a volume says that a move has made.
#[derive(Clone, Debug)]
enum OfMoves {}

impl Reads for OfMoves {
    fn reads(key: &str) -> bool {
        key == REPLACES
    }
}

impl SharedHandles {
    pub fn new(volumes: Arc<HostVolumes>, leads: watch::Receiver<bool>) -> Self {
        Self { volumes, leads, listed: Mutex::default() }
    }

    /// What the host has with this one, as was asked at that moment for one that is to go: people write another name of its member, or the hash
    /// alone, for the same leaf. The replica that leads goes by its watch of the host's volumes, where that says of the one that it is to go,
    /// has told something lately, and was not behind: then it has told of all that were there by that time. It may have died unnoticed, also
    /// since it said so, or be behind, and that of any other replica sooner: then they are listed, once for all that have asked before that
    /// list begins.
    pub async fn with(&self, host: &Host, id: &VolumeId, asked: Instant) -> Result<WithHandle> {
        let handle = id.to_string();
        if *self.leads.borrow()
            && let Some(told) = self.told(id, &handle).await
        {
            return Ok(told);
        }
        let mut listed = self.listed.lock().await;
        if let Some(listed) = &*listed
            && listed.began >= asked
        {
            return Ok(listed.says(id, &handle));
        }
        let began = Instant::now();
        let new = Listed::new(began, each(host).await?);
        let says = new.says(id, &handle);
        *listed = Some(new);
        Ok(says)
    }

    /// The volume with this handle, read just now. None where the watch knows none, or several, and where the one that it knows is another by now:
    /// then all volumes of the host have to be looked through.
    pub async fn only(&self, host: &Host, handle: &str) -> Result<Option<LiveVolume>> {
        let known = self.volumes.with(handle);
        let [one] = known.as_slice() else { return Ok(None) };
        let live = volume::read(host, &one.name).await?;
        Ok(live.filter(|live| *live.volume.handle == *handle))
    }

    /// What the watch tells, a moment later at the latest.
    async fn told(&self, id: &VolumeId, handle: &str) -> Option<WithHandle> {
        if let Some(told) = self.says(id, handle) {
            return Some(told);
        }
        // Nothing more is to be told of what is to go already.
        if !self.volumes.whole() || self.volumes.with(handle).iter().all(|known| known.wish() == Wish::Nothing) {
            return None;
        }
        let (until, news) = (Instant::now() + MOMENT, self.volumes.listen(member_of(handle)));
        loop {
            if let Some(told) = self.says(id, handle) {
                return Some(told);
            }
            timeout_at(until, news.told()).await.ok()?;
        }
    }

    /// None where the watch has not told that a volume with this handle is to go, is behind, or may have died since.
    fn says(&self, id: &VolumeId, handle: &str) -> Option<WithHandle> {
        match self.volumes.with(handle).as_slice() {
            _ if !self.volumes.whole() => None,
            // Looked for in all members: once, and not at each news.
            [known] if known.wish() == Wish::Nothing && self.volumes.count_like(id) > 1 => {
                Some(WithHandle { shared: true, ..WithHandle::default() })
            }
            [known] if known.wish() == Wish::Nothing => {
                self.volumes.heard_lately().then_some(WithHandle { leaf: known.leaf, ..WithHandle::default() })
            }
            [] | [_] => None,
            _ => Some(WithHandle { shared: true, ..WithHandle::default() }),
        }
    }
}

async fn each(host: &Host) -> Result<Vec<ListedVolume>> {
    let volumes: Api<Trimmed<PersistentVolume, OfMoves>> = Api::all(host.client.clone());
    let known = |volume: PersistentVolume| {
        let is_moved = volume.annotations().contains_key(REPLACES);
        let known = HostVolume::new(&volume)?;
        let is_to_go = known.is_to_be_reclaimed();
        Some(ListedVolume { handle: known.handle, is_to_go, leaf: known.leaf.filter(|_| is_moved) })
    };
    volume::all_of(&volumes, known).await
}

/// What all handles of one leaf have in common.
fn half_of(id: &VolumeId) -> u64 {
    id.hashes().start().seed()
}

fn shared(handles: impl IntoIterator<Item = Box<str>>) -> HashSet<u64> {
    let mut seen = HashSet::new();
    let halves = handles.into_iter().filter_map(|handle| VolumeId::parse(&handle).map(|id| half_of(&id)));
    halves.filter(|half| !seen.insert(*half)).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;

    #[test]
    fn leaf_is_shared_that_handles_name_more_than_once_in_whichever_way() {
        let of = |leaf: u64| -> [Box<str>; 3] {
            let digits = format!("{leaf:016x}");
            [format!("m/n/a/{digits}"), format!("alias/n/a/{digits}"), format!("m///{digits}{digits}")].map(Box::from)
        };
        let ([one, same, hashed], [another, ..]) = (of(1), of(2));
        assert_eq!(shared([one, another]), HashSet::new());
        for other in [same, hashed] {
            let [one, ..] = of(1);
            let [another, ..] = of(2);
            assert_eq!(shared([one.clone(), another, other]), HashSet::from([1]));
            assert_eq!(shared([one.clone(), one.clone(), one]), HashSet::from([1]));
        }
    }

    #[test]
    fn leaf_is_told_of_a_volume_that_a_move_has_made_and_of_no_other() {
        let volume: PersistentVolume = from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"csi": {"driver": "kosmos.csi.io", "volumeHandle": "m/n/a/0000000000000001",
                "volumeAttributes": {"leafClaimUID": "u", "leafVolume": "v"}}},
        }))
        .unwrap();
        let leaf = HostVolume::new(&volume).unwrap().leaf;
        assert!(leaf.is_some());
        let [moved, other] = ["m/n/a/0000000000000001", "m/n/b/0000000000000002"];
        let of = |handle: &str, leaf| ListedVolume { handle: handle.into(), is_to_go: true, leaf };
        let listed = Listed::new(Instant::now(), vec![of(moved, leaf), of(other, None)]);
        let says = |handle: &str| listed.says(&VolumeId::parse(handle).unwrap(), handle);
        assert_eq!(says(moved), WithHandle { leaf, ..WithHandle::default() });
        assert_eq!(says(other), WithHandle::default());
    }

    #[test]
    fn leaf_is_wanted_where_a_volume_is_not_to_go_whichever_handle_of_the_leaf_that_has() {
        let of = |handle: &str, is_to_go| ListedVolume { handle: handle.into(), is_to_go, leaf: None };
        let [goes, stays] = ["m/n/a/0000000000000001", "m/n/b/0000000000000002"];
        let listed = Listed::new(Instant::now(), vec![of(goes, true), of(stays, false)]);
        let is_wanted = |handle: &str| listed.says(&VolumeId::parse(handle).unwrap(), handle).wanted;
        let unlisted = "m/n/c/0000000000000003";
        assert_eq!([goes, stays, "alias/n/b/0000000000000002", unlisted].map(is_wanted), [false, true, true, false]);
    }
}
