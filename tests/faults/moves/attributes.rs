//! A volume with a VolumeAttributesClass moves: its copy gets the class that the host's stands for in the other member.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use super::{CLAIM, CLAIMS, DATA, MOVES, Story, VOLUMES, at_the_end};
use crate::{
    bench::SHOP,
    caller::{Change, Script},
    fixture::GOLD,
    virtual_time,
};

const CLASSES: &str = "volumeattributesclasses.storage.k8s.io";
const CLASS: &str = "fast";

/// The host's class, as external-resizer has put it in force.
async fn modified(member_class: &str, is_known: bool) -> Story {
    let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
    story.caller.change(Change::Modify).await;
    let parameters = json!({"leafVolumeAttributesClass.m0": GOLD, "leafVolumeAttributesClass": member_class});
    let class = json!({"metadata": {"name": CLASS}, "driverName": "kosmos.csi.io", "parameters": parameters});
    let host = &story.bench.host;
    if is_known {
        host.create(CLASSES, class).unwrap();
    }
    let has = |object: &mut Value| object["spec"]["volumeAttributesClassName"] = json!(CLASS);
    host.change(VOLUMES, "", story.caller.volume(), has).unwrap();
    host.change(CLAIMS, SHOP, CLAIM, has).unwrap();
    story
}

#[test]
fn copy_has_the_attributes_that_the_hosts_class_stands_for_in_its_member() {
    virtual_time::run(1, async {
        let story = modified(GOLD, true).await;
        story.asks(1, &json!({}));
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
        let copy = story.bench.members[1].get(CLAIMS, SHOP, CLAIM).unwrap();
        for path in ["/spec/volumeAttributesClassName", "/status/currentVolumeAttributesClassName"] {
            assert_eq!(text(&copy, path), GOLD, "{path} {copy}");
        }
        assert_eq!(text(&story.host_volume(), "/spec/volumeAttributesClassName"), CLASS);
    });
}

/// It is told before anybody's pods have to end.
#[test]
fn volume_that_is_given_another_class_meanwhile_is_not_closed_to_its_pods() {
    virtual_time::run(1, async {
        let story = modified(GOLD, true).await;
        story.asks(1, &json!({}));
        story.comes_to("Preparing").await;
        let other = |object: &mut Value| object["spec"]["volumeAttributesClassName"] = json!("other");
        story.bench.host.change(VOLUMES, "", story.caller.volume(), other).unwrap();
        story.bench.host.change(CLAIMS, SHOP, CLAIM, other).unwrap();
        story.comes_to("Closing").await;
        sleep(Duration::from_mins(1)).await;
        assert_eq!(story.phase(), "Closing", "{}", story.trace());
        assert!(story.status().contains("is given another VolumeAttributesClass"), "{}", story.status());
        story.bench.host.delete(MOVES, SHOP, "to").unwrap();
        assert_eq!(at_the_end(&story, &[false]).await, [""; 0]);
    });
}

#[test]
fn move_whose_class_cannot_be_had_in_the_other_member_is_refused_and_says_why() {
    for (case, words) in [
        ("the member has none", "member m1 has no VolumeAttributesClass"),
        ("the host's is gone", "is not there, or is another driver's"),
        ("it is being changed", "is being given another VolumeAttributesClass"),
    ] {
        virtual_time::run(1, async {
            let member_class = if case == "the member has none" { "silver" } else { GOLD };
            let story = modified(member_class, case != "the host's is gone").await;
            if case == "it is being changed" {
                let asks = |claim: &mut Value| claim["spec"]["volumeAttributesClassName"] = json!("other");
                story.bench.host.change(CLAIMS, SHOP, CLAIM, asks).unwrap();
            }
            story.asks(1, &json!({}));
            story.comes_to("Refused").await;
            assert!(story.status().contains(words), "{case}: {}", story.status());
            assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{case}");
        });
    }
}
