//! Fields that a body has twice: JSON readers keep the last one and say nothing.

use std::{cell::RefCell, collections::BTreeSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// The fields that occur more than once, as paths.
pub fn duplicates(body: &[u8]) -> Vec<String> {
    let found = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(body);
    let place = Place { path: String::new(), found: &found };
    match place.deserialize(&mut reader) {
        Ok(()) => found.into_inner(),
        Err(_) => Vec::new(), // what cannot be read is refused elsewhere
    }
}

struct Place<'a> {
    path: String,
    found: &'a RefCell<Vec<String>>,
}

impl Place<'_> {
    fn below(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { path, found: self.found }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = self.below(&key);
            if seen.contains(&key) {
                place.found.borrow_mut().push(place.path.clone());
            }
            map.next_value_seed(place)?;
            seen.insert(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0;
        let at = |index: usize| Place { path: format!("{}[{index}]", self.path), found: self.found };
        while list.next_element_seed(at(index))?.is_some() {
            index += 1;
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_occur_twice_are_found_with_their_place() {
        let body = br#"{"a": 1, "b": {"c": 1, "c": 2}, "d": [{"e": 1, "e": "x"}], "a": null}"#;
        assert_eq!(duplicates(body), ["b.c", "d[0].e", "a"]);
    }
}
