//! The leaves of a volume that is moved, as a move sees them and what it writes on them. Every write tests the version of the
//! object on which it was decided.

mod copy;
pub mod ends;
pub mod line;
mod source;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

pub use self::{
    copy::{is_going, keep_copy, make_copy, place_copy, release_copy, remove_copy, try_claim},
    source::{lend_source, mark_source, open_source, remove_yard_claim, retire_source, return_source},
};
use super::{
    MemberClient,
    identity::is_leaf_of,
    ownership::{self, MOVE, POLICY_BEFORE},
    row::{ClaimRow, place_told},
    saved::{bound_to, policy_of},
};
use domain::{
    error::{Error, Result},
    volume::{
        LeafPlace, VolumeHash,
        moving::{Mark, MoveMark, Part, SeenLeaf, SeenVolume, YARD},
        plan::Phase,
    },
};

/// One leaf, read just now.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Its claim where the pods of the host's claim look for it.
    pub home: Option<PersistentVolumeClaim>,
    /// Its claim in the yard.
    pub yard: Option<PersistentVolumeClaim>,
    pub volume: Option<PersistentVolume>,
}

/// Where a leaf is while a move has it.
pub fn yard(hash: VolumeHash) -> LeafPlace {
    LeafPlace { namespace: YARD.to_owned(), claim: hash.to_string() }
}

/// Claims and volume of a leaf, wherever they are of the two places.
pub async fn look(client: &MemberClient, hash: VolumeHash, home: &LeafPlace) -> Result<Sight> {
    let selector = format!("{},{}={hash}", ownership::selector(&client.host), ownership::VOLUME);
    let ours = ListParams::default().labels(&selector);
    let claims = client.listed(|namespace| client.within::<PersistentVolumeClaim>(namespace), &ours).await;
    let claims = claims.map_err(|error| client.outcome(&format!("list claims of volume {hash}"), &error))?;
    let at = |place: &LeafPlace| {
        let is_there = |claim: &&PersistentVolumeClaim| {
            claim.namespace().as_ref() == Some(&place.namespace) && claim.name_any() == place.claim
        };
        claims.iter().find(is_there).filter(|claim| is_leaf_of(&claim.metadata, &client.host, hash)).cloned()
    };
    let (home, yard) = (at(home), at(&yard(hash)));
    let volumes = Api::<PersistentVolume>::all(client.client.clone());
    let listed = volumes.list(&ours).await;
    let listed = listed.map_err(|error| client.outcome(&format!("list volumes of volume {hash}"), &error))?.items;
    let named = [&yard, &home].into_iter().flatten().find_map(|claim| claim.spec.as_ref()?.volume_name.clone());
    let volume = match named.filter(|name| !name.is_empty()) {
        Some(name) => match listed.into_iter().find(|volume| volume.name_any() == name) {
            Some(volume) => Some(volume),
            // It carries no labels yet.
            None => cluster::read(volumes.get(&name).await, &name)
                .map_err(|error| client.outcome(&format!("get volume {name}"), &error))?
                .filter(|volume| is_of(volume, [&yard, &home])),
        },
        None => listed.into_iter().min_by_key(ResourceExt::name_any),
    };
    Ok(Sight { home, yard, volume })
}

fn is_of(volume: &PersistentVolume, claims: [&Option<PersistentVolumeClaim>; 2]) -> bool {
    let uid = bound_to(volume);
    uid.is_some() && claims.into_iter().flatten().any(|claim| claim.metadata.uid.as_deref() == uid)
}

/// Whether a pod of the member that has not ended mounts the claim.
pub async fn is_mounted(client: &MemberClient, place: &LeafPlace) -> Result<bool> {
    let pods = Api::<Pod>::namespaced(client.client.clone(), &place.namespace).list(&ListParams::default()).await;
    let pods = pods.map_err(|error| client.outcome(&format!("list pods in {}", place.namespace), &error))?;
    let mounts = |pod: &Pod| {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let has_ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(has_ended, Some("Succeeded" | "Failed"))
            && volumes.into_iter().any(|volume| names(volume, pod, place))
    };
    Ok(pods.items.iter().any(mounts))
}

fn names(volume: &k8s_openapi::api::core::v1::Volume, pod: &Pod, place: &LeafPlace) -> bool {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => source.claim_name == place.claim,
        (None, Some(_)) => format!("{}-{}", pod.name_any(), volume.name) == place.claim,
        (None, None) => false,
    }
}

impl Sight {
    /// The claim, wherever it is.
    pub fn claim(&self) -> Option<&PersistentVolumeClaim> {
        self.home.as_ref().or(self.yard.as_ref())
    }

    /// As the plan sees it, but for its mover and the pods that use it.
    pub fn seen(&self, home: &LeafPlace, of: &MoveMark) -> SeenLeaf {
        let mark = self.claim().and_then(|claim| MoveMark::parse(claim.annotations().get(MOVE)?));
        let row = self.claim().map(ClaimRow::new);
        SeenLeaf {
            home: self.home.is_some(),
            yard: self.yard.is_some(),
            whole: self.is_whole(),
            mark: match mark.filter(|mark| mark.uid == of.uid).map(|mark| mark.part) {
                Some(Part::Source) => Mark::Closed,
                Some(Part::IsolatedSource) => Mark::Isolated,
                Some(Part::Copy) | None => Mark::None,
            },
            used: row.is_some_and(|row| row.life.published.is_corrupt() || row.life.published.is_on_real_node()),
            volume: self.volume.as_ref().map(|volume| {
                let place = place_told(volume);
                SeenVolume {
                    retained: policy_of(volume) == "Retain",
                    lent: place.as_ref().is_some_and(|place| place.namespace == YARD),
                    moving: place.is_some(),
                    moved: volume.labels().contains_key(ownership::MOVED),
                    returned: place.as_ref() == Some(home),
                }
            }),
            ..SeenLeaf::default()
        }
    }

    fn is_whole(&self) -> bool {
        let (Some(claim), Some(volume)) = (self.claim(), &self.volume) else { return false };
        let row = ClaimRow::new(claim);
        let is_bound = row.observed().phase == Phase::Bound && !row.observed().terminating;
        let is_healed = !volume.annotations().contains_key(ownership::HEALING);
        is_bound && is_healed && bound_to(volume) == claim.metadata.uid.as_deref()
    }
}

/// Writes on a claim as it was read.
async fn change_claim(client: &MemberClient, claim: &PersistentVolumeClaim, change: Value, doing: &str) -> Result<()> {
    let claims =
        Api::<PersistentVolumeClaim>::namespaced(client.client.clone(), &claim.namespace().unwrap_or_default());
    let patch = Patch::Merge(over(&claim.metadata, change));
    let answer = claims.patch(&claim.name_any(), &PatchParams::default(), &patch).await;
    let doing = format!("{doing} claim {}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
    let changed = answer.map_err(|error| missed(client.outcome(&doing, &error)))?;
    client.rows.put_claim(&changed);
    Ok(())
}

/// The same on a volume.
async fn change_volume(client: &MemberClient, volume: &PersistentVolume, change: Value, doing: &str) -> Result<()> {
    let patch = Patch::Merge(over(&volume.metadata, change));
    let volumes = Api::<PersistentVolume>::all(client.client.clone());
    let answer = volumes.patch(&volume.name_any(), &PatchParams::default(), &patch).await;
    let doing = format!("{doing} volume {}", volume.name_any());
    let changed = answer.map_err(|error| missed(client.outcome(&doing, &error)))?;
    client.rows.put_volume(&changed);
    Ok(())
}

fn over(read: &kube::api::ObjectMeta, mut change: Value) -> Value {
    change["metadata"]["uid"] = json!(read.uid);
    change["metadata"]["resourceVersion"] = json!(read.resource_version);
    change
}

/// It has gone meanwhile: the next look tells.
fn missed(error: Error) -> Error {
    match error {
        Error::NotFound(reason) => Error::InProgress(reason),
        other => other,
    }
}

/// It is `Retain` because of the move, and says what it was.
fn kept(volume: &PersistentVolume) -> Value {
    let mut change = json!({"metadata": {"annotations": {}}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    if !volume.annotations().contains_key(POLICY_BEFORE) {
        change["metadata"]["annotations"][POLICY_BEFORE] = json!(policy_of(volume));
    }
    change
}

fn place_of(place: &LeafPlace) -> Value {
    json!(format!("{}/{}", place.namespace, place.claim))
}
