//! Which data is where: a page of volumes at a time, as they come from the members' rows. Of a thousand members with a hundred
//! thousand volumes nobody reads all; so none are sorted, and the next page begins where this one ended.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::{
    Extension,
    extract::{Query, State},
    response::Response,
};
use domain::volume::{VolumeHash, VolumeId};
use leaf::row::{ClaimRow, Row};
use member::registry::{self, KnownAs, Snapshot, serving};
use serde::{Deserialize, Serialize};

use super::{
    Frame,
    row::{STATES, Side, VolumeLine},
};
use crate::{Sources, answer::Form, shown::encoded};

const PAGE: usize = 100;
/// Others wait for the rows as well.
const LOOKED_AT_ONCE: usize = 200;

/// What is typed above the list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VolumesQuery {
    member: String,
    namespace: String,
    state: String,
    q: String,
    /// The last volume of the page before.
    after: String,
}

#[derive(Template, Serialize)]
#[template(path = "volumes.html")]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    items: Vec<VolumeLine>,
    /// What to give as `after` for the next page; empty at the end.
    next: String,
    #[serde(skip)]
    wanted: VolumesQuery,
    #[serde(skip)]
    members: BTreeSet<String>,
}

pub(crate) async fn show(
    State(sources): State<Sources>,
    Extension(form): Extension<Form>,
    Query(wanted): Query<VolumesQuery>,
) -> Response {
    let (items, next) = list(&sources, &wanted).await;
    let members = names(&sources, &sources.members());
    let frame = Frame::new(&sources, "VolumeList", "/volumes", &format!("/volumes{}", wanted.query(&wanted.after)));
    form.answer(&Page { frame, items, next, wanted, members })
}

impl VolumesQuery {
    fn has(&self, line: &VolumeLine) -> bool {
        let namespace = line.claim.split_once('/').map_or("", |(namespace, _)| namespace);
        let is_said = |text: &str| text.contains(&self.q);
        (self.namespace.is_empty() || namespace == self.namespace)
            && (self.state.is_empty() || line.state == self.state)
            && (self.q.is_empty() || is_said(&line.claim) || is_said(&line.volume) || is_said(&line.handle))
    }

    /// The same, behind a path.
    fn query(&self, after: &str) -> String {
        let pairs = [
            ("member", self.member.as_str()),
            ("namespace", &self.namespace),
            ("state", &self.state),
            ("q", &self.q),
            ("after", after),
        ];
        let told = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> = told.map(|(key, value)| format!("{key}={}", encoded(value))).collect();
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }

    fn states(&self) -> Vec<(&'static str, bool)> {
        STATES.into_iter().map(|state| (state, state == self.state)).collect()
    }
}

/// Where a page ended: the leaves of a member come first, then volumes of the host that have none among them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Leaf(VolumeHash),
    Handle(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cursor {
    member: String,
    place: Place,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let (member, rest) = text.split_once('/')?;
        let place = match rest.strip_prefix('=') {
            Some(handle) => Place::Handle(handle.to_owned()),
            None => Place::Leaf(VolumeHash::parse(rest)?),
        };
        Some(Self { member: member.to_owned(), place })
    }

    fn print(&self) -> String {
        match &self.place {
            Place::Leaf(hash) => format!("{}/{hash}", self.member),
            Place::Handle(handle) => format!("{}/={handle}", self.member),
        }
    }
}

/// One page as it grows.
struct Lines<'a> {
    wanted: &'a VolumesQuery,
    taken: Vec<VolumeLine>,
    last: String,
    is_full: bool,
}

impl Lines<'_> {
    /// Takes one in; one more than there is room for says that there is a next page.
    fn take(&mut self, line: VolumeLine, at: &Cursor) {
        if self.is_full || !self.wanted.has(&line) {
            return;
        }
        if self.taken.len() == PAGE {
            self.is_full = true;
            return;
        }
        self.taken.push(line);
        self.last = at.print();
    }
}

async fn list(sources: &Sources, wanted: &VolumesQuery) -> (Vec<VolumeLine>, String) {
    let members = sources.members();
    let cursor = Cursor::parse(&wanted.after);
    let begin = cursor.as_ref().map_or_else(String::new, |cursor| cursor.member.clone());
    let mut lines = Lines { wanted, taken: Vec::new(), last: String::new(), is_full: false };
    let (serves, known) = (serving(&members, &wanted.member), registry::names(&members));
    let is_wanted = |name: &&String| wanted.member.is_empty() || **name == wanted.member || **name == serves;
    for name in names(sources, &members).range(begin..).filter(is_wanted) {
        let place = cursor.as_ref().filter(|cursor| cursor.member == *name).map(|cursor| &cursor.place);
        let (leaf, handle) = match place {
            None => (None, None),
            Some(Place::Leaf(hash)) => (Some(*hash), None),
            Some(Place::Handle(handle)) => (None, Some(handle.clone())),
        };
        if handle.is_none() {
            leaves(sources, &members, &known, name, leaf, &mut lines).await;
        }
        others(sources, &members, name, handle, &mut lines).await;
        if lines.is_full {
            break;
        }
    }
    let next = if lines.is_full { lines.last } else { String::new() };
    (lines.taken, next)
}

/// Those that have joined, and those that volumes of the host name all the same.
fn names(sources: &Sources, members: &Snapshot) -> BTreeSet<String> {
    let mut names = sources.volumes().map(|volumes| volumes.members()).unwrap_or_default();
    names.extend(members.keys().cloned());
    names
}

async fn leaves(
    sources: &Sources,
    members: &Snapshot,
    known: &BTreeMap<String, KnownAs>,
    name: &str,
    mut after: Option<VolumeHash>,
    lines: &mut Lines<'_>,
) {
    // What lies under another name of it is listed there.
    let Some(member) = members.get(name).filter(|member| member.alias_of().is_none()) else { return };
    let Some(leaf) = member.last_known() else { return };
    let volumes = sources.volumes();
    let side = Side::new(known, member, volumes.as_deref());
    while !lines.is_full {
        let rows = leaf.rows.page(after, LOOKED_AT_ONCE, |_| true);
        let Some((last, _)) = rows.last() else { return };
        after = Some(*last);
        // A volume that moves has two leaves, and the host's is one of them.
        for (hash, row) in rows.iter().filter(|(_, row)| !is_copy_of_a_move(row)) {
            let line = VolumeLine::of_leaf(&side, *hash, row);
            lines.take(line, &Cursor { member: name.to_owned(), place: Place::Leaf(*hash) });
        }
        tokio::task::yield_now().await;
    }
}

/// How many the host has in use whose leaf claim has gone, where this replica knows what the host has.
pub(crate) async fn without_claim(sources: &Sources) -> u64 {
    let (members, volumes) = (sources.members(), sources.volumes());
    if volumes.is_none() {
        return 0;
    }
    let (known, mut count) = (registry::names(&members), 0);
    for member in members.values().filter(|member| member.alias_of().is_none()) {
        // Before it was listed, claims are missing that are there.
        let Some(leaf) = member.last_known().filter(|leaf| leaf.rows.synced()) else { continue };
        let (mut side, mut after) = (None, None);
        loop {
            let rows = leaf.rows.page_of_unsettled(after, LOOKED_AT_ONCE, |row| row.claim.is_none());
            let Some((last, _)) = rows.last() else { break };
            after = Some(*last);
            let side = side.get_or_insert_with(|| Side::new(&known, member, volumes.as_deref()));
            count += rows.iter().filter(|(hash, row)| side.is_without_claim(*hash, row)).count() as u64;
            tokio::task::yield_now().await;
        }
    }
    count
}

fn is_copy_of_a_move(row: &Row) -> bool {
    row.claim.as_ref().is_some_and(ClaimRow::is_copy_of_a_move)
}

/// Volumes of the host whose handle leads to no leaf that is followed.
async fn others(sources: &Sources, members: &Snapshot, name: &str, mut after: Option<String>, lines: &mut Lines<'_>) {
    let Some(volumes) = sources.volumes() else { return };
    let rows = members.get(&serving(members, name)).and_then(|member| member.last_known()).map(|leaf| &leaf.rows);
    while !lines.is_full {
        let handles = volumes.next_in(name, after.as_deref(), LOOKED_AT_ONCE);
        let Some(last) = handles.last() else { return };
        after = Some(last.to_string());
        for handle in &handles {
            let is_followed = |id: VolumeId| rows.is_some_and(|rows| rows.find(&id).is_some());
            if VolumeId::parse(handle).is_some_and(is_followed) {
                continue;
            }
            if let Some(line) = VolumeLine::not_followed(name, handle, &volumes) {
                lines.take(line, &Cursor { member: name.to_owned(), place: Place::Handle(handle.to_string()) });
            }
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_ends_where_the_next_one_begins() {
        let hash = VolumeHash::parse(&"0a".repeat(16)).unwrap();
        for place in [Place::Leaf(hash), Place::Handle("m0/shop/db/0123456789abcdef".to_owned())] {
            let cursor = Cursor { member: "m0".to_owned(), place };
            assert_eq!(Cursor::parse(&cursor.print()), Some(cursor));
        }
        for text in ["", "m0", "m0/", "m0/zz", "/"] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_typed_goes_into_the_next_address_and_nothing_of_it_is_another_part() {
        let wanted = VolumesQuery { q: "a&b=c d/é".to_owned(), state: "Bound".to_owned(), ..VolumesQuery::default() };
        assert_eq!(wanted.query("m0/=x"), "?state=Bound&q=a%26b%3Dc%20d%2F%C3%A9&after=m0%2F%3Dx");
        assert_eq!(VolumesQuery::default().query(""), "");
    }
}
