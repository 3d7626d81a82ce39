//! One leaf of a volume that is moved, read just now: its claims at home and in the yard, and its volume.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    Changed, former_yard,
    stray::{Stray, waits_for},
    yard,
};
use crate::{
    MemberClient,
    identity::is_leaf_of,
    ownership::{self, MOVE},
    row::{ClaimRow, VolumeRow, place_told},
    saved::{Saved, bound_to, policy_of},
};
use domain::{
    error::Result,
    volume::{
        LeafPlace, VolumeHash,
        moving::{Mark, MoveMark, Moving, Part, SeenLeaf, SeenVolume, YARD},
        plan::Phase,
        published::Published,
    },
};

/// Kubernetes' own, for the pods that use a claim.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// One leaf, read just now.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Its claim where the pods of the host's claim look for it.
    pub home: Option<PersistentVolumeClaim>,
    /// Its claim in the yard.
    pub yard: Option<PersistentVolumeClaim>,
    pub volume: Option<PersistentVolume>,
    /// A claim that was made late, and is no leaf's.
    pub stray: Option<Stray>,
    /// What says that a leaf of another move is in the yard, where one is.
    pub taken_by: Option<String>,
    /// An ordinary leaf is where that of the copy belongs.
    pub is_home_ordinary: bool,
    /// UIDs of all volumes there that carry the labels of the leaf.
    labelled: Vec<String>,
}

/// A claim that is on its way out, and what holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    pub place: LeafPlace,
    /// Pods of its member.
    pub is_used: bool,
    /// The finalizers of others.
    pub finalizers: Vec<String>,
}

/// The claims of a leaf in this member that are of one move, and those that are in its way.
struct Claims {
    home: Option<PersistentVolumeClaim>,
    yard: Option<PersistentVolumeClaim>,
    stray: Option<PersistentVolumeClaim>,
    taken_by: Option<String>,
}

/// Claims and volume of a leaf, wherever they are of the two places, as a move sees them, for which it is source or copy; as any would,
/// where no move is named.
pub async fn look(client: &MemberClient, hash: VolumeHash, home: &LeafPlace, of: Option<&MoveMark>) -> Result<Sight> {
    let selector = format!("{},{}={hash}", ownership::selector(&client.host), ownership::VOLUME);
    let ours = ListParams::default().labels(&selector);
    let claims = client.listed(|namespace| client.within::<PersistentVolumeClaim>(namespace), &ours).await;
    let claims = claims.map_err(|error| client.outcome(&format!("list claims of volume {hash}"), &error))?;
    let is_leaf = |claim: &PersistentVolumeClaim| is_leaf_of(&claim.metadata, &client.host, hash);
    let claims: Vec<_> = claims.into_iter().filter(is_leaf).collect();
    let listed = Api::<PersistentVolume>::all(client.client.clone()).list(&ours).await;
    let listed = listed.map_err(|error| client.outcome(&format!("list volumes of volume {hash}"), &error))?.items;
    let is_home_ordinary = has_ordinary(&claims, &listed, home, of);
    let Claims { home, yard, stray, taken_by } =
        Claims::of(&claims, &listed, home, [&yard(&client.host, hash), &former_yard(hash)], of);
    let stray = match stray {
        Some(claim) => {
            let named = volume_of(client, &listed, [Some(&claim), None]).await?;
            Some(Stray { volume: named.filter(|volume| is_bound(volume, &claim)), claim })
        }
        None => None,
    };
    let labelled = listed.iter().filter_map(ResourceExt::uid).collect();
    let mut volume = volume_of(client, &listed, [yard.as_ref(), home.as_ref()]).await?;
    if volume.is_none() && taken_by.is_none() {
        // That of a claim that is being recreated.
        let is_strays = |one: &PersistentVolume| stray.as_ref().is_some_and(|stray| is_bound(one, &stray.claim));
        let of_move = listed.into_iter().filter(|one| !is_strays(one) && is_of(one, of));
        // One that was given up says no more where its claim belongs.
        volume = of_move.min_by_key(|one| (place_told(one).is_none(), one.name_any()));
    }
    Ok(Sight { home, yard, volume, stray, taken_by, is_home_ordinary, labelled })
}

impl Claims {
    /// Nobody but movers may write in the yard, so what a claim there says of its move is believed. It is a leaf where a volume says
    /// so, or may become one; but not while another claim is the leaf.
    fn of(
        claims: &[PersistentVolumeClaim],
        volumes: &[PersistentVolume],
        home: &LeafPlace,
        [yard, former]: [&LeafPlace; 2],
        of: Option<&MoveMark>,
    ) -> Self {
        let at = |place: &LeafPlace| {
            let is_there = |claim: &&PersistentVolumeClaim| {
                claim.namespace().as_ref() == Some(&place.namespace) && claim.name_any() == place.claim
            };
            claims.iter().find(is_there).cloned()
        };
        let holds = |claim: &PersistentVolumeClaim| volumes.iter().find(|volume| is_bound(volume, claim));
        let is_outside = |claim: &PersistentVolumeClaim| claim.namespace().as_deref() != Some(YARD);
        let mut home = at(home).filter(is_outside);
        let in_yard = at(yard).or_else(|| at(former));
        if let Some(copy) = of.filter(|of| of.part == Part::Copy) {
            // The copy itself, whose volume somebody has deleted: nothing else is there that could be it.
            let has_lost = |home: &PersistentVolumeClaim| {
                let is_of_this = mark_of(home).is_some_and(|mark| mark.uid == copy.uid);
                let is_alone = in_yard.is_none() && !volumes.iter().any(|volume| is_of(volume, of));
                is_of_this && is_alone && ClaimRow::new(home).is_lost()
            };
            // Others may have made a claim there meanwhile, labels and all. Volumes are cluster-wide.
            let is_told =
                |home: &PersistentVolumeClaim| volumes.iter().any(|volume| is_of(volume, of) && is_for(volume, home));
            home.take_if(|home| !has_lost(home) && !is_told(home));
        }
        // Where no move says where home is, it is where the leaf is: restored copies of it carry no finalizer of ours.
        let is_the_leaf = |claim: &PersistentVolumeClaim| is_outside(claim) && is_held(claim) && holds(claim).is_some();
        let is_elsewhere = match of {
            Some(_) => home.as_ref().is_some_and(|home| holds(home).is_some()),
            None => claims.iter().any(is_the_leaf),
        };
        let none = Self { home, yard: None, stray: None, taken_by: None };
        let Some(claim) = in_yard else { return none };
        let is_own = match (of, mark_of(&claim)) {
            (None, _) => true,
            (Some(of), Some(mark)) => mark.uid == of.uid,
            // A leaf may have lost its mark before it was lent.
            (Some(of), None) => of.part != Part::Copy,
        };
        let leaf = holds(&claim).filter(|volume| place_told(volume).is_some());
        let is_lent = |volume: &&PersistentVolume| is_own && !volume.annotations().contains_key(ownership::HEALING);
        let none = match leaf.filter(is_lent).filter(|_| of.is_some_and(|of| of.part != Part::Copy)) {
            // It was recreated late: nothing is recreated for the volume now, which has its claim.
            Some(volume) => none.with_stray(|home| waits_for(home, &volume.name_any())),
            None => none,
        };
        match (leaf.is_some(), is_own) {
            (true, false) => Self { taken_by: Some(whose(&claim)), ..none },
            (false, _) if is_elsewhere => Self { stray: Some(claim), ..none },
            // What a claim elsewhere says is nothing beside that.
            (_, true) if of.is_none() => Self { yard: Some(claim), home: None, ..none },
            (_, true) => Self { yard: Some(claim), ..none },
            (false, false) => Self { stray: Some(claim), ..none },
        }
    }

    /// The one at home is none of a leaf, where this is so.
    fn with_stray(self, is_stray: impl Fn(&PersistentVolumeClaim) -> bool) -> Self {
        if self.home.as_ref().is_some_and(is_stray) { Self { stray: self.home, home: None, ..self } } else { self }
    }
}

/// The volume of the first of these claims that has one: it is bound to it, or at least named by it.
async fn volume_of(
    client: &MemberClient,
    listed: &[PersistentVolume],
    claims: [Option<&PersistentVolumeClaim>; 2],
) -> Result<Option<PersistentVolume>> {
    let claims = || claims.into_iter().flatten();
    let bound = claims().find_map(|claim| listed.iter().find(|volume| is_bound(volume, claim)));
    if let Some(bound) = bound {
        return Ok(Some(bound.clone()));
    }
    let named = claims().find_map(|claim| claim.spec.as_ref()?.volume_name.clone()).filter(|name| !name.is_empty());
    let Some(name) = named else { return Ok(None) };
    if let Some(volume) = listed.iter().find(|volume| volume.name_any() == name) {
        return Ok(Some(volume.clone()));
    }
    // It carries no labels yet.
    let read = Api::<PersistentVolume>::all(client.client.clone()).get(&name).await;
    let read = cluster::read(read, &name).map_err(|error| client.outcome(&format!("get volume {name}"), &error))?;
    Ok(read.filter(|volume| claims().any(|claim| is_bound(volume, claim))))
}

/// What a claim says of the move that has it, or the volume of a copy.
pub(super) fn mark_of(object: &impl ResourceExt) -> Option<MoveMark> {
    MoveMark::parse(object.annotations().get(MOVE)?)
}

/// For people: of which move a claim in the yard is.
fn whose(claim: &PersistentVolumeClaim) -> String {
    let of = mark_of(claim).map_or_else(|| "it does not say of which move it is".to_owned(), |mark| mark.object());
    format!("claim {YARD}/{} there ({of})", claim.name_any())
}

/// By our finalizer: a tool that restores claims leaves it out.
fn is_held(claim: &PersistentVolumeClaim) -> bool {
    claim.finalizers().iter().any(|name| name == ownership::FINALIZER)
}

fn is_leaving(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some()
}

/// Or is being given to it.
fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let names_it = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()) == volume.metadata.name.as_deref();
    is_bound(volume, claim) || names_it && volume.annotations().contains_key(ownership::HEALING)
}

/// A volume is of this move, or of any, by what it says itself, or keeps of its claim: others carry labels of the leaf as well, as copies
/// do that people and backup tools make of it.
fn is_of(volume: &PersistentVolume, of: Option<&MoveMark>) -> bool {
    let mark = mark_of(volume).or_else(|| Saved::of(volume)?.mark());
    place_told(volume).is_some() || mark.is_some_and(|mark| of.is_none_or(|of| of.uid == mark.uid))
}

/// Copies that people make of it carry no finalizer of ours.
fn has_ordinary(
    claims: &[PersistentVolumeClaim],
    volumes: &[PersistentVolume],
    home: &LeafPlace,
    of: Option<&MoveMark>,
) -> bool {
    let is_there = |claim: &&PersistentVolumeClaim| is_held(claim) && ClaimRow::new(claim).place == *home;
    let has_volume = |claim| volumes.iter().any(|volume| is_bound(volume, claim) && !is_of(volume, None));
    of.is_some_and(|of| of.part == Part::Copy) && claims.iter().filter(is_there).any(has_volume)
}

fn is_bound(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    bound_to(volume).is_some() && bound_to(volume) == claim.metadata.uid.as_deref()
}

impl Sight {
    /// What is to be removed of one that came late.
    pub(super) fn of_stray(stray: &Stray, volume: Option<PersistentVolume>) -> Self {
        Self { yard: Some(stray.claim.clone()), volume, ..Self::default() }
    }

    /// With an object of it as it is now.
    #[must_use]
    pub fn with(mut self, changed: Changed) -> Self {
        match changed {
            Changed::Volume(now) if self.volume.as_ref().is_some_and(|before| before.uid() == now.uid()) => {
                self.volume = Some(*now);
            }
            Changed::Claim(now) => {
                let mut claims = [&mut self.home, &mut self.yard].into_iter().flatten();
                if let Some(before) = claims.find(|before| before.uid() == now.uid()) {
                    *before = *now;
                }
            }
            Changed::Volume(_) => {}
        }
        self
    }

    /// The volume with this UID is there, and an ordinary leaf's: of no move that is looked for.
    pub fn has_as_ordinary(&self, uid: &str) -> bool {
        self.volume.is_none() && self.labelled.iter().any(|labelled| labelled == uid)
    }

    /// Nobody has given the claim in the yard a volume.
    pub fn waits_for_volume(&self) -> bool {
        let named = |claim: &PersistentVolumeClaim| claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        self.yard.as_ref().is_some_and(|claim| named(claim).unwrap_or_default().is_empty())
    }

    /// The claim, wherever it is.
    pub fn claim(&self) -> Option<&PersistentVolumeClaim> {
        self.home.as_ref().or(self.yard.as_ref())
    }

    /// What is said of a move by the volume of a copy, by the claim, or else by the one that was made late.
    pub fn mark(&self) -> Option<MoveMark> {
        if let Some(mark) = self.volume.as_ref().and_then(mark_of) {
            return Some(mark);
        }
        mark_of(self.claim().or_else(|| self.stray.as_ref().map(|stray| &stray.claim))?)
    }

    /// On which nodes of the host it is, as its claim says.
    pub fn published(&self) -> Published {
        self.claim().map(|claim| ClaimRow::new(claim).life.published).unwrap_or_default()
    }

    /// The claim that is on its way out, where one is.
    pub fn leaving(&self) -> Option<Leaving> {
        let claim = [&self.home, &self.yard].into_iter().flatten().find(|claim| is_leaving(claim))?;
        let of_others = |name: &&String| ![ownership::FINALIZER, PROTECTION].contains(&name.as_str());
        Some(Leaving {
            place: ClaimRow::new(claim).place,
            is_used: claim.finalizers().iter().any(|name| name == PROTECTION),
            finalizers: claim.finalizers().iter().filter(of_others).cloned().collect(),
        })
    }

    pub fn is_held(&self) -> bool {
        self.claim().is_some_and(is_held)
    }

    /// It is or was a leaf volume of this driver's, and nobody else's that the member has bound to the claim.
    pub fn is_volume_ours(&self) -> bool {
        let labels = self.volume.as_ref().map(ResourceExt::labels);
        labels.is_some_and(|labels| [ownership::VOLUME, ownership::MOVED].iter().any(|key| labels.contains_key(*key)))
    }

    /// How what no leaf and no volume is in is removed, where there is such a thing and no move has it.
    pub fn of_nobody(&self) -> Option<Moving> {
        let is_copy = |claim: &PersistentVolumeClaim| mark_of(claim).is_some_and(|mark| mark.part == Part::Copy);
        let has_lost = |claim: &PersistentVolumeClaim| is_held(claim) && ClaimRow::new(claim).is_lost();
        match (&self.stray, &self.yard, &self.home, &self.volume) {
            (Some(_), ..) => Some(Moving::RemoveCopyStray),
            (None, Some(claim), _, None) if is_copy(claim) => Some(Moving::RemoveCopy),
            (None, None, Some(claim), None) if is_copy(claim) && has_lost(claim) => Some(Moving::RemoveCopy),
            _ => None,
        }
    }

    /// As the plan sees it, but for its mover, the pods that use it, and whether its volume is the one on record.
    pub fn seen(&self, home: &LeafPlace, of: &MoveMark) -> SeenLeaf {
        let saved = || Saved::of(self.volume.as_ref()?)?.mark();
        let mark = self.claim().map_or_else(saved, mark_of);
        let published = self.published();
        SeenLeaf {
            home: self.home.is_some(),
            yard: self.yard.is_some(),
            stray: self.stray.is_some(),
            taken: self.taken_by.is_some(),
            whole: self.is_whole(),
            lost: self.volume.is_none() && self.claim().is_some_and(|claim| ClaimRow::new(claim).is_lost()),
            had: self.was_had(),
            leaving: self.yard.as_ref().is_some_and(is_leaving),
            mark: match mark.filter(|mark| mark.uid == of.uid).map(|mark| mark.part) {
                Some(Part::Source) => Mark::Closed,
                Some(Part::IsolatedSource) => Mark::Isolated,
                Some(Part::Copy) | None => Mark::None,
            },
            used: published.is_corrupt() || published.is_on_real_node(),
            volume: self.volume.as_ref().map(|volume| {
                let place = place_told(volume);
                SeenVolume {
                    retained: policy_of(volume) == "Retain",
                    lent: place.as_ref().is_some_and(|place| place.namespace == YARD),
                    moving: place.is_some(),
                    moved: volume.labels().contains_key(ownership::MOVED),
                    returned: place.as_ref() == Some(home),
                    pinned: false,
                    remade: false,
                    leaving: volume.metadata.deletion_timestamp.is_some(),
                }
            }),
            ..SeenLeaf::default()
        }
    }

    fn was_had(&self) -> bool {
        let saved = || self.volume.as_ref().and_then(Saved::of).is_some_and(|saved| saved.had_volume());
        self.claim().map_or_else(saved, |claim| ClaimRow::new(claim).was_had())
    }

    /// Its volume says that it is this claim's. Whoever may write claims in a member may label any as a leaf's, but volumes are
    /// cluster-wide.
    pub fn is_volume_bound(&self) -> bool {
        self.claim().zip(self.volume.as_ref()).is_some_and(|(claim, volume)| is_bound(volume, claim))
    }

    /// The volume of a leaf that is whole, and the driver's by all that says so.
    pub fn volume_of_leaf(&self) -> Option<VolumeRow> {
        let volume = self.volume.as_ref().filter(|volume| volume.metadata.deletion_timestamp.is_none())?;
        (self.is_whole() && self.is_held() && self.is_volume_ours()).then(|| VolumeRow::new(volume))
    }

    fn is_whole(&self) -> bool {
        let (Some(claim), Some(volume)) = (self.claim(), &self.volume) else { return false };
        let row = ClaimRow::new(claim);
        let is_bound = row.observed().phase == Phase::Bound && !row.observed().terminating;
        let is_healed = !volume.annotations().contains_key(ownership::HEALING);
        is_bound && is_healed && self.is_volume_bound()
    }
}
