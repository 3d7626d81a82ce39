//! What a leaf claim says of the move that has it. Whoever may write claims in the member may write that too: all that follows from
//! it is that the leaf is kept, and stays as it is.

use std::fmt;

use crate::volume::id::{is_label, is_subdomain, is_uid};

/// Which move has a leaf, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveMark {
    /// Of the host's object.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    Source,
    /// No pod has it: its claim may be let go, with the virtual nodes on its record.
    IsolatedSource,
    Copy,
}

const PARTS: [(Part, &str); 3] =
    [(Part::Source, "source"), (Part::IsolatedSource, "isolated-source"), (Part::Copy, "copy")];

impl MoveMark {
    pub fn parse(text: &str) -> Option<Self> {
        let [namespace, name, uid, part] = <[&str; 4]>::try_from(text.split('/').collect::<Vec<_>>()).ok()?;
        let (part, _) = PARTS.into_iter().find(|(_, word)| *word == part)?;
        let is_well_formed = is_label(namespace, 63) && is_subdomain(name) && is_uid(uid);
        is_well_formed.then(|| Self { namespace: namespace.into(), name: name.into(), uid: uid.into(), part })
    }

    /// The object, for people.
    pub fn object(&self) -> String {
        format!("VolumeMove {}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for MoveMark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = PARTS.iter().find(|(part, _)| *part == self.part).map_or("", |(_, word)| word);
        write!(out, "{}/{}/{}/{word}", self.namespace, self.name, self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    #[test]
    fn mark_is_read_as_it_is_written_and_any_other_is_none() {
        for part in ["source", "isolated-source", "copy"] {
            let text = format!("shop/db-to-39/{UID}/{part}");
            let mark = MoveMark::parse(&text).unwrap();
            assert_eq!((mark.to_string(), mark.object()), (text, "VolumeMove shop/db-to-39".to_owned()));
        }
        let others = [
            "",
            "shop/db",
            "shop/db/u/source",
            "../db/UID/copy",
            "shop/../UID/copy",
            "shop/db/UID/half",
            "shop/db/UID/copy/",
        ];
        for other in others {
            assert_eq!(MoveMark::parse(&other.replace("UID", UID)), None, "{other}");
        }
    }
}
