//! A move is looked at until it has come to its end, and each new thing is said. Whoever ends the following ends nothing else.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt, api::ListParams};
use tokio::time::sleep;

use super::{Report, moves_in, refusal};
use crate::run::operator::{pods, print};
use cluster::with_causes;
use domain::volume::moving::Phase;
use host::moves::{self, Cutover, Progress, VolumeMove};

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    Moved,
    CalledOff,
}

/// What was said already.
#[derive(Default)]
struct Said {
    phase: Option<Phase>,
    /// What stands in its way.
    stall: Option<String>,
    progress: Option<Progress>,
    /// What is waited for, and which pods of the host have the volume.
    awaited: Option<String>,
    users: Vec<String>,
    is_unanswered: bool,
}

pub(super) async fn follow(client: &Client, of: &VolumeMove, goal: Goal) -> anyhow::Result<Report> {
    let (namespace, name) = (of.namespace().unwrap_or_default(), of.name_any());
    let api = moves_in(client, &namespace);
    let mut said = Said::default();
    loop {
        match cluster::read(api.get(&name).await, &name) {
            Ok(now) => {
                said.is_unanswered = false;
                let Some(now) = now.filter(|now| now.uid() == of.uid()) else { return Ok(gone(of, goal)) };
                let users = users(client, &now).await;
                for news in said.news(&now, users) {
                    print::progress(&news);
                }
                if let Some(report) = end(&now, goal) {
                    return Ok(report);
                }
            }
            Err(error) if is_refused(&error) => return Err(refusal(&format!("get {}", moves::name(of)), &error)),
            Err(error) => {
                if !std::mem::replace(&mut said.is_unanswered, true) {
                    print::progress(&format!(
                        "the host does not answer now; this command asks it again: {}",
                        with_causes(&error)
                    ));
                }
            }
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// What another look would be told too. That the host is busy passes, and so does what it says while it is being replaced.
fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code < 500 && status.code != 429)
}

impl Said {
    /// What is new of it.
    fn news(&mut self, now: &VolumeMove, users: Vec<String>) -> Vec<String> {
        let mut news = Vec::new();
        let phase = moves::phase_of(now);
        if let Some(phase) = phase.filter(|_| phase != self.phase) {
            self.phase = Some(phase);
            news.push(format!("{phase:?}: {}", in_words(now, phase)));
        }
        let stall = moves::stall(now).map(|stall| stall.message.clone());
        if let Some(stall) = stall.as_ref().filter(|_| stall != self.stall) {
            news.push(format!("  it does not go on: {stall}"));
        }
        self.stall = stall;
        let progress = now.status.as_ref().and_then(|status| status.progress);
        if let Some(progress) = progress.filter(|_| progress != self.progress) {
            self.progress = Some(progress);
            news.push(format!("  {}", copied(progress)));
        }
        let awaited = awaited(now).map(str::to_owned);
        if let Some(awaited) = awaited.as_ref().filter(|_| awaited != self.awaited) {
            news.push(format!("  it waits: {awaited}"));
        }
        self.awaited = awaited;
        news.extend(users.iter().filter(|user| !self.users.contains(user)).map(|user| format!("  {user}")));
        self.users = users;
        news
    }
}

/// Others have to do something, and the status says who; before and after, it is the driver's and the members' own business.
fn awaited(of: &VolumeMove) -> Option<&str> {
    let waits_for_others = match moves::phase_of(of) {
        None | Some(Phase::Waiting | Phase::Isolating | Phase::Cancelling) => true,
        Some(Phase::Ready) => !waits_for_word(of),
        Some(_) => false,
    };
    moves::awaited(of).filter(|_| waits_for_others)
}

/// Of one that is ready.
fn waits_for_word(of: &VolumeMove) -> bool {
    of.spec.cutover == Cutover::Manual && !of.spec.approved
}

/// The pods of the host that are waited for, and what ends them; none where nobody may list pods.
async fn users(client: &Client, of: &VolumeMove) -> Vec<String> {
    let Some(awaited) = awaited(of) else { return Vec::new() };
    let namespace = of.namespace().unwrap_or_default();
    let pods = pods::list(client, Some(&namespace), &ListParams::default()).await.unwrap_or_default();
    let users = pods.iter().filter(|pod| {
        host::pod::claims_of(pod).contains(&of.spec.claim_name) && is_waited_for(pod, &namespace, awaited)
    });
    users
        .map(|pod| {
            let name = pod.name_any();
            let has = if host::pod::has_ended(pod) { "has ended and keeps the volume" } else { "has the volume" };
            format!("pod {name} {has}: `kubectl -n {namespace} delete pod {name}` ends it")
        })
        .collect()
}

/// By its name, or by that of its node where that is one of the host's own. Of many only some are named.
fn is_waited_for(pod: &Pod, namespace: &str, awaited: &str) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let is_on_named_node = node.is_some_and(|node| awaited.contains(&format!("node {node} of the host")));
    let may_be_among_others = node.is_some() && awaited.ends_with(" more");
    awaited.contains(&format!("pod {namespace}/{} of member", pod.name_any()))
        || !host::pod::has_ended(pod) && (is_on_named_node || may_be_among_others)
}

pub(super) fn copied(progress: Progress) -> String {
    format!("{} copied, {} a second", megabytes(progress.bytes), megabytes(progress.bytes_per_second))
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

/// What goes on.
pub(super) fn in_words(of: &VolumeMove, phase: Phase) -> String {
    let to = &of.spec.to.member;
    let from = of.status.as_ref().and_then(|status| status.from.as_ref()).map(|from| from.member.as_str());
    let from = from.unwrap_or("the other member");
    match phase {
        Phase::Preparing => format!("the driver makes a claim for the copy, and a mover, in member {to}"),
        Phase::Closing => {
            "the driver closes the volume to further pods, once few enough other moves are under way".to_owned()
        }
        Phase::Waiting => "no other pod gets the volume, and the pods that have it must end".to_owned(),
        Phase::Isolating => format!("the driver takes the volume out of everybody's reach in member {from}"),
        Phase::Copying => "the movers copy the files and compare them; pods wait meanwhile".to_owned(),
        Phase::Placing => format!("the copy takes its place in member {to}"),
        Phase::Ready => "the copy is complete, and the move waits for approval to switch to it".to_owned(),
        Phase::Switching => format!("the host's volume leads to member {to} from now on"),
        Phase::Finishing => "the driver removes what is left of the move".to_owned(),
        Phase::Succeeded => format!("the volume is in member {to}"),
        Phase::Cancelling => format!("the driver undoes the move: the volume stays in member {from}"),
        Phase::Cancelled => format!("the volume stayed in member {from}"),
        Phase::Refused => "nothing was done".to_owned(),
    }
}

/// None while there is more to come.
fn end(of: &VolumeMove, goal: Goal) -> Option<Report> {
    let (claim, name) = (moves::claim_of(of), moves::name(of));
    let place = format!("{}/{}", of.namespace().unwrap_or_default(), of.name_any());
    let from = of.status.as_ref().and_then(|status| status.from.as_ref()).map(|from| from.member.clone());
    let from = from.unwrap_or_default();
    let phase = moves::phase_of(of)?;
    let waits_for_word = phase == Phase::Ready && waits_for_word(of);
    let said = match phase {
        Phase::Succeeded => format!(
            "The volume of claim {claim} is in member {}. What was in member {from} {}{}.\n",
            of.spec.to.member,
            moves::fate_of_source(of),
            if moves::source_is_kept(of) { " (`kosmos-csi volume discard` lists it)" } else { "" }
        ),
        Phase::Refused => {
            let why = of.status.iter().flat_map(|status| &status.conditions).map(|one| one.message.as_str()).next();
            format!("{name} is refused: {}.\n", why.unwrap_or_default())
        }
        Phase::Cancelled => format!("{name} is called off: the volume of claim {claim} stayed in member {from}.\n"),
        _ if waits_for_word && goal == Goal::Moved => format!(
            "The copy in member {} is the same as the volume in member {from}. `kosmos-csi volume approve {place}` switches to it, \
             `kosmos-csi volume cancel {place}` calls the move off; pods wait meanwhile.\n",
            of.spec.to.member
        ),
        _ => return None,
    };
    let well = match goal {
        Goal::Moved => !matches!(phase, Phase::Refused | Phase::Cancelled),
        Goal::CalledOff => phase == Phase::Cancelled,
    };
    Some(Report::new(said, well))
}

fn gone(of: &VolumeMove, goal: Goal) -> Report {
    let (name, claim) = (moves::name(of), moves::claim_of(of));
    match goal {
        Goal::CalledOff => Report::well(format!("{name} is called off, and nothing of it is left.\n")),
        Goal::Moved => Report::new(
            format!("somebody deleted {name}: `kosmos-csi trace {claim}` shows where the volume is.\n"),
            false,
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn waiting(phase: &str, message: &str) -> VolumeMove {
        let condition = json!({"type": "Stalled", "status": "False", "reason": "Progressing", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({
            "apiVersion": "kosmos.csi.io/v1alpha1", "kind": "VolumeMove", "metadata": {"name": "db-to-m1", "namespace": "shop"},
            "spec": {"claimName": "db", "to": {"member": "m1"}},
            "status": {"phase": phase, "attempt": 0, "conditions": [condition]}}))
        .unwrap()
    }

    #[test]
    fn who_is_waited_for_is_said_once_and_again_when_it_is_somebody_else() {
        let (mut said, both) = (Said::default(), waiting("Waiting", "pods use the volume: a, b"));
        let users = || vec!["pod a has the volume".to_owned()];
        let first = [
            "Waiting: no other pod gets the volume, and the pods that have it must end",
            "  it waits: pods use the volume: a, b",
            "  pod a has the volume",
        ];
        assert_eq!(said.news(&both, users()), first);
        assert_eq!(said.news(&both, users()), [""; 0]);
        assert_eq!(
            said.news(&waiting("Waiting", "pods use the volume: b"), vec![]),
            ["  it waits: pods use the volume: b"]
        );
        let copying = said.news(&waiting("Copying", "the copy is not done yet"), vec![]);
        assert_eq!(copying, ["Copying: the movers copy the files and compare them; pods wait meanwhile"]);
        let had = said.news(&waiting("Ready", "pods have the copy already: c"), vec![]);
        assert_eq!(had[1..], ["  it waits: pods have the copy already: c"]);
    }

    #[test]
    fn pods_are_told_of_that_the_move_names_or_may_mean() {
        let pod = |name: &str, node: Option<&str>, phase: &str| -> Pod {
            let spec = json!({"nodeName": node, "containers": []});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}))
                .unwrap()
        };
        let told = "pods use the volume: pod shop/db-0 of member m0, pod shop/job-1 of member m0 (it has ended, and keeps the claim until \
                    it is deleted), node worker of the host";
        for (name, node, phase, is_told) in [
            ("db-0", Some("kosmos-m0"), "Running", true),
            ("job-1", Some("kosmos-m0"), "Succeeded", true),
            // Made again by its StatefulSet, it waits for the move.
            ("db", Some("kosmos-m0"), "Pending", false),
            ("web", Some("worker"), "Running", true),
            ("web", Some("worker"), "Succeeded", false),
            ("web", None, "Pending", false),
        ] {
            assert_eq!(is_waited_for(&pod(name, node, phase), "shop", told), is_told, "{name} {node:?} {phase}");
        }
        assert!(is_waited_for(
            &pod("x", Some("kosmos-m0"), "Running"),
            "shop",
            "pods use the volume: pod shop/a of member m0 and 4 more"
        ));
    }
}
