//! Whether a copy is one: two trees side by side, thing by thing. Pure, but for where they come from.

use std::{cmp::Ordering, fmt, io};

use prost::Message;
use sha2::{Digest, Sha256};

use crate::entry::{Attribute, Entry, FILE, shown};

/// So many differences are named; of the others it is said that they are there.
const NAMED: usize = 20;
/// Bytes of each: a path may be long, and is longer once it is escaped, and all of them go in one frame.
const LONGEST: usize = 4 << 10;

/// What a tree came to.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sum {
    /// Over all that was compared of all entries.
    #[prost(bytes = "vec", tag = "1")]
    pub digest: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub entries: u64,
    #[prost(uint64, tag = "3")]
    pub files: u64,
    /// Of all files, holes as well.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
}

impl Sum {
    pub fn hex(&self) -> String {
        self.digest.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }
}

/// A sum that grows.
#[derive(Debug, Default)]
pub struct Adding {
    digest: Sha256,
    sum: Sum,
}

impl Adding {
    pub fn add(&mut self, entry: &Entry) {
        self.digest.update(entry.encode_length_delimited_to_vec());
        self.sum.entries += 1;
        if entry.kind() == FILE && entry.is_first_name() {
            self.sum.files += 1;
            self.sum.bytes = self.sum.bytes.saturating_add(entry.size);
        }
    }

    pub fn finish(self) -> Sum {
        Sum { digest: self.digest.finalize().to_vec(), ..self.sum }
    }
}

/// What the comparison has found.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Judgement {
    #[prost(message, required, tag = "1")]
    pub source: Sum,
    #[prost(message, required, tag = "2")]
    pub copy: Sum,
    #[prost(uint64, tag = "3")]
    pub differences: u64,
    /// The first of them, a sentence each.
    #[prost(string, repeated, tag = "4")]
    pub named: Vec<String>,
}

impl Judgement {
    pub fn is_equal(&self) -> bool {
        self.differences == 0 && self.source == self.copy
    }

    fn note(&mut self, difference: &str) {
        self.differences += 1;
        if self.named.len() < NAMED {
            self.named.push(difference[..difference.floor_char_boundary(LONGEST)].to_owned());
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_equal() {
            return write!(
                formatter,
                "{} entries with {} bytes in {} files are the same",
                self.copy.entries, self.copy.bytes, self.copy.files
            );
        }
        write!(formatter, "the copy differs in {} places: {}", self.differences, self.named.join("; "))?;
        let others = self.differences.saturating_sub(self.named.len() as u64);
        if others > 0 { write!(formatter, "; and {others} more") } else { Ok(()) }
    }
}

/// Both in the order of `Entry::compare_places`.
pub fn compare(
    source: impl IntoIterator<Item = io::Result<Entry>>,
    copy: impl IntoIterator<Item = io::Result<Entry>>,
) -> io::Result<Judgement> {
    let (mut source, mut copy) = (source.into_iter(), copy.into_iter());
    let (mut of_source, mut of_copy) = (Adding::default(), Adding::default());
    let mut judgement = Judgement::default();
    let (mut here, mut there) = (next(&mut source, &mut of_source)?, next(&mut copy, &mut of_copy)?);
    loop {
        let order = match (&here, &there) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(here), Some(there)) => here.compare_places(there),
        };
        match (&here, &there) {
            (Some(here), _) if order == Ordering::Less => {
                judgement.note(&format!("{} is missing", shown(&here.path)));
            }
            (_, Some(there)) if order == Ordering::Greater => {
                judgement.note(&format!("{} is there and not in the source", shown(&there.path)));
            }
            (Some(here), Some(there)) => judge(here, there, &mut judgement),
            _ => {}
        }
        if order != Ordering::Greater {
            here = next(&mut source, &mut of_source)?;
        }
        if order != Ordering::Less {
            there = next(&mut copy, &mut of_copy)?;
        }
    }
    judgement.source = of_source.finish();
    judgement.copy = of_copy.finish();
    Ok(judgement)
}

fn next(tree: &mut impl Iterator<Item = io::Result<Entry>>, sum: &mut Adding) -> io::Result<Option<Entry>> {
    let entry = tree.next().transpose()?;
    if let Some(entry) = &entry {
        sum.add(entry);
    }
    Ok(entry)
}

/// Each thing that differs at one place.
fn judge(source: &Entry, copy: &Entry, judgement: &mut Judgement) {
    if source == copy {
        return;
    }
    let place = shown(&source.path);
    if source.kind() != copy.kind() {
        return judgement.note(&format!("{place} is a {}, and was a {}", copy.kind_name(), source.kind_name()));
    }
    let before = judgement.differences;
    let mut differ = |what: &str, copied: String, original: String| {
        if copied != original {
            judgement.note(&format!("{place} has {what} {copied}, and had {original}"));
        }
    };
    differ("permissions", format!("{:04o}", copy.permissions()), format!("{:04o}", source.permissions()));
    differ("owner", copy.owner.to_string(), source.owner.to_string());
    differ("group", copy.group.to_string(), source.group.to_string());
    differ("size", copy.size.to_string(), source.size.to_string());
    differ("time of modification", time(copy), time(source));
    differ("target", shown(&copy.link_target), shown(&source.link_target));
    differ("device number", copy.device.to_string(), source.device.to_string());
    differ("as first name", first_name(copy), first_name(source));
    for name in attributes_that_differ(source, copy) {
        judgement.note(&format!("{place} has another attribute {}", shown(&name)));
    }
    if source.size == copy.size && source.digest != copy.digest && source.same_file_as == copy.same_file_as {
        judgement.note(&format!("{place} has other content"));
    }
    if judgement.differences == before {
        judgement.note(&format!("{place} differs"));
    }
}

fn time(entry: &Entry) -> String {
    format!("{}.{:09}", entry.modified.seconds, entry.modified.nanoseconds)
}

fn first_name(entry: &Entry) -> String {
    if entry.same_file_as.is_empty() { "no other".to_owned() } else { shown(&entry.same_file_as) }
}

fn attributes_that_differ(source: &Entry, copy: &Entry) -> Vec<Vec<u8>> {
    let lacks = |entry: &Entry, attribute: &&Attribute| !entry.attributes.contains(attribute);
    let gone = source.attributes.iter().filter(|attribute| lacks(copy, attribute));
    let new = copy.attributes.iter().filter(|attribute| lacks(source, attribute));
    let mut names: Vec<_> = gone.chain(new).map(|attribute| attribute.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::{FOLDER, LINK, Time};

    fn file(path: &str) -> Entry {
        let modified = Time { seconds: 1_700_000_000, nanoseconds: 5 };
        Entry { path: path.into(), mode: FILE | 0o640, size: 4, modified, digest: vec![7], ..Entry::default() }
    }

    fn judged(source: &[Entry], copy: &[Entry]) -> Judgement {
        compare(source.iter().cloned().map(Ok), copy.iter().cloned().map(Ok)).unwrap()
    }

    #[test]
    fn tree_is_the_same_as_itself_and_its_sum_is_told() {
        let tree = [Entry { mode: FOLDER | 0o755, ..Entry::default() }, file("a"), file("b")];
        let judgement = judged(&tree, &tree);
        assert!(judgement.is_equal());
        assert_eq!(judgement.to_string(), "3 entries with 8 bytes in 2 files are the same");
        assert_eq!(judgement.copy.hex().len(), 64);
    }

    #[test]
    fn each_thing_that_differs_is_named() {
        let changed = |change: fn(&mut Entry)| {
            let mut copy = file("a");
            change(&mut copy);
            judged(&[file("a")], &[copy]).to_string()
        };
        let told = |rest: &str| format!("the copy differs in 1 places: \"a\" {rest}");
        let attribute = || Attribute { name: b"user.x".to_vec(), digest: vec![1] };
        assert_eq!(changed(|copy| copy.mode = LINK | 0o777), told("is a symbolic link, and was a file"));
        assert_eq!(changed(|copy| copy.mode = FILE | 0o4640), told("has permissions 4640, and had 0640"));
        assert_eq!(changed(|copy| copy.owner = 5), told("has owner 5, and had 0"));
        assert_eq!(changed(|copy| copy.group = 5), told("has group 5, and had 0"));
        assert_eq!(changed(|copy| copy.size = 5), told("has size 5, and had 4"));
        assert_eq!(
            changed(|copy| copy.modified.nanoseconds = 6),
            told("has time of modification 1700000000.000000006, and had 1700000000.000000005")
        );
        assert_eq!(changed(|copy| copy.device = 5), told("has device number 5, and had 0"));
        assert_eq!(changed(|copy| copy.same_file_as = b"0".into()), told(r#"has as first name "0", and had no other"#));
        assert_eq!(changed(|copy| copy.digest = vec![8]), told("has other content"));
        let mut copy = file("a");
        copy.attributes.push(attribute());
        assert_eq!(judged(&[file("a")], &[copy]).to_string(), told(r#"has another attribute "user.x""#));
    }

    #[test]
    fn what_is_missing_and_what_is_too_much_is_named() {
        let judgement = judged(&[file("a"), file("b"), file("d")], &[file("b"), file("c"), file("d"), file("e")]);
        assert_eq!(
            judgement.to_string(),
            "the copy differs in 3 places: \"a\" is missing; \"c\" is there and not in the source; \"e\" is there and not \
             in the source"
        );
    }

    #[test]
    fn twenty_are_named_and_the_others_are_counted() {
        let many: Vec<Entry> = (0..30).map(|number| file(&format!("{number:02}"))).collect();
        let judgement = judged(&many, &[]);
        assert_eq!((judgement.differences, judgement.named.len()), (30, 20));
        assert!(judgement.to_string().ends_with("\"19\" is missing; and 10 more"));
    }

    /// A member says of its end what it likes.
    #[test]
    fn numbers_that_cannot_be_are_told_as_they_are_said() {
        let vast = |path: &str| Entry { size: u64::MAX, ..file(path) };
        let judgement = judged(&[vast("a"), vast("b")], &[vast("a")]);
        assert_eq!((judgement.source.bytes, judgement.source.files), (u64::MAX, 2));
        let said =
            Judgement { differences: 1, named: vec!["one".to_owned(), "other".to_owned()], ..Judgement::default() };
        assert_eq!(said.to_string(), "the copy differs in 1 places: one; other");
    }

    #[test]
    fn tree_that_cannot_be_read_is_not_judged() {
        let broken = || [Ok(file("a")), Err(io::Error::other("a sector is bad"))];
        assert!(compare(broken(), [Ok(file("a"))]).is_err());
        assert!(compare([Ok(file("a"))], broken()).is_err());
    }

    fn small_tree() -> impl Strategy<Value = Vec<Entry>> {
        let entry = ("[ab]{1,2}(/[ab-])?", 0_u32..3, 0_u8..3);
        proptest::collection::vec(entry, 0..8).prop_map(|parts| {
            let entries = parts.into_iter().map(|(path, owner, content)| {
                let digest = vec![content];
                Entry { owner, digest, ..file(&path) }
            });
            let mut entries: Vec<_> = entries.collect();
            entries.sort_by(Entry::compare_places);
            entries.dedup_by(|one, other| one.path == other.path);
            entries
        })
    }

    proptest! {
        #[test]
        fn differences_are_found_exactly_where_trees_differ(source in small_tree(), copy in small_tree()) {
            let judgement = judged(&source, &copy);
            prop_assert_eq!(judgement.is_equal(), source == copy);
            prop_assert_eq!(judgement.differences == 0, judgement.source.digest == judgement.copy.digest);
        }
    }
}
