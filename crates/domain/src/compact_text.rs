//! Strings of which many are kept, in little room: names that repeat are kept once, and UIDs take sixteen bytes. Pure.

use std::{collections::HashSet, fmt, sync::Arc};

/// Names that many volumes share: namespaces, classes, drivers.
#[derive(Debug, Default)]
pub struct Interner {
    known: HashSet<Arc<str>>,
    /// When to look for names that nobody holds any more.
    sweep_at: usize,
}

const FEW: usize = 64;

impl Interner {
    pub fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.sweep_at = FEW.max(2 * self.known.len());
        }
        let name: Arc<str> = name.into();
        self.known.insert(Arc::clone(&name));
        name
    }
}

/// A string that usually is a UUID, or `pvc-` and a UUID: a UID, the name of a volume, often a storage's own handle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompactText {
    Uuid([u8; 16]),
    PvcUuid([u8; 16]),
    Text(Box<str>),
}

const PVC: &str = "pvc-";
/// Letters of a UUID.
const UUID: usize = 36;
const DASHES: [usize; 4] = [8, 13, 18, 23];
const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl From<&str> for CompactText {
    fn from(text: &str) -> Self {
        if let Some(bytes) = uuid(text) {
            return Self::Uuid(bytes);
        }
        match text.strip_prefix(PVC).and_then(uuid) {
            Some(bytes) => Self::PvcUuid(bytes),
            None => Self::Text(text.into()),
        }
    }
}

impl fmt::Display for CompactText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.printed())
    }
}

impl CompactText {
    /// What it takes on the heap.
    pub fn length(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }

    /// The same string on the heap.
    pub fn text(&self) -> Box<str> {
        self.printed().into_boxed_str()
    }

    /// The same string. A row has six of them, and is made at each look.
    pub fn printed(&self) -> String {
        let (before, bytes) = match self {
            Self::Text(text) => return (**text).to_owned(),
            Self::Uuid(bytes) => ("", bytes),
            Self::PvcUuid(bytes) => (PVC, bytes),
        };
        let mut printed = String::with_capacity(before.len() + UUID);
        printed.push_str(before);
        printed.push_str(str::from_utf8(&letters(*bytes)).unwrap_or_default());
        printed
    }
}

/// A UUID as it is written.
fn letters(bytes: [u8; 16]) -> [u8; UUID] {
    let mut letters = [b'-'; UUID];
    let mut at = 0;
    for byte in bytes {
        if DASHES.contains(&at) {
            at += 1;
        }
        letters[at] = DIGITS[usize::from(byte >> 4)];
        letters[at + 1] = DIGITS[usize::from(byte & 0xf)];
        at += 2;
    }
    letters
}

/// Lower case with dashes, and nothing else, so that the same string comes out again.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let letters: &[u8; UUID] = text.as_bytes().try_into().ok()?;
    let mut number = 0_u128;
    for (at, letter) in letters.iter().enumerate() {
        let digit = match (letter, DASHES.contains(&at)) {
            (b'-', true) => continue,
            (b'0'..=b'9', false) => letter - b'0',
            (b'a'..=b'f', false) => letter - b'a' + 10,
            _ => return None,
        };
        number = (number << 4) | u128::from(digit);
    }
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "ad86ef86-23c1-407e-a8e7-0b3e44d36254";

    #[test]
    fn uuids_take_no_room_on_the_heap() {
        assert!(matches!(CompactText::from(UID), CompactText::Uuid(_)));
        assert!(matches!(CompactText::from(format!("pvc-{UID}").as_str()), CompactText::PvcUuid(_)));
        assert_eq!(size_of::<CompactText>(), 24);
    }

    #[test]
    fn uuid_is_kept_as_the_number_that_it_is() {
        let (first, all) = (CompactText::from("0123456789abcdef"), "01234567-89ab-cdef-fedc-ba9876543210");
        assert!(matches!(first, CompactText::Text(_)), "half of one is none");
        let bytes = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210_u128.to_be_bytes();
        assert_eq!(CompactText::from(all), CompactText::Uuid(bytes));
        assert_eq!(CompactText::PvcUuid(bytes).to_string(), format!("pvc-{all}"));
        for other in [all.to_uppercase(), all.replace("89ab", "89ag"), all.replacen('-', "0", 1)] {
            assert!(matches!(CompactText::from(other.as_str()), CompactText::Text(_)), "{other}");
        }
    }

    #[test]
    fn name_that_nobody_holds_is_forgotten() {
        let mut names = Interner::default();
        let held = names.share("held");
        (0..1000).for_each(|number| drop(names.share(&number.to_string())));
        assert!(names.known.len() <= FEW + 1, "{}", names.known.len());
        assert!(Arc::ptr_eq(&held, &names.share("held")));
    }

    proptest! {
        #[test]
        fn every_string_comes_out_as_it_went_in(
            text in prop_oneof![
                ".{0,50}",
                "(pvc-|PVC-)?[0-9a-fA-F]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-?[0-9a-f]{11,12}",
                "(pvc-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            ],
        ) {
            let printed = CompactText::from(text.as_str()).printed();
            prop_assert_eq!((printed.as_str(), printed.capacity()), (text.as_str(), text.len()));
        }
    }
}
