//! What waits, for how long, and why.

use std::collections::HashMap;

use askama::Template;
use axum::{Extension, extract::State, response::Response};
use cluster::metrics::waiting::WaitingClaim;
use domain::volume::{ClaimDigest, VolumeHash};
use leaf::{
    MemberClient,
    row::{ClaimRow, Row},
};
use member::registry;
use serde::Serialize;

use super::{
    Frame, events,
    members::{self, MemberLine},
    row::{Side, words},
};
use crate::{
    Sources,
    answer::Form,
    shown::{Level, Seconds, text},
};

const MOST: usize = 200;
/// What is told of a leaf claim that waits.
const TOLD: &str = "LeafPending";

/// A claim that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitLine {
    /// `NAMESPACE/NAME` in the host, where that is known, else of the leaf claim.
    pub(crate) claim: String,
    pub(crate) volume: String,
    /// Where its leaf is, where it has one.
    pub(crate) member: String,
    pub(crate) handle: String,
    pub(crate) since: Seconds,
    /// In the words of who last said something of it.
    pub(crate) why: String,
}

/// Deletions of a member that are not done.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Deletions {
    member: String,
    count: u64,
    oldest: Seconds,
}

#[derive(Template, Serialize)]
#[template(path = "waiting.html")]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    items: Vec<WaitLine>,
    /// How many more there are.
    more: usize,
    deletions: Vec<Deletions>,
    /// Members that cannot be asked: what is to be done there waits.
    members: Vec<MemberLine>,
}

pub(crate) async fn show(State(sources): State<Sources>, Extension(form): Extension<Form>) -> Response {
    let mut items = lines(&sources);
    let more = items.len().saturating_sub(MOST);
    items.truncate(MOST);
    let members = members::lines(&sources, 0);
    let deletions = members.iter().filter(|member| member.volumes.terminating > 0).map(|member| Deletions {
        member: member.name.clone(),
        count: member.volumes.terminating,
        oldest: member.oldest_deletion,
    });
    form.answer(&Page {
        frame: Frame::new(&sources, "WaitingList", "/waiting", "/waiting"),
        deletions: deletions.collect(),
        members: members.into_iter().filter(|member| member.level == Level::Wrong).collect(),
        items,
        more,
    })
}

/// Those that wait for the longest come first.
pub(crate) fn lines(sources: &Sources) -> Vec<WaitLine> {
    let asked = sources.waiting.now().into_iter().map(|wait| (VolumeHash::new(&sources.host, &wait.volume), wait));
    let mut asked: HashMap<VolumeHash, WaitingClaim> = asked.collect();
    let told = told(sources);
    let volumes = sources.volumes();
    let mut lines = Vec::new();
    let members = sources.members();
    let known = registry::names(&members);
    for member in members.values().filter(|member| member.alias_of().is_none()) {
        let Some(leaf) = member.last_known() else { continue };
        let mut side = None;
        for (hash, claim, _) in leaf.rows.pending().into_iter().filter(|(_, claim, _)| !claim.is_copy_of_a_move()) {
            let side = side.get_or_insert_with(|| Side::new(&known, member, volumes.as_deref()));
            lines.push(with_leaf(leaf, side, hash, &claim, asked.remove(&hash), &told));
        }
    }
    lines.extend(asked.values().map(without_leaf));
    lines.sort_by(|left, right| right.since.cmp(&left.since).then_with(|| left.claim.cmp(&right.claim)));
    lines
}

/// The newest word on each claim, by its UID and by its name.
fn told(sources: &Sources) -> HashMap<String, String> {
    let mut told = HashMap::new();
    for event in events::lines(sources).filter(|event| event.reason == TOLD) {
        told.entry(event.about).or_insert_with(|| event.message.clone());
        told.entry(event.uid).or_insert(event.message);
    }
    told
}

/// As the provisioner was answered.
fn refused(wait: &WaitingClaim) -> String {
    format!("{}: {}", wait.refusal.code, text(&wait.refusal.message))
}

fn without_leaf(wait: &WaitingClaim) -> WaitLine {
    WaitLine {
        claim: text(wait.claim.as_deref().unwrap_or_default()),
        volume: text(&wait.volume),
        member: String::new(),
        handle: String::new(),
        since: wait.waits.into(),
        why: refused(wait),
    }
}

fn with_leaf(
    leaf: &MemberClient,
    side: &Side<'_>,
    hash: VolumeHash,
    claim: &ClaimRow,
    asked: Option<WaitingClaim>,
    told: &HashMap<String, String>,
) -> WaitLine {
    let row = Row { claim: Some(claim.clone()), ..Row::default() };
    let (handle, in_host) = side.in_host(hash, &row);
    let in_host = in_host.unwrap_or_default();
    // Its provisioner calls a volume after the UID of its claim.
    let uid = asked.as_ref().and_then(|wait| wait.volume.strip_prefix("pvc-")).unwrap_or(&in_host.claim_uid);
    let said = told.get(uid).cloned();
    let place = words(&claim.place);
    let is_its_own_name = claim.made_for == Some(ClaimDigest::new(&place));
    let known =
        asked.as_ref().and_then(|wait| wait.claim.clone()).or(Some(in_host.claim)).filter(|name| !name.is_empty());
    let named = known.map(|name| text(&name)).or_else(|| is_its_own_name.then(|| place.clone()));
    // Where its UID is not known: nobody asks this replica for it, and it has no volume yet.
    let by_name = || named.as_ref().filter(|_| uid.is_empty()).and_then(|name| told.get(name).cloned());
    let said = said.or_else(by_name).or_else(|| asked.as_ref().map(refused));
    WaitLine {
        why: said.unwrap_or_else(|| silence(leaf, claim)),
        claim: named.unwrap_or_else(|| format!("leaf claim {place}")),
        volume: asked.map_or(in_host.volume, |wait| text(&wait.volume)),
        member: leaf.member.clone(),
        handle: text(&handle),
        since: Seconds::since(claim.created()),
    }
}

/// What there is to say where nobody has said anything.
fn silence(leaf: &MemberClient, claim: &ClaimRow) -> String {
    let class = text(&claim.class);
    match leaf.rows.class(&claim.class) {
        None => format!("its StorageClass {class} is not in the member, or not open to this host"),
        Some(row) if row.waits_for_pod && !claim.is_node_selected() => {
            format!("StorageClass {class} makes its volume for the first pod that uses it there")
        }
        Some(row) => format!("{} of StorageClass {class} is at work on it", text(&row.provisioner)),
    }
}
