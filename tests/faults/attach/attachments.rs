//! attachMode `volume-attachment`.

use std::{sync::Arc, time::Duration};

use domain::volume::published::host_attachment_name;
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;
use tonic::Code;

use super::{
    STEP, attach_is_required, backing,
    double::{ATTACHMENTS, Attacher, Mood},
    leaf_volume, nothing_is_wrong, publish, record, refused, unpublish, volume_with,
};
use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP},
    caller::Caller,
    shared::has_alias,
    virtual_time,
};

/// What a person does about a node that is gone for good.
const GONE: &str = "remove annotation kosmos.csi.io/published from the ";
const LEFT: &str = "A VolumeAttachment that is left in the member goes by itself within the hour";

pub async fn attached() -> (Arc<Bench>, Caller, Attacher) {
    let (bench, caller) = volume_with(&[("attachMode", "volume-attachment")]).await;
    attach_is_required(&bench.members[0]);
    let attacher = Attacher::start(&bench.members[0]);
    (bench, caller, attacher)
}

pub(super) fn only(bench: &Bench) -> Arc<Value> {
    let all = bench.members[0].list(ATTACHMENTS);
    assert_eq!(all.len(), 1, "{all:?}");
    Arc::clone(&all[0])
}

#[test]
fn volume_is_attached_to_the_members_node_and_taken_back() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        let before = bench.guard.sent_for_work();
        let context = publish(&bench, &caller, "real/n1").await.unwrap();
        // In the host the CSINode, the Node and those with its label; in the member volume, driver, node, attachments, the
        // record, the attachment, and a watch.
        assert_eq!(bench.guard.sent_for_work() - before, 10, "{}", bench.guard.trace().join("\n"));
        let attachment = only(&bench);
        let name = text(&attachment, "/metadata/name");
        assert!(name.starts_with("kosmos-csi-") && name.len() == 43, "{name}");
        assert_eq!(text(&attachment, "/spec/nodeName"), "m0-n1");
        assert_eq!(text(&attachment, "/spec/source/persistentVolumeName"), leaf_volume(&bench, "data"));
        assert_eq!(backing(&context)["backing"]["context"]["device"], "/dev/m0-n1");
        assert_eq!(
            record(&bench, "data"),
            r#"{"real/n1":{"access":"ReadWriteOnce","attached":{"member-node":"m0-n1"}}}"#
        );
        assert_eq!(publish(&bench, &caller, "real/n1").await.unwrap(), context, "the same again");
        only(&bench);
        let before = bench.guard.sent_for_work();
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        // The attachment read, deleted and watched until it is gone; the record. In the host, whether it wants it there.
        assert_eq!(bench.guard.sent_for_work() - before, 5, "{}", bench.guard.trace().join("\n"));
        assert!(bench.members[0].list(ATTACHMENTS).is_empty() && record(&bench, "data").is_empty());
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        nothing_is_wrong(&bench);
    });
}

#[test]
fn driver_that_needs_no_attaching_gets_none() {
    virtual_time::run(1, async {
        let (bench, caller) = volume_with(&[("attachMode", "volume-attachment")]).await;
        let context = publish(&bench, &caller, "real/n1").await.unwrap();
        assert_eq!(context["attachMode"], "volume-attachment");
        assert!(backing(&context)["backing"].get("context").is_none());
        assert!(bench.members[0].list(ATTACHMENTS).is_empty());
    });
}

#[test]
fn what_the_members_attacher_says_is_told_and_its_success_is_found_by_a_retry() {
    virtual_time::run(1, async {
        let (bench, caller, attacher) = attached().await;
        for (mood, word) in [(Mood::Silent, "waits for the attacher of driver"), (Mood::Failing, "the array is full")] {
            attacher.is(mood);
            let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
            assert!(code == Code::Aborted && message.contains(word), "{code:?} {message}");
        }
        attacher.is(Mood::Well);
        sleep(STEP * 10).await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        attacher.is(Mood::Failing);
        let (code, message) = refused(unpublish(&bench, caller.handle().unwrap(), "real/n1").await);
        assert!(code == Code::Aborted && message.contains("the array is full"), "{code:?} {message}");
        assert!(record(&bench, "data").contains("m0-n1"), "the record goes last");
        attacher.is(Mood::Well);
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        assert!(bench.members[0].list(ATTACHMENTS).is_empty() && record(&bench, "data").is_empty());
        nothing_is_wrong(&bench);
    });
}

#[test]
fn attachment_that_is_going_is_waited_out_and_recreated() {
    virtual_time::run(1, async {
        let (bench, caller, attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let first = text(&only(&bench), "/metadata/uid").to_owned();
        attacher.is(Mood::Silent);
        bench.members[0].delete(ATTACHMENTS, "", text(&only(&bench), "/metadata/name")).unwrap();
        let better = async {
            sleep(STEP * 5).await;
            attacher.is(Mood::Well);
        };
        let (context, ()) = tokio::join!(publish(&bench, &caller, "real/n1"), better);
        assert_eq!(backing(&context.unwrap())["backing"]["context"]["device"], "/dev/m0-n1");
        assert_ne!(text(&only(&bench), "/metadata/uid"), first);
        nothing_is_wrong(&bench);
    });
}

#[test]
fn what_others_have_attached_is_left_alone_and_named() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        let attachment = |name: &str, node: &str| {
            json!({
                "metadata": {"name": name},
                "spec": {"attacher": "storage.simulated", "nodeName": node,
                         "source": {"persistentVolumeName": leaf_volume(&bench, "data")}},
            })
        };
        bench.members[0].create(ATTACHMENTS, attachment("csi-0123", "elsewhere")).unwrap();
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        let says = message.contains("csi-0123") && message.contains("elsewhere");
        assert!(code == Code::FailedPrecondition && says, "{code:?} {message}");
        assert_eq!((record(&bench, "data").as_str(), bench.members[0].list(ATTACHMENTS).len()), ("", 1));
        bench.members[0].delete(ATTACHMENTS, "", "csi-0123").unwrap();
        sleep(STEP * 3).await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let ours = text(&only(&bench), "/metadata/name").to_owned();
        let strip = |one: &mut Value| one["metadata"]["labels"] = json!({});
        bench.members[0].change(ATTACHMENTS, "", &ours, strip).unwrap();
        for answer in [
            refused(publish(&bench, &caller, "real/n1").await),
            refused(unpublish(&bench, caller.handle().unwrap(), "real/n1").await),
        ] {
            assert!(answer.0 == Code::FailedPrecondition && answer.1.contains(&ours), "{answer:?}");
        }
        only(&bench);
        nothing_is_wrong(&bench);
    });
}

#[test]
fn volume_is_detached_when_its_leaf_claim_is_gone() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        leaf_goes(&bench).await;
        unpublish(&bench, caller.handle().unwrap(), "real/other").await.unwrap();
        only(&bench);
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        assert!(bench.members[0].list(ATTACHMENTS).is_empty());
    });
}

/// With its volume, while the driver is not there.
async fn leaf_goes(bench: &Arc<Bench>) {
    bench.kill();
    let (member, volume) = (&bench.members[0], leaf_volume(bench, "data"));
    let free = |claim: &mut Value| claim["metadata"]["finalizers"] = json!([]);
    member.change("persistentvolumeclaims", SHOP, "data", free).unwrap();
    member.delete("persistentvolumeclaims", SHOP, "data").unwrap();
    member.change("persistentvolumes", "", &volume, free).unwrap();
    sleep(STEP * 5).await;
    bench.start();
    bench.serves().await;
    sleep(STEP).await;
}

fn does_not_show_what_is_attached(bench: &Bench) {
    bench.guard.set_fate(|_, at, asked| {
        let is_list = at == 1 && asked.verb == Verb::List && asked.resource == ATTACHMENTS;
        if is_list { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
    });
}

/// Its account had the right to attach it.
#[test]
fn volume_without_a_leaf_claim_is_not_called_detached_while_the_member_does_not_show_what_is_attached() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        leaf_goes(&bench).await;
        does_not_show_what_is_attached(&bench);
        let (code, message) = refused(unpublish(&bench, caller.handle().unwrap(), "real/n1").await);
        let says = message.contains("attachMode volume-attachment") && message.contains("member add --attach");
        assert!(code == Code::PermissionDenied && says, "{code:?} {message}");
        only(&bench);
        bench.guard.heal();
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        assert!(bench.members[0].list(ATTACHMENTS).is_empty());
    });
    virtual_time::run(1, async {
        let (bench, caller) = volume_with(&[]).await;
        leaf_goes(&bench).await;
        does_not_show_what_is_attached(&bench);
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
    });
}

fn leaf_volume_of(bench: &Bench) -> String {
    text(&only(bench), "/spec/source/persistentVolumeName").to_owned()
}

#[test]
fn of_two_nodes_that_want_a_volume_for_one_the_second_is_attached_nowhere() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let (code, message) = refused(publish(&bench, &caller, "real/n2").await);
        assert!(code == Code::FailedPrecondition && message.contains("m0-n1"), "{code:?} {message}");
        assert!(message.contains(&format!("{GONE}leaf claim. {LEFT}")), "{message}");
        assert_eq!(text(&only(&bench), "/spec/nodeName"), "m0-n1");
        caller.delete_claim();
        sleep(STEP * 20).await;
        let (code, message) = refused(caller.delete(caller.handle().unwrap()).await);
        assert!(code == Code::FailedPrecondition && message.contains("is published on real/n1"), "{code:?} {message}");
        assert!(message.contains(&format!("{GONE}leaf claim. {LEFT}")), "{message}");
        nothing_is_wrong(&bench);
    });
}

/// Nobody detaches it from a node that is gone for good, and without an attachment nothing of it is left.
#[test]
fn node_that_is_refused_a_volume_is_told_what_to_do_about_one_that_is_gone() {
    virtual_time::run(1, async {
        let (bench, caller) = volume_with(&[]).await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let (code, message) = refused(publish(&bench, &caller, "real/n2").await);
        assert!(
            code == Code::FailedPrecondition && message.contains("published on node real/n1"),
            "{code:?} {message}"
        );
        assert!(message.ends_with(&format!("{GONE}leaf claim")), "{message}");
        bench.members[0]
            .change("persistentvolumeclaims", SHOP, "data", |claim| {
                claim["metadata"]["annotations"].as_object_mut().unwrap().remove("kosmos.csi.io/published");
            })
            .unwrap();
        publish(&bench, &caller, "real/n2").await.unwrap();
        nothing_is_wrong(&bench);
    });
}

fn make_imported(bench: &Bench, claim: &str) {
    let claim = json!({
        "metadata": {"name": claim, "namespace": SHOP, "annotations": {"kosmos.csi.io/consent": bench.host_id()}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "now", "resources": {"requests": {"storage": "1Gi"}}},
    });
    bench.members[0].create("persistentvolumeclaims", claim).unwrap();
}

/// As the host's attach controller makes it.
pub(super) fn is_wanted_by_the_host(bench: &Bench, caller: &Caller, node: &str) -> String {
    let name = host_attachment_name(caller.handle().unwrap(), node);
    let attachment = json!({
        "metadata": {
            "name": name,
            "annotations": {"csi.alpha.kubernetes.io/node-id": format!("real/{node}")},
            "finalizers": ["external-attacher/kosmos-csi-io"],
        },
        "spec": {"attacher": "kosmos.csi.io", "nodeName": node, "source": {"persistentVolumeName": caller.volume()}},
        "status": {"attached": true},
    });
    bench.host.create(ATTACHMENTS, attachment).unwrap();
    name
}

/// As by an external-attacher that has stood still.
#[test]
fn call_that_comes_late_detaches_nothing_under_a_pod_that_has_come_back_to_the_node() {
    virtual_time::run(1, async {
        let (bench, mut caller, _attacher) = attached().await;
        make_imported(&bench, "ledger");
        sleep(STEP * 5).await;
        for imported in [None, Some("m0/shop/ledger/0000000000000000")] {
            if let Some(handle) = imported {
                caller.stands_for(handle);
            }
            publish(&bench, &caller, "real/n1").await.unwrap();
            let name = is_wanted_by_the_host(&bench, &caller, "n1");
            let (there, on_record) = (only(&bench), record(&bench, "data"));
            let (code, message) = refused(unpublish(&bench, caller.handle().unwrap(), "real/n1").await);
            assert!(code == Code::Aborted && message.contains(&name), "{code:?} {message}");
            assert_eq!((only(&bench), record(&bench, "data")), (there, on_record), "{imported:?}");
            bench.host.delete(ATTACHMENTS, "", &name).unwrap();
            assert!(bench.host.get(ATTACHMENTS, "", &name).is_some(), "external-attacher holds it");
            unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
            assert!(bench.members[0].list(ATTACHMENTS).is_empty() && record(&bench, "data").is_empty());
        }
        nothing_is_wrong(&bench);
    });
}

/// Of a host that does not answer nobody knows what it wants. An account without the right will not hear it, however long it waits.
#[test]
fn volume_is_detached_where_the_driver_may_not_ask_the_host_and_not_while_the_host_does_not_answer() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let (there, on_record) = (only(&bench), record(&bench, "data"));
        let is_question =
            |at: usize, asked: &Asked| at == 0 && asked.verb == Verb::Get && asked.resource == ATTACHMENTS;
        bench.guard.set_fate(move |_, at, asked| if is_question(at, asked) { Action::Hang } else { Action::Pass });
        let (code, message) = refused(unpublish(&bench, caller.handle().unwrap(), "real/n1").await);
        assert!([Code::Aborted, Code::Unavailable].contains(&code), "{code:?} {message}");
        assert_eq!((only(&bench), record(&bench, "data")), (there, on_record));
        bench.guard.set_fate(move |_, at, asked| {
            let refusal = Action::Answer { code: 403, reason: "Forbidden" };
            let is_list = at == 0 && asked.verb == Verb::List && asked.resource == ATTACHMENTS;
            if is_list || is_question(at, asked) { refusal } else { Action::Pass }
        });
        sleep(Duration::from_mins(1)).await;
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        assert!(bench.members[0].list(ATTACHMENTS).is_empty() && record(&bench, "data").is_empty());
        nothing_is_wrong(&bench);
    });
}

/// As by a ClusterRole of before an upgrade, beside which external-attacher has what it needs.
#[test]
fn volume_that_the_host_wants_on_the_node_stays_there_also_where_the_driver_may_only_list_attachments() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let name = is_wanted_by_the_host(&bench, &caller, "n1");
        let (there, on_record) = (only(&bench), record(&bench, "data"));
        bench.guard.set_fate(|_, at, asked| {
            let is_read = at == 0 && asked.verb == Verb::Get && asked.resource == ATTACHMENTS;
            if is_read { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        let (code, message) = refused(unpublish(&bench, caller.handle().unwrap(), "real/n1").await);
        assert!(code == Code::Aborted && message.contains(&name), "{code:?} {message}");
        assert_eq!((only(&bench), record(&bench, "data")), (there, on_record));
        bench.host.delete(ATTACHMENTS, "", &name).unwrap();
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        assert!(bench.members[0].list(ATTACHMENTS).is_empty() && record(&bench, "data").is_empty());
        nothing_is_wrong(&bench);
    });
}

/// The watch broke while the driver stood still. Another replica has detached the volume by then, and attached it for the next pod.
#[test]
fn call_that_waits_for_a_detachment_takes_back_nothing_that_was_attached_since() {
    virtual_time::run(1, async {
        let (bench, caller, attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        attacher.is(Mood::Silent);
        bench.guard.set_fate(|_, at, asked| {
            let is_watch = at > 0 && asked.verb == Verb::Watch && asked.resource == ATTACHMENTS;
            if is_watch { Action::Cut(0) } else { Action::Pass }
        });
        let (member, former, on_record) = (bench.members[0].clone(), only(&bench), record(&bench, "data"));
        let name = text(&former, "/metadata/name");
        let meanwhile = async {
            while only(&bench)["metadata"].get("deletionTimestamp").is_none() {
                sleep(STEP / 10).await;
            }
            let release = |one: &mut Value| one["metadata"]["finalizers"] = json!([]);
            member.change(ATTACHMENTS, "", name, release).unwrap();
            let next = json!({
                "metadata": {
                    "name": name, "labels": former["metadata"]["labels"], "annotations": former["metadata"]["annotations"],
                },
                "spec": former["spec"],
            });
            is_wanted_by_the_host(&bench, &caller, "n1");
            member.create(ATTACHMENTS, next).unwrap()
        };
        let asked = unpublish(&bench, caller.handle().unwrap(), "real/n1");
        let (answer, made) = tokio::join!(asked, meanwhile);
        let (code, message) = refused(answer);
        assert!(code == Code::Aborted && message.contains("attached to it again"), "{code:?} {message}");
        sleep(Duration::from_mins(1)).await;
        let there = only(&bench);
        assert_eq!(text(&there, "/metadata/uid"), text(&made, "/metadata/uid"), "{}", bench.guard.trace().join("\n"));
        assert!(there["metadata"].get("deletionTimestamp").is_none() && record(&bench, "data") == on_record);
    });
}

/// Nothing is written on their claims, and people write the same digits into all their handles.
#[test]
fn imported_volumes_are_attached_and_detached_each_for_itself() {
    virtual_time::run(1, async {
        let (bench, mut caller, _attacher) = attached().await;
        let member = &bench.members[0];
        for claim in ["ledger", "diary"] {
            make_imported(&bench, claim);
        }
        sleep(STEP * 5).await;
        let [ledger, diary] = ["ledger", "diary"].map(|claim| format!("m0/shop/{claim}/0000000000000000"));
        for handle in [&ledger, &diary] {
            caller.stands_for(handle);
            let context = publish(&bench, &caller, "real/n1").await.unwrap();
            assert_eq!(backing(&context)["backing"]["context"]["device"], "/dev/m0-n1");
        }
        unpublish(&bench, &ledger, "real/n1").await.unwrap();
        assert_eq!(leaf_volume_of(&bench), leaf_volume(&bench, "diary"));
        assert_eq!((record(&bench, "ledger"), record(&bench, "diary")), (String::new(), String::new()));
        unpublish(&bench, &diary, "").await.unwrap();
        assert!(member.list(ATTACHMENTS).is_empty());
        nothing_is_wrong(&bench);
    });
}

/// It served when they were attached, and another one does since somebody has deleted the record of members.
#[test]
fn imported_volume_is_detached_also_where_its_handle_has_another_name_of_its_member() {
    virtual_time::run(1, async {
        let (bench, mut caller, _attacher) = attached().await;
        has_alias(&bench).await;
        make_imported(&bench, "ledger");
        sleep(STEP * 5).await;
        let handle = "m0/shop/ledger/0000000000000000";
        caller.stands_for(handle);
        for node in ["virtual/m0", "real/n1"] {
            publish(&bench, &caller, node).await.unwrap();
        }
        only(&bench);
        let alias_serves = |map: &mut Value| {
            let cluster = map["data"].as_object_mut().unwrap().remove("m0").unwrap();
            map["data"]["alias"] = cluster;
        };
        bench.host.change("configmaps", DRIVER_NAMESPACE, "kosmos-csi-members", alias_serves).unwrap();
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(5)).await;
        let (code, message) = refused(publish(&bench, &caller, "real/n2").await);
        assert!(code == Code::NotFound && message.contains("another name of alias"), "{code:?} {message}");
        unpublish(&bench, handle, "virtual/m0").await.unwrap();
        only(&bench);
        unpublish(&bench, handle, "real/n1").await.unwrap();
        assert!(bench.members[0].list(ATTACHMENTS).is_empty());
        nothing_is_wrong(&bench);
    });
}
