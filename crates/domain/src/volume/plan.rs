//! From what was observed in the member to what to do next. Pure: the shells in `provision/` act on it.

use super::{Request, spec::Fingerprint};

/// The life of a claim, as its status tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Bound,
    Lost,
}

/// A leaf claim of ours, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedClaim {
    pub uid: String,
    pub phase: Phase,
    pub terminating: bool,
    /// Whether our finalizer still holds it.
    pub protected: bool,
    /// The leaf volume it names.
    pub volume: Option<String>,
    pub capacity: u64,
    /// Whether it says for which node it waits.
    pub node_selected: bool,
    /// The size it asks for now: more than at first, once it was expanded.
    pub requested: u64,
    /// Of the request it was made for; absent where somebody removed the annotation.
    pub request: Option<Fingerprint>,
}

/// A leaf volume of ours, as last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct ObservedVolume {
    pub name: String,
    pub uid: String,
    /// UID of the claim it is bound to.
    pub claim_uid: String,
    pub retained: bool,
    /// People of the member made it: what becomes of it is theirs to say.
    pub by_hand: bool,
    /// It was made to outlive its claim because the host's volume was.
    pub follows: bool,
    /// It keeps the description of its claim.
    pub healing: bool,
    /// It says that it is being removed.
    pub removal: bool,
    /// What is decided on it is written only while nobody has changed it.
    pub version: u64,
}

impl ObservedVolume {
    /// It outlives its claim because we, or its class, have it so.
    fn is_kept(&self) -> bool {
        self.retained && !self.by_hand
    }

    /// Nothing may be written on it when the host wants it back: it is as that wants it. Where its class alone retains it, the host's own
    /// policy is `Delete`, and what arrives late does what that says.
    fn may_stay_unwritten(&self, claim: Option<&ObservedClaim>) -> bool {
        claim.is_none() || self.healing || self.follows
    }
}

/// What a leaf claim that is pending waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binder {
    /// The member binds it by itself.
    Member,
    /// A pod of ours.
    Consumer,
    /// A node, written on it by us.
    Node,
    /// A pod that is none of ours, and the host does not wait for it.
    Anybody,
}

/// The next step towards a volume that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    /// Nothing is there.
    Create,
    /// An earlier leaf of the same name is on its way out.
    AwaitRemoval,
    /// It is on its way out and never held anything: let it go.
    Release,
    /// It is on its way out, and was given a volume all the same: both go, unless the host has them.
    TakeBack,
    /// It was made for another request.
    Differs,
    /// Its leaf volume is gone: nothing is ever recreated under its name.
    Lost,
    /// It waits for a pod.
    Consume,
    /// It waits for a node.
    Select,
    /// It is there, and more is not waited for.
    Accepted,
    /// The member has found its leaf volume and is about to bind it: our labels go on that meanwhile.
    Label { volume: String },
    /// The member is at work.
    Await,
    /// It is larger than the request permits.
    TooLarge,
    /// It can be used, once its leaf volume carries our labels.
    Ready { volume: String },
}

pub fn creation(
    request: &Request,
    fingerprint: Fingerprint,
    claim: Option<&ObservedClaim>,
    binder: Binder,
) -> Creation {
    let Some(claim) = claim else {
        return Creation::Create;
    };
    if claim.terminating {
        let empty = claim.phase == Phase::Pending && claim.volume.is_none();
        return match (claim.protected, empty) {
            (true, true) => Creation::Release,
            (true, false) => Creation::TakeBack,
            (false, _) => Creation::AwaitRemoval,
        };
    }
    if claim.request.is_some_and(|earlier| earlier != fingerprint) {
        return Creation::Differs;
    }
    let expanded = claim.requested > request.required.max(1);
    match (claim.phase, &claim.volume) {
        (Phase::Lost, _) => Creation::Lost,
        // The limit was for the size of then: one that has been expanded since holds data.
        (Phase::Bound, Some(_)) if request.limit > 0 && claim.capacity > request.limit && !expanded => {
            Creation::TooLarge
        }
        (Phase::Bound, Some(volume)) if claim.capacity >= request.required => {
            Creation::Ready { volume: volume.clone() }
        }
        (Phase::Pending, _) if binder == Binder::Anybody => Creation::Accepted,
        (Phase::Pending, None) if binder == Binder::Consumer => Creation::Consume,
        (Phase::Pending, None) if binder == Binder::Node && !claim.node_selected => Creation::Select,
        (Phase::Pending, Some(volume)) => Creation::Label { volume: volume.clone() },
        _ => Creation::Await,
    }
}

/// The next step towards nothing being left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The leaf volume does not carry our labels yet, and would be lost from sight with its claim.
    Label {
        volume: String,
        claim_uid: String,
    },
    /// Nothing else is written on the leaf volume when the host wants it back, so it says first that it is being removed.
    /// Whoever takes that off again makes void what is on its way.
    Announce(ObservedVolume),
    /// The leaf volume would outlive its claim: make it follow the host's policy first.
    MakeDeletable(ObservedVolume),
    DeleteClaim,
    /// Take our finalizer away.
    ReleaseClaim,
    /// Somebody else's finalizer still holds the claim.
    AwaitClaim,
    AwaitVolume,
    /// Take our labels off a volume that people made: it is theirs again, as they left it.
    HandBack(ObservedVolume),
    /// Neither is seen any more; to be believed after a read.
    Gone,
}

impl Removal {
    /// Data may go by it, or out of sight.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::MakeDeletable(_) | Self::DeleteClaim | Self::ReleaseClaim | Self::HandBack(_))
    }
}

pub fn removal(claim: Option<&ObservedClaim>, volume: Option<&ObservedVolume>) -> Removal {
    match (claim, volume) {
        (_, Some(volume)) if volume.is_kept() && volume.may_stay_unwritten(claim) && !volume.removal => {
            Removal::Announce(volume.clone())
        }
        (_, Some(volume)) if volume.is_kept() => Removal::MakeDeletable(volume.clone()),
        (Some(ObservedClaim { volume: Some(volume), uid, .. }), None) => {
            Removal::Label { volume: volume.clone(), claim_uid: uid.clone() }
        }
        (Some(claim), _) if !claim.terminating => Removal::DeleteClaim,
        (Some(claim), _) if claim.protected => Removal::ReleaseClaim,
        (Some(_), _) => Removal::AwaitClaim,
        (None, Some(volume)) if volume.by_hand && !volume.removal => Removal::Announce(volume.clone()),
        (None, Some(volume)) if volume.by_hand => Removal::HandBack(volume.clone()),
        (None, Some(_)) => Removal::AwaitVolume,
        (None, None) => Removal::Gone,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::volume::{AccessMode, VolumeMode};

    fn request(required: u64, limit: u64) -> Request {
        Request {
            required,
            limit,
            access: vec![AccessMode::ReadWriteOnce],
            mode: VolumeMode::Filesystem,
            parameters: BTreeMap::new(),
            source: None,
        }
    }

    fn claim(phase: Phase, volume: Option<&str>, capacity: u64) -> ObservedClaim {
        ObservedClaim {
            uid: "u".to_owned(),
            phase,
            terminating: false,
            protected: true,
            volume: volume.map(str::to_owned),
            capacity,
            node_selected: false,
            requested: 10,
            request: Some(request(10, 20).fingerprint()),
        }
    }

    fn creation(request: &Request, claim: Option<&ObservedClaim>, binder: Binder) -> Creation {
        super::creation(request, request.fingerprint(), claim, binder)
    }

    fn volume(retained: bool) -> ObservedVolume {
        let (name, uid, claim_uid) = ("pv".to_owned(), "v".to_owned(), "u".to_owned());
        ObservedVolume { name, uid, claim_uid, retained, version: 1, ..ObservedVolume::default() }
    }

    #[test]
    fn creation_follows_what_is_there() {
        let asked = request(10, 20);
        let (ready, label) = (Creation::Ready { volume: "pv".to_owned() }, Creation::Label { volume: "pv".to_owned() });
        for (observed, binder, expected) in [
            (None, Binder::Member, Creation::Create),
            (None, Binder::Consumer, Creation::Create),
            (Some(claim(Phase::Pending, None, 0)), Binder::Member, Creation::Await),
            (Some(claim(Phase::Pending, None, 0)), Binder::Consumer, Creation::Consume),
            (Some(claim(Phase::Pending, Some("pv"), 0)), Binder::Consumer, label.clone()),
            (Some(claim(Phase::Pending, Some("pv"), 0)), Binder::Member, label),
            (Some(claim(Phase::Bound, Some("pv"), 10)), Binder::Consumer, ready.clone()),
            (Some(claim(Phase::Bound, Some("pv"), 20)), Binder::Member, ready.clone()),
            (Some(claim(Phase::Bound, Some("pv"), 21)), Binder::Member, Creation::TooLarge),
            (Some(claim(Phase::Bound, Some("pv"), 9)), Binder::Member, Creation::Await),
            (Some(claim(Phase::Bound, None, 10)), Binder::Member, Creation::Await),
            (Some(claim(Phase::Lost, Some("pv"), 10)), Binder::Member, Creation::Lost),
            (Some(claim(Phase::Lost, Some("pv"), 10)), Binder::Anybody, Creation::Lost),
            (Some(claim(Phase::Pending, None, 0)), Binder::Anybody, Creation::Accepted),
            (Some(claim(Phase::Pending, Some("pv"), 0)), Binder::Anybody, Creation::Accepted),
            (Some(claim(Phase::Bound, Some("pv"), 10)), Binder::Anybody, ready),
        ] {
            assert_eq!(creation(&asked, observed.as_ref(), binder), expected, "{observed:?} {binder:?}");
        }
    }

    /// The limit was for the size of then, and what would be removed holds data.
    #[test]
    fn leaf_that_was_expanded_since_is_still_the_answer() {
        let mut expanded = claim(Phase::Bound, Some("pv"), 30);
        expanded.requested = 30;
        let ready = Creation::Ready { volume: "pv".to_owned() };
        assert_eq!(creation(&request(10, 20), Some(&expanded), Binder::Member), ready);
    }

    #[test]
    fn node_is_written_on_a_claim_that_names_none() {
        let mut pending = claim(Phase::Pending, None, 0);
        assert_eq!(creation(&request(10, 20), Some(&pending), Binder::Node), Creation::Select);
        pending.node_selected = true;
        assert_eq!(creation(&request(10, 20), Some(&pending), Binder::Node), Creation::Await);
    }

    #[test]
    fn leaf_on_its_way_out_is_never_the_answer() {
        let mut leaving = claim(Phase::Bound, Some("pv"), 10);
        leaving.terminating = true;
        assert_eq!(creation(&request(10, 20), Some(&leaving), Binder::Member), Creation::TakeBack);
        leaving.protected = false;
        assert_eq!(creation(&request(10, 20), Some(&leaving), Binder::Member), Creation::AwaitRemoval);
        let mut empty = claim(Phase::Pending, None, 0);
        empty.terminating = true;
        assert_eq!(creation(&request(10, 20), Some(&empty), Binder::Member), Creation::Release);
        empty.protected = false;
        assert_eq!(creation(&request(10, 20), Some(&empty), Binder::Member), Creation::AwaitRemoval);
    }

    #[test]
    fn leaf_made_for_another_request_is_never_the_answer() {
        let bound = claim(Phase::Bound, Some("pv"), 10);
        assert_eq!(creation(&request(11, 20), Some(&bound), Binder::Member), Creation::Differs);
    }

    #[test]
    fn removal_goes_from_claim_to_finalizer_to_volume() {
        let living = claim(Phase::Bound, Some("pv"), 10);
        let pending = claim(Phase::Pending, None, 0);
        let mut leaving = living.clone();
        leaving.terminating = true;
        let mut released = leaving.clone();
        released.protected = false;
        for (claim, volume, expected) in [
            (Some(&living), Some(volume(false)), Removal::DeleteClaim),
            (Some(&pending), None, Removal::DeleteClaim),
            (Some(&leaving), Some(volume(false)), Removal::ReleaseClaim),
            (Some(&released), Some(volume(false)), Removal::AwaitClaim),
            (None, Some(volume(false)), Removal::AwaitVolume),
            (None, None, Removal::Gone),
        ] {
            assert_eq!(removal(claim, volume.as_ref()), expected, "{claim:?} {volume:?}");
        }
    }

    #[test]
    fn volume_that_people_made_is_handed_back_as_they_made_it() {
        let living = claim(Phase::Bound, Some("pv"), 10);
        for retained in [false, true] {
            let by_hand = ObservedVolume { by_hand: true, ..volume(retained) };
            assert_eq!(removal(Some(&living), Some(&by_hand)), Removal::DeleteClaim);
            assert_eq!(removal(None, Some(&by_hand)), Removal::Announce(by_hand.clone()));
            let announced = ObservedVolume { removal: true, ..by_hand };
            assert_eq!(removal(None, Some(&announced)), Removal::HandBack(announced));
        }
    }

    #[test]
    fn leaf_volume_is_labelled_before_its_claim_goes() {
        let expected = Removal::Label { volume: "pv".to_owned(), claim_uid: "u".to_owned() };
        assert_eq!(removal(Some(&claim(Phase::Bound, Some("pv"), 10)), None), expected);
    }

    #[test]
    fn retained_leaf_volume_is_made_deletable_before_its_claim_goes() {
        let expected = Removal::MakeDeletable(volume(true));
        assert_eq!(removal(Some(&claim(Phase::Bound, Some("pv"), 10)), Some(&volume(true))), expected);
    }

    /// Where the claim is there and nothing is kept of it or for the host, that is written first when the host wants the volume back.
    #[test]
    fn volume_on_which_nothing_would_be_written_says_first_that_it_is_being_removed() {
        let living = claim(Phase::Bound, Some("pv"), 10);
        let healing = ObservedVolume { healing: true, ..volume(true) };
        let follows = ObservedVolume { follows: true, ..volume(true) };
        let all = [(None, volume(true)), (None, healing.clone()), (Some(&living), healing), (Some(&living), follows)];
        for (claim, volume) in all {
            assert_eq!(removal(claim, Some(&volume)), Removal::Announce(volume.clone()), "{claim:?}");
            let announced = ObservedVolume { removal: true, ..volume };
            assert_eq!(removal(claim, Some(&announced)), Removal::MakeDeletable(announced), "{claim:?}");
        }
    }
}
