//! ControllerGetVolumeHealth and ControllerListVolumeHealth: what a member tells of a leaf, and what its silence means.
//!
//! The list goes by what the watches saw. A single volume is looked at more closely: the events that the member's own
//! health monitor writes cost a request, and so does proving that something has gone.

use super::{
    Page, Provisioner,
    find::{self, Sought, unknown},
    list::{self, Place},
};
use domain::{
    error::Result,
    volume::{VolumeHash, VolumeId, plan::Phase},
};
use leaf::{
    MemberClient,
    row::{ClaimRow, Row},
};

/// What external-health-monitor calls a volume that is not well, in events, and what others may write as a condition.
const ABNORMAL: &str = "VolumeConditionAbnormal";

/// What is told of one takes so many bytes at most.
const AILMENT: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Degraded,
    Inaccessible,
    DataLoss,
}

/// One thing that is wrong with a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ailment {
    pub severity: Severity,
    /// In one CamelCase word.
    pub reason: &'static str,
    pub message: String,
}

/// A volume is well where nothing ails it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub handle: String,
    pub ailments: Vec<Ailment>,
}

/// Those alone with which something is wrong.
pub fn list_ailing(provisioner: &Provisioner, most: usize, token: &str) -> Result<Page<Health>> {
    let pick = |leaf: &MemberClient, place: &Place<'_>, after, most| {
        let ails = |row: &Row| !ailments(row, place).is_empty();
        // Where a member does not answer, all that it holds is concerned.
        if place.trouble.is_some() {
            leaf.rows.page(after, most, ails)
        } else {
            leaf.rows.page_of_ailing(after, most, ails)
        }
    };
    let entry = |place: &Place<'_>, hash, row: Row| {
        let handle = row.id(place.member, hash)?.to_string();
        Some(Health { handle, ailments: ailments(&row, place) })
    };
    list::page(provisioner, most, token, pick, entry, |health| list::ENTRY + health.ailments.len() * AILMENT)
}

pub async fn health(provisioner: &Provisioner, handle: &str) -> Result<Health> {
    let mut ailments = match find::seek(provisioner, handle).await? {
        Sought::FoundLeaf(found) => {
            let trouble = found.member.leaf().err().map(|error| error.to_string());
            let place = Place { member: &found.id.member, trouble };
            let row = found.member.last_known().map(|leaf| leaf.rows.row_at(found.hash, &found.claim.place));
            let mut told = ailments(&Row { claim: Some(found.claim.clone()), ..row.unwrap_or_default() }, &place);
            if let (Ok(leaf), true) = (found.member.leaf(), told.is_empty()) {
                told.extend(look_closer(leaf, found.hash, &found.claim).await?);
            }
            told
        }
        Sought::Stripped(error) => vec![Ailment {
            severity: Severity::Inaccessible,
            reason: "LeafClaimUnlabelled",
            message: error.to_string(),
        }],
        Sought::Misnamed(error) => return Err(error),
        Sought::LetGo(_) | Sought::Unknown => vec![missing(provisioner, handle).await?],
    };
    ailments.truncate(LONGEST);
    Ok(Health { handle: handle.to_owned(), ailments })
}

/// No claim is behind the handle: its volume may be left, or the host alone remembers it.
async fn missing(provisioner: &Provisioner, handle: &str) -> Result<Ailment> {
    let id = VolumeId::parse(handle).ok_or_else(|| unknown(handle))?;
    let member = provisioner.members.get(&id.member).await?;
    if let Some((_, row)) = member.last_known().and_then(|leaf| leaf.rows.find(&id))
        && let Some(ailment) = orphaned(&row, &id.member)
    {
        return Ok(ailment);
    }
    let given_out = host::volume::leaf_of(&provisioner.host, handle).await?.ok_or_else(|| unknown(handle))?;
    Ok(Ailment {
        severity: Severity::DataLoss,
        reason: "LeafGone",
        message: format!(
            "member {}: neither the leaf claim (UID {}) nor its volume {} is there",
            id.member, given_out.claim_uid, given_out.volume
        ),
    })
}

const LONGEST: usize = 16;

/// What is known to be wrong with a volume of a member. `trouble`: why the member cannot be asked, where it cannot.
pub fn known_ailments(row: &Row, member: &str, trouble: Option<&str>) -> Vec<Ailment> {
    ailments(row, &Place { member, trouble: trouble.map(str::to_owned) })
}

/// What can be told without a request.
fn ailments(row: &Row, place: &Place<'_>) -> Vec<Ailment> {
    let Some(claim) = &row.claim else { return orphaned(row, place.member).into_iter().collect() };
    let size = claim.size();
    if size.terminating || size.phase == Phase::Pending {
        return Vec::new();
    }
    let about = format!("member {}: leaf claim {}", place.member, claim.place);
    let mut told = Vec::new();
    if size.phase == Phase::Lost {
        let message = format!("{about} has lost its volume {}", claim.volume().unwrap_or_default());
        told.push(Ailment { severity: Severity::DataLoss, reason: "LeafClaimLost", message });
    }
    if let Some(said) = claim.life.complaint(&[ABNORMAL]) {
        let message = format!("{about}: {said}");
        told.push(Ailment { severity: Severity::Degraded, reason: ABNORMAL, message });
    }
    if let Some(trouble) = &place.trouble {
        let message = trouble.clone();
        told.push(Ailment { severity: Severity::Inaccessible, reason: "MemberUnreachable", message });
    }
    told
}

/// A leaf volume whose claim has gone.
fn orphaned(row: &Row, member: &str) -> Option<Ailment> {
    let volume = row.observed_volume().filter(|_| row.claim.is_none())?;
    let what = format!("member {member}: the claim of leaf volume {} is gone", volume.name);
    Some(if volume.retained {
        let message = format!("{what}; the volume itself is kept there");
        Ailment { severity: Severity::Inaccessible, reason: "LeafClaimGone", message }
    } else {
        let message = format!("{what}, and the volume is being deleted with it");
        Ailment { severity: Severity::DataLoss, reason: "LeafClaimGone", message }
    })
}

/// The member's own word on a volume that looks well.
async fn look_closer(leaf: &MemberClient, hash: VolumeHash, claim: &ClaimRow) -> Result<Option<Ailment>> {
    let about = format!("member {}: leaf claim {}", leaf.member, claim.place);
    let unseen = leaf.rows.row_at(hash, &claim.place).volume.is_none();
    if let (true, Some(volume)) = (unseen, claim.volume())
        && leaf::volume::is_gone(leaf, volume, None).await?
    {
        let message = format!("{about}: its volume {volume} is gone");
        return Ok(Some(Ailment { severity: Severity::DataLoss, reason: "LeafVolumeGone", message }));
    }
    let said =
        leaf::events::newest_of(leaf, &claim.place.namespace, &claim.uid, &[ABNORMAL, "VolumeConditionNormal"]).await;
    Ok(said.filter(|said| said.0 == ABNORMAL).map(|(_, said)| Ailment {
        severity: Severity::Degraded,
        reason: ABNORMAL,
        message: format!("{about}: {said}"),
    }))
}
