//! Objects of a list or a watch that cannot be read. They are there: who goes by what is not there has to know of them. Pure.

use std::collections::BTreeMap;

/// More of one kind are not told apart.
const MOST: usize = 1000;
const OTHERS: &str = "others";

/// Of one kind. `W` says whose one is, as far as that is known.
#[derive(Debug)]
pub struct Unread<W> {
    /// By what they are called.
    objects: BTreeMap<String, Problem<W>>,
    /// As they were told before the list that is under way.
    before: BTreeMap<String, Problem<W>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Problem<W> {
    whose: W,
    field: String,
}

impl<W> Default for Unread<W> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), before: BTreeMap::new() }
    }
}

impl<W: PartialEq + Default> Unread<W> {
    /// A list begins, which tells all that there are.
    pub fn begin(&mut self) {
        self.before.append(&mut self.objects);
    }

    /// One is there, whose `field` nobody understands. False where that is known already.
    pub fn put(&mut self, object: &str, whose: W, field: String) -> bool {
        let is_told_apart = self.objects.len() < MOST || self.objects.contains_key(object);
        let (object, problem) = if is_told_apart {
            (object, Problem { whose, field })
        } else {
            (OTHERS, Problem { whose: W::default(), field: String::new() })
        };
        let is_known = [&self.before, &self.objects].iter().any(|told| told.get(object) == Some(&problem));
        self.objects.insert(object.to_owned(), problem);
        !is_known
    }

    /// It can be read, or has gone.
    pub fn remove(&mut self, object: &str) {
        self.objects.remove(object);
    }

    /// The list has come to its end.
    pub fn complete(&mut self) {
        self.before.clear();
    }

    /// Whether this one is among them; with no name, one of which only the next list tells what it is called.
    pub fn has(&self, object: &str) -> bool {
        self.objects.contains_key(object)
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether there is one of somebody of whom this is so.
    pub fn any(&self, is_so: impl Fn(&W) -> bool) -> bool {
        self.objects.values().any(|problem| is_so(&problem.whose))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(unread: &mut Unread<Option<u8>>, object: &str, field: &str) -> bool {
        unread.put(object, Some(1), field.to_owned())
    }

    #[test]
    fn object_is_told_once_also_by_the_next_list_and_again_where_it_was_read_between() {
        let mut unread = Unread::default();
        unread.begin();
        assert!(put(&mut unread, "shop/db", "spec.a") && !put(&mut unread, "shop/db", "spec.a"));
        assert!(put(&mut unread, "shop/db", "spec.b"), "another field");
        for _ in 0..2 {
            // The first of these lists breaks off before it comes there.
            unread.begin();
        }
        assert!(!put(&mut unread, "shop/db", "spec.b"));
        unread.complete();
        unread.begin();
        unread.complete();
        assert!(unread.is_empty() && put(&mut unread, "shop/db", "spec.b"), "it was read by that list");
    }

    #[test]
    fn what_is_not_told_apart_may_be_anybodys() {
        let mut unread = Unread::default();
        for number in 0..=MOST {
            put(&mut unread, &number.to_string(), "spec");
        }
        assert!(unread.any(Option::is_none) && unread.any(|whose| *whose == Some(1)));
        assert!(!put(&mut unread, "one more", "spec"), "told once");
        unread.remove("others");
        assert!(!unread.any(Option::is_none));
    }
}
