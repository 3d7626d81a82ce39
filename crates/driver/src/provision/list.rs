//! ListVolumes and ControllerGetVolume, from memory.
//!
//! The order is that of the members' names and, within a member, of the volumes' hashes. A token names the last volume of
//! its page, so volumes that come and go between two pages move no other. Listed is what is known: of a member that cannot
//! be asked, what it held when it last could. One that was never listed has nothing to tell, and does not keep the others
//! from being listed; external-attacher then has its volumes published once more, which changes nothing. Imported volumes are
//! in no memory: they are not listed, and looked up live.

use super::{
    Provisioner,
    find::{self, unknown},
};
use domain::{
    error::{Error, Result},
    volume::{VolumeHash, VolumeId, id::is_member_name, plan::Phase},
};
use leaf::{
    MemberClient,
    row::{ClaimRow, Row},
};

/// A page is never longer, so that an answer fits into what gRPC clients take, which is 4 MiB.
pub(super) const LONGEST_PAGE: usize = 4096;
/// The same in bytes: whoever may write a leaf claim in its member decides how many nodes its record names.
const LARGEST_PAGE: usize = 3 << 20;
/// What an entry takes at most, beside what is counted of it.
pub(super) const ENTRY: usize = 320;
/// What the id of a node takes beside its letters.
const NODE: usize = 4;

/// A volume as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub id: VolumeId,
    pub capacity: u64,
    /// Ids of the nodes it is published on.
    pub nodes: Vec<String>,
}

/// Some entries, and where the next ones begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub entries: Vec<T>,
    /// Empty where there are none.
    pub next: String,
}

/// Where a page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    member: String,
    hash: VolumeHash,
}

impl Token {
    /// None for the beginning.
    fn parse(text: &str) -> Result<Option<Self>> {
        if text.is_empty() {
            return Ok(None);
        }
        let parts = text.split_once('/').filter(|(member, _)| is_member_name(member));
        let token =
            parts.and_then(|(member, hash)| Some(Self { member: member.to_owned(), hash: VolumeHash::parse(hash)? }));
        token.map(Some).ok_or_else(|| {
            Error::InProgress(format!("starting_token {text:?} was not given out by this driver: begin without one"))
        })
    }

    fn print(&self) -> String {
        format!("{}/{}", self.member, self.hash)
    }
}

/// What a look at one row needs to know of its member.
pub(super) struct Place<'a> {
    pub(super) member: &'a str,
    /// Why it cannot be asked.
    pub(super) trouble: Option<String>,
}

/// Zero entries at most: as many as fit.
pub fn list(provisioner: &Provisioner, most: usize, token: &str) -> Result<Page<Listed>> {
    let is_there = |row: &Row| row.claim.as_ref().is_some_and(is_listed);
    let pick = |leaf: &MemberClient, _: &Place<'_>, after, most| leaf.rows.page(after, most, is_there);
    let entry = |place: &Place<'_>, hash, row: Row| row.claim.map(|claim| listed(place.member, hash, &claim));
    page(provisioner, most, token, pick, entry, length)
}

/// In bytes, of an answer.
fn length(listed: &Listed) -> usize {
    ENTRY + listed.nodes.iter().map(|node| node.len() + NODE).sum::<usize>()
}

pub async fn get(provisioner: &Provisioner, handle: &str) -> Result<Listed> {
    let found = find::find(provisioner, handle).await?;
    // Not made yet is not there. An imported claim was given out by whoever made the host volume.
    if !found.imported && !is_given_out(&found.claim) {
        return Err(unknown(handle));
    }
    Ok(Listed { id: found.id.clone(), ..listed(&found.id.member, found.hash, &found.claim) })
}

/// Rows of all members, from where the token left off.
pub(super) fn page<T>(
    provisioner: &Provisioner,
    most: usize,
    token: &str,
    pick: impl Fn(&MemberClient, &Place<'_>, Option<VolumeHash>, usize) -> Vec<(VolumeHash, Row)>,
    entry: impl Fn(&Place<'_>, VolumeHash, Row) -> Option<T>,
    length: impl Fn(&T) -> usize,
) -> Result<Page<T>> {
    let most = if most == 0 { LONGEST_PAGE } else { most.min(LONGEST_PAGE) };
    let token = Token::parse(token)?;
    let begin = token.as_ref().map_or("", |token| token.member.as_str()).to_owned();
    let members = provisioner.members.all()?;
    let (mut entries, mut bytes, mut last) = (Vec::new(), 0, None);
    for (name, member) in members.range(begin..) {
        let Some(leaf) = member.last_known() else { continue };
        let trouble = member.leaf().err().map(|error| error.to_string());
        let place = Place { member: name, trouble };
        let after = token.as_ref().filter(|token| token.member == *name).map(|token| token.hash);
        // One more than there is room for says whether there is a next page.
        for (hash, row) in pick(leaf, &place, after, most + 1 - entries.len()) {
            let new = entry(&place, hash, row);
            bytes += new.as_ref().map_or(0, &length);
            if entries.len() == most || !entries.is_empty() && bytes > LARGEST_PAGE {
                let next = last.as_ref().map(Token::print).unwrap_or_default();
                return Ok(Page { entries, next });
            }
            entries.extend(new);
            last = Some(Token { member: name.clone(), hash });
        }
    }
    Ok(Page { entries, next: String::new() })
}

/// Given out, and not on its way out. One that waits for its first pod has been given out where a node has it.
fn is_listed(claim: &ClaimRow) -> bool {
    let size = claim.size();
    !size.terminating && is_given_out(claim)
}

fn is_given_out(claim: &ClaimRow) -> bool {
    if claim.is_copy_of_a_move() {
        return false;
    }
    claim.size().phase != Phase::Pending || !claim.life.published.is_unpublished()
}

fn listed(member: &str, hash: VolumeHash, claim: &ClaimRow) -> Listed {
    Listed {
        id: claim.id(member, hash),
        capacity: claim.size().capacity,
        nodes: claim.life.published.nodes().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_as_it_was_given_out_and_any_other_is_refused() {
        let hash = VolumeHash::parse(&"0a".repeat(16)).unwrap();
        let token = Token { member: "cluster38".to_owned(), hash };
        assert_eq!(Token::parse(&token.print()), Ok(Some(token)));
        assert_eq!(Token::parse(""), Ok(None));
        for text in ["invalid-token", "/", "cluster38/", "cluster38/0a", "A/0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"] {
            assert!(matches!(Token::parse(text), Err(Error::InProgress(_))), "{text}");
        }
    }
}
