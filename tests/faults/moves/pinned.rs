//! Somebody deletes the host's record of which member is which cluster while a volume moves. A move has the UIDs of both clusters on its own
//! record: it writes in no other one, and takes nobody for forgotten of whom the new record says nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked},
    text,
};
use tokio::time::sleep;

use super::{
    CLAIMS, Story, VOLUMES, at_the_end,
    gone::{SEEN, approves, calls_off, condition, of, told},
    killed::{story_among, story_in},
    none_is_wrong,
    rounds::is_silent,
};
use crate::{bench::DRIVER_NAMESPACE, fixture, virtual_time};

const RECORD: &str = "kosmos-csi-members";
const AWAY: Duration = Duration::from_mins(20);

fn loses_record(story: &Story) {
    story.bench.host.delete("configmaps", DRIVER_NAMESPACE, RECORD).unwrap();
}

fn record(story: &Story) -> Value {
    story.bench.host.get("configmaps", DRIVER_NAMESPACE, RECORD).unwrap()["data"].clone()
}

/// Under the name of a member.
fn leads_elsewhere(name: &str, to: &str) -> Value {
    let mut secret = fixture::kubeconfig(to);
    secret["metadata"]["name"] = json!(name);
    secret["metadata"]["labels"]["kosmos.csi.io/member"] = json!(name);
    secret
}

/// How often leaves and movers were written in the third cluster.
fn counts_writes(story: &Story) -> Arc<AtomicU64> {
    let written = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&written);
    let is_of_move =
        |asked: &Asked| asked.verb.writes() && [CLAIMS, VOLUMES, "pods", "secrets"].contains(&asked.resource.as_str());
    story.bench.guard.set_fate(move |_, at, asked| {
        counted.fetch_add(u64::from(at == 3 && is_of_move(asked)), Ordering::Relaxed);
        Action::Pass
    });
    written
}

/// What is wrong once the third cluster has the name of a member that has something of the move.
async fn after_another_has_its_name(phase: &str, member: usize, is_called_off: bool) -> Option<String> {
    let story = story_among(3, phase).await;
    let [name, other] = [member, 2].map(|at| story.bench.members[at].name().to_owned());
    let source = text(&of(&story), "/status/source/name").to_owned();
    let written = counts_writes(&story);
    for gone in [&name, &other] {
        story.bench.host.delete("secrets", DRIVER_NAMESPACE, gone).unwrap();
    }
    sleep(Duration::from_secs(5)).await;
    loses_record(&story);
    story.bench.host.create("secrets", leads_elsewhere(&name, &other)).unwrap();
    sleep(SEEN).await;
    let identity = story.bench.members[2].get("namespaces", "", "kube-system").unwrap();
    if record(&story)[&name] != identity["metadata"]["uid"] {
        return Some(format!("{name} is no member: {}", record(&story)));
    }
    if is_called_off {
        calls_off(&story);
    } else {
        approves(&story);
    }
    sleep(AWAY).await;
    let is_there = story.bench.members[0].get(VOLUMES, "", &source).is_some();
    let times = written.load(Ordering::Relaxed);
    (times > 0 || !is_there).then(|| {
        format!("{times} writes in {other}, source is there: {is_there}\n{}\n{}", story.status(), story.trace())
    })
}

#[test]
fn move_writes_nothing_in_another_cluster_that_has_the_name_of_its_member_once_the_record_of_members_is_gone() {
    let all = ["Preparing", "Waiting", "Copying", "Ready"].into_iter().flat_map(|phase| {
        [(0, false), (0, true), (1, false), (1, true)].map(|(member, is_called_off)| (phase, member, is_called_off))
    });
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, all.collect(), |(phase, member, is_called_off)| {
        let wrong = virtual_time::run(1, after_another_has_its_name(phase, member, is_called_off));
        wrong.map(|wrong| format!("{phase}, m{member}, called off: {is_called_off}: {wrong}"))
    }));
}

/// Those that answer are in the new record, once the driver has been started again. Nobody has said that the other one is gone for good.
#[test]
fn silent_member_is_not_taken_for_forgotten_where_the_record_of_members_was_deleted() {
    for is_called_off in [false, true] {
        virtual_time::run(1, async {
            let story = story_in("Ready").await;
            is_silent(&story, 0);
            sleep(SEEN).await;
            loses_record(&story);
            story.bench.start();
            sleep(SEEN).await;
            let known: Vec<String> = record(&story).as_object().unwrap().keys().cloned().collect();
            assert_eq!(known, ["m1"]);
            if is_called_off {
                calls_off(&story);
            } else {
                approves(&story);
            }
            sleep(AWAY).await;
            let stalled = condition(&story, "Stalled");
            let (state, message) = told(&stalled);
            assert_eq!(state, ["True", "MemberUnreachable"], "{message}\n{}", story.trace());
            assert_eq!(story.phase(), if is_called_off { "Cancelling" } else { "Ready" }, "{message}");
            story.bench.guard.heal();
            assert_eq!(at_the_end(&story, &[!is_called_off]).await, [""; 0]);
        });
    }
}
