//! From which nodes a volume is reached once it has moved, where nodes of the host stand for members, or for single nodes of members; and
//! on which its mover runs before that.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use super::{CLAIM, Story, at_the_end, hands::is_in_the_yard, play::Mood};
use crate::{
    caller::{MEMBER_KEY, NODE_KEY, Script},
    fixture, virtual_time,
};

/// In the former member it is reached from all nodes, and in the other one from one.
async fn story() -> Story {
    let parameters = &[("leafStorageClass.m1", fixture::LATER)];
    Story::new(Script { places: vec![0], on_node: true, parameters, ..Script::new(CLAIM) }).await
}

fn told_of(volume: &Value, key: &str) -> Option<String> {
    let all = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"].as_array()?;
    all.iter().find(|one| text(one, "/key") == key).map(|one| text(one, "/values/0").to_owned())
}

#[test]
fn moved_volume_says_on_which_node_of_its_member_it_is_where_nodes_of_the_host_stand_for_single_ones() {
    for stands_for_one in [true, false] {
        virtual_time::run(1, async {
            let story = story().await;
            let mut labels = json!({MEMBER_KEY: "m1"});
            if stands_for_one {
                labels[NODE_KEY] = json!("m1-n1");
            }
            let node = json!({"metadata": {"name": "kosmos-of-m1", "labels": labels}});
            story.bench.host.create("nodes", node).unwrap();
            assert_eq!(told_of(&story.host_volume(), NODE_KEY), None, "the former says none");
            story.asks(1, &json!({}));
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "{stands_for_one}");
            let volume = story.host_volume();
            assert_eq!(told_of(&volume, MEMBER_KEY).as_deref(), Some("m1"), "{volume}");
            assert_eq!(told_of(&volume, NODE_KEY).as_deref(), stands_for_one.then_some("m1-n1"), "{volume}");
        });
    }
}

/// As one that is to be emptied.
#[test]
fn volume_on_a_single_node_is_read_there_also_where_that_takes_no_other_pods() {
    let cordoned = json!({"unschedulable": true});
    let kept_apart = json!({"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]});
    for (leaf_class, closed, is_read) in
        [(fixture::LATER, &cordoned, true), (fixture::LATER, &kept_apart, true), (fixture::NOW, &cordoned, false)]
    {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], leaf_class, ..Script::new(CLAIM) }).await;
            let member = &story.bench.members[0];
            for node in member.list("nodes") {
                let close = |node: &mut Value| node["spec"] = closed.clone();
                member.change("nodes", "", text(&node, "/metadata/name"), close).unwrap();
            }
            story.play.is(Mood::Linger);
            story.asks(1, &json!({}));
            story.comes_to("Copying").await;
            sleep(Duration::from_secs(15)).await;
            let sender = member.list("pods").into_iter().find(|pod| is_in_the_yard(pod)).unwrap();
            let has_node = !text(&sender, "/spec/nodeName").is_empty();
            assert_eq!(has_node, is_read, "{leaf_class} {closed}: {sender}");
        });
    }
}
