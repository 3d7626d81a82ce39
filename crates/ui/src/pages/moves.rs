//! Volumes that move to another member, as the replica that drives them knows them.

use askama::Template;
use axum::{Extension, extract::State, response::Response};
use domain::volume::moving::Phase;
use host::moves::{self, VolumeMove};
use serde::Serialize;

use super::Frame;
use crate::{
    Sources,
    answer::Form,
    shown::{Bytes, Level, Seconds, text},
};

const MOST: usize = 500;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MoveLine {
    /// `NAMESPACE/NAME`.
    name: String,
    claim: String,
    from: String,
    to: String,
    phase: String,
    pub(crate) level: Level,
    is_over: bool,
    copied: Option<Bytes>,
    per_second: Option<Bytes>,
    age: Seconds,
    /// What it waits for, or what stands in its way.
    why: String,
}

#[derive(Template, Serialize)]
#[template(path = "moves.html")]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    items: Vec<MoveLine>,
    /// How many more there are.
    more: usize,
    /// Whether this replica would know of any.
    are_known: bool,
}

pub(crate) async fn show(State(sources): State<Sources>, Extension(form): Extension<Form>) -> Response {
    let mut items = lines(&sources);
    items.sort_by(|left, right| (left.is_over, right.level, left.age).cmp(&(right.is_over, left.level, right.age)));
    let more = items.len().saturating_sub(MOST);
    items.truncate(MOST);
    let are_known = sources.leads() && sources.moves.is_some();
    form.answer(&Page { frame: Frame::new(&sources, "MoveList", "/moves", "/moves"), items, more, are_known })
}

fn lines(sources: &Sources) -> Vec<MoveLine> {
    let all = sources.moves.iter().flat_map(|moves| moves.all());
    all.map(|(_, of)| MoveLine::from(&of)).collect()
}

/// Those that are not over.
pub(crate) fn under_way(sources: &Sources) -> Vec<MoveLine> {
    lines(sources).into_iter().filter(|line| !line.is_over).collect()
}

impl From<&VolumeMove> for MoveLine {
    fn from(of: &VolumeMove) -> Self {
        let (is_over, phase, stall) = (moves::is_over(of), moves::phase_of(of), moves::stall(of));
        let level = match (stall, phase) {
            (Some(_), _) | (None, Some(Phase::Refused)) => Level::Wrong,
            (None, _) if is_over => Level::Well,
            (None, _) => Level::Waits,
        };
        let (status, claim) = (of.status.as_ref(), moves::claim_of(of));
        let progress = status.and_then(|status| status.progress).filter(|_| phase == Some(Phase::Copying));
        let created = of.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
        Self {
            name: format!("{}/{}", claim.namespace, of.metadata.name.as_deref().unwrap_or_default()),
            claim: text(&claim.to_string()),
            from: status.and_then(|status| status.from.as_ref()).map(|from| text(&from.member)).unwrap_or_default(),
            to: text(&of.spec.to.member),
            phase: phase.map_or_else(|| "New".to_owned(), |phase| format!("{phase:?}")),
            level,
            is_over,
            copied: progress.map(|progress| Bytes(progress.bytes)),
            per_second: progress.map(|progress| Bytes(progress.bytes_per_second)),
            age: Seconds::since(created.unwrap_or_default()),
            why: text(&why(of)),
        }
    }
}

fn why(of: &VolumeMove) -> String {
    match (moves::stall(of), moves::phase_of(of)) {
        (Some(stall), _) => stall.message.clone(),
        (None, Some(Phase::Refused)) => {
            let said = of.status.iter().flat_map(|status| &status.conditions).next();
            said.map(|condition| condition.message.clone()).unwrap_or_default()
        }
        (None, _) => moves::awaited(of).filter(|_| !moves::is_over(of)).unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn line(status: &Value) -> MoveLine {
        let of: VolumeMove = from_value(json!({
            "apiVersion": "kosmos.csi.io/v1alpha1", "kind": "VolumeMove",
            "metadata": {"namespace": "shop", "name": "db-to-m1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"claimName": "db", "to": {"member": "m1"}}, "status": status,
        }))
        .unwrap();
        MoveLine::from(&of)
    }

    fn condition(status: &str, message: &str) -> Value {
        json!([{"type": "Stalled", "status": status, "reason": "X", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    #[test]
    fn move_is_told_with_what_it_waits_for_or_what_stands_in_its_way() {
        let from = json!({"member": "m0", "handle": "h", "namespace": "shop", "claimName": "db"});
        let progress = json!({"bytes": 3_u64 << 30, "bytesPerSecond": 1 << 20});
        for (status, phase, level, why) in [
            (json!({}), "New", Level::Waits, ""),
            (
                json!({"phase": "Waiting", "conditions": condition("False", "pod db-0 has it")}),
                "Waiting",
                Level::Waits,
                "pod db-0 has it",
            ),
            (
                json!({"phase": "Copying", "conditions": condition("True", "no room")}),
                "Copying",
                Level::Wrong,
                "no room",
            ),
            (
                json!({"phase": "Refused", "conditions": condition("False", "it is a block device")}),
                "Refused",
                Level::Wrong,
                "it is a block device",
            ),
            (
                json!({"phase": "Succeeded", "conditions": condition("False", "it has ended")}),
                "Succeeded",
                Level::Well,
                "",
            ),
        ] {
            let line = line(&status);
            assert_eq!((line.phase.as_str(), line.level, line.why.as_str()), (phase, level, why));
            assert_eq!((line.name.as_str(), line.claim.as_str(), line.to.as_str()), ("shop/db-to-m1", "shop/db", "m1"));
        }
        let copying = line(&json!({"phase": "Copying", "from": from, "progress": progress}));
        assert_eq!((copying.from.as_str(), copying.copied), ("m0", Some(Bytes(3 << 30))));
    }
}
