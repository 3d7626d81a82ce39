//! Many things in one sentence.

use std::fmt::Display;

/// The first of them, so many at most, and how many there are besides.
pub fn some_of<T: Display>(all: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut all = all.into_iter();
    let some: Vec<String> = all.by_ref().take(most).map(|one| one.to_string()).collect();
    match all.count() {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_ones_are_named_and_all_are_counted() {
        for (count, told) in [(0, ""), (1, "0"), (3, "0, 1, 2"), (5, "0, 1, 2 and 2 more")] {
            assert_eq!(some_of(0..count, 3), told);
        }
    }
}
