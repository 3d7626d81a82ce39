//! What waits, for how long, and why.

use std::collections::HashMap;

use askama::Template;
use axum::{Extension, extract::State, response::Response};
use cluster::metrics::waiting::WaitingClaim;
use domain::{
    printable::one_line,
    volume::{ClaimDigest, VolumeHash},
};
use host::volumes::HostVolumes;
use leaf::{MemberClient, row::ClaimRow};
use serde::Serialize;

use super::{
    Frame, events,
    members::{self, MemberLine},
    row::{InHost, handle_of, words},
};
use crate::{
    Sources,
    answer::Form,
    shown::{Level, Seconds},
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
    let members = members::lines(&sources);
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
    for member in sources.members().values() {
        let Some(leaf) = member.last_known() else { continue };
        for (hash, claim, _) in leaf.rows.pending().into_iter().filter(|(_, claim, _)| !claim.is_copy_of_a_move()) {
            lines.push(with_leaf(leaf, hash, &claim, asked.remove(&hash), &told, volumes.as_deref()));
        }
    }
    lines.extend(asked.into_values().map(without_leaf));
    lines.sort_by(|left, right| right.since.cmp(&left.since).then_with(|| left.claim.cmp(&right.claim)));
    lines
}

/// The newest word on each claim.
fn told(sources: &Sources) -> HashMap<String, String> {
    let mut told = HashMap::new();
    for event in events::lines(sources).filter(|event| event.reason == TOLD) {
        told.entry(event.about).or_insert(event.message);
    }
    told
}

fn without_leaf(wait: WaitingClaim) -> WaitLine {
    WaitLine {
        claim: one_line(&wait.claim.unwrap_or_default()),
        volume: one_line(&wait.volume),
        member: String::new(),
        handle: String::new(),
        since: wait.waits.into(),
        why: format!("{}: {}", wait.refusal.code, one_line(&wait.refusal.message)),
    }
}

fn with_leaf(
    leaf: &MemberClient,
    hash: VolumeHash,
    claim: &ClaimRow,
    asked: Option<WaitingClaim>,
    told: &HashMap<String, String>,
    volumes: Option<&HostVolumes>,
) -> WaitLine {
    let row = leaf::row::Row { claim: Some(claim.clone()), ..leaf::row::Row::default() };
    let handle = handle_of(&leaf.member, hash, &row);
    let in_host = InHost::of(volumes, &handle).unwrap_or_default();
    let (volume, named) = match asked {
        Some(wait) => (one_line(&wait.volume), wait.claim.map(|claim| one_line(&claim))),
        None => (in_host.volume, Some(in_host.claim).filter(|claim| !claim.is_empty())),
    };
    let place = words(&claim.place);
    let is_its_own_name = claim.made_for == Some(ClaimDigest::new(&place));
    let claim_name = named.or_else(|| is_its_own_name.then(|| place.clone()));
    let said = claim_name.as_ref().and_then(|name| told.get(name).cloned());
    WaitLine {
        why: said.unwrap_or_else(|| silence(leaf, claim)),
        claim: claim_name.unwrap_or_else(|| format!("leaf claim {place}")),
        volume,
        member: leaf.member.clone(),
        handle: one_line(&handle),
        since: Seconds::since(claim.created()),
    }
}

/// What there is to say where nobody has said anything.
fn silence(leaf: &MemberClient, claim: &ClaimRow) -> String {
    let class = one_line(&claim.class);
    match leaf.rows.class(&claim.class) {
        None => format!("its StorageClass {class} is not in the member, or not open to this host"),
        Some(row) if row.waits_for_pod && !claim.is_node_selected() => {
            format!("StorageClass {class} makes its volume for the first pod that uses it there")
        }
        Some(row) => format!("{} of StorageClass {class} is at work on it", one_line(&row.provisioner)),
    }
}
