//! ControllerExpandVolume: the leaf claim asks for more, and the answer comes when it reports that it has it.
//!
//! external-resizer takes INVALID_ARGUMENT, OUT_OF_RANGE and NOT_FOUND as "this size cannot be had": it says so on the
//! claim, asks seldom, and lets the user ask for less. FAILED_PRECONDITION means to it "not while a pod uses the volume",
//! and it would wait for that pod to go. RESOURCE_EXHAUSTED and ABORTED keep it asking.

use super::{
    Deadline, Provisioner,
    find::{self, FoundLeaf},
    settle, wait,
};
use domain::{
    error::{Error, Result},
    volume::{
        growth::{Expansion, expansion},
        published::Attachment,
        quantity,
    },
};
use leaf::{Rows, row::ClaimRow};

const RESIZE_ERRORS: [&str; 2] = ["ControllerResizeError", "NodeResizeError"];
/// The member may have been asked by somebody else between two looks, but not again and again.
const ASKED_AT_MOST: usize = 3;

/// A volume that has been made larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    pub capacity: u64,
    /// Its filesystem grows where it is mounted.
    pub on_node: bool,
}

pub async fn expand(
    provisioner: &Provisioner,
    handle: &str,
    required: u64,
    limit: u64,
    deadline: &Deadline,
) -> Result<Grown> {
    let found = find::to_change(provisioner, handle).await?;
    if found.imported {
        return as_it_is(&found, required, limit);
    }
    let (mut asked, mut written) = (0, false);
    loop {
        let claim = current(&found)?;
        // A move may have closed it since the last look, and its copy has the size of before.
        claim.stands_still(&found.member.name)?;
        let step = expansion(required, limit, claim.size());
        if let Some(grown) = grown(step, &claim, required) {
            if !written {
                settle(found.leaf()?, found.hash, &claim).await?;
            }
            return Ok(grown);
        }
        match step {
            Expansion::Ask if asked < ASKED_AT_MOST && deadline.caller_waits() => {
                asked += 1;
                written = ask_for_size(&found, &claim, required).await?;
            }
            // Nobody is there to mount it: a pod will be there sooner or later, and the sidecar asks again.
            Expansion::AwaitMount if claim.life.published.is_unpublished() => {
                return Err(late(&found, required).await);
            }
            Expansion::Ask => return Err(late(&found, required).await),
            Expansion::Await | Expansion::AwaitMount => {
                let differs = |rows: &Rows| {
                    let now = rows.row_at(found.hash, &found.claim.place).claim;
                    now.is_none_or(|claim| expansion(required, limit, claim.size()) != step)
                };
                if !wait(found.leaf()?, found.hash, deadline, differs, async || late(&found, required).await).await? {
                    leaf::claim::read(found.leaf()?, &found.claim.place).await?;
                }
            }
            refused => return Err(refusal(&found, &claim, refused, required, limit)),
        }
    }
}

fn grown(step: Expansion, claim: &ClaimRow, required: u64) -> Option<Grown> {
    match step {
        Expansion::Done { capacity } => Some(Grown { capacity, on_node: has_filesystem_of_its_node(claim) }),
        Expansion::AwaitMount if claim.life.published.is_on_real_node() => {
            Some(Grown { capacity: required, on_node: true })
        }
        _ => None,
    }
}

/// Of a disk the leaf claim tells the size alone: whoever has it makes a filesystem on it, and lets that grow.
fn has_filesystem_of_its_node(claim: &ClaimRow) -> bool {
    let wanted = claim.life.asked.as_ref().map_or(claim.mode, |(_, mode)| *mode);
    let in_machine = |attached: &Attachment| matches!(attached, Attachment::VirtualMachine(_));
    !wanted.is_block() && (claim.mode.is_block() || claim.life.published.attached(None).any(in_machine))
}

/// False: somebody has changed the claim, and the next look decides again.
async fn ask_for_size(found: &FoundLeaf, claim: &ClaimRow, size: u64) -> Result<bool> {
    let leaf = found.leaf()?;
    if leaf.rows.class(&claim.class).is_some_and(|class| !class.grows) {
        return Err(Error::Invalid(format!(
            "member {}: StorageClass {} lets no claim grow: set allowVolumeExpansion there, where its driver can expand \
             volumes",
            leaf.member, claim.class
        )));
    }
    let lowered = size < claim.life.requested;
    match leaf::change::ask_for_size(leaf, claim, found.hash, size).await {
        Err(Error::Refused(reason)) => {
            let hint = if lowered { ": this member does not let a claim ask for less than before" } else { "" };
            Err(Error::OutOfRange(format!("{reason}{hint}")))
        }
        asked => asked,
    }
}

/// Nothing is written on an imported claim: whoever owns it decides on its size.
fn as_it_is(found: &FoundLeaf, required: u64, limit: u64) -> Result<Grown> {
    let claim = &found.claim;
    match expansion(required, limit, claim.size()) {
        Expansion::Done { capacity } => Ok(Grown { capacity, on_node: false }),
        step @ (Expansion::TooLarge { .. } | Expansion::Lost) => Err(refusal(found, claim, step, required, limit)),
        _ => Err(Error::OutOfRange(format!(
            "member {}: claim {} is imported, and has {}: its owner there can make it larger",
            found.member.name,
            claim.place,
            quantity::print(claim.size().capacity)
        ))),
    }
}

/// The claim as the rows have it now.
fn current(found: &FoundLeaf) -> Result<ClaimRow> {
    let leaf = found.leaf()?;
    let claim = leaf.rows.row_at(found.hash, &found.claim.place).claim;
    claim.ok_or_else(|| Error::InProgress(format!("member {}: leaf claim {} is gone", leaf.member, found.claim.place)))
}

fn refusal(found: &FoundLeaf, claim: &ClaimRow, step: Expansion, required: u64, limit: u64) -> Error {
    let about = format!("member {}: leaf claim {}", found.member.name, claim.place);
    let required = quantity::print(required);
    match step {
        Expansion::TooLarge { capacity } => Error::OutOfRange(format!(
            "{about} has {} already, and at most {} were allowed",
            quantity::print(capacity),
            quantity::print(limit)
        )),
        Expansion::Lost => Error::Refused(format!("{about} has lost its volume")),
        Expansion::NotNow if claim.size().terminating => Error::InProgress(format!("{about} is being removed there")),
        Expansion::NotNow => Error::InProgress(format!("{about} is not bound yet")),
        _ => {
            let said = claim.life.complaint(&RESIZE_ERRORS).map(|said| format!(": {said}")).unwrap_or_default();
            Error::OutOfRange(format!("{about} cannot grow to {required}{said}. Ask for less, or make room there"))
        }
    }
}

/// Why it still waits, in the member's own words where it has any.
async fn late(found: &FoundLeaf, required: u64) -> Error {
    let Ok(claim) = current(found) else {
        return Error::InProgress(format!("member {}: the driver does not see the leaf claim now", found.member.name));
    };
    let about = format!("member {}: leaf claim {}", found.member.name, claim.place);
    if expansion(required, 0, claim.size()) == Expansion::AwaitMount {
        return Error::InProgress(format!(
            "{about}: its volume is larger, and its filesystem grows once a pod there uses it"
        ));
    }
    let warning = match found.leaf() {
        Ok(leaf) => leaf::events::newest_warning(leaf, &claim.place.namespace, &claim.uid).await,
        Err(_) => None,
    };
    let said = warning.map(|said| format!(": {said}")).unwrap_or_default();
    Error::InProgress(format!("{about} asks for {}, but has not grown yet{said}", quantity::print(required)))
}
