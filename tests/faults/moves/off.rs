//! Moves that are under way when they are switched off, as by an upgrade that does not say again what was on.

use std::time::Duration;

use serde_json::Value;
use simulate::text;
use tokio::time::sleep;

use super::{Story, at_the_end, gone::approves, killed::story_in};
use crate::{
    bench::{SHOP, lock},
    reclaim::events,
    virtual_time,
};

async fn is_begun_again(story: &Story, image: Option<&str>) {
    *lock(&story.bench.mover_image) = image.map(str::to_owned);
    story.bench.start();
    story.bench.serves().await;
}

#[test]
fn volume_that_a_move_has_says_so_while_moves_are_switched_off_and_goes_on_once_they_are_on_again() {
    for phase in ["Waiting", "Ready"] {
        virtual_time::run(1, async {
            let story = story_in(phase).await;
            is_begun_again(&story, None).await;
            sleep(Duration::from_mins(3)).await;
            let told = events(&story.bench);
            let words = "is being moved to another member by VolumeMove shop/to, but moves are switched off";
            assert!(told.contains("LeafStuck") && told.contains(words), "{phase}: {told}\n{}", story.trace());
            let is_on_claim = |event: &Value| {
                text(event, "/involvedObject/kind") == "PersistentVolumeClaim"
                    && text(event, "/message").contains(words)
            };
            let claims: Vec<_> =
                story.bench.host.list("events").into_iter().filter(|event| is_on_claim(event)).collect();
            assert_eq!(claims.len(), 1, "{phase}: {claims:#?}");
            assert_eq!(text(&claims[0], "/involvedObject/namespace"), SHOP);
            assert_eq!(story.phase(), phase, "{}", story.trace());
            is_begun_again(&story, Some("mover")).await;
            if phase == "Waiting" {
                story.bench.members[0].delete("pods", SHOP, "theirs").unwrap();
            }
            approves(&story);
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "{phase}");
        });
    }
}
