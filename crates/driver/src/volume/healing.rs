//! What is to be done about a leaf that is not as the host wants it: its claim was deleted by somebody else, or is to be let go,
//! or to come back, or its volume's policy is not the one that keeps the data. Pure: the shell in `follow/` acts on it. All
//! that is known is in the objects, so that whoever comes next goes on where the last one stopped.

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
    pub volume: Option<String>,
    /// In whose place it was made anew.
    pub former: Vec<String>,
}

/// The leaf volume, read just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct SeenVolume {
    pub name: String,
    pub claim_uid: String,
    /// The claim that it is bound to has gone.
    pub left: bool,
    pub terminating: bool,
    pub retained: bool,
    /// It was made `Retain` because the host's volume is, and says what it was before.
    pub follows: bool,
    /// UID of the claim whose description it keeps.
    pub saved: Option<String>,
    /// On which nodes that was, less those that it has left since.
    pub published: Published,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Healing {
    /// It is well, or others see to it.
    Rest,
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
    MakeAnew,
    /// It was left by a node while it was made anew: its record is to say what is kept on the volume.
    TakeRecord,
    GiveVolume,
    AwaitBond,
    PutPolicyBack,
    /// It was made anew for a volume that has gone meanwhile, and the host does not want it any more.
    TakeBack,
    /// Somebody deletes the volume in the member; its claim still holds it.
    Endangered,
    /// A person has to act.
    Stuck(&'static str),
    /// The volume is gone. Nothing is ever made in its place.
    Lost,
}

pub fn decide(wish: Wish, claim: Option<&SeenClaim>, volume: Option<&SeenVolume>) -> Healing {
    let wanted = wish != Wish::Nothing;
    match (claim.filter(|claim| claim.ours), volume) {
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
        _ => Healing::Rest,
    }
}

/// The claim is on its way out.
fn deleted(wanted: bool, claim: &SeenClaim, volume: &SeenVolume) -> Healing {
    let leaves = if claim.protected { Healing::Release } else { Healing::AwaitClaim };
    let saved = volume.saved.is_some() && volume.retained;
    match volume.claim_uid == claim.uid {
        // A removal that the host has asked for goes the same way.
        _ if !wanted => Healing::Rest,
        true if volume.terminating => {
            Healing::Stuck("its leaf volume is being deleted as well: keep a copy of the data")
        }
        true if volume.saved.as_ref() == Some(&claim.uid) && volume.retained && volume.published == claim.published => {
            leaves
        }
        true => Healing::Keep,
        // Made anew, and deleted before it had its volume.
        false if saved => leaves,
        false => Healing::Rest,
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
        (None, _) => Healing::Rest,
    }
}

/// Made anew, and the volume is not its own yet.
fn promised(wish: Wish, claim: &SeenClaim, volume: &SeenVolume, saved: &String) -> Healing {
    let waits = claim.volume.as_ref() == Some(&volume.name) && claim.former.contains(saved);
    match wish {
        // It may have been given, by a write that arrived late, to a claim made anew that was deleted as well.
        _ if !waits || volume.claim_uid != *saved && !volume.left => Healing::Rest,
        Wish::Use { .. } if claim.published != volume.published => Healing::TakeRecord,
        Wish::Use { .. } => Healing::GiveVolume,
        Wish::Keep if volume.retained => Healing::LetGo,
        Wish::Keep | Wish::Nothing => Healing::Rest,
    }
}

/// Bound, and nothing is under way.
fn at_peace(wish: Wish, claim: &SeenClaim, volume: &SeenVolume) -> Healing {
    match wish {
        Wish::Use { retain: true } if !volume.retained || !volume.follows => Healing::Follow,
        Wish::Use { retain: false } if volume.follows => Healing::Unfollow,
        Wish::Use { .. } | Wish::Keep if volume.terminating => Healing::Endangered,
        Wish::Keep if !claim.published.is_nowhere() => Healing::AwaitDetach,
        Wish::Keep => Healing::Keep,
        Wish::Use { .. } | Wish::Nothing => Healing::Rest,
    }
}

fn let_go(claim: &SeenClaim) -> Healing {
    if claim.published.is_nowhere() { Healing::LetGo } else { Healing::AwaitDetach }
}

/// The claim is gone, or somebody else's has its name.
fn gone(wish: Wish, volume: &SeenVolume, taken: bool) -> Healing {
    if wish == Wish::Nothing || volume.claim_uid.is_empty() {
        return Healing::Rest;
    }
    match (&volume.saved, volume.retained) {
        // The member removes the data.
        (_, false) => Healing::Lost,
        _ if wish == Wish::Keep => Healing::Rest,
        _ if volume.terminating => Healing::Stuck("its leaf volume is being deleted: keep a copy of the data"),
        _ if taken => Healing::Stuck("somebody else's claim has its name: remove that one"),
        (Some(saved), true) if *saved == volume.claim_uid => Healing::MakeAnew,
        (_, true) => Healing::Keep,
    }
}

fn taken_back(claim: &SeenClaim) -> Healing {
    match (claim.terminating, claim.protected) {
        (false, _) => Healing::TakeBack,
        (true, true) => Healing::Release,
        (true, false) => Healing::Rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USED: Wish = Wish::Use { retain: false };
    const RETAINED: Wish = Wish::Use { retain: true };

    fn claim(uid: &str) -> SeenClaim {
        SeenClaim {
            ours: true,
            uid: uid.to_owned(),
            protected: true,
            bound: true,
            volume: Some("pv".to_owned()),
            ..SeenClaim::default()
        }
    }

    fn volume(claim_uid: &str, saved: Option<&str>, retained: bool) -> SeenVolume {
        let saved = saved.map(str::to_owned);
        let (name, claim_uid) = ("pv".to_owned(), claim_uid.to_owned());
        SeenVolume { name, claim_uid, retained, saved, ..SeenVolume::default() }
    }

    fn deleted(uid: &str) -> SeenClaim {
        SeenClaim { terminating: true, ..claim(uid) }
    }

    fn anew(bound: bool) -> SeenClaim {
        SeenClaim { bound, former: vec!["a".to_owned()], ..claim("b") }
    }

    #[test]
    fn steps_follow_one_another() {
        let released = SeenClaim { protected: false, ..deleted("a") };
        for (claim, volume, expected) in [
            (Some(claim("a")), volume("a", None, false), Healing::Rest),
            (Some(deleted("a")), volume("a", None, false), Healing::Keep),
            (Some(deleted("a")), volume("a", None, true), Healing::Keep),
            (Some(deleted("a")), volume("a", Some("a"), false), Healing::Keep),
            (Some(deleted("a")), volume("a", Some("a"), true), Healing::Release),
            (Some(released), volume("a", Some("a"), true), Healing::AwaitClaim),
            (None, volume("a", Some("a"), true), Healing::MakeAnew),
            (Some(anew(false)), volume("a", Some("a"), true), Healing::GiveVolume),
            (Some(anew(false)), SeenVolume { left: true, ..volume("c", Some("a"), true) }, Healing::GiveVolume),
            (Some(anew(false)), volume("c", Some("a"), true), Healing::Rest),
            (Some(anew(false)), volume("b", Some("a"), true), Healing::AwaitBond),
            (Some(anew(true)), volume("b", Some("a"), true), Healing::PutPolicyBack),
            (Some(anew(true)), volume("b", None, false), Healing::Rest),
        ] {
            assert_eq!(decide(USED, claim.as_ref(), Some(&volume)), expected, "{claim:?} {volume:?}");
        }
    }

    #[test]
    fn healed_claim_that_is_deleted_again_is_healed_again() {
        let again = SeenClaim { terminating: true, ..anew(true) };
        assert_eq!(decide(USED, Some(&again), Some(&volume("b", None, false))), Healing::Keep);
        let early = SeenClaim { terminating: true, ..anew(false) };
        assert_eq!(decide(USED, Some(&early), Some(&volume("a", Some("a"), true))), Healing::Release);
        assert_eq!(decide(USED, Some(&early), Some(&volume("b", Some("a"), true))), Healing::Keep);
    }

    #[test]
    fn nothing_is_held_back_from_a_removal_that_the_host_has_asked_for() {
        let claims = [None, Some(deleted("a")), Some(anew(false))];
        let volumes = [volume("a", None, false), volume("a", Some("a"), true), volume("a", None, true)];
        for claim in &claims {
            for volume in &volumes {
                assert_eq!(decide(Wish::Nothing, claim.as_ref(), Some(volume)), Healing::Rest, "{claim:?} {volume:?}");
            }
        }
    }

    #[test]
    fn what_was_made_for_a_volume_that_has_gone_is_taken_back() {
        assert_eq!(decide(Wish::Nothing, Some(&anew(false)), None), Healing::TakeBack);
        let going = SeenClaim { terminating: true, ..anew(false) };
        assert_eq!(decide(Wish::Nothing, Some(&going), None), Healing::Release);
        assert_eq!(decide(USED, Some(&anew(false)), None), Healing::Lost, "and stays while the host wants it");
        assert_eq!(decide(Wish::Nothing, Some(&claim("a")), None), Healing::Rest, "never one that was not made anew");
    }

    #[test]
    fn nothing_is_made_in_the_place_of_data_that_is_gone() {
        assert_eq!(decide(USED, None, None), Healing::Lost);
        assert_eq!(decide(USED, None, Some(&volume("a", None, false))), Healing::Lost);
        assert_eq!(decide(USED, Some(&deleted("a")), None), Healing::Lost);
        assert_eq!(decide(Wish::Nothing, None, None), Healing::Rest);
    }

    #[test]
    fn retained_volume_of_a_claim_that_is_gone_gets_it_back() {
        assert_eq!(decide(USED, None, Some(&volume("a", None, true))), Healing::Keep);
        let foreign = SeenClaim { ours: false, ..claim("z") };
        let kept = volume("a", Some("a"), true);
        assert!(matches!(decide(USED, Some(&foreign), Some(&kept)), Healing::Stuck(_)));
    }

    #[test]
    fn claim_that_never_had_a_volume_is_for_its_user_to_make_again() {
        let waiting = SeenClaim { bound: false, volume: None, ..deleted("a") };
        assert!(matches!(decide(USED, Some(&waiting), None), Healing::Stuck(_)));
        assert_eq!(decide(Wish::Nothing, Some(&waiting), None), Healing::Rest);
        let living = SeenClaim { terminating: false, ..waiting };
        assert_eq!(decide(USED, Some(&living), None), Healing::Rest);
    }

    #[test]
    fn volume_that_is_being_deleted_as_well_is_held_by_its_claim() {
        let going = SeenVolume { terminating: true, ..volume("a", None, false) };
        assert!(matches!(decide(USED, Some(&deleted("a")), Some(&going)), Healing::Stuck(_)));
    }

    #[test]
    fn claim_holds_a_volume_that_somebody_deletes() {
        let going = SeenVolume { terminating: true, ..volume("a", None, false) };
        for wish in [USED, Wish::Keep] {
            assert_eq!(decide(wish, Some(&claim("a")), Some(&going)), Healing::Endangered, "{wish:?}");
        }
        assert_eq!(decide(RETAINED, Some(&claim("a")), Some(&going)), Healing::Follow, "the data may outlive it");
        assert_eq!(decide(Wish::Nothing, Some(&claim("a")), Some(&going)), Healing::Rest);
    }

    fn following(volume: SeenVolume) -> SeenVolume {
        SeenVolume { follows: true, ..volume }
    }

    #[test]
    fn leaf_volume_stays_where_the_hosts_does_and_only_as_long_as_its_claim_holds_it() {
        for (wish, volume, expected) in [
            (RETAINED, volume("a", None, false), Healing::Follow),
            (RETAINED, volume("a", None, true), Healing::Follow),
            (RETAINED, following(volume("a", None, false)), Healing::Follow),
            (RETAINED, following(volume("a", None, true)), Healing::Rest),
            (USED, following(volume("a", None, true)), Healing::Unfollow),
            (USED, volume("a", None, true), Healing::Rest),
        ] {
            assert_eq!(decide(wish, Some(&claim("a")), Some(&volume)), expected, "{wish:?} {volume:?}");
        }
        let kept = following(volume("a", Some("a"), true));
        for wish in [USED, RETAINED] {
            assert_eq!(decide(wish, None, Some(&kept)), Healing::MakeAnew, "{wish:?}: never the policy first");
        }
    }

    #[test]
    fn claim_is_let_go_only_after_its_volume_stays_and_no_node_has_it() {
        let on_a_node = SeenClaim { published: Published::spoilt(), ..claim("a") };
        let released = SeenClaim { protected: false, ..deleted("a") };
        for (claim, volume, expected) in [
            (Some(on_a_node.clone()), volume("a", None, false), Healing::AwaitDetach),
            (Some(on_a_node), volume("a", Some("a"), true), Healing::AwaitDetach),
            (Some(claim("a")), volume("a", None, false), Healing::Keep),
            (Some(claim("a")), volume("a", Some("a"), true), Healing::LetGo),
            (Some(deleted("a")), volume("a", Some("a"), true), Healing::Release),
            (Some(deleted("a")), volume("a", Some("a"), false), Healing::Keep),
            (Some(released), volume("a", Some("a"), true), Healing::AwaitClaim),
            (None, volume("a", Some("a"), true), Healing::Rest),
            (None, volume("a", Some("a"), false), Healing::Lost),
        ] {
            assert_eq!(decide(Wish::Keep, claim.as_ref(), Some(&volume)), expected, "{claim:?} {volume:?}");
        }
    }

    #[test]
    fn record_of_nodes_is_kept_as_it_was_last_and_comes_back_so() {
        let on = |claim: SeenClaim| SeenClaim { published: Published::spoilt(), ..claim };
        let kept_on = |claim: &str| SeenVolume { published: Published::spoilt(), ..volume(claim, Some("a"), true) };
        let kept = volume("a", Some("a"), true);
        for (claim, volume, expected) in [
            (on(deleted("a")), kept_on("a"), Healing::Release),
            (on(deleted("a")), kept.clone(), Healing::Keep),
            (deleted("a"), kept_on("a"), Healing::Keep),
            (on(anew(false)), kept_on("a"), Healing::GiveVolume),
            (on(anew(false)), kept, Healing::TakeRecord),
            (anew(false), kept_on("a"), Healing::TakeRecord),
            (anew(true), kept_on("b"), Healing::PutPolicyBack),
        ] {
            assert_eq!(decide(USED, Some(&claim), Some(&volume)), expected, "{claim:?} {volume:?}");
        }
    }

    #[test]
    fn whoever_changes_his_mind_meets_every_step_halfway() {
        let kept = volume("a", Some("a"), true);
        assert_eq!(decide(USED, Some(&claim("a")), Some(&kept)), Healing::PutPolicyBack, "wanted again before it went");
        assert_eq!(
            decide(Wish::Keep, Some(&anew(false)), Some(&kept)),
            Healing::LetGo,
            "let go before it had its volume"
        );
        assert_eq!(decide(Wish::Keep, Some(&anew(false)), Some(&volume("b", Some("a"), true))), Healing::AwaitBond);
        assert_eq!(decide(Wish::Keep, Some(&anew(true)), Some(&volume("b", Some("a"), true))), Healing::PutPolicyBack);
    }

    #[test]
    fn nothing_is_let_go_of_a_volume_that_is_being_removed_or_that_nobody_knows() {
        for volume in [volume("a", None, true), volume("a", Some("a"), true), following(volume("a", None, true))] {
            let step = decide(Wish::Nothing, Some(&claim("a")), Some(&volume));
            assert!(matches!(step, Healing::Rest | Healing::PutPolicyBack), "{volume:?}: {step:?}");
        }
    }
}
