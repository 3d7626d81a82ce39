//! How all of it stands, on one screen.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    doctor::LEASE_LATE,
    kubeconfig::span,
    listing::{Item, Listing},
    volumes::ListedVolume,
};

/// What the chart puts on all that it makes.
pub const CHART: &str = "app.kubernetes.io/name=kosmos-csi";

#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Of the program that asks.
    pub version: String,
    pub has_driver_object: bool,
    /// Who works in the background.
    pub leader: Option<Holder>,
    pub workloads: Vec<Workload>,
    pub members: Vec<SeenMember>,
    pub volumes: Vec<ListedVolume>,
    pub moves_under_way: usize,
    /// Those that do not go on.
    pub stalled_moves: usize,
}

/// Who has a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// His pod begins it; empty where the last one was stopped, and has given the lease back.
    pub identity: String,
    /// How many seconds ago he said so.
    pub age: i64,
}

/// A Deployment or DaemonSet of the chart.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    pub name: String,
    pub ready: i32,
    pub wanted: i32,
    /// Of its first container.
    pub image: String,
}

#[derive(Clone, Debug, Default)]
pub struct SeenMember {
    pub name: String,
    pub cordoned: bool,
    pub problem: Option<String>,
}

/// One thing, and whether it is as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    what: String,
    state: String,
    well: bool,
}

pub(crate) fn line(what: &str, state: impl Into<String>, well: bool) -> Line {
    Line { what: what.to_owned(), state: state.into(), well }
}

/// And whether all is well.
pub fn listing(seen: &Seen) -> (Listing, bool) {
    screen("Status", &seen.lines())
}

pub(crate) fn screen(kind: &'static str, lines: &[Line]) -> (Listing, bool) {
    let mut listing = Listing::new(kind, &["WHAT", "STATE"], &[]);
    for Line { what, state, well } in lines {
        let shown = if *well { state.clone() } else { format!("NOT WELL: {state}") };
        listing.add(Item {
            name: what.clone(),
            cells: vec![what.clone(), shown],
            wide: Vec::new(),
            object: json!({"what": what, "state": state, "well": well}),
        });
    }
    (listing, lines.iter().all(|line| line.well))
}

/// What every screen begins with.
pub(crate) fn begin(version: &str, has_driver_object: bool, leader: Option<&Holder>) -> Vec<Line> {
    let driver = if has_driver_object {
        "CSIDriver kosmos.csi.io is there"
    } else {
        "CSIDriver kosmos.csi.io is missing: install the chart, or apply deploy/host.yaml"
    };
    vec![
        line("this program", format!("kosmos-csi {version}"), true),
        line("driver", driver, has_driver_object),
        held("leader", "no controller has ever worked here", leader),
    ]
}

pub(crate) fn held(what: &str, never: &str, by: Option<&Holder>) -> Line {
    let Some(Holder { identity, age }) = by else { return line(what, never, false) };
    let (is_late, ago) = (*age > LEASE_LATE, format!("{} ago", span(*age)));
    let state = match (identity.as_str(), is_late) {
        // The next one takes it within seconds.
        ("", _) => format!("none just now: the last one was stopped {ago}"),
        (identity, true) => format!("none: {identity} last renewed its lease {ago}"),
        (identity, false) => format!("{identity}, which renewed its lease {ago}"),
    };
    line(what, state, !is_late)
}

impl Seen {
    fn lines(&self) -> Vec<Line> {
        let mut lines = begin(&self.version, self.has_driver_object, self.leader.as_ref());
        lines.extend(self.workloads.iter().map(Workload::line));
        lines.extend(self.members());
        lines.extend([self.volumes(), self.waiting(), self.moves()]);
        lines
    }

    fn members(&self) -> Vec<Line> {
        let answering = self.members.iter().filter(|member| member.problem.is_none()).count();
        let cordoned: Vec<&str> =
            self.members.iter().filter(|member| member.cordoned).map(|member| member.name.as_str()).collect();
        let closed = if cordoned.is_empty() { String::new() } else { format!("; cordoned: {}", cordoned.join(", ")) };
        let all = answering == self.members.len();
        let mut lines = vec![line("members", format!("{answering} of {} answer{closed}", self.members.len()), all)];
        let silent = self.members.iter().filter_map(|member| Some((&member.name, member.problem.as_ref()?)));
        lines.extend(silent.map(|(name, problem)| line(&format!("member {name}"), problem, false)));
        lines
    }

    fn volumes(&self) -> Line {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for volume in self.volumes.iter().filter(|volume| volume.volume.is_some()) {
            *counts.entry(volume.state()).or_default() += 1;
        }
        let counted: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
        line("volumes", if counted.is_empty() { "none".to_owned() } else { counted.join(", ") }, true)
    }

    /// That a claim waits is no fault of the driver's by itself: `doctor` says what each waits for.
    fn waiting(&self) -> Line {
        let waiting: Vec<&ListedVolume> = self.volumes.iter().filter(|volume| volume.volume.is_none()).collect();
        let state = match waiting.iter().max_by_key(|claim| claim.age) {
            None => "none".to_owned(),
            Some(oldest) => format!(
                "{}, the oldest {} for {}: kosmos-csi trace {}",
                waiting.len(),
                oldest.claim_in_words(),
                span(oldest.age),
                oldest.claim_in_words()
            ),
        };
        line("claims that wait", state, true)
    }

    fn moves(&self) -> Line {
        let state = match (self.moves_under_way, self.stalled_moves) {
            (0, 0) => "none".to_owned(),
            (under_way, 0) => format!("{under_way} under way"),
            (under_way, stalled) => format!("{under_way} under way, stalled: {stalled}; see kosmos-csi volume status"),
        };
        line("moves", state, self.stalled_moves == 0)
    }
}

impl Workload {
    fn line(&self) -> Line {
        let ready = match self.wanted {
            0 => "none wanted".to_owned(),
            wanted => format!("{} of {wanted} ready", self.ready),
        };
        // A DaemonSet waits for its nodes.
        let is_switched_off = self.wanted == 0 && self.name.starts_with("Deployment ");
        line(&self.name, format!("{ready}, {}", self.image), self.ready >= self.wanted && !is_switched_off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{listing::Form, volumes::Provisioned};

    fn well() -> Seen {
        let workload = Workload { name: "Deployment a/b".to_owned(), ready: 2, wanted: 2, image: "k:0.1.0".to_owned() };
        let volume = ListedVolume {
            volume: Some(Provisioned { phase: "Bound".to_owned(), ..Provisioned::default() }),
            ..ListedVolume::default()
        };
        let waits =
            ListedVolume { claim: Some(("shop".to_owned(), "db".to_owned())), age: 240, ..ListedVolume::default() };
        Seen {
            version: "0.1.0".to_owned(),
            has_driver_object: true,
            leader: Some(Holder { identity: "controller-1".to_owned(), age: 3 }),
            workloads: vec![workload],
            members: vec![SeenMember { name: "m0".to_owned(), cordoned: true, problem: None }],
            volumes: vec![volume.clone(), volume, waits],
            moves_under_way: 0,
            stalled_moves: 0,
        }
    }

    #[test]
    fn screen_says_what_there_is() {
        let (listing, is_well) = listing(&well());
        listing.has_rows(&[
            "this program       kosmos-csi 0.1.0",
            "leader             controller-1, which renewed its lease 3s ago",
            "Deployment a/b     2 of 2 ready, k:0.1.0",
            "members            1 of 1 answer; cordoned: m0",
            "volumes            2 Bound",
            "claims that wait   1, the oldest shop/db for 4m: kosmos-csi trace shop/db",
            "moves              none",
        ]);
        assert!(is_well);
    }

    #[test]
    fn what_is_not_well_is_said_and_makes_the_whole_so() {
        let silent = SeenMember { name: "edge".to_owned(), cordoned: false, problem: Some("no answer".to_owned()) };
        let off = Workload { wanted: 0, ready: 0, ..well().workloads[0].clone() };
        let late = |identity: &str| Some(Holder { identity: identity.to_owned(), age: 600 });
        let down = Workload { name: "DaemonSet a/c".to_owned(), ready: 0, wanted: 1, image: String::new() };
        for (seen, row) in [
            (Seen { has_driver_object: false, ..well() }, "driver             NOT WELL: CSIDriver"),
            (Seen { leader: None, ..well() }, "leader             NOT WELL: no controller has ever"),
            (Seen { leader: late("c"), ..well() }, "leader             NOT WELL: none: c last renewed"),
            (
                Seen { leader: late(""), ..well() },
                "leader             NOT WELL: none just now: the last one was stopped 10m ago",
            ),
            (Seen { members: vec![silent.clone()], ..well() }, "members            NOT WELL: 0 of 1 answer"),
            (Seen { members: vec![silent], ..well() }, "member edge        NOT WELL: no answer"),
            (Seen { workloads: vec![off], ..well() }, "Deployment a/b     NOT WELL: none wanted"),
            (Seen { workloads: vec![down], ..well() }, "DaemonSet a/c      NOT WELL: 0 of 1 ready"),
            (
                Seen { moves_under_way: 3, stalled_moves: 2, ..well() },
                "moves              NOT WELL: 3 under way, stalled: 2; see",
            ),
        ] {
            let (listing, is_well) = listing(&seen);
            let told = listing.print(Form::Table);
            assert!(!is_well && told.lines().any(|line| line.starts_with(row)), "{row}: {told}");
        }
    }
}
