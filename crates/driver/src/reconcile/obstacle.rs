//! What keeps a leaf from being made what the host wants it to be, in words for the volume of the host.

use super::{Reconciler, repair::Repair};
use crate::provision::taken;
use domain::{
    error::Error,
    volume::{LeafPlace, healing::Healing},
};
use host::events::News;
use leaf::{
    healing::LeafPair,
    identity::{Identity, Meant, judge},
    ownership,
    row::ClaimRow,
};

/// Half a minute.
const LOOKS_TO_DETACH: u32 = 5;
/// Some seconds: a member that has just begun may refuse anything.
const LOOKS_TO_BE_SURE: u32 = 2;

pub(super) const LOST: &str = "or its leaf volume was deleted in the member, and the data is gone from there: restore \
     both there under the same names, or delete the claim here. The driver makes nothing in their place";

/// Whether a person has to act: a patch may as well be refused because somebody was quicker, and a leaf claim because its namespace is being
/// deleted, which passes mostly.
pub(super) fn is_refusal(step: &Healing, error: &Error, looks: u32) -> bool {
    match error {
        Error::NoPlace(_) | Error::Denied(_) => true,
        Error::Refused(_) => *step == Healing::Recreate,
        Error::InProgress(_) => *step == Healing::Recreate && looks >= LOOKS_TO_BE_SURE,
        _ => false,
    }
}

pub(super) fn refused(repair: &Repair<'_>, place: &LeafPlace, error: &Error) -> News {
    let what = format!("is not as the host wants it, and the member refuses the change: {error}");
    repair.told("LeafStuck", place, &what, true)
}

/// It cannot be looked at where the host wants it, or there is no such place: that passes by no look, and no step follows that would tell.
pub(super) fn out_of_reach(repair: &Repair<'_>, place: &LeafPlace, error: &Error, looks: u32) -> Option<News> {
    let what = match error {
        _ if looks < LOOKS_TO_BE_SURE => return None,
        Error::Denied(_) => format!("cannot be checked, because the member refuses to show it: {error}"),
        Error::Invalid(_) => format!(
            "cannot be recreated for the claim that its volume was given to: {error}. Bind the host's volume to a \
             claim for which its class has a place in the member"
        ),
        _ => return None,
    };
    Some(repair.told("LeafStuck", place, &what, true))
}

/// What keeps the next step from being taken, for the user.
pub(super) async fn obstacle(
    reconciler: &Reconciler,
    repair: &Repair<'_>,
    step: &Healing,
    pair: &LeafPair,
    looks: u32,
) -> Option<News> {
    if *step == Healing::Taken {
        let what = who_has_its_name(reconciler, repair, pair).await;
        return Some(repair.told("LeafStuck", &pair.place, &what, true));
    }
    if let (Healing::Stuck(_), Some(what)) = (step, without_labels(repair, pair)) {
        return Some(repair.told("LeafStuck", &pair.place, &what, true));
    }
    seen_at_once(repair, step, pair, looks)
}

/// It is there, and has its volume: nothing but its labels is to be put back.
fn without_labels(repair: &Repair<'_>, pair: &LeafPair) -> Option<String> {
    let (claim, host) = (pair.claim.as_ref().filter(|_| pair.taken)?, &repair.leaf.host);
    let is_stripped = judge(&claim.metadata, host, Meant::Volume(repair.hash)) == Identity::Stripped;
    is_stripped.then(|| {
        let labels = format!("{},{}={}", ownership::selector(host), ownership::VOLUME, repair.hash);
        format!("has its volume, but somebody has taken the driver's labels off it: put back {labels}. Until then the driver leaves it alone")
    })
}

pub(super) fn seen_at_once(repair: &Repair<'_>, step: &Healing, pair: &LeafPair, looks: u32) -> Option<News> {
    let (place, row) = (&pair.place, pair.claim.as_ref().map(ClaimRow::new));
    match (step, row) {
        (Healing::AwaitClaim, Some(row)) => {
            let what = format!(
                "(UID {}) was deleted in the member, but a pod there still uses it, or a finalizer holds it (`kubectl \
                 -n {} describe pvc {}` there names them). Its data is kept: once the claim is gone, the driver \
                 recreates it if the host needs it",
                row.uid, place.namespace, place.claim
            );
            Some(repair.told("LeafWaits", place, &what, true))
        }
        // It is detached a moment after its pod has gone; a record of a node that is no more stays.
        (Healing::AwaitDetach, Some(row)) if looks >= LOOKS_TO_DETACH => {
            let nodes = row.life.published.nodes().collect::<Vec<_>>().join(", ");
            let what = format!(
                "is deleted, and its data kept, once it is detached from {nodes}, which its record names. If such a \
                 node is gone for good, remove annotation {} from the leaf claim",
                ownership::PUBLISHED
            );
            Some(repair.told("LeafWaits", place, &what, true))
        }
        (Healing::Endangered, _) => {
            let what = "is all that still holds its leaf volume, which somebody has deleted in the member: once the \
                        leaf claim goes, the data goes. Make a copy of the data";
            Some(repair.told("LeafEndangered", place, what, true))
        }
        (Healing::Stuck(why), _) => {
            Some(repair.told("LeafStuck", place, &format!("cannot be recreated in the member: {why}"), true))
        }
        (Healing::Keep, _) => {
            let what = "is gone and cannot be recreated: neither the host nor its leaf volume says what it was";
            Some(repair.told("LeafStuck", place, what, true))
        }
        (Healing::Lost, _) => Some(repair.told("LeafLost", place, LOST, true)),
        _ => None,
    }
}

async fn who_has_its_name(reconciler: &Reconciler, repair: &Repair<'_>, pair: &LeafPair) -> String {
    match taken::whose(&reconciler.host, &reconciler.members, repair.leaf(), repair.hash(), pair).await {
        Some(whose) => format!("cannot be recreated: another claim has its name, and {whose}"),
        None => "cannot be recreated in the member".to_owned(),
    }
}
