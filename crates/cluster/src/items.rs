//! A list, cut into its items while it comes, so that it never stands in memory as a whole. Pure.

use serde::{Deserialize, de::IgnoredAny};

/// Takes the text of a list piece by piece.
#[derive(Debug, Default)]
pub struct Items {
    /// The field that has them.
    field: &'static str,
    /// Of one, how much is kept: it is cut there.
    longest: usize,
    /// The list without its items.
    frame: Vec<u8>,
    /// The item that is coming.
    item: Vec<u8>,
    /// How much has come since the last item that is none of the next.
    between: usize,
    /// Of brackets that are open.
    depth: u32,
    /// Among the items.
    inside: bool,
    in_text: bool,
    escaped: bool,
    /// Where the last text within the frame begins, and where it ends: the name of what follows.
    name: (usize, usize),
}

/// Within the list itself, the field that has the items, and an item there.
const IN_LIST: u32 = 1;
const IN_ITEMS: u32 = 2;

/// What a list says besides its items.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Head {
    pub resource_version: String,
    /// How to ask for the next page.
    #[serde(rename = "continue")]
    pub next: String,
}

impl Items {
    /// Of a list of the API.
    pub fn of_list() -> Self {
        Self::of("items", usize::MAX)
    }

    /// Of what has its items in another field, and tells more of one than anybody reads.
    pub fn of(field: &'static str, longest: usize) -> Self {
        Self { field, longest, ..Self::default() }
    }

    /// Hands out each item that is whole now.
    pub fn feed<E>(&mut self, piece: &[u8], take: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        for byte in piece {
            let before = self.inside;
            if self.in_text {
                self.text(*byte);
            } else {
                self.structure(*byte);
            }
            if !(before && self.inside) {
                self.frame.push(*byte);
            } else if self.depth > IN_ITEMS || !self.item.is_empty() {
                if self.item.len() < self.longest {
                    self.item.push(*byte);
                }
                self.between = 0;
            } else {
                self.between += 1;
            }
            if self.depth == IN_ITEMS && !self.item.is_empty() {
                take(&self.item)?;
                self.item.clear();
            }
        }
        Ok(())
    }

    /// Of the item that is coming, what has come.
    pub fn begun(&self) -> &[u8] {
        &self.item
    }

    /// How long what is not whole yet has become.
    pub fn unfinished(&self) -> usize {
        self.frame.len().max(self.item.len()).max(self.between)
    }

    /// All that is no item.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// The head, once all has come.
    pub fn head(&self) -> Result<Head, serde_json::Error> {
        #[derive(Deserialize)]
        struct Frame {
            metadata: Head,
            /// What has none of them is no list, and tells of nothing that it has gone.
            #[serde(rename = "items")]
            _items: IgnoredAny,
        }
        serde_json::from_slice(&self.frame).map(|Frame { metadata, .. }| metadata)
    }

    fn text(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_text = false;
                self.name.1 = self.frame.len();
            }
            _ => {}
        }
    }

    fn structure(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_text = true;
                self.name.0 = self.frame.len() + 1;
            }
            b'{' => self.depth += 1,
            b'[' => {
                let named = self.frame.get(self.name.0..self.name.1);
                self.inside |= self.depth == IN_LIST && named == Some(self.field.as_bytes());
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.inside &= self.depth > IN_LIST;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_slice, json};
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&[u8]]) -> (Vec<Value>, Result<Head, serde_json::Error>) {
        let (mut items, mut found) = (Items::of_list(), Vec::new());
        for piece in pieces {
            let taken: Result<(), serde_json::Error> = items.feed(piece, &mut |item| {
                found.push(from_slice(item)?);
                Ok(())
            });
            taken.unwrap();
        }
        (found, items.head())
    }

    #[test]
    fn head_may_come_after_the_items() {
        let text =
            br#"{ "items" : [ {"a": [1, {"items": [2]}]} , {"b":"]}"} ], "metadata": {"resourceVersion": "7"} }"#;
        let (items, head) = cut(&[text]);
        assert_eq!(items, [json!({"a": [1, {"items": [2]}]}), json!({"b": "]}"})]);
        assert_eq!(head.unwrap().resource_version, "7");
    }

    #[test]
    fn other_lists_are_not_the_items() {
        let text = br#"{"kind": "items", "other": [{"a": 1}], "metadata": {"items": [{"b": 2}]}, "items": null}"#;
        let (items, head) = cut(&[text]);
        assert!(items.is_empty());
        assert_eq!(head.unwrap().resource_version, "");
    }

    #[test]
    fn what_is_no_list_or_half_of_one_has_no_head() {
        let status = r#"{"kind": "Status", "metadata": {}, "status": "Success"}"#;
        for text in ["", "bad gateway", "[]", status, r#"{"items": [{}]}"#, r#"{"metadata": {}, "items": [{}"#] {
            assert!(cut(&[text.as_bytes()]).1.is_err(), "{text}");
        }
    }

    #[test]
    fn item_of_another_field_that_is_too_long_is_cut_and_takes_no_other_along() {
        let (mut items, mut found) = (Items::of("pods", 20), Vec::new());
        let text = format!(r#"{{"items": [1], "pods": [{{"a": 1}}, {{"b": "{}"}}, {{"c": 3}}]}}"#, "]}".repeat(100));
        let taken: Result<(), serde_json::Error> = items.feed(text.as_bytes(), &mut |item| {
            found.push(String::from_utf8_lossy(item).into_owned());
            Ok(())
        });
        taken.unwrap();
        assert_eq!(found, [r#"{"a": 1}"#, r#"{"b": "]}]}]}]}]}]}]"#, r#"{"c": 3}"#]);
        assert_eq!(items.frame(), br#"{"items": [1], "pods": []}"#);
        assert_eq!(items.unfinished(), items.frame().len());
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_list_is_cut(
            texts in prop::collection::vec("[a\"\\\\{}\\[\\],:é]{0,8}", 0..5),
            cuts in prop::collection::vec(0usize..400, 0..8),
        ) {
            let expected: Vec<Value> = texts.iter().map(|text| json!({text: {"items": [text, {"x": text}]}})).collect();
            let list = json!({"metadata": {"resourceVersion": "1", "continue": "t"}, "items": expected}).to_string();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(list.len())).collect();
            cuts.extend([0, list.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &list.as_bytes()[pair[0]..pair[1]]).collect();
            let (items, head) = cut(&pieces);
            prop_assert_eq!(items, expected);
            prop_assert_eq!(head.unwrap().next, "t");
        }
    }
}
