//! What a member tells of its capacity, in one object.

/// One capacity object: the room that is reachable from a node, or from several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Segment {
    pub(super) node: Option<Box<str>>,
    pub(super) free: u64,
    pub(super) largest: u64,
}
