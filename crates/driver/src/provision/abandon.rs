//! What was made for a claim that is gone, or that goes elsewhere, is taken back; what the host uses stays.

use tokio::time::timeout_at;

use super::{Deadline, Provisioner, delete, order::Order};
use domain::{
    error::{Error, Result},
    volume::{Claim, LeafPlace, Parameters, Request, VolumeHash, VolumeSpec},
};
use leaf::{
    MemberClient,
    identity::is_leaf_of,
    marks,
    row::{ClaimRow, VolumeRow},
};
use member::{Member, registry};

/// The host claim is gone: what was made for it goes as well, unless it has become a volume of the host.
pub(super) async fn withdraw(
    provisioner: &Provisioner,
    spec: &VolumeSpec,
    claim: &Claim,
    hash: VolumeHash,
    deadline: &Deadline,
) -> Error {
    let claim = format!("claim {}/{}", claim.namespace, claim.name);
    match try_withdraw(provisioner, spec, hash, deadline).await {
        Ok(true) => Error::Gone(format!("{claim} is gone; nothing is left of what was made for it")),
        Ok(false) => Error::Gone(format!("{claim} is gone, but it has had a volume, which is left untouched")),
        Err(error) => error.while_a_leaf_may_exist(),
    }
}

/// Every member that may hold something is cleared, whatever the others say.
async fn try_withdraw(
    provisioner: &Provisioner,
    spec: &VolumeSpec,
    hash: VolumeHash,
    deadline: &Deadline,
) -> Result<bool> {
    if host::volume::exists(&provisioner.host, &spec.name).await? {
        return Ok(false);
    }
    // Nothing is made in a member before its name is on record.
    let known = host::pins::known_members(&provisioner.host).await?.unwrap_or_default();
    let members = provisioner.members.all()?;
    let departed = known.iter().find(|name| !members.contains_key(*name) && allows(spec, name));
    let mut unseen = departed.map(|name| registry::departed(name));
    let (holders, others): (Vec<_>, Vec<_>) =
        members.values().partition(|member| holds(member, hash) || keeps(member, hash));
    let others = others.into_iter().filter(|member| known.contains(&member.name) && may_hold(member, spec, hash));
    for member in holders.into_iter().chain(others) {
        match clear(provisioner, member, spec, hash, deadline).await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => drop(unseen.get_or_insert(error)),
        }
    }
    unseen.map_or(Ok(true), Err)
}

/// Removes whatever this volume has in a member, and proves it gone. False: it is in use, and left as it is.
pub(super) async fn clear(
    provisioner: &Provisioner,
    member: &Member,
    spec: &VolumeSpec,
    hash: VolumeHash,
    deadline: &Deadline,
) -> Result<bool> {
    let leaf = member.leaf()?;
    let mut place =
        spec.place(&member.name, &leaf.host, &provisioner.leaf_namespace).map_err(Error::while_a_leaf_may_exist)?;
    is_listed(leaf, deadline).await?;
    let mut row = leaf.rows.row_at(hash, &place);
    let elsewhere = leaf.rows.row(hash).and_then(|row| row.claim).filter(|_| row.claim.is_none());
    if let Some(claim) = elsewhere {
        if !is_where_it_was_asked_for(provisioner, leaf, spec, hash, &claim).await? {
            return Err(misplaced(leaf, &claim.place, &place));
        }
        place = claim.place;
        row = leaf.rows.row_at(hash, &place);
    }
    let had_volume = row.claim.as_ref().is_some_and(ClaimRow::had_volume);
    let kept = leaf.rows.left(hash);
    is_known(leaf, hash)?;
    let mut volumes = row.volume.iter().chain(&kept).map(VolumeRow::observed);
    if let (None, Some(volume)) = (&row.claim, volumes.find(|volume| volume.retained && !volume.by_hand)) {
        return Err(Error::InProgress(format!(
            "member {}: leaf volume {} is retained: delete it there when its data is no longer wanted",
            member.name, volume.name
        )));
    }
    let id = spec.id(&member.name, &leaf.host, &place);
    let order = Order::of_creation(&id);
    if had_volume || host::volume::uses(&provisioner.host, &spec.name, &id.to_string()).await? {
        return Ok(false);
    }
    // A read there is refused, which would say for ever that something may be left. Volumes are seen wherever their claims are.
    if !leaf.namespaces.has(&place.namespace) && row.is_empty() {
        return Ok(true);
    }
    let removed = async {
        leaf::consumer::remove(leaf, &place.namespace, hash).await?;
        delete::remove(provisioner, leaf, hash, &place, &order, deadline).await
    };
    removed.await.map_err(Error::while_a_leaf_may_exist)?;
    Ok(true)
}

/// What a leaf was asked for, as it says itself. It is read: by the labels of its volume, our finalizer and the UID that was seen it is the one
/// that may go, and by what else is written on it, which people of the member may write as well, no other one is.
pub(super) async fn asked_for(
    leaf: &MemberClient,
    hash: VolumeHash,
    claim: &ClaimRow,
) -> Result<Option<(Request, Parameters)>> {
    let there = leaf::claim::read(leaf, &claim.place).await.map_err(Error::while_a_leaf_may_exist)?;
    // A copy has no finalizer of ours.
    let is_it = |uid: Option<&str>| claim.finalizer.is_some() && uid == Some(&*claim.uid);
    let own =
        there.filter(|there| is_leaf_of(&there.metadata, &leaf.host, hash) && is_it(there.metadata.uid.as_deref()));
    let request = own.as_ref().and_then(marks::request_of);
    Ok(request.and_then(|request| Parameters::parse(&request.parameters).ok().map(|parameters| (request, parameters))))
}

/// Its class may have been recreated since, for other places. A copy is elsewhere than it says itself.
async fn is_where_it_was_asked_for(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    spec: &VolumeSpec,
    hash: VolumeHash,
    claim: &ClaimRow,
) -> Result<bool> {
    let Some((request, parameters)) = asked_for(leaf, hash, claim).await? else { return Ok(false) };
    let then = VolumeSpec { request, parameters, ..spec.clone() };
    let place = then.place(&leaf.member, &leaf.host, &provisioner.leaf_namespace);
    Ok(place.is_ok_and(|place| place == claim.place))
}

/// Waits until the member has told all that it has: a driver that has just begun with it knows nothing of what was used there.
pub(super) async fn is_listed(leaf: &MemberClient, deadline: &Deadline) -> Result<()> {
    timeout_at(deadline.next(), leaf.rows.listed()).await.map_err(|_| untold(leaf))
}

/// To be asked after a look, and at once: what is known of a member that says too much is forgotten at any moment, and then nothing is seen
/// of what is there. Nor is what is there of the volume, and cannot be read.
pub(super) fn is_known(leaf: &MemberClient, hash: VolumeHash) -> Result<()> {
    if leaf.rows.synced() && !leaf.rows.has_unread(hash) { Ok(()) } else { Err(untold(leaf)) }
}

fn untold(leaf: &MemberClient) -> Error {
    let reason = "the driver cannot tell yet what it has of this volume".to_owned();
    Error::Unreachable { member: leaf.member.clone(), reason }
}

pub(super) fn in_use(spec: &VolumeSpec, member: &str) -> Error {
    Error::InProgress(format!("volume {} is in use by the host, and stays in member {member}", spec.name))
}

/// A host that was restored from a backup asks for another place than the one where the data is that it had.
pub(super) fn left_out(spec: &VolumeSpec, member: &str) -> Error {
    Error::InProgress(format!(
        "volume {} still has its data in member {member}, which its class, or the node chosen for its pod, does not allow any \
         more: allow that member again, or, if the data is not wanted, delete this claim and make another one",
        spec.name
    ))
}

pub(super) fn holds(member: &Member, hash: VolumeHash) -> bool {
    member.last_known().is_some_and(|leaf| leaf.rows.has_leaf(hash))
}

/// Without its leaf claim.
pub(super) fn keeps(member: &Member, hash: VolumeHash) -> bool {
    let Some(leaf) = member.last_known() else { return false };
    leaf.rows.row(hash).is_some_and(|row| row.claim.is_none()) && !leaf.rows.left(hash).is_empty()
}

/// The member may still be removing it, after its claim.
pub(super) fn leaf_volume_is_left(member: &Member, hash: VolumeHash) -> bool {
    let volume = member.last_known().and_then(|leaf| leaf.rows.volume(hash));
    volume.is_some_and(|volume| volume.place.is_none())
}

/// Whether a volume may have been tried in a member: by what the requirement allows, because a leaf is seen there, or
/// because nothing is seen there yet.
pub(super) fn may_hold(member: &Member, spec: &VolumeSpec, hash: VolumeHash) -> bool {
    let unseen = spec.claim.is_some() && !member.last_known().is_some_and(|leaf| leaf.rows.has_told(hash));
    unseen || allows(spec, &member.name) || holds(member, hash)
}

pub(super) fn allows(spec: &VolumeSpec, member: &str) -> bool {
    let named = |list: &[String]| list.iter().any(|name| name == member);
    let anywhere = spec.preferred.is_empty() && spec.requisite.is_empty();
    let class_allows = spec.parameters.member.as_ref().is_none_or(|only| *only == member);
    class_allows && (anywhere || named(&spec.preferred) || named(&spec.requisite))
}

/// A claim with a volume's labels at another place than the class says is for a person to judge: it may be a copy.
pub(super) fn misplaced(leaf: &MemberClient, seen: &LeafPlace, place: &LeafPlace) -> Error {
    Error::InProgress(format!(
        "member {}: claim {seen} carries the labels of this volume, whose place is {place}: remove it, or give the class its \
         former parameters back",
        leaf.member
    ))
}
