//! What a choice rests on, in words: for the log, and for the user whose volume goes elsewhere.

use super::{Candidate, Offer, Standing, Wish};
use domain::some_of::some_of;
use leaf::capacity::UNLIMITED;

/// As many candidates are named.
const NAMED: usize = 8;

pub fn reason(wish: &Wish<'_>, members: &[Candidate], chosen: &str) -> &'static str {
    let is_good = members.iter().any(|member| member.name == chosen && member.is_good());
    let is_anywhere = wish.preferred.is_empty() && wish.requisite.is_empty();
    match (is_good, is_anywhere) {
        _ if wish.node_selected => "the scheduler chose a node of this member",
        _ if wish.parameter.is_some() => "the class names this member",
        (true, true) => "no other open member has more room",
        (true, false) => "it is the first open member of the volume's topology that has room",
        (false, true) => "no open member is known to have room, and the driver tries this one all the same",
        (false, false) => {
            "no open member of the volume's topology is known to have room, and the driver tries this one all the same"
        }
    }
}

/// Every candidate with how it stands; of many the first.
pub fn among(members: &[Candidate]) -> String {
    some_of(members, NAMED)
}

impl std::fmt::Display for Candidate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.name;
        match (&self.standing, self.offer) {
            (Standing::Closed(reason), _) => write!(out, "{name} (closed: {reason})"),
            (Standing::Cordoned, _) => write!(out, "{name} (cordoned)"),
            (Standing::NoRights { namespace, .. }, _) => write!(out, "{name} (no rights in namespace {namespace})"),
            (Standing::Alias(serving), _) => write!(out, "{name} (another name of {serving})"),
            (Standing::Open, Offer::NoClass) => {
                write!(out, "{name} (lacks the StorageClass, or does not open it to this host)")
            }
            (Standing::Open, Offer::Full) => write!(out, "{name} (lacks room)"),
            (Standing::Open, Offer::Room(room)) if room >= UNLIMITED => {
                write!(out, "{name} (says nothing of its room)")
            }
            (Standing::Open, Offer::Room(room)) => write!(out, "{name} ({} MiB)", room >> 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, standing: Standing, offer: Offer) -> Candidate {
        Candidate { name: name.to_owned(), standing, offer }
    }

    #[test]
    fn every_candidate_is_told_with_what_speaks_for_it_or_against_it() {
        let shut = Standing::NoRights { namespace: "shop".to_owned(), only: "bank".to_owned() };
        let members = [
            member("a", Standing::Open, Offer::Room(5 << 30)),
            member("b", Standing::Open, Offer::Room(UNLIMITED)),
            member("c", Standing::Open, Offer::Full),
            member("d", Standing::Cordoned, Offer::Room(1)),
            member("e", Standing::Closed("no answer".to_owned()), Offer::Full),
            member("f", shut, Offer::Room(1)),
            member("g", Standing::Alias("a".to_owned()), Offer::Full),
        ];
        assert_eq!(
            among(&members),
            "a (5120 MiB), b (says nothing of its room), c (lacks room), d (cordoned), e (closed: no answer), \
             f (no rights in namespace shop), g (another name of a)"
        );
        let many: Vec<Candidate> =
            (0..1000).map(|at| member(&at.to_string(), Standing::Cordoned, Offer::Full)).collect();
        assert!(among(&many).ends_with("7 (cordoned) and 992 more"));
    }

    #[test]
    fn choice_is_told_with_who_or_what_made_it() {
        let members = [member("a", Standing::Open, Offer::Room(1)), member("b", Standing::Open, Offer::Full)];
        let (named, preferred) = ("a".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        let topology = Wish { preferred: &preferred, ..Wish::default() };
        for (wish, chosen, word) in [
            (Wish::default(), "a", "more room"),
            (Wish::default(), "b", "is known to have room, and the driver tries"),
            (topology.clone(), "a", "first open member of the volume's topology"),
            (topology.clone(), "b", "no open member of the volume's topology"),
            (Wish { parameter: Some(&named), ..Wish::default() }, "a", "class names this member"),
            (Wish { node_selected: true, ..topology }, "b", "scheduler chose"),
        ] {
            assert!(reason(&wish, &members, chosen).contains(word), "{word}");
        }
    }
}
