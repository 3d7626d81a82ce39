//! The choice for a claim of the host that has not been read yet. Pure.

use super::{Candidate, Choice, Wish, choose};

/// The member that is chosen in any case, whether or not the scheduler has chosen a node for the claim's pod. One that is known to lack
/// something is not: what waits for it is asked for again and again, and has its member on record by then.
pub fn choose_unread(wish: &Wish<'_>, members: &[Candidate]) -> Option<String> {
    let chosen = |node_selected| match choose(&Wish { node_selected, ..wish.clone() }, members) {
        Ok(Choice::New(name)) => Some(name),
        _ => None,
    };
    let name = chosen(true).filter(|name| chosen(false).as_ref() == Some(name))?;
    members.iter().any(|member| member.name == name && member.is_good()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Offer, Standing},
        *,
    };

    const ROOM: (Standing, Offer) = (Standing::Open, Offer::Room(1));
    const FULL: (Standing, Offer) = (Standing::Open, Offer::Full);

    fn choice(preferred: &[&str], parameter: Option<&str>, a: (Standing, Offer)) -> Option<String> {
        let (preferred, parameter) =
            (preferred.iter().map(ToString::to_string).collect::<Vec<_>>(), parameter.map(str::to_owned));
        let members = [("a", a), ("b", ROOM)].map(|(name, (standing, offer))| Candidate {
            name: name.to_owned(),
            standing,
            offer,
        });
        choose_unread(&Wish { preferred: &preferred, parameter: parameter.as_ref(), ..Wish::default() }, &members)
    }

    #[test]
    fn first_of_the_topology_is_chosen_unread_where_it_is_open_and_has_room() {
        assert_eq!(choice(&["a", "b"], None, ROOM).as_deref(), Some("a"));
        assert_eq!(choice(&["a"], None, ROOM).as_deref(), Some("a"));
        let closed = (Standing::Closed("no answer".to_owned()), Offer::Room(1));
        for a in [closed, FULL, (Standing::Open, Offer::NoClass), (Standing::Cordoned, Offer::Room(1))] {
            let told = format!("{a:?}");
            assert_eq!(choice(&["a", "b"], None, a.clone()), None, "with a node it is a or none, and else b: {told}");
            assert_eq!(choice(&["a"], None, a), None, "{told}");
        }
    }

    #[test]
    fn member_that_the_class_names_and_the_one_with_most_room_are_chosen_unread() {
        assert_eq!(choice(&[], Some("a"), ROOM).as_deref(), Some("a"));
        assert_eq!(choice(&["a", "b"], Some("b"), ROOM).as_deref(), Some("b"));
        assert_eq!(choice(&[], None, (Standing::Open, Offer::Room(9))).as_deref(), Some("a"));
        assert_eq!(choice(&[], None, FULL).as_deref(), Some("b"));
    }

    #[test]
    fn nothing_is_chosen_unread_of_a_volume_that_is_somewhere_already() {
        let members = [Candidate { name: "a".to_owned(), standing: Standing::Open, offer: Offer::Room(1) }];
        assert_eq!(choose_unread(&Wish { earlier: Some("a"), ..Wish::default() }, &members), None);
    }
}
