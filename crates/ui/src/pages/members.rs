//! All members, and how each stands.

use askama::Template;
use axum::{Extension, extract::State, response::Response};
use cluster::metrics::MemberNow;
use leaf::capacity::UNLIMITED;
use member::Member;
use serde::Serialize;

use super::Frame;
use crate::{
    Sources,
    answer::Form,
    shown::{Bytes, Level, Seconds, text},
};

/// Of one member, among all.
const CLASSES: usize = 20;

/// One member as it stands now.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberLine {
    pub(crate) name: String,
    /// In a word of `docs/metrics.md`, or `alias`.
    pub(crate) state: &'static str,
    pub(crate) level: Level,
    /// Why it cannot be asked, where it cannot.
    pub(crate) why: String,
    pub(crate) cordoned: bool,
    pub(crate) alias_of: Option<String>,
    pub(crate) volumes: Volumes,
    pub(crate) oldest_creation: Seconds,
    pub(crate) oldest_deletion: Seconds,
    pub(crate) token_ends: Option<Seconds>,
    /// It should have been renewed by now.
    pub(crate) token_late: bool,
    /// The first of them, where they are shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) classes: Vec<ClassLine>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Volumes {
    pub(crate) bound: u64,
    pub(crate) pending: u64,
    pub(crate) lost: u64,
    pub(crate) terminating: u64,
    pub(crate) released: u64,
    /// Leaves that no volume of the host has, as the leader counted them.
    pub(crate) stray: u64,
}

impl Volumes {
    fn of(now: &MemberNow) -> Self {
        let of = |state: &str| now.volumes.iter().find(|(name, _)| *name == state).map_or(0, |(_, count)| *count);
        Self {
            bound: of("bound"),
            pending: of("pending"),
            lost: of("lost"),
            terminating: of("terminating"),
            released: of("released"),
            stray: of("stray"),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            bound: self.bound + other.bound,
            pending: self.pending + other.pending,
            lost: self.lost + other.lost,
            terminating: self.terminating + other.terminating,
            released: self.released + other.released,
            stray: self.stray + other.stray,
        }
    }

    pub(crate) fn all(self) -> u64 {
        self.bound + self.pending + self.lost + self.terminating + self.released
    }
}

/// A StorageClass that a member opens to this host.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClassLine {
    pub(crate) name: String,
    pub(crate) provisioner: String,
    pub(crate) is_default: bool,
    pub(crate) waits_for_pod: bool,
    pub(crate) grows: bool,
    /// None: the member says nothing of it.
    pub(crate) free: Option<Bytes>,
    pub(crate) largest: Option<Bytes>,
    /// From this size on it was refused lately.
    pub(crate) refused: Option<Bytes>,
}

#[derive(Template, Serialize)]
#[template(path = "members.html")]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    items: Vec<MemberLine>,
}

pub(crate) async fn show(State(sources): State<Sources>, Extension(form): Extension<Form>) -> Response {
    let frame = Frame::new(&sources, "MemberList", "/members", "/members");
    form.answer(&Page { frame, items: lines(&sources, CLASSES) })
}

/// Each with so many of its classes at most.
pub(crate) fn lines(sources: &Sources, classes: usize) -> Vec<MemberLine> {
    sources.members().values().map(|member| MemberLine::of(member, classes)).collect()
}

impl MemberLine {
    pub(crate) fn of(member: &Member, most: usize) -> Self {
        let (now, closed, alias_of) = (member.now(), member.closed(), member.alias_of());
        let state = if alias_of.is_some() { "alias" } else { now.state };
        let level = match &closed {
            _ if alias_of.is_some() => Level::Well,
            None if now.token_late == Some(true) => Level::Waits,
            None => Level::Well,
            Some(closed) if closed.starting => Level::Waits,
            Some(_) => Level::Wrong,
        };
        Self {
            name: member.name.clone(),
            state,
            level,
            why: closed.map(|closed| text(&closed.reason)).unwrap_or_default(),
            cordoned: member.is_cordoned(),
            volumes: if alias_of.is_some() { Volumes::default() } else { Volumes::of(&now) },
            oldest_creation: now.oldest_creation.into(),
            oldest_deletion: now.oldest_deletion.into(),
            token_ends: now.token_ends.map(Seconds::until),
            token_late: now.token_late == Some(true),
            classes: if alias_of.is_some() { Vec::new() } else { classes(member, most) },
            alias_of,
        }
    }
}

fn classes(member: &Member, most: usize) -> Vec<ClassLine> {
    let Some(leaf) = member.last_known() else { return Vec::new() };
    let default = leaf.rows.default_class();
    let open = leaf.rows.open_classes(most).into_iter();
    open.map(|(name, class)| {
        // A member may say more than any storage has.
        let told = leaf.capacity.told(&name).filter(|room| room.free < UNLIMITED);
        ClassLine {
            is_default: default.as_ref() == Some(&name),
            provisioner: text(&class.provisioner),
            waits_for_pod: class.waits_for_pod,
            grows: class.grows,
            free: told.map(|room| Bytes(room.free)),
            largest: told.and_then(|room| room.largest).map(Bytes),
            refused: leaf.capacity.refused(&name).map(Bytes),
            name: text(&name),
        }
    })
    .collect()
}
