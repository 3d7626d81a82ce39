//! Imported volumes: a host volume that somebody made by hand for a claim that was there before. They are the member
//! administrator's. DeleteVolume of one removes it only where host and member both say so; in every other case the leaf
//! stays and the answer is OK, for then the host's object alone is to go.

use std::time::Duration;

use super::{Deadline, Provisioner};
use domain::{
    error::{Error, Result},
    volume::{VolumeHash, VolumeId, healing::Wish},
};
use host::{events::News, volume::HostVolume};
use leaf::{MemberClient, imported::ImportedVolume, row::ClaimRow};
use member::registry::{may_mean, serving};

/// Between two looks: no watch tells of claims without our labels.
const PAUSE: Duration = Duration::from_millis(500);

/// What is to become of an imported leaf whose host volume goes.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Remove,
    /// And why.
    Keep(&'static str),
}

/// One that somebody has deleted has its claim as long as that is there, and may have been given another one since the call was sent.
fn is_used(user: &HostVolume) -> bool {
    matches!(user.wish(), Wish::Use { .. })
}

fn decide(users: &[HostVolume], claim: &ClaimRow, volume: Option<&ImportedVolume>) -> Fate {
    let bound = volume.filter(|volume| volume.is_bound_to(&claim.uid));
    match (users, bound) {
        ([], _) => Fate::Keep("no volume of the host leads to it"),
        ([user], _) if !user.is_leaving() || is_used(user) => Fate::Keep("the host still uses it"),
        ([user], _) if !user.deletes => Fate::Keep("the host retains it"),
        ([_], None) => Fate::Keep("it is not bound to a volume"),
        ([_], Some(volume)) if !volume.deletes => Fate::Keep("the reclaim policy of its own volume is not Delete"),
        ([_], Some(_)) => Fate::Remove,
        _ => Fate::Keep("several volumes of the host lead to it"),
    }
}

pub(super) async fn delete(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    id: &VolumeId,
    claim: &ClaimRow,
    deadline: &Deadline,
) -> Result<()> {
    let users = users(provisioner, leaf, claim).await?;
    if id.member != leaf.member {
        // Nobody has used it by that one.
        let why = format!("the handle calls that member {}, which is another name of it", id.member);
        keep(provisioner, id, &users, stays(leaf, claim, &why)).await;
        return Ok(());
    }
    let volume = match claim.volume() {
        Some(name) => leaf::imported::read(leaf, name).await?,
        None => None,
    };
    match (decide(&users, claim, volume.as_ref()), volume) {
        (Fate::Remove, Some(volume)) => {
            let hash = VolumeHash::imported(&leaf.host, id);
            if !claim.observed().terminating {
                leaf::claim::delete(leaf, claim, hash).await?;
            }
            if is_removed(leaf, claim, &volume, deadline).await? {
                return Ok(());
            }
            let message = format!(
                "claim {} in member {} was imported and is gone; its volume {} stays there: its reclaim policy is no longer Delete",
                claim.place, leaf.member, volume.name
            );
            keep(provisioner, id, &users, message).await;
        }
        (Fate::Keep(why), _) => keep(provisioner, id, &users, stays(leaf, claim, why)).await,
        (Fate::Remove, None) => {}
    }
    Ok(())
}

/// The volumes of the host that lead to a claim, whichever name of its member they say: that may have served once, and its volume have pods
/// still. Live, as all that leads to a removal.
async fn users(provisioner: &Provisioner, leaf: &MemberClient, claim: &ClaimRow) -> Result<Vec<HostVolume>> {
    let members = provisioner.members.all()?;
    let may_lead_there =
        |user: &VolumeId| user.place().as_ref() == Some(&claim.place) && may_mean(&members, &user.member, &leaf.member);
    let mut users = Vec::new();
    for user in host::volume::all_leading(&provisioner.host, may_lead_there).await? {
        let name = VolumeId::parse(&user.handle).map(|id| id.member).unwrap_or_default();
        if serving(&members, &name) == leaf.member || is_on_no_record(provisioner, &name).await? {
            users.push(user);
        }
    }
    Ok(users)
}

/// Other clusters have claims of that name as well. Of those the names are on record, or were.
async fn is_on_no_record(provisioner: &Provisioner, name: &str) -> Result<bool> {
    let known = host::pins::known_members(&provisioner.host).await?;
    Ok(!known.is_some_and(|known| known.contains(name)) && !host::pins::is_forgotten(&provisioner.host, name).await?)
}

/// Waits until claim and volume are gone. False: the volume is to stay after all.
async fn is_removed(
    leaf: &MemberClient,
    claim: &ClaimRow,
    volume: &ImportedVolume,
    deadline: &Deadline,
) -> Result<bool> {
    loop {
        let there = leaf::claim::read(leaf, &claim.place).await?;
        let in_use = there.is_some_and(|there| there.metadata.uid.as_deref() == Some(&*claim.uid));
        if !in_use {
            match leaf::imported::read(leaf, &volume.name).await? {
                Some(left) if left.uid == volume.uid && !left.deletes => return Ok(false),
                Some(left) if left.uid == volume.uid => {}
                _ => return Ok(true),
            }
        }
        let what = if in_use { "is still in use by a pod" } else { "is gone and its volume is being deleted" };
        let said = if !in_use && deadline.passed() {
            leaf::events::newest_warning_of_clusters(leaf, &volume.uid).await
        } else {
            None
        };
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        let late = || format!("member {}: leaf claim {} {what}{said}", leaf.member, claim.place);
        deadline.pause(PAUSE, || Error::InProgress(late())).await?;
    }
}

fn stays(leaf: &MemberClient, claim: &ClaimRow, why: &str) -> String {
    format!("claim {} in member {} was imported and stays there: {why}", claim.place, leaf.member)
}

/// Tells whoever deletes a volume of the host what is left of it.
async fn keep(provisioner: &Provisioner, id: &VolumeId, users: &[HostVolume], message: String) {
    let news = News { reason: "LeafKept", message, warning: false };
    let handle = id.to_string();
    for user in users.iter().filter(|user| *user.handle == *handle) {
        host::events::tell(&provisioner.host, user, &news).await;
    }
}
