//! Which size a volume gets and whether it can be had here. Decided from the request and the room that is left.

use crate::error::Error;
use crate::volume::{Format, Map};

/// The sizes that would do, in bytes; zero leaves an end open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) required: u64,
    pub(crate) limit: u64,
}

const MEBIBYTE: u64 = 1 << 20;

/// The size of a volume for which none is asked.
const USUAL_SIZE: u64 = 64 * MEBIBYTE;

impl Range {
    pub(crate) fn contains(self, bytes: u64) -> bool {
        bytes >= self.required && (self.limit == 0 || bytes <= self.limit)
    }

    /// The size of a volume that may not be smaller than `minimum`: whole mebibytes, within the range.
    pub(crate) fn size(self, minimum: u64) -> Result<u64, Error> {
        if self.limit != 0 && self.limit < self.required {
            return Err(Error::Invalid("the limit is below the required size".to_owned()));
        }
        let at_least = if self.required == 0 { USUAL_SIZE.min(self.limit_or_max()) } else { self.required };
        let bytes = at_least.max(minimum).checked_next_multiple_of(MEBIBYTE);
        bytes.filter(|bytes| *bytes <= self.limit_or_max()).ok_or_else(|| {
            Error::OutOfRange(format!(
                "no whole number of mebibytes lies between {} and {} bytes",
                at_least.max(minimum),
                self.limit
            ))
        })
    }

    fn limit_or_max(self) -> u64 {
        if self.limit == 0 { i64::MAX.unsigned_abs() } else { self.limit }
    }
}

impl Format {
    /// The smallest volume its tools accept.
    pub(crate) fn minimum(self) -> u64 {
        match self {
            Self::Xfs => 300 * MEBIBYTE,
            Self::Ext4 | Self::Block | Self::Folder => MEBIBYTE,
        }
    }
}

/// Whether everything that `place` demands is true of this node, whose only label is `key=node`.
pub(crate) fn is_here(place: &Map, key: &str, node: &str) -> bool {
    place.iter().all(|(name, value)| name == key && value == node)
}

/// What this driver makes is reachable from this node alone. `requisite` lists the places that would do; none means any.
pub(crate) fn check(requisite: &[Map], key: &str, node: &str) -> Result<(), Error> {
    if requisite.is_empty() || requisite.iter().any(|place| is_here(place, key, node)) {
        return Ok(());
    }
    Err(Error::NoRoom(format!("volumes of this driver are reachable from {key}={node} only")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn sizes_are_whole_mebibytes_within_the_range() {
        let table = [
            ((0, 0, MEBIBYTE), Some(USUAL_SIZE)),
            ((0, 8 * MEBIBYTE, MEBIBYTE), Some(8 * MEBIBYTE)),
            ((GIB, 0, MEBIBYTE), Some(GIB)),
            ((GIB, GIB, MEBIBYTE), Some(GIB)),
            ((GIB + 1, 0, MEBIBYTE), Some(GIB + MEBIBYTE)),
            ((GIB + 1, GIB + 2, MEBIBYTE), None),
            ((MEBIBYTE, 0, 300 * MEBIBYTE), Some(300 * MEBIBYTE)),
            ((MEBIBYTE, 299 * MEBIBYTE, 300 * MEBIBYTE), None),
            ((GIB, MEBIBYTE, MEBIBYTE), None),
            ((u64::MAX, 0, MEBIBYTE), None),
        ];
        for ((required, limit, minimum), size) in table {
            assert_eq!(Range { required, limit }.size(minimum).ok(), size, "{required} {limit} {minimum}");
        }
    }

    #[test]
    fn a_volume_is_reachable_from_this_node_alone() {
        let here = || Map::from([("d/node".to_owned(), "a".to_owned())]);
        let there = || Map::from([("d/node".to_owned(), "b".to_owned())]);
        let zone = || Map::from([("d/node".to_owned(), "a".to_owned()), ("d/zone".to_owned(), "z".to_owned())]);
        let table = [
            (vec![], true),
            (vec![here()], true),
            (vec![there(), here()], true),
            (vec![Map::new()], true),
            (vec![there()], false),
            (vec![zone()], false),
        ];
        for (requisite, fits) in table {
            assert_eq!(check(&requisite, "d/node", "a").is_ok(), fits, "{requisite:?}");
        }
    }
}
