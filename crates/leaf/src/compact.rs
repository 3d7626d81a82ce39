//! How a row is kept in memory: some five hundred bytes for a volume, claim and leaf volume together. What is handed out is
//! a [`ClaimRow`] or a [`VolumeRow`], made when it is asked for.
//!
//! A new field goes into the row, into what is kept of it here, and into the two functions between them; the compiler
//! asks for all of them. What many volumes share goes through [`Interner`], what usually is a UID into [`CompactText`].

use std::sync::Arc;

use super::{
    ownership,
    progress::CompactProgress,
    row::{Alias, ClaimRow, Mark, VolumeRow},
};
use domain::{
    compact_text::{CompactText, Interner},
    volume::{
        AccessMode, ClaimDigest, LeafPlace, VolumeMode,
        moving::MoveMark,
        plan::{ObservedClaim, Phase},
        spec::Fingerprint,
    },
};

/// Where a claim is.
#[derive(Clone, Debug)]
pub(super) struct CompactPlace {
    namespace: Arc<str>,
    claim: Box<str>,
}

impl CompactPlace {
    fn keep(place: &LeafPlace, names: &mut Interner) -> Self {
        Self { namespace: names.share(&place.namespace), claim: place.claim.as_str().into() }
    }

    fn length(&self) -> usize {
        self.namespace.len() + self.claim.len()
    }

    fn place(&self) -> LeafPlace {
        LeafPlace { namespace: self.namespace.to_string(), claim: self.claim.to_string() }
    }

    pub(super) fn is(&self, place: &LeafPlace) -> bool {
        *self.claim == *place.claim && *self.namespace == *place.namespace
    }
}

#[derive(Debug)]
pub(super) struct CompactClaim {
    pub(super) place: CompactPlace,
    pub(super) uid: CompactText,
    pub(super) volume: Option<CompactText>,
    class: Arc<str>,
    request: Option<Fingerprint>,
    access: AccessModes,
    mode: VolumeMode,
    pub(super) phase: Phase,
    pub(super) terminating: bool,
    pub(super) deleted: i64,
    pub(super) mark: Mark,
    pub(super) made_for: Option<ClaimDigest>,
    past: Option<Box<Past>>,
    node_selected: bool,
    finalizer: Option<u32>,
    pub(super) chosen: bool,
    pub(super) capacity: u64,
    life: CompactProgress,
    pub(super) created: i64,
    pub(super) version: u64,
    pub(super) round: u32,
}

impl CompactClaim {
    pub(super) fn keep(row: &ClaimRow, names: &mut Interner) -> Self {
        Self {
            place: CompactPlace::keep(&row.place, names),
            uid: CompactText::from(&*row.uid),
            volume: row.volume.as_deref().map(CompactText::from),
            class: names.share(&row.class),
            request: row.request,
            access: AccessModes::keep(&row.access),
            mode: row.mode,
            phase: row.phase,
            terminating: row.terminating,
            deleted: row.deleted,
            mark: row.mark,
            made_for: row.made_for,
            past: Past::of_claim(row),
            node_selected: row.node_selected,
            chosen: row.chosen,
            finalizer: row.finalizer.and_then(|at| u32::try_from(at).ok()),
            capacity: row.capacity,
            life: CompactProgress::keep(&row.life, names),
            created: row.created,
            version: row.version,
            round: row.round,
        }
    }

    /// What its texts take.
    pub(super) fn length(&self) -> usize {
        let own = self.place.length() + self.uid.length() + self.class.len() + self.life.length();
        own + self.volume.as_ref().map_or(0, CompactText::length) + Past::length(self.past.as_deref())
    }

    /// Nothing is to be told of it but that it is there.
    pub(super) fn is_well(&self) -> bool {
        self.phase != Phase::Lost && self.life.is_quiet()
    }

    pub(super) fn is_on(&self, node: &str) -> bool {
        self.life.is_on(node)
    }

    /// It is as it was when this row was made.
    pub(super) fn is_as(&self, row: &ClaimRow) -> bool {
        self.version == row.version && self.uid == CompactText::from(&*row.uid)
    }

    /// The same as of its row, without what else that has.
    pub(super) fn observed(&self) -> ObservedClaim {
        ObservedClaim {
            uid: self.uid.printed(),
            phase: self.phase,
            terminating: self.terminating,
            protected: self.is_held(),
            volume: self.volume.as_ref().map(CompactText::printed),
            capacity: self.capacity,
            node_selected: self.node_selected,
            requested: self.life.requested(),
            request: self.request,
        }
    }

    pub(super) fn row(&self) -> ClaimRow {
        ClaimRow {
            place: self.place.place(),
            uid: self.uid.text(),
            class: (*self.class).into(),
            access: self.access.all(),
            mode: self.mode,
            mark: self.mark,
            made_for: self.made_for,
            former: Past::former(self.past.as_deref()).into(),
            alias: Past::alias(self.past.as_deref()).cloned().map(Box::new),
            moving: self.moving().cloned().map(Box::new),
            node_selected: self.node_selected,
            phase: self.phase,
            terminating: self.terminating,
            deleted: self.deleted,
            chosen: self.chosen,
            finalizer: self.finalizer.map(|at| at as usize),
            created: self.created,
            volume: self.volume.as_ref().map(CompactText::text),
            capacity: self.capacity,
            request: self.request,
            life: Box::new(self.life.life()),
            version: self.version,
            round: self.round,
        }
    }
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub(super) struct CompactVolume {
    pub(super) name: CompactText,
    pub(super) claim_place: CompactPlace,
    pub(super) claim_uid: CompactText,
    pub(super) uid: CompactText,
    driver: Arc<str>,
    handle: CompactText,
    past: Option<Box<Past>>,
    healing: bool,
    follows: bool,
    removal: bool,
    node: Arc<str>,
    retained: bool,
    by_hand: bool,
    terminating: bool,
    pub(super) created: i64,
    pub(super) version: u64,
    pub(super) round: u32,
}

impl CompactVolume {
    /// What its texts take.
    pub(super) fn length(&self) -> usize {
        let ids =
            [&self.name, &self.claim_uid, &self.uid, &self.handle].into_iter().map(CompactText::length).sum::<usize>();
        let names = self.claim_place.length() + self.driver.len() + self.node.len();
        ids + names + Past::length(self.past.as_deref())
    }

    pub(super) fn keep(row: &VolumeRow, names: &mut Interner) -> Self {
        Self {
            name: CompactText::from(&*row.name),
            claim_place: CompactPlace::keep(&row.claim_place, names),
            claim_uid: CompactText::from(&*row.claim_uid),
            uid: CompactText::from(&*row.uid),
            driver: names.share(&row.driver),
            handle: CompactText::from(&*row.handle),
            past: Past::of_volume(row),
            healing: row.healing,
            follows: row.follows,
            removal: row.removal,
            node: names.share(&row.node),
            retained: row.retained,
            by_hand: row.by_hand,
            terminating: row.terminating,
            created: row.created,
            version: row.version,
            round: row.round,
        }
    }

    pub(super) fn row(&self) -> VolumeRow {
        VolumeRow {
            name: self.name.text(),
            claim_place: self.claim_place.place(),
            claim_uid: self.claim_uid.text(),
            driver: (*self.driver).into(),
            handle: self.handle.text(),
            former: Past::former(self.past.as_deref()).into(),
            alias: Past::alias(self.past.as_deref()).cloned().map(Box::new),
            place: self.place_told().cloned().map(Box::new),
            healing: self.healing,
            follows: self.follows,
            removal: self.removal,
            node: (*self.node).into(),
            uid: self.uid.text(),
            retained: self.retained,
            by_hand: self.by_hand,
            terminating: self.terminating,
            created: self.created,
            version: self.version,
            round: self.round,
        }
    }
}

impl CompactClaim {
    /// Whether a volume that is bound to this UID is its own. One that it was recreated for is given to it later.
    pub(super) fn has(&self, bound_to: &CompactText) -> bool {
        let was = |past: &Past| ownership::is_former(&past.former, &bound_to.text());
        self.uid == *bound_to || self.past.as_deref().is_some_and(was)
    }

    pub(super) fn is_bound_to(&self, volume: &CompactVolume) -> bool {
        self.has(&volume.claim_uid) && self.volume.as_ref() == Some(&volume.name)
    }

    /// It carries our finalizer.
    pub(super) fn is_held(&self) -> bool {
        self.finalizer.is_some()
    }

    /// On its way out, or recreated and not bound yet, or without its volume.
    pub(super) fn needs_repair(&self) -> bool {
        let is_recreated = !Past::former(self.past.as_deref()).is_empty();
        self.terminating || self.phase == Phase::Lost || is_recreated && self.phase != Phase::Bound
    }

    /// Whether it is there, or its handle says so.
    pub(super) fn is_known_at(&self, place: &LeafPlace) -> bool {
        self.place.is(place) || self.alias().and_then(Alias::place) == Some(place)
    }

    pub(super) fn alias(&self) -> Option<&Alias> {
        Past::alias(self.past.as_deref())
    }

    pub(super) fn moving(&self) -> Option<&MoveMark> {
        self.past.as_ref()?.moving.as_ref()
    }
}

impl CompactVolume {
    pub(super) fn is_kept(&self) -> bool {
        self.retained
    }

    pub(super) fn keeps_its_claim(&self) -> bool {
        self.healing
    }

    /// It keeps what its claim was, or is being removed.
    pub(super) fn needs_repair(&self) -> bool {
        self.healing || self.removal || self.terminating
    }

    pub(super) fn follows(&self) -> bool {
        self.follows
    }

    pub(super) fn place_told(&self) -> Option<&LeafPlace> {
        self.past.as_ref()?.place.as_ref()
    }

    /// Whether its claim is or was there, or its handle says so.
    pub(super) fn is_known_at(&self, place: &LeafPlace) -> bool {
        self.claim_place.is(place) || Past::alias(self.past.as_deref()).and_then(Alias::place) == Some(place)
    }
}

/// What hardly any leaf has: it was recreated, or is being moved.
#[derive(Debug)]
struct Past {
    /// UIDs of the claims in whose place it was.
    former: Box<str>,
    /// What its handle names, where that is another place.
    alias: Option<Alias>,
    /// Of a claim.
    moving: Option<MoveMark>,
    /// Of a volume.
    place: Option<LeafPlace>,
}

impl Past {
    fn of_claim(row: &ClaimRow) -> Option<Box<Self>> {
        let (alias, moving) = (row.alias.as_deref().cloned(), row.moving.as_deref().cloned());
        Self { former: row.former.clone(), alias, moving, place: None }.kept()
    }

    fn of_volume(row: &VolumeRow) -> Option<Box<Self>> {
        let (alias, place) = (row.alias.as_deref().cloned(), row.place.as_deref().cloned());
        Self { former: row.former.clone(), alias, moving: None, place }.kept()
    }

    /// Nothing, where there is nothing.
    fn kept(self) -> Option<Box<Self>> {
        let none = self.former.is_empty() && self.alias.is_none() && self.moving.is_none() && self.place.is_none();
        (!none).then(|| Box::new(self))
    }

    fn former(past: Option<&Self>) -> &str {
        past.map_or("", |past| &past.former)
    }

    fn length(past: Option<&Self>) -> usize {
        let place = |place: &LeafPlace| place.namespace.len() + place.claim.len();
        let mark = |mark: &MoveMark| mark.namespace.len() + mark.name.len() + mark.uid.len();
        past.map_or(0, |past| {
            let places = [past.alias.as_ref().and_then(Alias::place), past.place.as_ref()];
            let places = places.into_iter().flatten().map(place).sum::<usize>();
            past.former.len() + places + past.moving.as_ref().map_or(0, mark)
        })
    }

    fn alias(past: Option<&Self>) -> Option<&Alias> {
        past?.alias.as_ref()
    }
}

/// A set of access modes, a bit for each.
#[derive(Clone, Copy, Debug)]
struct AccessModes(u8);

impl AccessModes {
    fn keep(modes: &[AccessMode]) -> Self {
        Self(modes.iter().fold(0, |set, mode| set | bit(*mode)))
    }

    fn all(self) -> Box<[AccessMode]> {
        AccessMode::ALL.into_iter().filter(|mode| self.0 & bit(*mode) != 0).collect()
    }
}

fn bit(mode: AccessMode) -> u8 {
    1 << mode as u8
}
