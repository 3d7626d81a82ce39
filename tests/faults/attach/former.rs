//! VolumeAttachments for a leaf volume that the leaf claim had before: they have the name, the labels and the node of those for the one
//! that it has now.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;
use tonic::Code;

use super::{
    STEP,
    attachments::{attached, only},
    double::{ATTACHMENTS, Mood},
    leaf_volume, nothing_is_wrong, publish, record, refused, unpublish,
};
use crate::{
    bench::{Bench, SHOP},
    virtual_time,
};

fn is_for(bench: &Bench, volume: &str) {
    let name = text(&only(bench), "/metadata/name").to_owned();
    let set = |one: &mut Value| one["spec"]["source"]["persistentVolumeName"] = json!(volume);
    bench.members[0].change(ATTACHMENTS, "", &name, set).unwrap();
}

#[test]
fn attachment_of_the_former_leaf_volume_is_not_taken_for_that_of_the_present_one() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let former = text(&only(&bench), "/metadata/uid").to_owned();
        is_for(&bench, "pvc-former");
        publish(&bench, &caller, "real/n1").await.unwrap();
        let present = only(&bench);
        assert_eq!(text(&present, "/spec/source/persistentVolumeName"), leaf_volume(&bench, "data"));
        assert!(present["status"]["attached"] == true && text(&present, "/metadata/uid") != former);
        assert!(record(&bench, "data").contains("m0-n1"));
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        assert!(bench.members[0].list(ATTACHMENTS).is_empty() && record(&bench, "data").is_empty());
        nothing_is_wrong(&bench);
    });
}

#[test]
fn who_waits_for_the_former_leaf_volume_to_be_detached_is_told_that_it_is_that_one() {
    virtual_time::run(1, async {
        let (bench, caller, attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        is_for(&bench, "pvc-former");
        attacher.is(Mood::Failing);
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        let present = leaf_volume(&bench, "data");
        let says = format!(
            "is of leaf volume pvc-former, which the leaf claim had before leaf volume {present}, and has to be"
        );
        assert!(code == Code::Aborted && message.contains(&says), "{code:?} {message}");
        assert!(message.ends_with("Its attacher says: the array is full"), "{message}");
    });
}

/// The claim has got another volume, and that was attached, while a caller slept who had seen the former one.
#[test]
fn whoever_slept_takes_back_nothing_that_was_attached_since() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let mut later = Value::clone(&only(&bench));
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        let makes_one = |asked: &Asked| asked.verb == Verb::Create && asked.resource == ATTACHMENTS;
        let late = move |_, _, asked: &Asked| {
            if makes_one(asked) { Action::Delay(Duration::from_secs(2)) } else { Action::Pass }
        };
        bench.guard.set_fate(late);
        let member = bench.members[0].clone();
        let meanwhile = async {
            while !record(&bench, "data").contains("m0-n1") {
                sleep(STEP).await;
            }
            sleep(STEP).await;
            later["metadata"] = json!({
                "name": later["metadata"]["name"], "labels": later["metadata"]["labels"], "annotations": later["metadata"]["annotations"],
            });
            later["spec"]["source"]["persistentVolumeName"] = json!("pvc-later");
            let made = member.create(ATTACHMENTS, later).unwrap();
            let set = |claim: &mut Value| claim["spec"]["volumeName"] = json!("pvc-later");
            member.change("persistentvolumeclaims", SHOP, "data", set).unwrap();
            made
        };
        let (answer, made) = tokio::join!(publish(&bench, &caller, "real/n1"), meanwhile);
        let (code, message) = refused(answer);
        let says = message.contains("has another volume than") && message.contains("by now");
        assert!(code == Code::Aborted && says, "{code:?} {message}");
        let there = only(&bench);
        assert_eq!(text(&there, "/metadata/uid"), text(&made, "/metadata/uid"));
        assert!(there["metadata"].get("deletionTimestamp").is_none(), "{there}");
    });
}
