//! DeleteVolume: the leaf claim goes, then the leaf volume, and the answer comes when a read has found nothing left.

use std::time::Duration;

use super::{
    Deadline, Provisioner, find, imported,
    last_seen::{LastSeen, astray, decide, is_nobody_elses, left_untouched, of_another_host, stripped},
    order::Order,
    removing::{self, Pace},
    wait,
};
use crate::attach;
use domain::{
    error::{Error, Result},
    volume::{
        LeafName, LeafPlace, VolumeHash, VolumeId,
        plan::{ObservedVolume, Removal},
    },
};
use host::{events::News, volume::GivenOut};
use leaf::{
    MemberClient, Rows,
    identity::{Identity, Meant, judge, labels_of},
    ownership,
    row::{ClaimRow, Row, VolumeRow},
};

/// Between two looks at something of which no news comes.
const PAUSE: Duration = Duration::from_millis(200);

/// An id that is none of ours names a volume that does not exist, and that is what was asked for.
pub async fn delete(provisioner: &Provisioner, id: &str, deadline: &Deadline) -> Result<()> {
    let Some((id, member)) = find::member_of(provisioner, id).await? else { return Ok(()) };
    let (leaf, order) = (member.leaf()?, Order::of_volume(&id, deadline.asked()));
    if let LeafName::Hashed(hash) = &id.leaf
        && leaf.rows.row(*hash).is_none_or(|row| may_be_more(&row))
    {
        leaf::claim::list_leaf(leaf, *hash).await?;
    }
    match known(provisioner, leaf, &id).await? {
        Some((hash, Row { claim: Some(claim), volume, .. })) => {
            attach::is_unpublished(leaf, hash, &claim).await?;
            remove(provisioner, leaf, hash, &claim.place, &order, deadline).await?;
            remove_what_it_hid(provisioner, leaf, &id, volume.as_ref(), &order, deadline).await?;
        }
        found => delete_unseen(provisioner, leaf, &id, found, &order, deadline).await?,
    }
    leaf.capacity.forget_refusals();
    Ok(())
}

/// A claim that came late has had the name of one that was removed before, and whose volume is on its way out still: that was out of
/// sight. `its_own`: the volume of the claim that is gone now.
async fn remove_what_it_hid(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    id: &VolumeId,
    its_own: Option<&VolumeRow>,
    order: &Order,
    deadline: &Deadline,
) -> Result<()> {
    let left = leaf.rows.find(id).filter(|(_, row)| row.claim.is_none());
    let Some(volume) = left.as_ref().and_then(|(_, row)| row.volume.as_ref()) else { return Ok(()) };
    if its_own.is_some_and(|own| own.uid() == volume.uid()) {
        return Ok(());
    }
    match host::volume::leaf_of(&provisioner.host, &order.handle).await? {
        Some(given_out) if *given_out.volume == *volume.name => {
            delete_unseen(provisioner, leaf, id, left, order, deadline).await
        }
        // A copy that somebody has made of it.
        _ => Ok(()),
    }
}

/// Neither a claim that we hold is in sight, nor what such a one has left.
fn may_be_more(row: &Row) -> bool {
    row.claim.as_ref().map_or_else(|| row.volume.is_none(), |claim| claim.finalizer.is_none())
}

/// What the handle leads to. Where one that names no place leads to a copy, the leaf has gone before that; one that names a copy may
/// be forged.
async fn known(provisioner: &Provisioner, leaf: &MemberClient, id: &VolumeId) -> Result<Option<(VolumeHash, Row)>> {
    let found = leaf.rows.find(id);
    let Some((hash, Row { claim: Some(claim), .. })) = &found else { return Ok(found) };
    if !find::is_copy(provisioner, leaf, id, *hash, claim).await? {
        return Ok(found);
    }
    if id.place().is_none() {
        return Ok(None);
    }
    Err(Error::Refused(format!(
        "member {}: claim {} carries the labels of this volume, but nothing proves that it is the volume's leaf claim: \
         delete it there",
        leaf.member, claim.place
    )))
}

/// The watches show no such claim; a read decides.
async fn delete_unseen(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    id: &VolumeId,
    found: Option<(VolumeHash, Row)>,
    order: &Order,
    deadline: &Deadline,
) -> Result<()> {
    let volume = found.and_then(|(hash, row)| Some((hash, row.volume.clone()?.claim_place, row)));
    // A leaf that was recreated for another claim is not where its handle says.
    let place = volume.as_ref().map(|(_, place, _)| place.clone()).or_else(|| id.place());
    let claim = match &place {
        Some(place) => leaf::claim::read(leaf, place).await?,
        None => None,
    };
    let on_record = find::on_record(provisioner, id).await?;
    let given_out = on_record.given_out.as_ref();
    if let (Some(place), Some(claim)) = (&place, &claim) {
        let is_given_out = |given: &GivenOut| ownership::is_or_was(&claim.metadata, &given.claim_uid);
        match judge(&claim.metadata, &leaf.host, Meant::Handle(id)) {
            Identity::Leaf(hash) => {
                attach::is_unpublished(leaf, hash, &ClaimRow::new(claim)).await?;
                return remove(provisioner, leaf, hash, place, order, deadline).await;
            }
            // What has taken the name of a leaf that was let go is not meant.
            Identity::Consents if volume.is_none() => {
                return imported::delete(provisioner, leaf, id, &ClaimRow::new(claim), deadline).await;
            }
            identity if given_out.is_some_and(is_given_out) => {
                return Err(match identity {
                    Identity::OtherHost(_) => {
                        of_another_host(leaf, place, &ownership::whose(&claim.metadata, &leaf.host))
                    }
                    _ => stripped(leaf, place, &labels_of(&claim.metadata, &leaf.host, Meant::Handle(id))),
                });
            }
            _ => {}
        }
    }
    match volume {
        Some((hash, place, row)) => {
            let holder = claim.as_ref().and_then(|claim| claim.metadata.uid.as_deref());
            check_volume_alone(leaf, given_out, &row, holder)?;
            let mut seen = LastSeen::default();
            seen.note(&row);
            remove_seen(provisioner, leaf, hash, &place, order, deadline, seen).await
        }
        None => nothing_outlives(provisioner, leaf, id, order, &on_record).await,
    }
}

/// Both leaves of a volume that is moved stay. What of a move's marks comes after this look is found by the steps: they test what they
/// were decided on.
fn stands_still(leaf: &MemberClient, row: &Row) -> Result<()> {
    if let Some(claim) = &row.claim {
        claim.stands_still(&leaf.member)?;
    }
    match row.volume.as_ref().filter(|volume| volume.place.is_some()) {
        None => Ok(()),
        Some(volume) => Err(Error::InProgress(format!(
            "member {}: leaf volume {} is being moved to another member: wait until the move has ended, or delete its \
             VolumeMove",
            leaf.member, volume.name
        ))),
    }
}

/// Removes the leaf step by step until a read proves it gone.
pub(super) async fn remove(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    hash: VolumeHash,
    place: &LeafPlace,
    order: &Order,
    deadline: &Deadline,
) -> Result<()> {
    remove_seen(provisioner, leaf, hash, place, order, deadline, LastSeen::default()).await
}

/// What was seen before, and is not at this place any more, may be elsewhere by now.
async fn remove_seen(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    hash: VolumeHash,
    place: &LeafPlace,
    order: &Order,
    deadline: &Deadline,
    mut seen: LastSeen,
) -> Result<()> {
    let (mut before, mut steps) = (None, Pace::default());
    loop {
        let row = still_there(provisioner, leaf, order, &seen, leaf.rows.row_at(hash, place)).await?;
        let step = decide(&row, seen.no_volume);
        tracing::debug!(member = leaf.member, claim = %place, step = ?step, "next step of DeleteVolume");
        seen.note(&row);
        // Acted, and nothing has changed: the news is still on its way.
        if before.as_ref() == Some(&step) {
            tokio::time::sleep(PAUSE).await;
        }
        if before.is_some() && deadline.passed() {
            deadline.tell(late(leaf, place, &step, &row).await)?;
        }
        may_be_taken(provisioner, leaf, hash, order, &step, &row, &seen).await?;
        order.mark(leaf, hash, &step, row.claim.as_ref()).await?;
        match (&step, &row.claim) {
            (Removal::Label { volume, claim_uid }, _) => seen.label(leaf, volume, hash, claim_uid).await?,
            (Removal::Announce(volume), _) => leaf::volume::announce_removal(leaf, volume, hash).await?,
            (Removal::MakeDeletable(volume), _) => leaf::volume::make_deletable(leaf, volume, hash).await?,
            (Removal::DeleteClaim, Some(claim)) => delete_claim(leaf, hash, place, claim, &seen).await?,
            (Removal::ReleaseClaim, Some(claim)) => leaf::claim::release(leaf, claim, hash).await?,
            (Removal::HandBack(volume), _) => {
                seen.handed_back = leaf::volume::hand_back(leaf, volume, hash).await?;
                if seen.handed_back {
                    tell_of_kept(provisioner, leaf, &order.handle, place, volume).await;
                }
            }
            (Removal::AwaitClaim | Removal::AwaitVolume, _) => {
                let changed = |rows: &Rows| decide(&seen.only_mine(rows.row_at(hash, place)), seen.no_volume) != step;
                if !wait(leaf, hash, deadline, changed, async || late(leaf, place, &step, &row).await).await? {
                    look_again(leaf, hash, place, &row).await?;
                }
            }
            // It may have been recreated while that was read.
            _ if seen.is_gone(leaf, hash, place).await?
                && seen.only_mine(leaf.rows.row_at(hash, place)).claim.is_none() =>
            {
                return Ok(());
            }
            _ if seen.is_elsewhere(leaf, hash, place) => return Err(late(leaf, place, &step, &row).await),
            _ => {}
        }
        steps.keep_after(&step, deadline).await;
        before = Some(step);
    }
}

/// What is there of what was seen first.
async fn still_there(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    order: &Order,
    seen: &LastSeen,
    there: Row,
) -> Result<Row> {
    if let Some(volume) = seen.taken(&there) {
        let given_out = host::volume::leaf_of(&provisioner.host, &order.handle).await?;
        return Err(astray(leaf, volume, given_out.as_ref()));
    }
    let row = seen.only_mine(there);
    stands_still(leaf, &row)?;
    Ok(row)
}

async fn delete_claim(
    leaf: &MemberClient,
    hash: VolumeHash,
    place: &LeafPlace,
    claim: &ClaimRow,
    seen: &LastSeen,
) -> Result<()> {
    if seen.volume.is_none() {
        leaf::consumer::remove(leaf, &claim.place.namespace, hash).await?;
    }
    // A replica whose watch is behind may know of no node: what it knows is tested by the member.
    attach::is_unpublished(leaf, hash, claim).await?;
    match leaf::claim::delete(leaf, claim, hash).await {
        Err(Error::InProgress(_)) => leaf::claim::read(leaf, place).await.map(drop),
        deleted => deleted,
    }
}

/// What is asked right before a step, and more where data may go by it.
async fn may_be_taken(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    hash: VolumeHash,
    order: &Order,
    step: &Removal,
    row: &Row,
    seen: &LastSeen,
) -> Result<()> {
    order.is_unused(leaf, row.claim.as_ref())?;
    if let (Removal::Announce(_) | Removal::MakeDeletable(_), Some(volume)) = (step, &row.volume) {
        if let Some(given) = seen.given_since(row) {
            is_nobody_elses(leaf, hash, given).await?;
        }
        attach::is_unpublished_in_what_is_kept(leaf, volume, row.claim.as_ref()).await?;
    }
    if step.is_final() { order.still_stands(provisioner, leaf, hash, step, row).await } else { Ok(()) }
}

/// The volume that was given out to the host may be out of sight: its labels, its claim or its claimRef were edited.
async fn nothing_outlives(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    id: &VolumeId,
    order: &Order,
    on_record: &find::OnRecord,
) -> Result<()> {
    find::is_not_elsewhere(provisioner, id, on_record).await?;
    let Some(given_out) = on_record.with_volume() else { return Ok(()) };
    let Some(volume) = leaf::volume::read(leaf, &given_out.volume).await? else { return Ok(()) };
    if !leaf::volume::is_of(leaf, id, &given_out.claim_uid, &volume) {
        return Ok(());
    }
    if volume.observed().by_hand {
        let place = id.place().unwrap_or_else(|| volume.claim_place.clone());
        tell_of_kept(provisioner, leaf, &order.handle, &place, &volume.observed()).await;
        return Ok(());
    }
    if leaf::volume::is_astray(leaf, id, &given_out.claim_uid, &volume).await? {
        return Err(astray(leaf, &volume, Some(given_out)));
    }
    Err(Error::InProgress(format!("member {}: leaf volume {} is still there", leaf.member, volume.name)))
}

/// The host removes a volume whose data people of the member have brought there.
async fn tell_of_kept(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    handle: &str,
    place: &LeafPlace,
    volume: &ObservedVolume,
) {
    let message = format!(
        "member {}: leaf claim {place} is gone. Its volume {} was made there by hand, not by a provisioner: it stays as \
         it is, with its data",
        leaf.member, volume.name
    );
    let news = News { reason: "LeafKept", message, warning: false };
    tracing::info!(volume = handle, "{}", news.message);
    match host::volume::all_with(&provisioner.host, handle).await {
        Ok(volumes) => {
            for volume in &volumes {
                host::events::tell(&provisioner.host, volume, &news).await;
            }
        }
        Err(error) => tracing::warn!(volume = handle, %error, "no event LeafKept: the host's volumes cannot be listed"),
    }
}

/// The claim has gone before its volume, which is touched only while no other claim has it. One that is to be retained, only
/// where the host's own record proves that it is this one: people copy such volumes, labels and all. `holder`: the UID of the
/// claim that has the name which the volume's claimRef tells.
fn check_volume_alone(
    leaf: &MemberClient,
    given_out: Option<&GivenOut>,
    row: &Row,
    holder: Option<&str>,
) -> Result<()> {
    let Some(volume) = &row.volume else { return Ok(()) };
    let is_held = holder == Some(&*volume.claim_uid);
    let is_astray =
        if volume.is_terminating() { is_held && volume.is_retained() } else { is_held || volume.claim_uid.is_empty() };
    if is_astray && !volume.observed().by_hand {
        return Err(astray(leaf, volume, given_out));
    }
    if !volume.is_retained() || given_out.is_some_and(|given| volume.is_or_was_bound_to(&given.claim_uid)) {
        return Ok(());
    }
    let why = "is retained, and nothing proves that it is this volume's: the driver leaves it untouched. Delete it there if its data is to go";
    Err(left_untouched(leaf, volume, why))
}

/// The watches said nothing for a while: they may be dead, or a consumer pod was left behind.
async fn look_again(leaf: &MemberClient, hash: VolumeHash, place: &LeafPlace, row: &Row) -> Result<()> {
    if let Some(claim) = &row.claim {
        leaf::consumer::end(leaf, &place.namespace, hash).await?;
        if leaf::claim::read(leaf, &claim.place).await?.is_none() {
            leaf.rows.drop_claim(hash, &claim.uid, u64::MAX);
        }
    }
    if let Some(volume) = row.observed_volume()
        && leaf::volume::is_gone(leaf, &volume.name, Some(&volume.uid)).await?
    {
        leaf.rows.drop_volume(hash, &volume.uid);
    }
    Ok(())
}

/// Why it takes so long, in the words of the member's storage where it has any.
async fn late(leaf: &MemberClient, place: &LeafPlace, step: &Removal, row: &Row) -> Error {
    if *step == Removal::AwaitClaim {
        return Error::InProgress(format!("member {}: {}", leaf.member, in_use(place)));
    }
    let said = match (&row.volume, step) {
        (Some(volume), Removal::AwaitVolume) => leaf::events::newest_warning_of_clusters(leaf, volume.uid()).await,
        _ => None,
    };
    let (state, said) = (removing::state(step), said.map(|said| format!(": {said}")).unwrap_or_default());
    Error::InProgress(format!("member {}: leaf claim {}/{} {state}{said}", leaf.member, place.namespace, place.claim))
}

/// Without the rights for moves the driver may not list the pods of a member.
fn in_use(place: &LeafPlace) -> String {
    let LeafPlace { namespace, claim } = place;
    format!(
        "leaf claim {namespace}/{claim} is still in use by a pod, or held by somebody else's finalizer: `kubectl -n \
         {namespace} describe pvc {claim}` there names them"
    )
}
