//! Which handles several volumes of the host have, as people make them: what one of them gives up another may want. And which leaf was
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
    volume::{self, GivenOutDigest, HostVolume},
    volumes::{HostVolumes, member_of},
};
use cluster::trimmed::{Reads, Trimmed};
use domain::{error::Result, volume::healing::Wish};

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
    /// Several volumes.
    pub shared: bool,
    /// The leaf that was given out with it: of a volume that a move has made at least.
    pub leaf: Option<GivenOutDigest>,
}

/// As they were listed last.
#[derive(Debug)]
struct Listed {
    began: Instant,
    shared: HashSet<Box<str>>,
    /// Which leaf was given out with each volume that a move has made.
    moved: HashMap<Box<str>, GivenOutDigest>,
}

impl Listed {
    /// The handle of each volume, and of which leaf it is where a move has made it.
    fn new(began: Instant, all: Vec<(Box<str>, Option<GivenOutDigest>)>) -> Self {
        let moved = all.iter().filter_map(|(handle, leaf)| Some((handle.clone(), (*leaf)?))).collect();
        Self { began, shared: shared(all.into_iter().map(|(handle, _)| handle)), moved }
    }

    fn says(&self, handle: &str) -> WithHandle {
        WithHandle { shared: self.shared.contains(handle), leaf: self.moved.get(handle).copied() }
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

    /// What the host has with this one, as was asked at that moment for one that is to go. The replica that leads goes by its watch of the
    /// host's volumes, where that says of the one that it is to go, and has told something lately: then it has told of all that were there by
    /// that time. It may have died unnoticed, also since it said so, and that of any other replica sooner: then they are listed, once for all
    /// that have asked before that list begins.
    pub async fn with(&self, host: &Host, handle: &str, asked: Instant) -> Result<WithHandle> {
        if *self.leads.borrow()
            && let Some(told) = self.told(handle).await
        {
            return Ok(told);
        }
        let mut listed = self.listed.lock().await;
        if let Some(listed) = &*listed
            && listed.began >= asked
        {
            return Ok(listed.says(handle));
        }
        let began = Instant::now();
        let new = Listed::new(began, each(host).await?);
        let says = new.says(handle);
        *listed = Some(new);
        Ok(says)
    }

    /// What the watch tells, a moment later at the latest.
    async fn told(&self, handle: &str) -> Option<WithHandle> {
        if let Some(told) = self.says(handle) {
            return Some(told);
        }
        // Nothing more is to be told of what is to go already.
        if !self.volumes.whole() || self.volumes.with(handle).iter().all(|known| known.wish() == Wish::Nothing) {
            return None;
        }
        let (until, news) = (Instant::now() + MOMENT, self.volumes.listen(member_of(handle)));
        loop {
            if let Some(told) = self.says(handle) {
                return Some(told);
            }
            timeout_at(until, news.told()).await.ok()?;
        }
    }

    /// None where the watch has not told that a volume with this handle is to go, or may have died since.
    fn says(&self, handle: &str) -> Option<WithHandle> {
        match self.volumes.with(handle).as_slice() {
            _ if !self.volumes.whole() => None,
            [known] if known.wish() == Wish::Nothing => {
                self.volumes.heard_lately().then_some(WithHandle { shared: false, leaf: known.leaf })
            }
            [] | [_] => None,
            _ => Some(WithHandle { shared: true, leaf: None }),
        }
    }
}

/// Of each volume what is gone by.
async fn each(host: &Host) -> Result<Vec<(Box<str>, Option<GivenOutDigest>)>> {
    let volumes: Api<Trimmed<PersistentVolume, OfMoves>> = Api::all(host.client.clone());
    let known = |volume: PersistentVolume| {
        let is_moved = volume.annotations().contains_key(REPLACES);
        HostVolume::new(&volume).map(|known| (known.handle, known.leaf.filter(|_| is_moved)))
    };
    volume::all_of(&volumes, known).await
}

fn shared(handles: impl IntoIterator<Item = Box<str>>) -> HashSet<Box<str>> {
    let mut seen = HashSet::new();
    handles.into_iter().filter(|handle| !seen.insert(handle.clone())).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;

    #[test]
    fn handle_is_shared_that_is_there_more_than_once() {
        let handles = ["m/n/a/1", "m/n/b/1", "m/n/a/1", "m/n/c/1", "m/n/a/1"].map(Box::from);
        assert_eq!(shared(handles), HashSet::from([Box::from("m/n/a/1")]));
    }

    #[test]
    fn leaf_is_told_of_a_volume_that_a_move_has_made_and_of_no_other() {
        let volume: PersistentVolume = from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"csi": {"driver": "kosmos.csi.io", "volumeHandle": "m/n/a/1",
                "volumeAttributes": {"leafClaimUID": "u", "leafVolume": "v"}}},
        }))
        .unwrap();
        let leaf = HostVolume::new(&volume).unwrap().leaf;
        assert!(leaf.is_some());
        let listed = Listed::new(Instant::now(), vec![("m/n/a/1".into(), leaf), ("m/n/b/1".into(), None)]);
        assert_eq!(listed.says("m/n/a/1"), WithHandle { shared: false, leaf });
        assert_eq!(listed.says("m/n/b/1"), WithHandle::default());
    }
}
