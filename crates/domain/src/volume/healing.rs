//! What is to be done about a leaf that is not as the host wants it: its claim was deleted by somebody else, or is to be let go,
//! or to come back, or its volume's policy is not the one that keeps the data. Pure: the shell in `driver/reconcile` acts on it. All
//! that is known is in the objects, so that whoever comes next goes on where the last one stopped.

#[cfg(test)]
mod tests;

use super::published::Published;

/// What the host wants of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A claim has it. `retain`: its data is to outlive that.
    Use { retain: bool },
    /// No claim has it, and its data is to stay.
    Keep,
    /// It is being removed, or nobody can say whose it is.
    Nothing,
}

/// The claim at the leaf's place, read just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct SeenClaim {
    pub ours: bool,
    pub uid: String,
    pub terminating: bool,
    /// Whether our finalizer still holds it.
    pub protected: bool,
    pub bound: bool,
    /// On which nodes it is.
    pub published: Published,
    /// A move to another member has it, and no pod uses it: it may go though virtual nodes are on its record.
    pub isolated: bool,
    pub volume: Option<String>,
    /// In whose place it was recreated.
    pub former: Vec<String>,
}

impl SeenClaim {
    /// Where a move has it, its record goes and comes back with it.
    fn may_be_let_go(&self) -> bool {
        let published = &self.published;
        published.is_unpublished() || self.isolated && !published.is_corrupt() && !published.is_on_real_node()
    }
}

/// The leaf volume, read just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct SeenVolume {
    pub name: String,
    pub claim_uid: String,
    /// The claim that it is bound to has gone, and another one is there of ours.
    pub left: bool,
    /// The claim that it is bound to is there, and somebody else's.
    pub taken: bool,
    pub terminating: bool,
    pub retained: bool,
    /// It was made `Retain` because the host's volume is, and says what it was before.
    pub follows: bool,
    /// It says that it is being removed.
    pub removal: bool,
    /// UID of the claim whose description it keeps.
    pub saved: Option<String>,
    /// On which nodes that was, less those that it has left since.
    pub published: Published,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Healing {
    /// It is well, or others see to it.
    Nothing,
    /// The host wants it back: what its removal has under way is to find it changed.
    CallOff,
    /// Make the volume stay, as the host's does.
    Follow,
    /// The host's does not any more: give the volume the policy of before.
    Unfollow,
    /// Make the volume stay, and keep on it what the claim was.
    Keep,
    /// Delete the claim: its volume stays, and nobody in the host has it.
    LetGo,
    /// A node still has it.
    AwaitDetach,
    /// Take our finalizer away.
    Release,
    /// A pod, or somebody's finalizer, still holds the claim.
    AwaitClaim,
    Recreate,
    /// It was left by a node while it was recreated: its record is to say what is kept on the volume.
    TakeRecord,
    GiveVolume,
    AwaitBond,
    PutPolicyBack,
    /// It was recreated for a volume that has gone meanwhile, and the host does not want it any more.
    TakeBack,
    /// It came late: the volume was another claim's since, which has gone as well, and can never be its own.
    RemoveLate,
    /// Somebody deletes the volume in the member; its claim still holds it.
    Endangered,
    /// Another claim has the name under which it is to be recreated.
    Taken,
    /// A person has to act.
    Stuck(&'static str),
    /// The volume is gone. Nothing is ever made in its place.
    Lost,
}

pub fn decide(wish: Wish, claim: Option<&SeenClaim>, volume: Option<&SeenVolume>) -> Healing {
    let wanted = wish != Wish::Nothing;
    match (claim.filter(|claim| claim.ours), volume) {
        (_, Some(volume)) if wanted && volume.removal => Healing::CallOff,
        (Some(claim), Some(volume)) if claim.terminating => deleted(wanted, claim, volume),
        (Some(claim), Some(volume)) => there(wish, claim, volume),
        (None, Some(volume)) => gone(wish, volume, claim.is_some()),
        (Some(claim), None) if !claim.bound && !claim.former.is_empty() && !wanted => taken_back(claim),
        (Some(claim), None) if wanted && claim.volume.is_some() => Healing::Lost,
        // Nothing would keep what it was while it goes.
        (Some(claim), None) if wanted && claim.terminating => {
            Healing::Stuck("it had no volume yet: delete the claim here and make it again")
        }
        (None, None) if wanted => Healing::Lost,
        _ => Healing::Nothing,
    }
}

/// The claim is on its way out.
fn deleted(wanted: bool, claim: &SeenClaim, volume: &SeenVolume) -> Healing {
    let leaves = if claim.protected { Healing::Release } else { Healing::AwaitClaim };
    let saved = volume.saved.is_some() && volume.retained;
    match volume.claim_uid == claim.uid {
        // A removal that the host has asked for goes the same way.
        _ if !wanted => Healing::Nothing,
        true if volume.terminating => {
            Healing::Stuck("its leaf volume is being deleted as well: make a copy of the data")
        }
        true if volume.saved.as_ref() == Some(&claim.uid) && volume.retained && volume.published == claim.published => {
            leaves
        }
        true => Healing::Keep,
        // Recreated, and deleted before it had its volume.
        false if saved => leaves,
        false => Healing::Nothing,
    }
}

/// The claim is there, and nobody deletes it.
fn there(wish: Wish, claim: &SeenClaim, volume: &SeenVolume) -> Healing {
    let whole = volume.claim_uid == claim.uid;
    match (&volume.saved, whole) {
        (Some(saved), true) if wish == Wish::Keep && *saved == claim.uid && volume.retained => let_go(claim),
        (Some(_), true) => {
            if claim.bound {
                Healing::PutPolicyBack
            } else {
                Healing::AwaitBond
            }
        }
        (Some(saved), false) => promised(wish, claim, volume, saved),
        (None, true) if claim.bound => at_peace(wish, claim, volume),
        (None, _) => Healing::Nothing,
    }
}

/// Recreated, and the volume is not its own yet.
fn promised(wish: Wish, claim: &SeenClaim, volume: &SeenVolume, saved: &String) -> Healing {
    let names_it = claim.volume.as_ref() == Some(&volume.name);
    let waits = names_it && claim.former.contains(saved);
    let came_late = names_it && !waits && claim.protected && !claim.bound && !claim.former.is_empty() && volume.left;
    match wish {
        Wish::Use { .. } | Wish::Keep if came_late && volume.retained => Healing::RemoveLate,
        // It may have been given, by a write that arrived late, to a recreated claim that was deleted as well.
        _ if !waits || volume.claim_uid != *saved && !volume.left => Healing::Nothing,
        Wish::Use { .. } if claim.published != volume.published => Healing::TakeRecord,
        Wish::Use { .. } => Healing::GiveVolume,
        Wish::Keep if volume.retained => Healing::LetGo,
        Wish::Keep | Wish::Nothing => Healing::Nothing,
    }
}

/// Bound, and nothing is under way.
fn at_peace(wish: Wish, claim: &SeenClaim, volume: &SeenVolume) -> Healing {
    let stays = volume.retained && volume.follows;
    match wish {
        Wish::Use { retain: true } if !stays => Healing::Follow,
        Wish::Use { retain: false } if volume.follows => Healing::Unfollow,
        // The host's claim may have gone before anybody saw that its volume was to stay.
        Wish::Keep if !stays && !claim.may_be_let_go() => Healing::Follow,
        Wish::Use { .. } | Wish::Keep if volume.terminating => Healing::Endangered,
        Wish::Keep if !claim.may_be_let_go() => Healing::AwaitDetach,
        Wish::Keep => Healing::Keep,
        Wish::Use { .. } | Wish::Nothing => Healing::Nothing,
    }
}

fn let_go(claim: &SeenClaim) -> Healing {
    if claim.may_be_let_go() { Healing::LetGo } else { Healing::AwaitDetach }
}

/// The claim is gone, or somebody else's has its name.
fn gone(wish: Wish, volume: &SeenVolume, taken: bool) -> Healing {
    let astray = volume.taken || volume.claim_uid.is_empty();
    match (&volume.saved, volume.retained) {
        _ if wish == Wish::Nothing => Healing::Nothing,
        _ if wish == Wish::Keep && astray => Healing::Nothing,
        _ if astray => {
            Healing::Stuck("somebody has changed the claimRef of its leaf volume there: put it back as it was")
        }
        // The member removes the data.
        (_, false) => Healing::Lost,
        _ if wish == Wish::Keep => Healing::Nothing,
        _ if volume.terminating => Healing::Stuck("its leaf volume is being deleted: make a copy of the data"),
        // What is kept may say that it belongs elsewhere.
        (saved, true) if saved.as_ref() != Some(&volume.claim_uid) => Healing::Keep,
        _ if taken => Healing::Taken,
        _ => Healing::Recreate,
    }
}

fn taken_back(claim: &SeenClaim) -> Healing {
    match (claim.terminating, claim.protected) {
        (false, _) => Healing::TakeBack,
        (true, true) => Healing::Release,
        (true, false) => Healing::Nothing,
    }
}
