//! Which member a volume goes to. Pure: from the members as they stand, what was chosen before, and what is asked for.

pub mod told;
mod unread;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use domain::error::{Error, Result};
pub use unread::choose_unread;

/// How a member stands towards new volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Open,
    /// Closed to new volumes by its administrator.
    Cordoned,
    /// The host's account there has no rights in the namespace of the leaf, and where it has some.
    NoRights {
        namespace: String,
        only: String,
    },
    /// Another name of this member, under which its new volumes are made.
    Alias(String),
    /// Cannot be asked or trusted now, and why.
    Closed(String),
}

/// What a member has for the volume, by what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Room for it, and so much in all.
    Room(u64),
    /// Its leaf class is not there.
    NoClass,
    /// No room: the member says so, or has refused it lately.
    Full,
}

/// A member that could be chosen.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub name: String,
    pub standing: Standing,
    pub offer: Offer,
}

impl Candidate {
    fn is_good(&self) -> bool {
        self.standing == Standing::Open && matches!(self.offer, Offer::Room(_))
    }

    /// The better, the less: room, a class that may yet come, and room that may yet come.
    fn rank(&self) -> u8 {
        match self.offer {
            Offer::Room(_) => 0,
            Offer::NoClass => 1,
            Offer::Full => 2,
        }
    }

    fn room(&self) -> u64 {
        if let Offer::Room(room) = self.offer { room } else { 0 }
    }
}

/// What bears on the choice.
#[derive(Clone, Debug, Default)]
pub struct Wish<'a> {
    /// The member that holds a leaf of this volume, or the one recorded on the host claim.
    pub earlier: Option<&'a str>,
    /// Whether a leaf is seen there; a record alone may be older than the scheduler's choice.
    pub held: bool,
    /// It is bound to a node of that member which the requirement leaves out.
    pub on_wrong_node: bool,
    /// The class's `member`.
    pub parameter: Option<&'a String>,
    pub preferred: &'a [String],
    pub requisite: &'a [String],
    /// The scheduler chose a node: the first preferred member and no other.
    pub node_selected: bool,
    /// Spreads volumes that may go anywhere.
    pub seed: u64,
}

/// The choice, and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// As before.
    Stay(String),
    /// The requirement has moved away from the member of before: clear that one first.
    Leave(String),
    /// A new choice, to be recorded before anything is made.
    New(String),
}

pub fn choose(wish: &Wish<'_>, members: &[Candidate]) -> Result<Choice> {
    let possible = possible(wish, members);
    let by_name: BTreeMap<&str, &Candidate> = members.iter().map(|member| (member.name.as_str(), member)).collect();
    let known = |name: &str| by_name.get(name).copied();
    if let Some(earlier) = wish.earlier {
        let refused_by_scheduler =
            wish.node_selected && !wish.held && possible.first().is_some_and(|first| first != earlier);
        let fits = possible.iter().any(|name| name == earlier) && !refused_by_scheduler && !wish.on_wrong_node;
        // A record is an annotation on the claim, which its user may write.
        let takes_no_new = |one: &Candidate| matches!(one.standing, Standing::Cordoned | Standing::NoRights { .. });
        let is_shut = known(earlier).is_some_and(takes_no_new);
        // It holds nothing and has nothing to offer, and another one has.
        let is_poor = || known(earlier).is_some_and(|one| one.standing == Standing::Open && !one.is_good());
        let is_offered = || possible.iter().filter_map(|name| known(name)).any(Candidate::is_good);
        let has_better = || !wish.node_selected && is_poor() && is_offered();
        let fits = fits && (wish.held || !is_shut && !has_better());
        return Ok(if fits { Choice::Stay(earlier.to_owned()) } else { Choice::Leave(earlier.to_owned()) });
    }
    if possible.is_empty() {
        return Err(nothing_possible(wish));
    }
    let tried = if wish.node_selected { &possible[..1] } else { &possible[..] };
    let open = tried.iter().filter_map(|name| known(name)).filter(|candidate| candidate.standing == Standing::Open);
    if let Some(member) = open.min_by_key(|candidate| candidate.rank()) {
        return Ok(Choice::New(member.name.clone()));
    }
    Err(none_open(tried, |name| known(name).map(|candidate| &candidate.standing)))
}

/// The members that the requirement and the class leave, in the order in which to try them.
fn possible(wish: &Wish<'_>, members: &[Candidate]) -> Vec<String> {
    let required: Vec<&String> = wish.preferred.iter().chain(wish.requisite).collect();
    let anywhere = || -> Vec<&String> {
        if let Some(named) = wish.parameter {
            return vec![named];
        }
        let mut all: Vec<&Candidate> = members.iter().collect();
        let shift = usize::try_from(wish.seed % all.len().max(1) as u64).unwrap_or_default();
        all.rotate_left(shift);
        // Those with equally much stay as the seed has put them.
        all.sort_by_key(|candidate| Reverse(candidate.room()));
        all.into_iter().map(|candidate| &candidate.name).collect()
    };
    let ordered = if required.is_empty() { anywhere() } else { required };
    let mut seen = BTreeSet::new();
    ordered
        .into_iter()
        .filter(|name| wish.parameter.is_none_or(|member| member == *name) && seen.insert(*name))
        .cloned()
        .collect()
}

fn nothing_possible(wish: &Wish<'_>) -> Error {
    let Some(member) = wish.parameter else { return Error::InProgress("no member has joined yet".to_owned()) };
    let required: BTreeSet<&str> = wish.preferred.iter().chain(wish.requisite).map(String::as_str).collect();
    let required = required.into_iter().collect::<Vec<_>>().join(", ");
    Error::NoPlace(format!("the class names member {member}, but the volume must be reachable from {required}"))
}

/// Nothing may be decided yet: the answer keeps the sidecar calling, unless all that is left is cordoned.
fn none_open<'a>(tried: &[String], standing: impl Fn(&String) -> Option<&'a Standing>) -> Error {
    let reason = |name: &String| match standing(name) {
        Some(Standing::Closed(reason)) => reason.clone(),
        Some(Standing::Cordoned) => "cordoned by its administrator".to_owned(),
        Some(Standing::NoRights { namespace, only }) => format!(
            "closed to namespace {namespace}: this host's account has rights in {only} alone. Its administrator types \
             `member add` with --namespace {namespace} as well"
        ),
        Some(Standing::Alias(serving)) => format!("another name of member {serving}"),
        Some(Standing::Open) => "open".to_owned(),
        None => "has not joined".to_owned(),
    };
    if tried.iter().all(|name| standing(name) == Some(&Standing::Cordoned)) {
        return Error::NoPlace(format!("cordoned for new volumes: {}", tried.join(", ")));
    }
    let is_alias = |name: &String| matches!(standing(name), Some(Standing::Alias(_)));
    let takes_none = |name: &String| {
        matches!(standing(name), Some(Standing::Cordoned | Standing::NoRights { .. })) || is_alias(name)
    };
    if tried.iter().all(takes_none) {
        let named = tried.iter().map(|name| format!("member {name} is {}", reason(name))).collect::<Vec<_>>();
        let named = named.join(", ");
        return Error::NoPlace(if tried.iter().any(is_alias) {
            format!(
                "{named}: new volumes are made under the name that serves it, so the class or the nodes' label must say that one"
            )
        } else {
            named
        });
    }
    Error::Unreachable { member: tried.join(", "), reason: tried.iter().map(reason).collect::<Vec<_>>().join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn members(down: &[&str]) -> Vec<Candidate> {
        names(&["a", "b", "c"])
            .into_iter()
            .map(|name| {
                let closed = down.contains(&name.as_str());
                let standing = if closed { Standing::Closed("down".to_owned()) } else { Standing::Open };
                Candidate { standing, offer: Offer::Room(1), name }
            })
            .collect()
    }

    /// Members a, b and c, all open, with these offers.
    fn offering(offers: [Offer; 3]) -> Vec<Candidate> {
        members(&[]).into_iter().zip(offers).map(|(member, offer)| Candidate { offer, ..member }).collect()
    }

    fn new(member: &str) -> Choice {
        Choice::New(member.to_owned())
    }

    #[test]
    fn preferred_goes_before_requisite() {
        let (preferred, requisite) = (names(&["b"]), names(&["a", "b"]));
        let wish = Wish { preferred: &preferred, requisite: &requisite, ..Wish::default() };
        assert_eq!(choose(&wish, &members(&[])), Ok(new("b")));
    }

    #[test]
    fn volume_with_a_selected_node_goes_to_that_nodes_member_or_nowhere() {
        let preferred = names(&["b", "a"]);
        let wish = Wish { preferred: &preferred, node_selected: true, ..Wish::default() };
        assert_eq!(choose(&wish, &members(&[])), Ok(new("b")));
        assert!(matches!(choose(&wish, &members(&["b"])), Err(Error::Unreachable { member, .. }) if member == "b"));
    }

    #[test]
    fn immediate_volume_walks_the_preferred_members() {
        let preferred = names(&["b", "a"]);
        let wish = Wish { preferred: &preferred, ..Wish::default() };
        assert_eq!(choose(&wish, &members(&["b"])), Ok(new("a")));
        assert!(matches!(choose(&wish, &members(&["a", "b"])), Err(Error::Unreachable { .. })));
    }

    #[test]
    fn parameter_narrows_the_requirement() {
        let preferred = names(&["b", "a"]);
        let (a, c) = ("a".to_owned(), "c".to_owned());
        let wish = Wish { preferred: &preferred, parameter: Some(&a), ..Wish::default() };
        assert_eq!(choose(&wish, &members(&[])), Ok(new("a")));
        let chosen = Wish { node_selected: true, ..wish.clone() };
        assert_eq!(choose(&chosen, &members(&[])), Ok(new("a")), "the scheduler knows nothing of it");
        let strict = Wish { preferred: &preferred[..1], ..chosen };
        assert!(matches!(choose(&strict, &members(&[])), Err(Error::NoPlace(_))));
        let wish = Wish { parameter: Some(&c), ..wish };
        assert!(matches!(choose(&wish, &members(&[])), Err(Error::NoPlace(_))));
    }

    #[test]
    fn without_requirement_volumes_spread_over_the_open_members() {
        let chosen: BTreeSet<_> = (0..9)
            .map(|seed| choose(&Wish { seed, ..Wish::default() }, &members(&["c"])).unwrap())
            .map(|choice| format!("{choice:?}"))
            .collect();
        assert_eq!(chosen.len(), 2);
    }

    #[test]
    fn without_requirement_the_roomiest_member_is_chosen() {
        for seed in 0..9 {
            let wish = Wish { seed, ..Wish::default() };
            assert_eq!(choose(&wish, &offering([Offer::Room(5), Offer::Room(9), Offer::Full])), Ok(new("b")));
            assert_eq!(choose(&wish, &offering([Offer::NoClass, Offer::Full, Offer::Room(1)])), Ok(new("c")));
        }
    }

    #[test]
    fn immediate_volume_passes_over_members_without_room_or_class() {
        let preferred = names(&["a", "b", "c"]);
        let wish = Wish { preferred: &preferred, ..Wish::default() };
        assert_eq!(choose(&wish, &offering([Offer::Full, Offer::NoClass, Offer::Room(1)])), Ok(new("c")));
        assert_eq!(choose(&wish, &offering([Offer::Full, Offer::NoClass, Offer::Full])), Ok(new("b")));
        assert_eq!(choose(&wish, &offering([Offer::Full, Offer::Full, Offer::Full])), Ok(new("a")), "tried again");
        let wish = Wish { node_selected: true, ..wish };
        assert_eq!(choose(&wish, &offering([Offer::Full, Offer::Room(1), Offer::Room(1)])), Ok(new("a")));
    }

    #[test]
    fn record_without_a_leaf_gives_way_to_a_member_that_has_room() {
        let preferred = names(&["a", "b"]);
        let wish = Wish { earlier: Some("a"), preferred: &preferred, ..Wish::default() };
        for offer in [Offer::Full, Offer::NoClass] {
            let members = offering([offer, Offer::Room(1), Offer::Full]);
            assert_eq!(choose(&wish, &members), Ok(Choice::Leave("a".to_owned())));
            assert_eq!(choose(&Wish { held: true, ..wish.clone() }, &members), Ok(Choice::Stay("a".to_owned())));
            assert_eq!(
                choose(&Wish { node_selected: true, ..wish.clone() }, &members),
                Ok(Choice::Stay("a".to_owned()))
            );
        }
        let members = offering([Offer::Full, Offer::Full, Offer::Room(1)]);
        assert_eq!(choose(&wish, &members), Ok(Choice::Stay("a".to_owned())), "c is not allowed");
    }

    #[test]
    fn leaf_on_a_node_that_the_requirement_leaves_out_is_cleared_first() {
        let preferred = names(&["a"]);
        let wish =
            Wish { earlier: Some("a"), held: true, on_wrong_node: true, preferred: &preferred, ..Wish::default() };
        assert_eq!(choose(&wish, &members(&[])), Ok(Choice::Leave("a".to_owned())));
    }

    #[test]
    fn choice_of_before_holds_also_while_that_member_is_down() {
        let preferred = names(&["a", "b"]);
        let wish = Wish { earlier: Some("b"), preferred: &preferred, ..Wish::default() };
        assert_eq!(choose(&wish, &members(&["b"])), Ok(Choice::Stay("b".to_owned())));
    }

    #[test]
    fn member_of_before_that_no_longer_fits_is_cleared_first() {
        let preferred = names(&["a"]);
        let wish = Wish { earlier: Some("b"), preferred: &preferred, ..Wish::default() };
        assert_eq!(choose(&wish, &members(&[])), Ok(Choice::Leave("b".to_owned())));
    }

    #[test]
    fn record_without_a_leaf_gives_way_to_the_scheduler() {
        let preferred = names(&["a", "b"]);
        let wish = Wish { earlier: Some("b"), preferred: &preferred, node_selected: true, ..Wish::default() };
        assert_eq!(choose(&wish, &members(&[])), Ok(Choice::Leave("b".to_owned())));
        let wish = Wish { held: true, ..wish };
        assert_eq!(choose(&wish, &members(&[])), Ok(Choice::Stay("b".to_owned())));
    }

    #[test]
    fn nothing_is_refused_before_a_member_has_joined() {
        assert!(matches!(choose(&Wish::default(), &[]), Err(Error::InProgress(_))));
    }

    #[test]
    fn cordoned_member_gets_no_new_volume_but_keeps_its_own() {
        let cordoned = vec![Candidate { name: "a".to_owned(), standing: Standing::Cordoned, offer: Offer::Room(1) }];
        assert!(matches!(choose(&Wish::default(), &cordoned), Err(Error::NoPlace(_))));
        let wish = Wish { earlier: Some("a"), held: true, ..Wish::default() };
        assert_eq!(choose(&wish, &cordoned), Ok(Choice::Stay("a".to_owned())));
        let wish = Wish { held: false, ..wish };
        assert_eq!(choose(&wish, &cordoned), Ok(Choice::Leave("a".to_owned())), "a record alone holds nothing");
    }

    #[test]
    fn member_without_rights_in_the_namespace_gets_no_new_volume_and_its_administrator_is_told_of() {
        let shut = Standing::NoRights { namespace: "shop".to_owned(), only: "bank".to_owned() };
        let mut members = members(&[]);
        members[0].standing = shut.clone();
        let preferred = names(&["a", "b"]);
        let wish = Wish { preferred: &preferred, ..Wish::default() };
        assert_eq!(choose(&wish, &members), Ok(new("b")));
        members[1].standing = shut;
        for wish in [Wish { node_selected: true, ..wish.clone() }, wish] {
            let Err(Error::NoPlace(reason)) = choose(&wish, &members) else { panic!() };
            assert!(reason.contains("member a is closed to namespace shop"), "{reason}");
            assert!(reason.contains("rights in bank alone") && reason.contains("--namespace shop"), "{reason}");
        }
    }

    #[test]
    fn second_name_of_a_member_gets_no_new_volume_and_its_serving_name_is_told() {
        let mut members = members(&[]);
        members[1].standing = Standing::Alias("a".to_owned());
        let named = names(&["b"]);
        for wish in [
            Wish { preferred: &named, ..Wish::default() },
            Wish { preferred: &named, node_selected: true, ..Wish::default() },
            Wish { parameter: Some(&named[0]), ..Wish::default() },
        ] {
            let refused = choose(&wish, &members);
            assert!(
                matches!(&refused, Err(Error::NoPlace(told)) if told.contains("member b is another name of member a"))
            );
        }
        let both = names(&["b", "a"]);
        assert_eq!(choose(&Wish { preferred: &both, ..Wish::default() }, &members), Ok(new("a")));
        for seed in 0..9 {
            assert_ne!(choose(&Wish { seed, ..Wish::default() }, &members), Ok(new("b")));
        }
        members[0].standing = Standing::Cordoned;
        assert!(matches!(choose(&Wish { preferred: &both, ..Wish::default() }, &members), Err(Error::NoPlace(_))));
    }

    #[test]
    fn member_that_has_not_joined_yet_is_waited_for() {
        let preferred = names(&["z"]);
        let wish = Wish { preferred: &preferred, ..Wish::default() };
        assert!(matches!(choose(&wish, &members(&[])), Err(Error::Unreachable { .. })));
        let named = "z".to_owned();
        let wish = Wish { parameter: Some(&named), ..Wish::default() };
        assert!(matches!(choose(&wish, &members(&[])), Err(Error::Unreachable { member, .. }) if member == "z"));
    }
}
