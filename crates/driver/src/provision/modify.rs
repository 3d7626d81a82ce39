//! ControllerModifyVolume: the leaf claim gets another VolumeAttributesClass, and the answer comes when that is in force.
//!
//! external-resizer takes INVALID_ARGUMENT as "cannot be", and lets the user go back; after ABORTED it holds on to what it
//! has begun.

use super::{Deadline, Provisioner, find, settle, wait};
use domain::{
    error::{Error, Result},
    volume::{
        Attributes, LeafPlace, VolumeHash,
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
    let Some(target) = attributes.at(&found.member.name) else { return Ok(()) };
    if found.imported {
        return match change(target, &found.claim.life.attributes) {
            Change::Done => Ok(()),
            _ => Err(Error::Invalid(format!(
                "member {}: claim {} is imported: its owner there can give it VolumeAttributesClass {target:?}",
                found.member.name, found.claim.place
            ))),
        };
    }
    Modification { leaf: found.leaf()?, hash: found.hash, place: &found.claim.place, target }.make(deadline).await
}

/// A leaf claim that is to have a class.
pub(super) struct Modification<'a> {
    pub(super) leaf: &'a MemberClient,
    pub(super) hash: VolumeHash,
    pub(super) place: &'a LeafPlace,
    pub(super) target: &'a str,
}

impl Modification<'_> {
    pub(super) async fn make(&self, deadline: &Deadline) -> Result<()> {
        let (mut asked, mut written, mut is_known) = (0, false, false);
        loop {
            let claim = self.row().ok_or_else(|| self.gone())?;
            // A move may have closed it since the last look, and its copy has the class of before.
            claim.stands_still(&self.leaf.member)?;
            let step = change(self.target, &claim.life.attributes);
            match step {
                Change::Done if written => return Ok(()),
                Change::Done => return settle(self.leaf, self.hash, &claim).await,
                Change::Ask if asked < ASKED_AT_MOST && deadline.caller_waits() => {
                    asked += 1;
                    written = self.ask(&claim).await?;
                    is_known = true;
                }
                Change::Ask => return Err(self.late(&claim).await),
                Change::Infeasible => return Err(self.infeasible(&claim)),
                // It may have gone since an earlier call asked for it, and external-resizer lets its user go back only then.
                Change::Await if !is_known => {
                    self.check().await?;
                    is_known = true;
                }
                Change::Await => {
                    let differs = |rows: &Rows| {
                        let now = rows.row_at(self.hash, self.place).claim;
                        now.is_none_or(|claim| change(self.target, &claim.life.attributes) != step)
                    };
                    if !wait(self.leaf, self.hash, deadline, differs, async || self.late(&claim).await).await? {
                        leaf::claim::read(self.leaf, self.place).await?;
                    }
                }
            }
        }
    }

    fn row(&self) -> Option<ClaimRow> {
        self.leaf.rows.row_at(self.hash, self.place).claim
    }

    /// False: somebody has changed the claim, and the next look decides again.
    async fn ask(&self, claim: &ClaimRow) -> Result<bool> {
        let about = || format!("member {}: leaf claim {}", self.leaf.member, claim.place);
        if claim.size().terminating {
            return Err(Error::InProgress(format!("{} is being removed", about())));
        }
        if claim.size().phase == Phase::Pending {
            return Err(Error::InProgress(format!("{} is not bound yet", about())));
        }
        self.check().await?;
        match leaf::change::ask_for_attributes(self.leaf, claim, self.hash, self.target).await {
            Err(Error::Refused(reason)) => Err(Error::InProgress(reason)),
            asked => asked,
        }
    }

    async fn check(&self) -> Result<()> {
        let volume = self.leaf.rows.row_at(self.hash, self.place).volume;
        check_class(self.leaf, self.target, volume.as_ref().map(|volume| &*volume.driver)).await
    }

    fn infeasible(&self, claim: &ClaimRow) -> Error {
        let said = claim.life.complaint(&MODIFY_ERRORS).map(|said| format!(": {said}")).unwrap_or_default();
        Error::Invalid(format!(
            "member {}: leaf claim {} cannot have VolumeAttributesClass {:?}{said}",
            self.leaf.member, claim.place, self.target
        ))
    }

    async fn late(&self, claim: &ClaimRow) -> Error {
        let warning = leaf::events::newest_warning(self.leaf, &claim.place.namespace, &claim.uid).await;
        let said = warning.map(|said| format!(": {said}")).unwrap_or_default();
        Error::InProgress(format!(
            "member {}: leaf claim {} does not have VolumeAttributesClass {:?} yet{said}",
            self.leaf.member, claim.place, self.target
        ))
    }

    fn gone(&self) -> Error {
        Error::InProgress(format!("member {}: leaf claim {} is not there any more", self.leaf.member, self.place))
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
