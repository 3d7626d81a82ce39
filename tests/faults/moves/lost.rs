//! Somebody deletes the volume of a copy in its member before anything is copied.

use serde_json::json;
use simulate::{
    faults::{Action, Asked},
    text,
};
use tokio::time::sleep;

use super::{
    CLAIM, CLAIMS, MOVES, Story, VOLUMES, YARD, at_the_end,
    hands::{TRIED, calls_off, delete, is_in_the_yard, loses_mover, mover_begins},
    killed::story_in,
};
use crate::{bench::SHOP, caller::Script, virtual_time};

/// Its receiver runs, and until that is healed nothing is written on the volume that it fills.
pub(super) async fn with_a_copy_that_is_not_kept() -> Story {
    let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
    let keeps = |at: usize, asked: &Asked| at == 2 && asked.verb.writes() && asked.resource == VOLUMES;
    story.bench.guard.set_fate(move |_, at, asked| if keeps(at, asked) { Action::Hang } else { Action::Pass });
    story.asks(1, &json!({}));
    mover_begins(&story, 1).await;
    story
}

/// The one that its claim in the yard has.
fn volume(story: &Story) -> String {
    text(&story.bench.members[1].get(CLAIMS, YARD, &story.lent()).unwrap(), "/spec/volumeName").to_owned()
}

fn loses(story: &Story, volume: &str) {
    let member = &story.bench.members[1];
    member.change(VOLUMES, "", volume, |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
    member.delete(VOLUMES, "", volume).unwrap();
}

/// Else they would end for nothing.
#[test]
fn copy_whose_volume_somebody_deletes_is_told_of_while_the_pods_of_the_source_are_waited_for() {
    for with_its_claim in [false, true] {
        virtual_time::run(1, async {
            let story = story_in("Waiting").await;
            let volume = volume(&story);
            if with_its_claim {
                delete(&story, 1, is_in_the_yard);
                loses_mover(&story, 1);
            }
            loses(&story, &volume);
            sleep(TRIED).await;
            assert_eq!(story.phase(), "Waiting", "{with_its_claim}: {}", story.trace());
            let condition = story.bench.host.get(MOVES, SHOP, "to").unwrap()["status"]["conditions"][0].clone();
            assert_eq!(
                [text(&condition, "/status"), text(&condition, "/reason")],
                ["True", "LeafStuck"],
                "{condition}"
            );
            let told = "member m1: the leaf volume of the copy is gone";
            assert!(text(&condition, "/message").contains(told), "{with_its_claim}: {condition}");
            calls_off(&story);
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{with_its_claim}");
        });
    }
}

/// It would wait for ever for a receiver that is ready.
#[test]
fn copy_whose_volume_somebody_deletes_while_it_is_prepared_is_begun_again_with_another() {
    virtual_time::run(1, async {
        let story = with_a_copy_that_is_not_kept().await;
        let before = volume(&story);
        loses(&story, &before);
        sleep(TRIED).await;
        assert_eq!(story.phase(), "Preparing", "{}", story.trace());
        assert_ne!(volume(&story), before, "{}", story.trace());
        story.bench.guard.heal();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}
