use super::*;
use crate::volume::{AccessMode, published::Publication};

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

fn recreated(bound: bool) -> SeenClaim {
    SeenClaim { bound, former: vec!["a".to_owned()], ..claim("b") }
}

#[test]
fn steps_follow_one_another() {
    let released = SeenClaim { protected: false, ..deleted("a") };
    for (claim, volume, expected) in [
        (Some(claim("a")), volume("a", None, false), Healing::Nothing),
        (Some(deleted("a")), volume("a", None, false), Healing::Keep),
        (Some(deleted("a")), volume("a", None, true), Healing::Keep),
        (Some(deleted("a")), volume("a", Some("a"), false), Healing::Keep),
        (Some(deleted("a")), volume("a", Some("a"), true), Healing::Release),
        (Some(released), volume("a", Some("a"), true), Healing::AwaitClaim),
        (None, volume("a", Some("a"), true), Healing::Recreate),
        (Some(recreated(false)), volume("a", Some("a"), true), Healing::GiveVolume),
        (Some(recreated(false)), SeenVolume { left: true, ..volume("c", Some("a"), true) }, Healing::GiveVolume),
        (Some(recreated(false)), volume("c", Some("a"), true), Healing::Nothing),
        (Some(recreated(false)), volume("b", Some("a"), true), Healing::AwaitBond),
        (Some(recreated(true)), volume("b", Some("a"), true), Healing::PutPolicyBack),
        (Some(recreated(true)), volume("b", None, false), Healing::Nothing),
    ] {
        assert_eq!(decide(USED, claim.as_ref(), Some(&volume)), expected, "{claim:?} {volume:?}");
    }
}

#[test]
fn claim_that_was_recreated_late_goes_where_its_volume_was_another_ones_since() {
    let late = recreated(false);
    let since = SeenVolume { left: true, ..volume("c", Some("c"), true) };
    for (wish, claim, volume, expected) in [
        (USED, late.clone(), since.clone(), Healing::RemoveLate),
        (RETAINED, late.clone(), since.clone(), Healing::RemoveLate),
        (Wish::Keep, late.clone(), since.clone(), Healing::RemoveLate),
        (Wish::Nothing, late.clone(), since.clone(), Healing::Nothing),
        (USED, late.clone(), SeenVolume { left: false, ..since.clone() }, Healing::Nothing),
        (USED, late.clone(), SeenVolume { retained: false, ..since.clone() }, Healing::Nothing),
        (USED, SeenClaim { bound: true, ..late.clone() }, since.clone(), Healing::Nothing),
        (USED, SeenClaim { protected: false, ..late.clone() }, since.clone(), Healing::Nothing),
        (USED, SeenClaim { former: Vec::new(), ..late.clone() }, since.clone(), Healing::Nothing),
        (USED, SeenClaim { volume: Some("theirs".to_owned()), ..late.clone() }, since.clone(), Healing::Nothing),
    ] {
        assert_eq!(decide(wish, Some(&claim), Some(&volume)), expected, "{wish:?} {claim:?} {volume:?}");
    }
    let going = SeenClaim { terminating: true, ..late };
    assert_eq!(decide(USED, Some(&going), Some(&since)), Healing::Release);
    assert_eq!(decide(USED, None, Some(&since)), Healing::Recreate);
}

/// People of the member have given it away.
#[test]
fn volume_whose_claim_ref_is_of_nobody_or_of_others_is_left_to_a_person() {
    for (uid, taken) in [("", false), ("theirs", true)] {
        for (saved, retained) in [(Some("a"), true), (None, true), (None, false)] {
            let astray = SeenVolume { taken, ..volume(uid, saved, retained) };
            for wish in [USED, RETAINED] {
                assert!(matches!(decide(wish, None, Some(&astray)), Healing::Stuck(_)), "{astray:?}");
            }
            for wish in [Wish::Keep, Wish::Nothing] {
                assert_eq!(decide(wish, None, Some(&astray)), Healing::Nothing, "{astray:?}");
            }
        }
    }
}

#[test]
fn removal_of_what_the_host_wants_again_is_called_off_before_anything_else() {
    let removed = SeenVolume { removal: true, ..volume("a", Some("a"), true) };
    for claim in [None, Some(claim("a")), Some(deleted("a"))] {
        for wish in [USED, RETAINED, Wish::Keep] {
            assert_eq!(decide(wish, claim.as_ref(), Some(&removed)), Healing::CallOff, "{claim:?} {wish:?}");
        }
        assert_ne!(decide(Wish::Nothing, claim.as_ref(), Some(&removed)), Healing::CallOff);
    }
}

#[test]
fn healed_claim_that_is_deleted_again_is_healed_again() {
    let again = SeenClaim { terminating: true, ..recreated(true) };
    assert_eq!(decide(USED, Some(&again), Some(&volume("b", None, false))), Healing::Keep);
    let early = SeenClaim { terminating: true, ..recreated(false) };
    assert_eq!(decide(USED, Some(&early), Some(&volume("a", Some("a"), true))), Healing::Release);
    assert_eq!(decide(USED, Some(&early), Some(&volume("b", Some("a"), true))), Healing::Keep);
}

#[test]
fn nothing_is_held_back_from_a_removal_that_the_host_has_asked_for() {
    let claims = [None, Some(deleted("a")), Some(recreated(false))];
    let volumes = [volume("a", None, false), volume("a", Some("a"), true), volume("a", None, true)];
    for claim in &claims {
        for volume in &volumes {
            assert_eq!(decide(Wish::Nothing, claim.as_ref(), Some(volume)), Healing::Nothing, "{claim:?} {volume:?}");
        }
    }
}

#[test]
fn leaf_that_a_move_has_isolated_is_let_go_though_virtual_nodes_are_on_its_record() {
    let on = |node: &str| {
        let publication = Publication { access: AccessMode::ReadWriteOnce, readonly: false, attached: None };
        Published::new([(node.to_owned(), publication)].into())
    };
    for (published, isolated, may_go) in [
        (Published::default(), false, true),
        (on("virtual/a"), false, false),
        (on("virtual/a"), true, true),
        (on("real/a"), true, false),
        (Published::spoilt(), true, false),
    ] {
        let claim = SeenClaim { published, isolated, ..claim("a") };
        let steps = [following(volume("a", None, true)), volume("a", Some("a"), true)];
        let expected =
            if may_go { [Healing::Keep, Healing::LetGo] } else { [Healing::AwaitDetach, Healing::AwaitDetach] };
        assert_eq!(steps.map(|volume| decide(Wish::Keep, Some(&claim), Some(&volume))), expected, "{claim:?}");
    }
}

#[test]
fn what_was_made_for_a_volume_that_has_gone_is_taken_back() {
    assert_eq!(decide(Wish::Nothing, Some(&recreated(false)), None), Healing::TakeBack);
    let going = SeenClaim { terminating: true, ..recreated(false) };
    assert_eq!(decide(Wish::Nothing, Some(&going), None), Healing::Release);
    assert_eq!(decide(USED, Some(&recreated(false)), None), Healing::Lost, "and stays while the host wants it");
    assert_eq!(decide(Wish::Nothing, Some(&claim("a")), None), Healing::Nothing, "never one that was not recreated");
}

#[test]
fn nothing_is_made_in_the_place_of_data_that_is_gone() {
    assert_eq!(decide(USED, None, None), Healing::Lost);
    assert_eq!(decide(USED, None, Some(&volume("a", None, false))), Healing::Lost);
    assert_eq!(decide(USED, Some(&deleted("a")), None), Healing::Lost);
    assert_eq!(decide(Wish::Nothing, None, None), Healing::Nothing);
}

#[test]
fn retained_volume_of_a_claim_that_is_gone_gets_it_back() {
    assert_eq!(decide(USED, None, Some(&volume("a", None, true))), Healing::Keep);
    let foreign = SeenClaim { ours: false, ..claim("z") };
    let kept = volume("a", Some("a"), true);
    assert_eq!(decide(USED, Some(&foreign), Some(&kept)), Healing::Taken);
    let nothing_kept = volume("a", None, true);
    assert_eq!(decide(USED, Some(&foreign), Some(&nothing_kept)), Healing::Keep, "it may belong elsewhere");
}

#[test]
fn claim_that_never_had_a_volume_is_for_its_user_to_make_again() {
    let waiting = SeenClaim { bound: false, volume: None, ..deleted("a") };
    assert!(matches!(decide(USED, Some(&waiting), None), Healing::Stuck(_)));
    assert_eq!(decide(Wish::Nothing, Some(&waiting), None), Healing::Nothing);
    let living = SeenClaim { terminating: false, ..waiting };
    assert_eq!(decide(USED, Some(&living), None), Healing::Nothing);
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
    assert_eq!(decide(Wish::Nothing, Some(&claim("a")), Some(&going)), Healing::Nothing);
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
        (RETAINED, following(volume("a", None, true)), Healing::Nothing),
        (USED, following(volume("a", None, true)), Healing::Unfollow),
        (USED, volume("a", None, true), Healing::Nothing),
    ] {
        assert_eq!(decide(wish, Some(&claim("a")), Some(&volume)), expected, "{wish:?} {volume:?}");
    }
    let kept = following(volume("a", Some("a"), true));
    for wish in [USED, RETAINED] {
        assert_eq!(decide(wish, None, Some(&kept)), Healing::Recreate, "{wish:?}: never the policy first");
    }
}

#[test]
fn claim_is_let_go_only_after_its_volume_stays_and_no_node_has_it() {
    let on_a_node = SeenClaim { published: Published::spoilt(), ..claim("a") };
    let released = SeenClaim { protected: false, ..deleted("a") };
    for (claim, volume, expected) in [
        (Some(on_a_node.clone()), volume("a", None, false), Healing::Follow),
        (Some(on_a_node.clone()), volume("a", None, true), Healing::Follow),
        (Some(on_a_node.clone()), following(volume("a", None, true)), Healing::AwaitDetach),
        (Some(on_a_node), volume("a", Some("a"), true), Healing::AwaitDetach),
        (Some(claim("a")), volume("a", None, false), Healing::Keep),
        (Some(claim("a")), volume("a", Some("a"), true), Healing::LetGo),
        (Some(deleted("a")), volume("a", Some("a"), true), Healing::Release),
        (Some(deleted("a")), volume("a", Some("a"), false), Healing::Keep),
        (Some(released), volume("a", Some("a"), true), Healing::AwaitClaim),
        (None, volume("a", Some("a"), true), Healing::Nothing),
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
        (on(recreated(false)), kept_on("a"), Healing::GiveVolume),
        (on(recreated(false)), kept, Healing::TakeRecord),
        (recreated(false), kept_on("a"), Healing::TakeRecord),
        (recreated(true), kept_on("b"), Healing::PutPolicyBack),
    ] {
        assert_eq!(decide(USED, Some(&claim), Some(&volume)), expected, "{claim:?} {volume:?}");
    }
}

#[test]
fn whoever_changes_his_mind_meets_every_step_halfway() {
    let kept = volume("a", Some("a"), true);
    assert_eq!(decide(USED, Some(&claim("a")), Some(&kept)), Healing::PutPolicyBack, "wanted again before it went");
    assert_eq!(decide(Wish::Keep, Some(&recreated(false)), Some(&kept)), Healing::LetGo, "it had no volume yet");
    assert_eq!(decide(Wish::Keep, Some(&recreated(false)), Some(&volume("b", Some("a"), true))), Healing::AwaitBond);
    assert_eq!(decide(Wish::Keep, Some(&recreated(true)), Some(&volume("b", Some("a"), true))), Healing::PutPolicyBack);
}

#[test]
fn nothing_is_let_go_of_a_volume_that_is_being_removed_or_that_nobody_knows() {
    for volume in [volume("a", None, true), volume("a", Some("a"), true), following(volume("a", None, true))] {
        let step = decide(Wish::Nothing, Some(&claim("a")), Some(&volume));
        assert!(matches!(step, Healing::Nothing | Healing::PutPolicyBack), "{volume:?}: {step:?}");
    }
}
