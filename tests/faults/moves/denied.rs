//! A member that goes on refusing what a move needs there: its user is told so for as long as it does, and what is to be done.

use std::time::Duration;

use serde_json::json;
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;

use super::{
    CLAIM, CLAIMS, Story, YARD, at_the_end,
    gone::{SEEN, approves, condition, of, told},
    killed::story_in,
    play::Mood,
};
use crate::{bench::SHOP, caller::Script, virtual_time};

/// Looks at what is told, a second apart.
const LOOKS: usize = 120;

fn answers(story: &Story, at: usize, code: u16, is_meant: fn(&Asked) -> bool) {
    let reason = if code == 403 { "Forbidden" } else { "Conflict" };
    story.bench.guard.set_fate(move |_, of, asked| {
        if of == at + 1 && is_meant(asked) { Action::Answer { code, reason } } else { Action::Pass }
    });
}

/// Without a moment between, or its alert would never be raised. What is told.
async fn is_stalled_all_the_time(story: &Story, reason: &str) -> String {
    for _ in 0..LOOKS {
        let stalled = condition(story, "Stalled");
        assert_eq!(told(&stalled).0, ["True", reason], "{stalled}\n{}", story.trace());
        sleep(Duration::from_secs(1)).await;
    }
    let counted = story.bench.metrics();
    assert!(counted.contains("kosmos_csi_moves_stalled 1"), "{counted}");
    told(&condition(story, "Stalled")).1.to_owned()
}

#[test]
fn member_that_lets_nobody_look_any_more_is_named_and_since_when_and_what_is_to_be_done() {
    for at in [0, 1] {
        virtual_time::run(1, async {
            let story = story_in("Copying").await;
            answers(&story, at, 403, |asked| {
                asked.verb == Verb::List && asked.resource == "pods" && asked.namespace == YARD
            });
            sleep(SEEN).await;
            let message = is_stalled_all_the_time(&story, "MemberRefuses").await;
            let check = format!("`kosmos-csi member check m{at} --moves`");
            for words in [format!("member m{at}: ").as_str(), "(since 20", &check] {
                assert!(message.contains(words), "{words}: {message}");
            }
            sleep(SEEN).await;
            assert_eq!(told(&condition(&story, "Stalled")).1, message);
            story.bench.guard.heal();
            story.play.is(Mood::Well);
            approves(&story);
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "m{at}");
        });
    }
}

/// As where a quota is used up there, or its namespace is being deleted.
#[test]
fn mover_that_a_member_goes_on_refusing_is_told_of_and_the_other_one_waits_for_it() {
    for code in [403, 409] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            answers(&story, 0, code, |asked| {
                asked.verb == Verb::Create && asked.resource == "pods" && asked.namespace == YARD
            });
            story.asks(1, &json!({}));
            story.comes_to("Copying").await;
            sleep(SEEN).await;
            let attempt = of(&story)["status"]["attempt"].clone();
            let message = is_stalled_all_the_time(&story, "StepFailed").await;
            assert!(message.contains("member m0: create the pod of a mover"), "{message}");
            assert_eq!(message.contains("`kosmos-csi member check m0 --moves`"), code == 403, "{message}");
            sleep(SEEN).await;
            assert_eq!(of(&story)["status"]["attempt"], attempt, "{}", story.trace());
            story.bench.guard.heal();
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "{code}");
        });
    }
}

/// Its pod would wait for ever, and another attempt would end like this one.
#[test]
fn keys_that_a_member_goes_on_refusing_are_told_of_and_both_movers_wait_for_them() {
    for (at, code) in [(0, 403), (0, 409), (1, 403)] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            // Those of the receiver are given while the copy is prepared.
            let phase = if at == 0 { "Copying" } else { "Preparing" };
            answers(&story, at, code, |asked| {
                asked.verb == Verb::Create && asked.resource == "secrets" && asked.namespace == YARD
            });
            story.asks(1, &json!({}));
            story.comes_to(phase).await;
            sleep(SEEN).await;
            let attempt = of(&story)["status"]["attempt"].clone();
            let pods = || {
                let there = story.bench.members.iter().flat_map(|member| member.list("pods"));
                let of_movers = there.filter(|pod| text(pod, "/metadata/namespace") == YARD);
                of_movers.map(|pod| text(&pod, "/metadata/uid").to_owned()).collect::<Vec<_>>()
            };
            let before = pods();
            let message = is_stalled_all_the_time(&story, "StepFailed").await;
            assert!(message.contains(&format!("member m{at}: create the keys of a mover")), "{message}");
            sleep(SEEN).await;
            assert_eq!(of(&story)["status"]["attempt"], attempt, "{}", story.trace());
            assert_eq!(pods(), before, "m{at} {code}: {}", story.trace());
            story.bench.guard.heal();
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "m{at} {code}");
        });
    }
}

#[test]
fn ends_that_a_member_goes_on_keeping_from_being_joined_are_told_of() {
    virtual_time::run(1, async {
        let story = story_in("Copying").await;
        answers(&story, 1, 403, |asked| asked.subresource == "portforward");
        sleep(SEEN).await;
        let message = is_stalled_all_the_time(&story, "StepFailed").await;
        let told = ["forward to pod", "the copy is not done yet"];
        assert!(told.iter().all(|words| message.contains(words)), "{message}");
        story.bench.guard.heal();
        story.play.is(Mood::Well);
        approves(&story);
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// As one that has not joined for moves.
#[test]
fn volume_in_a_member_that_gives_no_rights_for_moves_stays_open_to_its_pods_and_its_user_is_told_why() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        answers(&story, 0, 403, |asked| asked.verb == Verb::List && asked.resource == "pods");
        story.asks(1, &json!({}));
        sleep(SEEN).await;
        let message = is_stalled_all_the_time(&story, "StepFailed").await;
        assert!(message.contains("`kosmos-csi member check m0 --moves`"), "{message}");
        let source = story.bench.members[0].get(CLAIMS, SHOP, CLAIM).unwrap();
        assert!(source["metadata"]["annotations"]["kosmos.csi.io/move"].is_null(), "{source}");
        assert!(story.bench.members[1].list(CLAIMS).is_empty(), "{}", story.trace());
        story.bench.guard.heal();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}
