//! What is to be done about a leaf claim that somebody else deleted while the host uses its volume. Pure: the shell in
//! `follow/` acts on it. All that is known is in the objects, so that whoever comes next goes on where the last one stopped.

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
    pub volume: Option<String>,
    /// In whose place it was made anew.
    pub former: Vec<String>,
}

/// The leaf volume, read just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenVolume {
    pub name: String,
    pub claim_uid: String,
    pub terminating: bool,
    pub retained: bool,
    /// UID of the claim whose description it keeps.
    pub saved: Option<String>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Healing {
    /// It is well, or others see to it.
    Rest,
    /// Make the volume stay, and keep on it what the claim was.
    Keep,
    /// Take our finalizer away.
    Release,
    /// A pod, or somebody's finalizer, still holds the claim.
    AwaitClaim,
    MakeAnew,
    GiveVolume,
    AwaitBond,
    PutPolicyBack,
    /// It was made anew for a volume that has gone meanwhile, and the host does not want it any more.
    TakeBack,
    /// A person has to act.
    Stuck(&'static str),
    /// The volume is gone. Nothing is ever made in its place.
    Lost,
}

/// `used`: the host has exactly one volume with this handle, and it is to stay.
pub fn decide(used: bool, claim: Option<&SeenClaim>, volume: Option<&SeenVolume>) -> Healing {
    match (claim.filter(|claim| claim.ours), volume) {
        (Some(claim), Some(volume)) if claim.terminating => deleted(used, claim, volume),
        (Some(claim), Some(volume)) => there(used, claim, volume),
        (None, Some(volume)) => gone(used, volume, claim.is_some()),
        (Some(claim), None) if !claim.bound && !claim.former.is_empty() && !used => taken_back(claim),
        (Some(claim), None) if used && claim.volume.is_some() => Healing::Lost,
        // Nothing would keep what it was while it goes.
        (Some(claim), None) if used && claim.terminating => {
            Healing::Stuck("it had no volume yet: delete the claim here and make it again")
        }
        (None, None) if used => Healing::Lost,
        _ => Healing::Rest,
    }
}

/// The claim is on its way out.
fn deleted(used: bool, claim: &SeenClaim, volume: &SeenVolume) -> Healing {
    let leaves = if claim.protected { Healing::Release } else { Healing::AwaitClaim };
    let saved = volume.saved.is_some() && volume.retained;
    match volume.claim_uid == claim.uid {
        // A removal that the host has asked for goes the same way.
        _ if !used => Healing::Rest,
        true if volume.terminating => {
            Healing::Stuck("its leaf volume is being deleted as well: keep a copy of the data")
        }
        true if volume.saved.as_ref() == Some(&claim.uid) && volume.retained => leaves,
        true => Healing::Keep,
        // Made anew, and deleted before it had its volume.
        false if saved => leaves,
        false => Healing::Rest,
    }
}

/// The claim is there, and to stay.
fn there(used: bool, claim: &SeenClaim, volume: &SeenVolume) -> Healing {
    let Some(saved) = &volume.saved else { return Healing::Rest };
    if volume.claim_uid == claim.uid {
        return if claim.bound { Healing::PutPolicyBack } else { Healing::AwaitBond };
    }
    let waits = claim.volume.as_ref() == Some(&volume.name) && claim.former.contains(saved);
    if used && waits && volume.claim_uid == *saved { Healing::GiveVolume } else { Healing::Rest }
}

/// The claim is gone, or somebody else's has its name.
fn gone(used: bool, volume: &SeenVolume, taken: bool) -> Healing {
    if !used || volume.claim_uid.is_empty() {
        return Healing::Rest;
    }
    match (&volume.saved, volume.retained) {
        (_, true) if volume.terminating => Healing::Stuck("its leaf volume is being deleted: keep a copy of the data"),
        (_, true) if taken => Healing::Stuck("somebody else's claim has its name: remove that one"),
        (Some(saved), true) if *saved == volume.claim_uid => Healing::MakeAnew,
        (_, true) => Healing::Keep,
        // The member removes the data.
        (_, false) => Healing::Lost,
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
        SeenVolume { name: "pv".to_owned(), claim_uid: claim_uid.to_owned(), terminating: false, retained, saved }
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
            (Some(anew(false)), volume("b", Some("a"), true), Healing::AwaitBond),
            (Some(anew(true)), volume("b", Some("a"), true), Healing::PutPolicyBack),
            (Some(anew(true)), volume("b", None, false), Healing::Rest),
        ] {
            assert_eq!(decide(true, claim.as_ref(), Some(&volume)), expected, "{claim:?} {volume:?}");
        }
    }

    #[test]
    fn healed_claim_that_is_deleted_again_is_healed_again() {
        let again = SeenClaim { terminating: true, ..anew(true) };
        assert_eq!(decide(true, Some(&again), Some(&volume("b", None, false))), Healing::Keep);
        let early = SeenClaim { terminating: true, ..anew(false) };
        assert_eq!(decide(true, Some(&early), Some(&volume("a", Some("a"), true))), Healing::Release);
        assert_eq!(decide(true, Some(&early), Some(&volume("b", Some("a"), true))), Healing::Keep);
    }

    #[test]
    fn nothing_is_held_back_from_a_removal_that_the_host_has_asked_for() {
        let claims = [None, Some(deleted("a")), Some(anew(false))];
        let volumes = [volume("a", None, false), volume("a", Some("a"), true), volume("a", None, true)];
        for claim in &claims {
            for volume in &volumes {
                assert_eq!(decide(false, claim.as_ref(), Some(volume)), Healing::Rest, "{claim:?} {volume:?}");
            }
        }
    }

    #[test]
    fn what_was_made_for_a_volume_that_has_gone_is_taken_back() {
        assert_eq!(decide(false, Some(&anew(false)), None), Healing::TakeBack);
        let going = SeenClaim { terminating: true, ..anew(false) };
        assert_eq!(decide(false, Some(&going), None), Healing::Release);
        assert_eq!(decide(true, Some(&anew(false)), None), Healing::Lost, "and stays while the host wants it");
        assert_eq!(decide(false, Some(&claim("a")), None), Healing::Rest, "never one that was not made anew");
    }

    #[test]
    fn nothing_is_made_in_the_place_of_data_that_is_gone() {
        assert_eq!(decide(true, None, None), Healing::Lost);
        assert_eq!(decide(true, None, Some(&volume("a", None, false))), Healing::Lost);
        assert_eq!(decide(true, Some(&deleted("a")), None), Healing::Lost);
        assert_eq!(decide(false, None, None), Healing::Rest);
    }

    #[test]
    fn retained_volume_of_a_claim_that_is_gone_gets_it_back() {
        assert_eq!(decide(true, None, Some(&volume("a", None, true))), Healing::Keep);
        let foreign = SeenClaim { ours: false, ..claim("z") };
        let kept = volume("a", Some("a"), true);
        assert!(matches!(decide(true, Some(&foreign), Some(&kept)), Healing::Stuck(_)));
    }

    #[test]
    fn claim_that_never_had_a_volume_is_for_its_user_to_make_again() {
        let waiting = SeenClaim { bound: false, volume: None, ..deleted("a") };
        assert!(matches!(decide(true, Some(&waiting), None), Healing::Stuck(_)));
        assert_eq!(decide(false, Some(&waiting), None), Healing::Rest);
        let living = SeenClaim { terminating: false, ..waiting };
        assert_eq!(decide(true, Some(&living), None), Healing::Rest);
    }

    #[test]
    fn volume_that_is_being_deleted_as_well_is_held_by_its_claim() {
        let going = SeenVolume { terminating: true, ..volume("a", None, false) };
        assert!(matches!(decide(true, Some(&deleted("a")), Some(&going)), Healing::Stuck(_)));
    }
}
