//! One volume, as a chain from the nodes that use it to the storage in the member.

use askama::Template;
use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use domain::volume::{VolumeId, plan::Phase};
use driver::provision::health::known_ailments;
use host::{volume::HostVolume, volumes::HostVolumes};
use leaf::row::{ClaimRow, Row, VolumeRow};
use member::Member;
use serde::Serialize;

use super::{
    Frame,
    events::{self, EventLine},
    row::{self, words},
};
use crate::{
    Sources,
    answer::Form,
    shown::{Bytes, Level, Seconds, text},
};

/// Events of one volume.
const EVENTS: usize = 50;

/// One object of the chain.
#[derive(Clone, Debug, Serialize)]
struct Link {
    what: &'static str,
    name: String,
    level: Level,
    /// How it stands.
    state: String,
    facts: Vec<(&'static str, String)>,
}

#[derive(Template, Serialize)]
#[template(path = "volume.html")]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    handle: String,
    chain: Vec<Link>,
    /// What is known to be wrong.
    ailments: Vec<String>,
    events: Vec<EventLine>,
    /// What asks further.
    commands: Vec<String>,
}

pub(crate) async fn show(
    State(sources): State<Sources>,
    Extension(form): Extension<Form>,
    Path((member, leaf)): Path<(String, String)>,
) -> Response {
    let handle = format!("{member}/{leaf}");
    let unknown = || form.refuse(StatusCode::NOT_FOUND, "No volume with this handle is known to this replica.");
    let (Some(id), members) = (VolumeId::parse(&handle), sources.members()) else { return unknown() };
    let volumes = sources.volumes();
    let in_host = in_host(volumes.as_deref(), &handle);
    let serving = members.get(&member::registry::serving(&members, &id.member));
    let row = serving.and_then(|member| member.last_known()?.rows.find(&id)).map(|(_, row)| row);
    if row.is_none() && in_host.is_empty() {
        return unknown();
    }
    let row = row.unwrap_or_default();
    let trouble = serving.and_then(|member| member.leaf().err()).map(|error| text(&error.to_string()));
    let ailments = serving.map(|member| known_ailments(&row, &member.name, trouble.as_deref())).unwrap_or_default();
    let mut chain = vec![nodes(&row)];
    chain.extend(of_host(&in_host, volumes.is_some()));
    chain.extend([member_link(&id.member, serving.map(|member| &**member)), leaf_claim(&id, &row), leaf_volume(&row)]);
    let events = events::lines(&sources).filter(|event| is_about(event, &in_host)).take(EVENTS);
    form.answer(&Page {
        frame: Frame::new(&sources, "Volume", "/volumes", &format!("/volumes/{handle}")),
        chain,
        ailments: ailments.into_iter().map(|ailment| text(&ailment.message)).collect(),
        events: events.collect(),
        commands: commands(&in_host),
        handle,
    })
}

fn in_host(volumes: Option<&HostVolumes>, handle: &str) -> Vec<HostVolume> {
    volumes.map(|volumes| volumes.with(handle)).unwrap_or_default()
}

fn is_about(event: &EventLine, volumes: &[HostVolume]) -> bool {
    volumes.iter().any(|volume| match event.kind {
        "PersistentVolume" => *volume.name == *event.about,
        "PersistentVolumeClaim" => volume.claim.as_deref() == Some(&event.about),
        _ => false,
    })
}

fn commands(volumes: &[HostVolume]) -> Vec<String> {
    let mut commands = Vec::new();
    for volume in volumes {
        commands.push(format!("kosmos-csi trace pv/{}", volume.name));
        if let Some((namespace, name)) = volume.claim.as_deref().and_then(|claim| claim.split_once('/')) {
            commands.push(format!("kubectl describe pvc {name} -n {namespace}"));
        }
    }
    commands
}

fn nodes(row: &Row) -> Link {
    let nodes = row.claim.as_ref().map(row::nodes);
    let state = match nodes.as_ref().map(Vec::len) {
        None => "this page does not know them".to_owned(),
        Some(0) => "no node of the host has it".to_owned(),
        Some(1) => "a node of the host has it".to_owned(),
        Some(count) => format!("{count} nodes of the host have it"),
    };
    let level = if nodes.is_some() { Level::Well } else { Level::Waits };
    Link { what: "Nodes with its pods", name: nodes.unwrap_or_default().join(", "), level, state, facts: Vec::new() }
}

/// The claim and the volume of the host; of several volumes with one handle, each.
fn of_host(volumes: &[HostVolume], are_listed: bool) -> Vec<Link> {
    let missing = |state: &str| Link {
        what: "PersistentVolume of the host",
        name: String::new(),
        level: Level::Waits,
        state: state.to_owned(),
        facts: Vec::new(),
    };
    match (volumes, are_listed) {
        ([], true) => vec![missing("the host has none with this handle")],
        ([], false) => vec![missing("the host's volumes are still being listed")],
        (volumes, _) => volumes.iter().flat_map(claim_and_volume).collect(),
    }
}

fn claim_and_volume(volume: &HostVolume) -> [Link; 2] {
    let has_claim = !volume.claim_uid.is_empty() && !volume.released;
    let claim = Link {
        what: "PersistentVolumeClaim of the host",
        name: volume.claim.as_deref().unwrap_or_default().to_owned(),
        level: Level::Well,
        state: if has_claim { "has this volume" } else { "has gone, or never had this volume" }.to_owned(),
        facts: vec![("UID", volume.claim_uid.to_string())],
    };
    let (state, level) = row::state_in_host(volume);
    let policy = if volume.retains { "Retain" } else { "Delete" };
    let facts = vec![("Reclaim policy", policy.to_owned()), ("UID", volume.uid.to_string())];
    let name = volume.name.to_string();
    [claim, Link { what: "PersistentVolume of the host", name, level, state: state.to_owned(), facts }]
}

fn member_link(name: &str, member: Option<&Member>) -> Link {
    let (state, level) = match member.map(Member::closed) {
        None => ("no member of this name has joined".to_owned(), Level::Wrong),
        Some(None) => ("answers".to_owned(), Level::Well),
        Some(Some(closed)) if closed.starting => (text(&closed.reason), Level::Waits),
        Some(Some(closed)) => (format!("cannot be asked: {}", text(&closed.reason)), Level::Wrong),
    };
    Link { what: "Member", name: name.to_owned(), level, state, facts: Vec::new() }
}

fn leaf_claim(id: &VolumeId, row: &Row) -> Link {
    let what = "Leaf claim";
    let Some(claim) = &row.claim else {
        let name = id.place().map(|place| words(&place)).unwrap_or_default();
        let state = "is not followed by this page".to_owned();
        return Link { what, name, level: Level::Waits, state, facts: Vec::new() };
    };
    let (state, level) = claim_state(claim, row.is_moving());
    let size = claim.size();
    let mut facts = vec![
        ("StorageClass", text(&claim.class)),
        ("Size", Bytes(size.capacity).to_string()),
        ("Access modes", row::modes(claim).join(", ")),
        ("Age", Seconds::since(claim.created()).to_string()),
        ("UID", text(&claim.uid)),
    ];
    if size.requested != size.capacity {
        facts.push(("Asks for", Bytes(size.requested).to_string()));
    }
    Link { what, name: words(&claim.place), level, state, facts }
}

fn claim_state(claim: &ClaimRow, is_moving: bool) -> (String, Level) {
    let size = claim.size();
    match size.phase {
        _ if size.terminating => (format!("is being deleted for {}", Seconds::since(claim.deleted())), Level::Waits),
        _ if is_moving => ("is being moved to another member".to_owned(), Level::Waits),
        Phase::Pending => ("Pending".to_owned(), Level::Waits),
        Phase::Lost => ("Lost: its volume is gone".to_owned(), Level::Wrong),
        Phase::Bound => ("Bound".to_owned(), Level::Well),
    }
}

fn leaf_volume(row: &Row) -> Link {
    let what = "Leaf volume";
    let Some(volume) = &row.volume else {
        let is_waited_for = row.claim.as_ref().is_some_and(|claim| claim.size().phase == Phase::Pending);
        let (state, level) =
            if is_waited_for { ("is not there yet", Level::Waits) } else { ("is not followed", Level::Waits) };
        return Link { what, name: String::new(), level, state: state.to_owned(), facts: Vec::new() };
    };
    let (state, level) =
        if volume.is_terminating() { ("is being deleted", Level::Waits) } else { ("is there", Level::Well) };
    Link { what, name: text(&volume.name), level, state: state.to_owned(), facts: storage(volume) }
}

fn storage(volume: &VolumeRow) -> Vec<(&'static str, String)> {
    let policy = if volume.is_retained() { "Retain" } else { "Delete" };
    let mut facts = vec![("Reclaim policy", policy.to_owned())];
    let told = [("Storage driver", &volume.driver), ("Handle there", &volume.handle), ("Node there", &volume.node)];
    facts.extend(told.into_iter().filter(|(_, said)| !said.is_empty()).map(|(label, said)| (label, text(said))));
    facts
}
