//! Provisioners that forget what they were at: they are restarted, or the class is gone, and nobody calls again.

use std::{sync::Arc, time::Duration};

use csi::v1::{self, volume_content_source};
use domain::volume::{HostId, VolumeHash, VolumeId};
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Script},
    fixture,
    history::made_for,
    virtual_time,
};

/// The member's storage never comes to an end.
const NEVER: Duration = Duration::from_hours(20);
/// The member binds it some time after everybody has gone.
const SLOW: Duration = Duration::from_mins(2);
/// The driver is sure by then that nobody asks any more.
const SURE: Duration = Duration::from_mins(20);
const SOON: Duration = Duration::from_secs(1);
/// The class as it is recreated.
const WITH_A_SLIP: &[(&str, &str)] = &[("leafNamespac", "elsewhere")];
const FOR_ANOTHER_PLACE: &[(&str, &str)] = &[("leafNamespace", "elsewhere")];

/// A leaf waits in the member, and driver and provisioner, which share a pod, are gone.
async fn abandoned(leaf_class: &'static str) -> (Arc<Bench>, Caller) {
    abandoned_by(leaf_class, NEVER).await
}

pub async fn abandoned_by(leaf_class: &'static str, step: Duration) -> (Arc<Bench>, Caller) {
    let bench = Bench::serving(1, &fixture::steady(step)).await;
    let caller = Caller::new(&bench, Script { leaf_class, ..Script::new("data") });
    assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted);
    assert!(is_there(&bench));
    bench.kill();
    (bench, caller)
}

fn is_there(bench: &Bench) -> bool {
    bench.members[0].get("persistentvolumeclaims", SHOP, "data").is_some()
}

/// It was bound and marked, and the answer was lost. Its class was recreated since.
#[test]
fn leaf_of_a_claim_that_is_gone_is_withdrawn_whatever_its_class_says_by_now() {
    for parameters in [WITH_A_SLIP, FOR_ANOTHER_PLACE] {
        virtual_time::run(1, async {
            let bench = Bench::serving(1, &fixture::steady(SOON)).await;
            let mut caller = is_made(&bench, Vec::new()).await;
            caller.class_becomes(parameters);
            assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted, "{parameters:?}");
            assert!(is_there(&bench), "its claim is there");
            caller.delete_claim();
            let until = Instant::now() + SURE;
            let told = loop {
                match caller.create().await.unwrap_err() {
                    told if told.code() == Code::Aborted && Instant::now() < until => sleep(SOON).await,
                    told => break told,
                }
            };
            assert_eq!(told.code(), Code::NotFound, "{parameters:?}: {told}");
            assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new());
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// Bound and marked, and nobody was told of it.
async fn is_made(bench: &Arc<Bench>, places: Vec<usize>) -> Caller {
    let caller = Caller::new(bench, Script { places, ..Script::new("data") });
    while caller.create().await.is_err() {
        sleep(SOON).await;
    }
    caller
}

/// By a final answer its provisioner forgets it, and the member keeps it.
#[test]
fn leaf_whose_class_leads_elsewhere_by_now_is_not_forgotten_while_what_it_says_cannot_be_read() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &fixture::steady(SOON)).await;
        let mut caller = is_made(&bench, vec![0]).await;
        caller.class_becomes(FOR_ANOTHER_PLACE);
        caller.goes_to(vec![1]);
        bench.guard.set_fate(|_, at, asked| {
            let is_read = at == 1 && asked.verb == Verb::Get && asked.resource == "persistentvolumeclaims";
            if is_read { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        let told = caller.create().await.unwrap_err();
        assert_eq!(told.code(), Code::Aborted, "{told}");
        assert!(is_there(&bench));
        bench.guard.heal();
        let made = loop {
            if let Ok(made) = caller.create().await {
                break made;
            }
            sleep(SOON).await;
        };
        assert!(made.volume_id.starts_with("m1/elsewhere/data/"), "{}", made.volume_id);
        assert!(!is_there(&bench));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// A tool that leaves finalizers out has made it, and people of the member have written on it that it was asked for where it is.
fn is_copied(bench: &Bench, leaf: &Value) {
    let notes = &leaf["metadata"]["annotations"];
    let mut request: Value = serde_json::from_str(notes["kosmos.csi.io/request"].as_str().unwrap()).unwrap();
    request["parameters"]["leafNamespace"] = json!("elsewhere");
    let mut copy = leaf.clone();
    copy["metadata"] = json!({
        "name": "data", "namespace": "elsewhere", "labels": leaf["metadata"]["labels"], "annotations": notes,
    });
    copy["metadata"]["annotations"]["kosmos.csi.io/request"] = json!(request.to_string());
    copy["spec"].as_object_mut().unwrap().remove("volumeName");
    copy.as_object_mut().unwrap().remove("status");
    bench.members[0].create("namespaces", json!({"metadata": {"name": "elsewhere"}})).unwrap();
    bench.members[0].create("persistentvolumeclaims", copy).unwrap();
}

#[test]
fn copy_of_a_leaf_is_not_withdrawn_by_what_it_says_that_it_was_asked_for() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(SOON)).await;
        let (mut caller, member) = (is_made(&bench, Vec::new()).await, &bench.members[0]);
        is_copied(&bench, &member.get("persistentvolumeclaims", SHOP, "data").unwrap());
        let free = |leaf: &mut Value| leaf["metadata"]["finalizers"] = json!([]);
        member.change("persistentvolumeclaims", SHOP, "data", free).unwrap();
        member.delete("persistentvolumeclaims", SHOP, "data").unwrap();
        assert!(!is_there(&bench));
        caller.class_becomes(WITH_A_SLIP);
        caller.delete_claim();
        for _ in 0..5 {
            sleep(SOON).await;
            assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted);
        }
        let copy = member.get("persistentvolumeclaims", "elsewhere", "data").unwrap();
        assert!(copy["metadata"]["deletionTimestamp"].is_null(), "{copy}");
    });
}

#[test]
fn leaf_of_a_claim_that_everybody_has_forgotten_is_withdrawn() {
    for leaf_class in [fixture::NOW, fixture::LATER] {
        virtual_time::run(1, async {
            let (bench, caller) = abandoned(leaf_class).await;
            caller.delete_claim();
            bench.start();
            sleep(SURE).await;
            assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new());
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

#[test]
fn volume_of_another_driver_with_the_same_handle_keeps_no_leaf() {
    virtual_time::run(1, async {
        let (bench, caller) = abandoned(fixture::NOW).await;
        let hash = VolumeHash::new(&HostId(bench.host_id()), caller.volume());
        let volume = json!({"metadata": {"name": "theirs"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "theirs",
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "theirs", "volumeHandle": VolumeId::new("m0", SHOP, "data", hash).to_string()},
        }});
        bench.host.create("persistentvolumes", volume).unwrap();
        caller.delete_claim();
        bench.start();
        sleep(SURE).await;
        assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new());
    });
}

#[test]
fn leaf_that_the_members_people_have_deleted_too_does_not_stay_terminating() {
    virtual_time::run(1, async {
        let (bench, caller) = abandoned(fixture::NOW).await;
        caller.delete_claim();
        bench.members[0].delete("persistentvolumeclaims", SHOP, "data").unwrap();
        assert!(is_there(&bench), "our finalizer holds it");
        bench.start();
        sleep(SURE).await;
        assert!(!is_there(&bench));
    });
}

#[test]
fn leaf_whose_claim_is_there_waits_for_ever() {
    virtual_time::run(1, async {
        let (bench, _caller) = abandoned(fixture::NOW).await;
        let before = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        bench.start();
        sleep(SURE * 10).await;
        let after = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        assert_eq!(text(&after, "/metadata/resourceVersion"), text(&before, "/metadata/resourceVersion"));
    });
}

/// Its user gives it a volume that is there already: no provisioner asks for such a claim, and the leaf would keep its name from that volume's.
#[test]
fn leaf_of_a_claim_that_has_got_another_volume_is_withdrawn() {
    virtual_time::run(1, async {
        let (bench, caller) = abandoned(fixture::NOW).await;
        let give = |claim: &mut Value| claim["spec"]["volumeName"] = json!("there-already");
        bench.host.change("persistentvolumeclaims", SHOP, "data", give).unwrap();
        bench.start();
        sleep(SURE).await;
        assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn claim_of_the_same_name_has_its_turn_once_the_forgotten_leaf_is_gone() {
    virtual_time::run(1, async {
        let (bench, caller) = abandoned(fixture::NOW).await;
        caller.delete_claim();
        bench.start();
        bench.serves().await;
        let next = Caller::new(&bench, Script::new("data"));
        assert_eq!(next.create().await.unwrap_err().code(), Code::AlreadyExists);
        sleep(SURE).await;
        assert_eq!(next.create().await.unwrap_err().code(), Code::Aborted);
        let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        assert_eq!(made_for(&leaf), next.volume());
    });
}

async fn is_withdrawn_with_its_volume(bench: &Bench, caller: &Caller) {
    let leaf_class = caller.script().leaf_class;
    sleep(SURE).await;
    assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new(), "{leaf_class}");
    sleep(SLOW * 2).await;
    assert!(bench.storages[0].volumes().is_empty(), "{leaf_class}");
    assert_eq!(bench.guard.wrong(), Vec::<String>::new());
}

#[test]
fn leaf_that_was_bound_when_nobody_waited_any_more_is_withdrawn_with_its_volume() {
    for leaf_class in [fixture::NOW, fixture::LATER, fixture::KEPT] {
        virtual_time::run(1, async {
            let (bench, caller) = abandoned_by(leaf_class, SLOW).await;
            caller.delete_claim();
            sleep(SLOW * 3).await;
            assert_eq!(bench.storages[0].volumes().len(), 1, "{leaf_class}");
            bench.start();
            is_withdrawn_with_its_volume(&bench, &caller).await;
        });
    }
}

/// With a source it is not given out before it is bound, whatever its class says.
#[test]
fn copy_of_a_deferred_class_that_was_bound_when_nobody_waited_any_more_is_withdrawn_with_its_volume() {
    for leaf_class in [fixture::NOW, fixture::LATER] {
        virtual_time::run(1, async {
            let bench = Bench::serving(1, &fixture::steady(SLOW)).await;
            let mut original = Caller::new(&bench, Script::new("original"));
            original.insist_on_creation().await;
            let volume_id = original.handle().unwrap().to_owned();
            let source = volume_content_source::Type::Volume(volume_content_source::VolumeSource { volume_id });
            let source = Some(v1::VolumeContentSource { r#type: Some(source) });
            let binding = Some("deferred");
            let caller = Caller::new(&bench, Script { leaf_class, binding, source, ..Script::new("data") });
            assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted, "{leaf_class}");
            bench.kill();
            caller.delete_claim();
            sleep(SLOW * 3).await;
            assert_eq!(bench.storages[0].volumes().len(), 2, "{leaf_class}");
            bench.start();
            sleep(SURE).await;
            assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new(), "{leaf_class}");
            sleep(SLOW * 2).await;
            assert_eq!(bench.storages[0].volumes().len(), 1, "{leaf_class}");
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

#[test]
fn leaf_that_was_bound_when_only_the_provisioner_had_forgotten_it_is_withdrawn_too() {
    for leaf_class in [fixture::NOW, fixture::LATER] {
        virtual_time::run(1, async {
            let bench = Bench::serving(1, &fixture::steady(SLOW)).await;
            let caller = Caller::new(&bench, Script { leaf_class, ..Script::new("data") });
            assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted);
            caller.delete_claim();
            sleep(SLOW * 3).await;
            assert_eq!(bench.storages[0].volumes().len(), 1, "{leaf_class}");
            is_withdrawn_with_its_volume(&bench, &caller).await;
        });
    }
}

#[test]
fn leaf_that_people_bound_to_a_volume_of_their_own_leaves_that_as_it_was() {
    virtual_time::run(1, async {
        let (bench, caller) = abandoned_by(fixture::KEPT, SLOW).await;
        caller.delete_claim();
        sleep(SLOW * 3).await;
        let volume =
            text(&bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap(), "/spec/volumeName").to_owned();
        let by_hand = |volume: &mut Value| {
            volume["metadata"]["annotations"].as_object_mut().unwrap().remove("pv.kubernetes.io/provisioned-by");
        };
        bench.members[0].change("persistentvolumes", "", &volume, by_hand).unwrap();
        bench.start();
        sleep(SURE).await;
        assert!(!is_there(&bench));
        let volume = bench.members[0].get("persistentvolumes", "", &volume).unwrap();
        assert_eq!(text(&volume, "/spec/persistentVolumeReclaimPolicy"), "Retain");
        assert_eq!(bench.storages[0].volumes().len(), 1);
    });
}

/// A key that no class has.
const SLIP: &[(&str, &str)] = &[("leafBindng", "deferred")];

#[test]
fn class_that_is_recreated_with_a_slip_makes_nobody_forget_a_leaf() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(NEVER)).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted);
        caller.class_becomes(SLIP);
        for restarted in [false, true] {
            if restarted {
                bench.kill();
                bench.start();
                bench.serves().await;
            }
            let told = caller.create().await.unwrap_err();
            assert_eq!(told.code(), Code::Aborted, "{told}");
            assert!(told.message().contains("leafBindng") && told.message().contains("Member m0"), "{told}");
        }
        let other = Caller::new(&bench, Script { parameters: SLIP, ..Script::new("other") });
        assert_eq!(other.create().await.unwrap_err().code(), Code::InvalidArgument, "of this nothing was ever made");
        caller.class_becomes(&[]);
        assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted);
        caller.delete_claim();
        assert_eq!(caller.create().await.unwrap_err().code(), Code::NotFound);
        assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new());
    });
}

#[test]
fn what_to_do_about_a_class_that_was_recreated_is_told_however_long_its_parameters_are() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(NEVER)).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted);
        let long: &'static str = "x".repeat(1000).leak();
        caller.class_becomes(vec![("leafClaimName.cluster38", long)].leak());
        let told = caller.create().await.unwrap_err();
        assert_eq!(told.code(), Code::Aborted, "{told}");
        assert!(told.message().contains("Delete the claim to begin again"), "{told}");
    });
}

#[test]
fn leaf_that_is_listed_while_the_host_is_asked_is_not_forgotten_for_a_slip_in_the_class() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(NEVER)).await;
        // Its provisioner does not say for which claim it asks, so nothing in the host says where the leaf is.
        let mut caller = Caller::new(&bench, Script { told: false, ..Script::new("data") });
        assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted);
        caller.class_becomes(SLIP);
        bench.guard.set_fate(|_, at, asked| match (at, asked.verb) {
            (0, Verb::Get) if asked.resource == "configmaps" => Action::Delay(Duration::from_secs(2)),
            (1, Verb::List) => Action::Delay(Duration::from_secs(1)),
            _ => Action::Pass,
        });
        bench.start();
        let told = loop {
            let told = caller.create().await.unwrap_err();
            if told.code() != Code::Unavailable {
                break told;
            }
            sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(told.code(), Code::Aborted, "{told}");
    });
}
