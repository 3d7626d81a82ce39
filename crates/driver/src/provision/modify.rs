//! ControllerModifyVolume: the leaf claim gets another VolumeAttributesClass, and the answer comes when that is in force.
//!
//! external-resizer takes INVALID_ARGUMENT as "cannot be", and lets the user go back; after ABORTED it holds on to what it
//! has begun.

use super::{
    Deadline, Provisioner,
    find::{self, FoundLeaf},
    settle, wait,
};
use domain::{
    error::{Error, Result},
    volume::{
        Attributes,
        attributes::{Change, change},
        plan::Phase,
    },
};
use leaf::{MemberClient, Rows, row::ClaimRow};

const MODIFY_ERRORS: [&str; 1] = ["ModifyVolumeError"];
/// Somebody may have changed the claim between two looks, but not again and again.
const ASKED_AT_MOST: usize = 3;

pub async fn modify(
    provisioner: &Provisioner,
    handle: &str,
    attributes: &Attributes,
    deadline: &Deadline,
) -> Result<()> {
    let found = find::to_change(provisioner, handle).await?;
    let Some(target) = attributes.at(&found.id.member) else { return Ok(()) };
    if found.imported {
        return match change(target, &found.claim.life.attributes) {
            Change::Done => Ok(()),
            _ => Err(Error::Invalid(format!(
                "member {}: claim {} is imported: its owner there can give it VolumeAttributesClass {target:?}",
                found.member.name, found.claim.place
            ))),
        };
    }
    found.claim.stands_still(&found.member.name)?;
    let (mut asked, mut written) = (0, false);
    loop {
        let leaf = found.leaf()?;
        let claim = leaf.rows.row_at(found.hash, &found.claim.place).claim.ok_or_else(|| gone(&found))?;
        let step = change(target, &claim.life.attributes);
        match step {
            Change::Done if written => return Ok(()),
            Change::Done => return settle(leaf, found.hash, &claim).await,
            Change::Ask if asked < ASKED_AT_MOST && deadline.caller_waits() => {
                asked += 1;
                written = ask(leaf, &found, &claim, target).await?;
            }
            Change::Ask => return Err(late(&found, &claim, target).await),
            Change::Infeasible => return Err(infeasible(&found, &claim, target)),
            Change::Await => {
                let differs = |rows: &Rows| {
                    let now = rows.row_at(found.hash, &found.claim.place).claim;
                    now.is_none_or(|claim| change(target, &claim.life.attributes) != step)
                };
                if !wait(leaf, found.hash, deadline, differs, async || late(&found, &claim, target).await).await? {
                    leaf::claim::read(leaf, &found.claim.place).await?;
                }
            }
        }
    }
}

/// False: somebody has changed the claim, and the next look decides anew.
async fn ask(leaf: &MemberClient, found: &FoundLeaf, claim: &ClaimRow, target: &str) -> Result<bool> {
    if claim.size().terminating {
        return Err(Error::InProgress(format!("member {}: leaf claim {} is being removed", leaf.member, claim.place)));
    }
    if claim.size().phase == Phase::Pending {
        return Err(Error::InProgress(format!("member {}: leaf claim {} is not bound yet", leaf.member, claim.place)));
    }
    let volume = leaf.rows.row_at(found.hash, &claim.place).volume;
    check_class(leaf, target, volume.as_ref().map(|volume| &*volume.driver)).await?;
    match leaf::change::ask_for_attributes(leaf, claim, found.hash, target).await {
        Err(Error::Refused(reason)) => Err(Error::InProgress(reason)),
        asked => asked,
    }
}

/// Members accept the name of a class that they do not have, and then wait for it in silence.
pub(crate) async fn check_class(leaf: &MemberClient, class: &str, volume_driver: Option<&str>) -> Result<()> {
    let Some(driver) = leaf::change::attributes_class_driver(leaf, class).await? else {
        return Err(Error::Refused(format!(
            "member {} has no VolumeAttributesClass {class:?}: make it there, or name another with the parameter \
             leafVolumeAttributesClass.{}",
            leaf.member, leaf.member
        )));
    };
    match volume_driver.filter(|known| !known.is_empty() && *known != driver) {
        Some(volume_driver) => Err(Error::Refused(format!(
            "member {}: VolumeAttributesClass {class:?} is for driver {driver}, and the volume is of driver {volume_driver:?}",
            leaf.member
        ))),
        None => Ok(()),
    }
}

fn infeasible(found: &FoundLeaf, claim: &ClaimRow, target: &str) -> Error {
    let said = claim.life.complaint(&MODIFY_ERRORS).map(|said| format!(": {said}")).unwrap_or_default();
    Error::Invalid(format!(
        "member {}: leaf claim {} cannot have VolumeAttributesClass {target:?}{said}",
        found.member.name, claim.place
    ))
}

async fn late(found: &FoundLeaf, claim: &ClaimRow, target: &str) -> Error {
    let warning = match found.leaf() {
        Ok(leaf) => leaf::events::newest_warning(leaf, &claim.place.namespace, &claim.uid).await,
        Err(_) => None,
    };
    let said = warning.map(|said| format!(": {said}")).unwrap_or_default();
    Error::InProgress(format!(
        "member {}: leaf claim {} does not have VolumeAttributesClass {target:?} yet{said}",
        found.member.name, claim.place
    ))
}

fn gone(found: &FoundLeaf) -> Error {
    Error::InProgress(format!("member {}: leaf claim {} is not there any more", found.member.name, found.claim.place))
}
