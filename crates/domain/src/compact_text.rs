//! Strings of which many are kept, in little room: names that repeat are kept once, and UIDs take sixteen bytes. Pure.

use std::{
    collections::HashSet,
    fmt::{self, Write as _},
    sync::Arc,
};

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
/// The last of a UUID's five parts.
const LAST: u128 = (1 << 48) - 1;

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
        let bytes = match self {
            Self::Text(text) => return out.write_str(text),
            Self::Uuid(bytes) => bytes,
            Self::PvcUuid(bytes) => {
                out.write_str(PVC)?;
                bytes
            }
        };
        let number = u128::from_be_bytes(*bytes);
        let part = |from: u32| number >> from & 0xffff;
        write!(out, "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", number >> 96, part(80), part(64), part(48), number & LAST)
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

    /// The same string. It has its room from the start: printing would have it grow part by part.
    pub fn printed(&self) -> String {
        let letters = match self {
            Self::Text(text) => text.len(),
            Self::Uuid(_) => UUID,
            Self::PvcUuid(_) => PVC.len() + UUID,
        };
        let mut printed = String::with_capacity(letters);
        let _ = write!(printed, "{self}");
        printed
    }
}

/// Lower case with dashes, and nothing else, so that the same string comes out again.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let lower = |(at, byte): (usize, u8)| match byte {
        b'-' => DASHES.contains(&at),
        b'0'..=b'9' | b'a'..=b'f' => !DASHES.contains(&at),
        _ => false,
    };
    let fits = text.len() == UUID && text.bytes().enumerate().all(lower);
    fits.then(|| u128::from_str_radix(&text.replace('-', ""), 16).ok().map(u128::to_be_bytes))?
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
