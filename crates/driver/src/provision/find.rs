//! The leaf behind a handle: one made by this driver, or an imported one, whose claim was there before and whose member
//! has consented.

use std::sync::Arc;

use super::Provisioner;
use crate::attach;
use domain::{
    error::{Error, Result},
    volume::{VolumeHash, VolumeId, published::Published},
};
use host::volume::GivenOut;
use leaf::{
    MemberClient,
    identity::{Identity, Meant, judge, labels_of},
    ownership,
    row::{ClaimRow, VolumeRow},
};
use member::Member;

/// A leaf claim, where it is, and whose.
#[derive(Debug)]
pub(super) struct FoundLeaf {
    pub(super) id: VolumeId,
    pub(super) member: Arc<Member>,
    /// Of an imported claim, which carries no labels: a hash that stands for it.
    pub(super) hash: VolumeHash,
    pub(super) claim: ClaimRow,
    /// Somebody else's claim, read just now. It never gets labels or a finalizer of ours, and is in no row.
    pub(super) imported: bool,
}

/// What is behind a handle.
pub(super) enum Sought {
    FoundLeaf(Box<FoundLeaf>),
    /// It was ours until somebody took its labels away: what to put back.
    Stripped(Error),
    /// Its claim was let go, or has gone otherwise; its volume, of this name, is kept.
    LetGo(String),
    /// An imported claim, by a name of its member that does not serve: what is to be done about it.
    Misnamed(Error),
    Unknown,
}

impl FoundLeaf {
    pub(super) fn leaf(&self) -> Result<&MemberClient> {
        self.member.leaf()
    }

    /// The storage driver that holds it, empty where that is none; nothing, where it is not bound yet.
    pub(super) async fn driver(&self) -> Result<Option<String>> {
        let leaf = self.leaf()?;
        let mut volume = leaf.rows.find(&self.id).and_then(|(_, row)| row.volume).filter(|_| !self.imported);
        // That of an imported claim carries no labels, nor does one that nobody has waited for.
        if let (None, Some(name)) = (&volume, self.claim.volume()) {
            volume = leaf::volume::read(leaf, name).await?.filter(|volume| volume.is_or_was_bound_to(&self.claim.uid));
        }
        Ok(volume.map(|volume| volume.driver.to_string()))
    }
}

/// From memory where it is known there, also while its member is down. Whoever forges a handle learns nothing from the
/// answer.
pub(super) async fn find(provisioner: &Provisioner, handle: &str) -> Result<FoundLeaf> {
    match seek(provisioner, handle).await? {
        Sought::FoundLeaf(found) => {
            is_the_one(provisioner, handle, &found).await?;
            Ok(*found)
        }
        Sought::LetGo(volume) => Err(Error::InProgress(format!(
            "volume {handle:?} has no leaf claim now, and its data is in leaf volume {volume}: the driver makes one once \
             the host's volume is bound to a claim"
        ))),
        Sought::Stripped(error) | Sought::Misnamed(error) => Err(error),
        Sought::Unknown => Err(unknown(handle)),
    }
}

/// The leaf of a volume is bound to a volume that carries our labels, or was seen with the host's, or has none yet. Of another
/// one the host says whether it has only come late to the place of the one that was given out.
async fn is_the_one(provisioner: &Provisioner, handle: &str, found: &FoundLeaf) -> Result<()> {
    let (Ok(leaf), claim) = (found.leaf(), &found.claim) else { return Ok(()) };
    let is_marked = || leaf.rows.row_at(found.hash, &claim.place).volume.is_some();
    if found.imported || claim.had_volume() || claim.volume().is_none() || is_marked() {
        return Ok(());
    }
    match host::volume::leaf_of(&provisioner.host, handle).await? {
        Some(told) if claim.came_late(&told.claim_uid, &told.volume) => Err(Error::InProgress(format!(
            "member {}: leaf claim {} (UID {}) came late: the host had been given volume {handle:?} with another leaf \
             claim (UID {}), whose data was in leaf volume {}. The late one has to go first",
            leaf.member, claim.place, claim.uid, told.claim_uid, told.volume
        ))),
        _ => Ok(()),
    }
}

/// Where a volume has moved away and back, the leaf of before has the handle of now, and whoever restores that has pods find old data, or
/// has it removed in the place of what is there. `told`: what the host keeps with its volume.
pub(super) async fn is_since_its_move(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    (hash, claim): (VolumeHash, &ClaimRow),
    handle: &str,
    told: Option<&GivenOut>,
) -> Result<()> {
    let Some(told) = told.filter(|told| claim.is_another(&told.claim_uid, &told.volume)) else { return Ok(()) };
    let Some(read) = leaf::claim::read(leaf, &claim.place).await? else { return Ok(()) };
    let name = read.metadata.annotations.as_ref().and_then(|notes| notes.get(ownership::NAME));
    let Some(name) = name.filter(|name| VolumeHash::new(&provisioner.host.id, name) == hash) else {
        return Ok(());
    };
    let claim = ClaimRow::new(&read);
    match host::replacement::uid_of_replacement(&provisioner.host, name, handle).await? {
        Some(uid)
            if claim.is_another(&told.claim_uid, &told.volume) && !ownership::was_had_by(&read.metadata, &uid) =>
        {
            let why = claim.may_be_of_before_move(&leaf.member, &told.volume, &uid);
            Err(Error::Refused(format!("volume {handle:?}: {why}")))
        }
        _ => Ok(()),
    }
}

/// To be changed: its member must answer, and it must be the leaf itself. A handle that names a copy is forged, unless
/// the host's own record says otherwise.
pub(super) async fn to_change(provisioner: &Provisioner, handle: &str) -> Result<FoundLeaf> {
    let found = find(provisioner, handle).await?;
    let leaf = found.leaf()?;
    if !found.imported && is_copy(provisioner, leaf, &found.id, found.hash, &found.claim).await? {
        return Err(unknown(handle));
    }
    Ok(found)
}

/// Where a handle leads; nowhere, where it is none of ours or its member was forgotten.
pub(super) async fn member_of(provisioner: &Provisioner, handle: &str) -> Result<Option<(VolumeId, Arc<Member>)>> {
    let Some(id) = VolumeId::parse(handle) else { return Ok(None) };
    match provisioner.members.get(&id.member).await {
        Ok(member) => Ok(Some((id, member))),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the host says of the volume with a handle.
pub(super) struct OnRecord {
    pub(super) given_out: Option<GivenOut>,
    /// Its name is the one of which the handle's digits are made, so that no other volume has moved away from there.
    has_its_name: bool,
}

impl OnRecord {
    /// The leaf that was given out, where its volume was told.
    pub(super) fn with_volume(&self) -> Option<&GivenOut> {
        self.given_out.as_ref().filter(|told| !told.volume.is_empty())
    }
}

/// Read just now: that one volume, where the watch knows which it is. Else all volumes of the host are, and of very many that are removed each
/// call that comes again would list all.
pub(super) async fn on_record(provisioner: &Provisioner, id: &VolumeId) -> Result<OnRecord> {
    let (host, handle) = (&provisioner.host, id.to_string());
    if let Some(live) = provisioner.shared_handles.only(host, &handle).await? {
        let has_its_name = id.names(VolumeHash::new(&host.id, &live.volume.name));
        return Ok(OnRecord { given_out: live.given_out, has_its_name });
    }
    Ok(OnRecord { given_out: host::volume::leaf_of(host, &handle).await?, has_its_name: false })
}

/// A volume that has moved has another handle now. Who is told that the former one is gone deletes the host's volume by its name.
pub(super) async fn is_not_elsewhere(provisioner: &Provisioner, id: &VolumeId, on_record: &OnRecord) -> Result<()> {
    if on_record.has_its_name {
        return Ok(());
    }
    match host::volume::other_handle_of(&provisioner.host, id).await? {
        None => Ok(()),
        Some(other) => Err(Error::InProgress(format!("volume {id} has moved, and its handle is {other} now"))),
    }
}

pub(super) async fn seek(provisioner: &Provisioner, handle: &str) -> Result<Sought> {
    let Some((id, member)) = member_of(provisioner, handle).await? else { return Ok(Sought::Unknown) };
    let found = |id, member, (hash, claim), imported| {
        Ok(Sought::FoundLeaf(Box::new(FoundLeaf { id, member, hash, claim, imported })))
    };
    if let Some(seen) = member.last_known().and_then(|leaf| seen(leaf, &id)) {
        return found(id, member, seen, false);
    }
    let leaf = member.leaf()?;
    let kept = leaf.rows.find(&id).and_then(|(_, row)| row.volume).filter(VolumeRow::is_retained);
    let place = kept.as_ref().map(|volume| volume.claim_place.clone()).or_else(|| id.place());
    let let_go = || kept.as_ref().map_or(Sought::Unknown, |volume| Sought::LetGo(volume.name.to_string()));
    let Some(place) = place else {
        leaf::claim::list_leaf(leaf, *id.hashes().start()).await?;
        let Some(listed) = seen(leaf, &id) else { return Ok(Sought::Unknown) };
        return found(id, Arc::clone(&member), listed, false);
    };
    let Some(read) = leaf::claim::read(leaf, &place).await? else { return Ok(let_go()) };
    match judge(&read.metadata, &leaf.host, Meant::Handle(&id)) {
        Identity::Leaf(hash) => found(id, Arc::clone(&member), (hash, ClaimRow::new(&read)), false),
        // What has taken the name of a leaf that was let go is not meant.
        Identity::Consents if kept.is_none() && id.member != leaf.member => Ok(Sought::Misnamed(misnamed(&id, leaf))),
        Identity::Consents if kept.is_none() => {
            let hash = VolumeHash::imported(&leaf.host, &id);
            let mut claim = ClaimRow::new(&read);
            // Whatever stands there under our name, we have not written it.
            claim.life.published = Published::default();
            found(id, Arc::clone(&member), (hash, claim), true)
        }
        Identity::Stripped => {
            let labels = labels_of(&read.metadata, &leaf.host, Meant::Handle(&id));
            Ok(Sought::Stripped(attach::stripped(leaf, &place, &labels)))
        }
        _ => Ok(let_go()),
    }
}

/// The work in the background, and nodes, know one by its handle, so all handles of an imported claim are to be alike.
fn misnamed(id: &VolumeId, leaf: &MemberClient) -> Error {
    Error::NotFound(format!(
        "handle {id} of an imported claim names member {}, which is another name of {}: recreate the volume with that one",
        id.member, leaf.member
    ))
}

fn seen(leaf: &MemberClient, id: &VolumeId) -> Option<(VolumeHash, ClaimRow)> {
    let (hash, row) = leaf.rows.find(id)?;
    Some((hash, row.claim?))
}

pub(super) fn unknown(handle: &str) -> Error {
    Error::NotFound(format!("no volume has the handle {handle:?}"))
}

/// Whether it is not the leaf. Of several claims the first that we hold is it, and of another one the host's record must say so: a
/// handle that names a copy may be forged. One that names no place leads to whatever carries the labels, so that the record also
/// says whether a claim that we do not hold is a copy that was left.
pub(super) async fn is_copy(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    id: &VolumeId,
    hash: VolumeHash,
    claim: &ClaimRow,
) -> Result<bool> {
    let first = leaf.rows.row(hash).and_then(|row| row.claim);
    let (is_first, is_placed) = (first.is_none_or(|first| first.uid == claim.uid), id.place().is_some());
    if is_first && (is_placed || claim.finalizer.is_some()) {
        return Ok(false);
    }
    let given_out = host::volume::leaf_of(&provisioner.host, &id.to_string()).await?;
    let Some(given_out) = given_out else { return Ok(true) };
    if is_placed {
        return Ok(!claim.is_or_was(&given_out.claim_uid));
    }
    Ok(!was_given_out(claim, &given_out) && !is_restored(provisioner, id, claim).await?)
}

/// Copies name the claims in whose place a leaf was recreated, but have another volume.
fn was_given_out(claim: &ClaimRow, given_out: &GivenOut) -> bool {
    let has_its_volume = given_out.volume.is_empty() || claim.volume() == Some(&*given_out.volume);
    *claim.uid == *given_out.claim_uid || has_its_volume && claim.is_or_was(&given_out.claim_uid)
}

/// Of a leaf that is lost, people are told to restore it under its names.
async fn is_restored(provisioner: &Provisioner, id: &VolumeId, claim: &ClaimRow) -> Result<bool> {
    if claim.finalizer.is_some() {
        return Ok(false);
    }
    let place = claim.place.to_string();
    let volumes = host::volume::all_with(&provisioner.host, &id.to_string()).await?;
    Ok(volumes.iter().any(|volume| volume.claim.as_deref() == Some(&*place)))
}
