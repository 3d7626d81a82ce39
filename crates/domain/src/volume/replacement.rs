//! A host volume makes way for another one of its name, with another handle, for the same claim: what is to be done next, by
//! what is there. Whoever goes on, and however often, comes to the same end.

/// What the storage's own controllers put on host volumes. With any other one somebody counts on the object.
const KNOWN_FINALIZERS: [&str; 3] = [
    "kubernetes.io/pv-protection",
    "external-provisioner.volume.kubernetes.io/finalizer",
    "external-attacher/kosmos-csi-io",
];

/// The volume of that name, read just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenVolume {
    pub uid: String,
    /// UID of the volume in whose place it was made.
    pub replaces: Option<String>,
    /// UID of the claim that it is for.
    pub claim_uid: Option<String>,
    pub terminating: bool,
    pub finalizers: Vec<String>,
    /// People have written on it since it was decided what is to take its place.
    pub changed: bool,
}

impl SeenVolume {
    /// Those that are not the storage's own.
    pub fn foreign_finalizers(&self) -> Vec<&str> {
        self.finalizers.iter().map(String::as_str).filter(|name| !KNOWN_FINALIZERS.contains(name)).collect()
    }
}

/// The claim of that name, read just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenClaim {
    pub uid: String,
    pub bound: bool,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// What is to take its place has to say what was written on it since.
    Carry,
    /// Delete the volume as it was pinned.
    Delete,
    /// It is on its way out: what holds it is the storage's own.
    DropFinalizers,
    /// The name is free.
    Create,
    /// The new volume is there and its claim says it has lost its own: nobody looks at it again by himself.
    WakeClaim,
    Done,
    /// A person has to act.
    Stuck(String),
}

/// `replaced` and `claim_uid` are those that were read before anything was done.
pub fn decide(replaced: &str, claim_uid: &str, volume: Option<&SeenVolume>, claim: Option<&SeenClaim>) -> Replacement {
    match volume {
        None => Replacement::Create,
        Some(volume) if volume.replaces.as_deref() == Some(replaced) => match claim {
            Some(claim) if claim.uid == claim_uid && !claim.bound => Replacement::WakeClaim,
            _ => Replacement::Done,
        },
        Some(volume) if volume.uid != replaced => another(claim_uid, volume),
        Some(volume) if volume.changed => Replacement::Carry,
        Some(volume) if !volume.terminating => Replacement::Delete,
        Some(volume) => match volume.foreign_finalizers()[..] {
            [] => Replacement::DropFinalizers,
            [first, ..] => {
                Replacement::Stuck(format!("finalizer {first} holds it, and its owner has to take that off"))
            }
        },
    }
}

/// One that a switch has made may be of an earlier one, and have come late. Whoever deletes it has decided, and it is kept only by its claim,
/// which is bound to any volume of that name. By the finalizers of any other one somebody's storage may be removed.
fn another(claim_uid: &str, volume: &SeenVolume) -> Replacement {
    let is_late = volume.replaces.is_some() && volume.claim_uid.as_deref() == Some(claim_uid);
    match volume.foreign_finalizers()[..] {
        [] if volume.terminating && is_late => Replacement::DropFinalizers,
        _ if volume.terminating => Replacement::Stuck(format!(
            "another volume of its name is there, and is being deleted: it is held by finalizers {}. Take them off \
             once nobody needs what is behind it",
            volume.finalizers.join(", ")
        )),
        _ => Replacement::Stuck(
            "another volume of its name is there, made by somebody or by a request that came late: delete that one"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(uid: &str) -> SeenVolume {
        SeenVolume { uid: uid.to_owned(), finalizers: vec![KNOWN_FINALIZERS[0].to_owned()], ..SeenVolume::default() }
    }

    fn claim(uid: &str, bound: bool) -> SeenClaim {
        SeenClaim { uid: uid.to_owned(), bound }
    }

    #[test]
    fn volume_of_the_pinned_uid_goes_and_the_new_one_comes() {
        let (old, claim_of_it) = (volume("old"), claim("claim", true));
        let going = SeenVolume { terminating: true, ..old.clone() };
        let new = SeenVolume { replaces: Some("old".to_owned()), ..volume("new") };
        for (seen, of, next) in [
            (Some(&old), &claim_of_it, Replacement::Delete),
            (Some(&going), &claim_of_it, Replacement::DropFinalizers),
            (None, &claim("claim", false), Replacement::Create),
            (Some(&new), &claim("claim", false), Replacement::WakeClaim),
            (Some(&new), &claim_of_it, Replacement::Done),
        ] {
            assert_eq!(decide("old", "claim", seen, Some(of)), next, "{seen:?}");
        }
    }

    #[test]
    fn what_was_written_on_the_former_volume_meanwhile_is_carried_before_that_goes() {
        for terminating in [false, true] {
            let changed = SeenVolume { terminating, changed: true, ..volume("old") };
            assert_eq!(decide("old", "claim", Some(&changed), Some(&claim("claim", true))), Replacement::Carry);
        }
        let new = SeenVolume { replaces: Some("old".to_owned()), changed: true, ..volume("new") };
        assert_eq!(decide("old", "claim", Some(&new), Some(&claim("claim", true))), Replacement::Done);
    }

    #[test]
    fn claim_that_has_gone_or_is_another_one_is_left_alone_and_the_volume_is_there_for_its_removal() {
        let new = SeenVolume { replaces: Some("old".to_owned()), ..volume("new") };
        assert_eq!(decide("old", "claim", None, None), Replacement::Create);
        assert_eq!(decide("old", "claim", Some(&new), None), Replacement::Done);
        assert_eq!(decide("old", "claim", Some(&new), Some(&claim("another", false))), Replacement::Done);
    }

    #[test]
    fn another_volume_of_the_claim_goes_only_once_somebody_has_deleted_it() {
        let late = |terminating: bool, claim: &str| SeenVolume {
            replaces: Some("of an earlier switch".to_owned()),
            claim_uid: Some(claim.to_owned()),
            terminating,
            ..volume("late")
        };
        let held = SeenVolume { finalizers: vec!["example.com/backup".to_owned()], ..late(true, "claim") };
        let theirs = SeenVolume { replaces: None, ..late(true, "claim") };
        for (seen, goes) in [
            (late(true, "claim"), true),
            (late(false, "claim"), false),
            (late(true, "another"), false),
            (held, false),
            (theirs, false),
        ] {
            let next = decide("old", "claim", Some(&seen), Some(&claim("claim", true)));
            assert_eq!(next == Replacement::DropFinalizers, goes, "{seen:?}: {next:?}");
            assert!(goes || matches!(next, Replacement::Stuck(_)), "{seen:?}: {next:?}");
        }
    }

    #[test]
    fn what_is_somebody_elses_is_touched_by_no_step() {
        let held = SeenVolume { terminating: true, finalizers: vec!["example.com/backup".to_owned()], ..volume("old") };
        let copied = SeenVolume { replaces: Some("of another one".to_owned()), ..volume("another") };
        for (seen, word) in
            [(volume("another"), "another volume"), (copied, "another volume"), (held, "example.com/backup")]
        {
            let next = decide("old", "claim", Some(&seen), Some(&claim("claim", true)));
            assert!(matches!(&next, Replacement::Stuck(why) if why.contains(word)), "{seen:?}: {next:?}");
        }
    }
}
