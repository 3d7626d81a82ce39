//! What people write on the host's volume once it was decided that it makes way for the one that leads to the copy: that one says it too.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::{sleep, timeout};

use super::{DATA, REMOVED, Story, VOLUMES, at_the_end, gone::approves, killed::story_in};
use crate::virtual_time;

/// More than it takes until it is tried again.
const TRIED: Duration = Duration::from_mins(1);

/// The host does not let the former go, on which somebody has written before.
async fn decided() -> Story {
    let story = story_in("Ready").await;
    let write = |volume: &mut Value| {
        volume["metadata"]["labels"] = json!({"example.com/team": "shop"});
        volume["metadata"]["annotations"]["example.com/backup"] = json!("daily");
        volume["spec"]["mountOptions"] = json!(["noatime"]);
    };
    story.bench.host.change(VOLUMES, "", story.caller.volume(), write).unwrap();
    let is_let_go = |asked: &Asked| asked.verb == Verb::Delete && asked.resource == VOLUMES;
    story.bench.guard.set_fate(move |_, at, asked| {
        let is_late = at == 0 && is_let_go(asked);
        if is_late { Action::Answer { code: 503, reason: "ServiceUnavailable" } } else { Action::Pass }
    });
    approves(&story);
    story.comes_to("Switching").await;
    story
}

#[test]
fn what_is_written_on_the_hosts_volume_while_it_is_replaced_stands_on_the_new_one() {
    virtual_time::run(1, async {
        let mut story = decided().await;
        let write = |volume: &mut Value| {
            volume["metadata"]["labels"] = json!({"example.com/owner": "ops"});
            volume["metadata"]["annotations"]["example.com/backup"] = json!("hourly");
            volume["spec"].as_object_mut().unwrap().remove("mountOptions");
        };
        story.bench.host.change(VOLUMES, "", story.caller.volume(), write).unwrap();
        story.caller.set_policy("Retain");
        sleep(TRIED).await;
        story.bench.guard.heal();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
        let volume = story.host_volume();
        assert_eq!(volume["metadata"]["labels"], json!({"example.com/owner": "ops"}), "{volume}");
        assert_eq!(text(&volume, "/metadata/annotations/example.com~1backup"), "hourly", "{volume}");
        assert!(volume["spec"]["mountOptions"].is_null(), "{volume}");
        // Its data was to stay when its claim goes.
        story.caller.stands_for(text(&volume, "/spec/csi/volumeHandle"));
        story.caller.delete_claim();
        timeout(REMOVED, story.caller.reclaim()).await.unwrap();
        sleep(TRIED).await;
        let left = story.bench.members[1].list(VOLUMES);
        assert_eq!(left.len(), 1, "{left:?}\n{}", story.trace());
        assert_eq!(story.play.read(1, text(&left[0], "/metadata/name")), DATA);
        assert_eq!(text(&left[0], "/spec/persistentVolumeReclaimPolicy"), "Retain", "{left:?}");
    });
}

/// As a webhook that has a word on new ones alone. Once the former is gone nobody could write something else on it.
#[test]
fn what_is_written_on_the_hosts_volume_is_tried_out_before_the_former_goes() {
    virtual_time::run(1, async {
        let story = decided().await;
        let (host, name) = (&story.bench.host, story.caller.volume());
        let writes = |backup: &str| {
            let write = |volume: &mut Value| volume["metadata"]["annotations"]["example.com/backup"] = json!(backup);
            host.change(VOLUMES, "", name, write).unwrap();
        };
        let former = story.host_volume()["metadata"]["uid"].clone();
        writes("hourly");
        story.bench.guard.set_fate(|_, at, asked| {
            let is_made = at == 0 && asked.verb == Verb::Create && asked.resource == VOLUMES;
            let is_refused = is_made && text(&asked.body, "/metadata/annotations/example.com~1backup") == "hourly";
            if is_refused { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        sleep(TRIED * 2).await;
        assert_eq!(story.host_volume()["metadata"]["uid"], former, "{}", story.trace());
        assert!(story.phase() == "Switching" && story.status().contains("(dry run)"), "{}", story.status());
        writes("weekly");
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
        assert_eq!(text(&story.host_volume(), "/metadata/annotations/example.com~1backup"), "weekly");
    });
}
