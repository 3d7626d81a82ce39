use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::{
    object::{annotation, has_finalizer, is_terminating, text},
    testing::{CLAIMS, CLASSES, PODS, VOLUMES, claim, live, pod},
};

fn member(settings: Settings) -> (Cluster, Storage) {
    let cluster = Cluster::new("a", 1);
    (cluster.clone(), Storage::new(cluster, settings))
}

fn phase(object: &Value) -> &str {
    text(object, "/status/phase")
}

/// The volume that a claim is bound to.
fn volume_of(cluster: &Cluster, name: &str) -> Arc<Value> {
    cluster.volume(text(&cluster.claim(name), "/spec/volumeName"))
}

#[tokio::test(start_paused = true)]
async fn an_immediate_class_gives_a_volume_at_once() {
    let (cluster, storage) = member(Settings::default());
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    let volume = volume_of(&cluster, "data");
    assert_eq!((phase(&cluster.claim("data")), phase(&volume)), ("Bound", "Bound"));
    assert!(has_finalizer(&volume, names::VOLUME_FINALIZER));
    assert_eq!(annotation(&volume, names::PROVISIONED_BY), "storage.simulated");
    assert_eq!(text(&volume, "/spec/csi/volumeHandle"), storage.volumes()[0]);
    assert!(volume.pointer("/spec/nodeAffinity").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_class_that_waits_gives_a_volume_on_the_node_of_the_first_pod() {
    let (cluster, storage) = member(Settings::default());
    cluster.create(CLAIMS, claim("data", "openebs-hostpath")).unwrap();
    live(&cluster, &storage, 60).await;
    assert_eq!((phase(&cluster.claim("data")), storage.volumes().len()), ("Pending", 0));

    cluster.create(PODS, pod("web", &["data"])).unwrap();
    live(&cluster, &storage, 1).await;
    let (pod, volume) = (cluster.pod("web"), volume_of(&cluster, "data"));
    assert_eq!(
        (phase(&cluster.claim("data")), phase(&pod), text(&pod, "/spec/nodeName")),
        ("Bound", "Running", "a-n1")
    );
    assert_eq!(text(&volume, "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0"), "a-n1");
    assert_eq!(annotation(&cluster.claim("data"), names::SELECTED_NODE), "a-n1");
}

#[tokio::test(start_paused = true)]
async fn a_volume_goes_with_its_claim_after_its_time() {
    let deleting = Work::takes(Duration::from_secs(20)..=Duration::from_secs(20));
    let (cluster, storage) = member(Settings { deleting, ..Settings::default() });
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    cluster.delete(CLAIMS, "default", "data").unwrap();
    live(&cluster, &storage, 19).await;
    assert_eq!((cluster.list(CLAIMS).len(), storage.volumes().len()), (0, 1));
    assert_eq!(phase(&cluster.list(VOLUMES)[0]), "Released");
    live(&cluster, &storage, 21).await;
    assert_eq!((cluster.list(VOLUMES).len(), storage.volumes().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_retained_volume_stays_when_its_claim_and_its_object_go() {
    let class = Class { reclaim: Reclaim::Retain, ..Class::new("kept", Binding::Immediate) };
    let (cluster, storage) = member(Settings { classes: vec![class], ..Settings::default() });
    cluster.create(CLAIMS, claim("data", "kept")).unwrap();
    live(&cluster, &storage, 1).await;
    let volume = text(&cluster.claim("data"), "/spec/volumeName").to_owned();
    cluster.delete(CLAIMS, "default", "data").unwrap();
    live(&cluster, &storage, 60).await;
    assert_eq!(phase(&cluster.volume(&volume)), "Released");
    cluster.delete(VOLUMES, "", &volume).unwrap();
    live(&cluster, &storage, 1).await;
    assert_eq!((cluster.list(VOLUMES).len(), storage.volumes().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_policy_moves_the_finalizer() {
    let (cluster, storage) = member(Settings::default());
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    for (policy, guarded) in [("Retain", false), ("Delete", true)] {
        let name = text(&cluster.claim("data"), "/spec/volumeName").to_owned();
        let edit = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
        cluster.change(VOLUMES, "", &name, edit).unwrap();
        live(&cluster, &storage, 1).await;
        assert_eq!(has_finalizer(&cluster.volume(&name), names::VOLUME_FINALIZER), guarded, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_begun_is_made_and_reclaimed_though_its_claim_has_gone() {
    let provisioning = Work::takes(Duration::from_secs(5)..=Duration::from_secs(5));
    let (cluster, storage) = member(Settings { provisioning, ..Settings::default() });
    let mut seen = crate::follow::follow(&cluster, &[VOLUMES]);
    let gone = async {
        cluster.create(CLAIMS, claim("data", "now")).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.delete(CLAIMS, "default", "data").unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
    };
    tokio::select! { () = gone => (), () = live(&cluster, &storage, 90) => () }
    assert_eq!(seen.next().await.what, crate::What::Added);
    assert_eq!((cluster.list(VOLUMES).len(), storage.volumes().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_and_tried_again() {
    let fails = |per_mille| Work { fails_per_mille: per_mille, ..Work::default() };
    let settings = Settings { provisioning: fails(700), deleting: fails(700), ..Settings::default() };
    let (cluster, storage) = member(settings);
    for number in 0..20 {
        cluster.create(CLAIMS, claim(&format!("data-{number}"), "now")).unwrap();
    }
    live(&cluster, &storage, 36000).await;
    assert!(cluster.list(CLAIMS).iter().all(|claim| phase(claim) == "Bound"));
    assert!(cluster.reasons().contains(&"ProvisioningFailed".to_owned()));
    for claim in cluster.list(CLAIMS) {
        cluster.delete(CLAIMS, "default", text(&claim, "/metadata/name")).unwrap();
    }
    live(&cluster, &storage, 36000).await;
    assert_eq!((cluster.list(VOLUMES).len(), storage.volumes().len()), (0, 0));
    assert!(cluster.reasons().contains(&"VolumeFailedDelete".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_waits_until_there_is_room() {
    let (cluster, storage) = member(Settings { capacity: Some(3 << 29), ..Settings::default() });
    cluster.create(CLAIMS, claim("first", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    cluster.create(CLAIMS, claim("second", "now")).unwrap();
    cluster.create(CLAIMS, claim("waiting", "openebs-hostpath")).unwrap();
    cluster.create(PODS, pod("web", &["waiting"])).unwrap();
    live(&cluster, &storage, 9).await;
    assert_eq!((phase(&cluster.claim("second")), phase(&cluster.claim("waiting"))), ("Pending", "Pending"));
    let told = |word: &str| cluster.list("events").iter().any(|event| text(event, "/message").contains(word));
    assert!(told("ResourceExhausted") && told("did not have enough free storage"));
    assert_eq!(text(&cluster.pod("web"), "/status/conditions/0/reason"), "Unschedulable");

    cluster.delete(CLAIMS, "default", "first").unwrap();
    cluster.delete(CLAIMS, "default", "second").unwrap();
    live(&cluster, &storage, 9).await;
    assert_eq!((phase(&cluster.claim("waiting")), phase(&cluster.pod("web"))), ("Bound", "Running"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_starts_and_ends_after_its_time_and_its_claim_after_it() {
    let exactly = |seconds| Duration::from_secs(seconds)..=Duration::from_secs(seconds);
    let pods = Pods { starts: exactly(3), stops: exactly(5), ..Pods::default() };
    let (cluster, storage) = member(Settings { pods, ..Settings::default() });
    cluster.create(CLAIMS, claim("data", "openebs-hostpath")).unwrap();
    let mut web = pod("web", &["data"]);
    web["spec"]["terminationGracePeriodSeconds"] = json!(30);
    cluster.create(PODS, web).unwrap();
    live(&cluster, &storage, 2).await;
    assert_eq!((phase(&cluster.claim("data")), phase(&cluster.pod("web"))), ("Bound", "Pending"));
    live(&cluster, &storage, 4).await;
    assert_eq!(phase(&cluster.pod("web")), "Running");

    cluster.delete(CLAIMS, "default", "data").unwrap();
    cluster.delete(PODS, "default", "web").unwrap();
    live(&cluster, &storage, 4).await;
    assert!(is_terminating(&cluster.pod("web")) && is_terminating(&cluster.claim("data")));
    live(&cluster, &storage, 6).await;
    assert_eq!((cluster.list(PODS).len(), cluster.list(CLAIMS).len(), storage.volumes().len()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_a_claim_that_does_not_exist_yet() {
    let (cluster, storage) = member(Settings::default());
    cluster.create(PODS, pod("web", &["data"])).unwrap();
    live(&cluster, &storage, 1).await;
    assert_eq!(cluster.reasons(), ["FailedScheduling"]);
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    assert_eq!(phase(&cluster.pod("web")), "Running");
}

#[tokio::test(start_paused = true)]
async fn classes_that_are_there_already_stay_as_they_are() {
    let (cluster, storage) = member(Settings::default());
    cluster.create(CLASSES, crate::testing::class("now", "another", "Immediate")).unwrap();
    live(&cluster, &storage, 1).await;
    assert_eq!(cluster.get(CLASSES, "", "now").unwrap()["provisioner"], "another");
    assert_eq!(cluster.get(CLASSES, "", "openebs-hostpath").unwrap()["allowVolumeExpansion"], true);
}

#[tokio::test(start_paused = true)]
async fn volumes_are_directories_where_there_is_a_folder_and_are_counted_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { folder: Some(folder.path().to_owned()), ..Settings::default() };
    let (cluster, storage) = member(settings.clone());
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    let path = text(&volume_of(&cluster, "data"), "/spec/csi/volumeAttributes/directory").to_owned();
    std::fs::write(format!("{path}/file"), "text").unwrap();

    let restarted = Storage::new(cluster.clone(), settings);
    live(&cluster, &restarted, 1).await;
    assert_eq!(restarted.volumes(), storage.volumes());
    cluster.delete(CLAIMS, "default", "data").unwrap();
    live(&cluster, &restarted, 1).await;
    assert!(!std::path::Path::new(&path).exists() && restarted.volumes().is_empty());
}

fn ask(cluster: &Cluster, name: &str, size: &str) {
    let edit = |claim: &mut Value| claim["spec"]["resources"]["requests"]["storage"] = json!(size);
    cluster.change(CLAIMS, "default", name, edit).unwrap();
}

fn size(cluster: &Cluster, name: &str) -> (String, String) {
    let volume = volume_of(cluster, name);
    let own = text(&cluster.claim(name), "/status/capacity/storage").to_owned();
    (own, text(&volume, "/spec/capacity/storage").to_owned())
}

fn both(size: &str) -> (String, String) {
    (size.to_owned(), size.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_asks_for_more_gets_it_after_its_time() {
    let resizing = Work::takes(Duration::from_secs(20)..=Duration::from_secs(20));
    let (cluster, storage) = member(Settings { resizing, ..Settings::default() });
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    ask(&cluster, "data", "2Gi");
    live(&cluster, &storage, 19).await;
    let claim = cluster.claim("data");
    assert_eq!(text(&claim, "/status/allocatedResourceStatuses/storage"), "ControllerResizeInProgress");
    assert_eq!(text(&claim, "/status/conditions/0/type"), "Resizing");
    assert_eq!(size(&cluster, "data"), both("1Gi"));
    live(&cluster, &storage, 21).await;
    assert_eq!(size(&cluster, "data"), both("2Gi"));
    assert!(cluster.claim("data")["status"].get("conditions").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_grows_on_its_node_waits_for_a_pod() {
    let class = Class { growth: Growth::OnNode, ..Class::new("now", Binding::Immediate) };
    let (cluster, storage) = member(Settings { classes: vec![class], ..Settings::default() });
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    ask(&cluster, "data", "2Gi");
    live(&cluster, &storage, 900).await;
    assert_eq!(size(&cluster, "data"), ("1Gi".to_owned(), "2Gi".to_owned()));
    assert_eq!(text(&cluster.claim("data"), "/status/conditions/0/type"), "FileSystemResizePending");
    cluster.create(PODS, pod("web", &["data"])).unwrap();
    live(&cluster, &storage, 1).await;
    assert_eq!(size(&cluster, "data"), both("2Gi"));
    ask(&cluster, "data", "3Gi");
    live(&cluster, &storage, 1).await;
    assert_eq!(size(&cluster, "data"), both("3Gi"));
}

#[tokio::test(start_paused = true)]
async fn growth_that_fails_or_finds_no_room_is_told_and_tried_again() {
    let settings = Settings {
        capacity: Some(3 << 30),
        resizing: Work { fails_per_mille: 500, ..Work::default() },
        ..Settings::default()
    };
    let (cluster, storage) = member(settings);
    for name in ["data", "other"] {
        cluster.create(CLAIMS, claim(name, "now")).unwrap();
    }
    live(&cluster, &storage, 1).await;
    ask(&cluster, "data", "3Gi");
    live(&cluster, &storage, 3600).await;
    assert_eq!(size(&cluster, "data"), both("1Gi"));
    assert!(cluster.reasons().contains(&"VolumeResizeFailed".to_owned()));
    cluster.delete(CLAIMS, "default", "other").unwrap();
    live(&cluster, &storage, 36000).await;
    assert_eq!(size(&cluster, "data"), both("3Gi"));
}

#[tokio::test(start_paused = true)]
async fn a_volume_takes_on_the_attributes_of_the_class_that_its_claim_names() {
    let (cluster, storage) = member(Settings::default());
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    let name = |class: &str| {
        let name = |claim: &mut Value| claim["spec"]["volumeAttributesClassName"] = json!(class);
        cluster.change(CLAIMS, "default", "data", name).unwrap();
    };
    let told = || {
        let claim = cluster.claim("data");
        let status = |path: &str| text(&claim, &format!("/status/{path}")).to_owned();
        (status("currentVolumeAttributesClassName"), status("modifyVolumeStatus/status"))
    };
    let class = |name: &str, parameters: Value| {
        let class = json!({"metadata": {"name": name}, "driverName": "storage.simulated", "parameters": parameters});
        cluster.create("volumeattributesclasses.storage.k8s.io", class).unwrap();
    };
    name("gold");
    live(&cluster, &storage, 1).await;
    assert_eq!(told(), (String::new(), "Pending".to_owned()));
    class("gold", json!({"iops": "1"}));
    live(&cluster, &storage, 1).await;
    assert_eq!(told(), ("gold".to_owned(), String::new()));
    class("odd", json!({"infeasible": "true"}));
    name("odd");
    live(&cluster, &storage, 1).await;
    assert_eq!(told(), ("gold".to_owned(), "Infeasible".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_class_that_does_not_grow_keeps_its_size() {
    let class = Class { growth: Growth::Never, ..Class::new("now", Binding::Immediate) };
    let (cluster, storage) = member(Settings { classes: vec![class], ..Settings::default() });
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    ask(&cluster, "data", "2Gi");
    live(&cluster, &storage, 900).await;
    assert_eq!(size(&cluster, "data"), both("1Gi"));
}

#[tokio::test(start_paused = true)]
async fn the_room_that_is_left_is_told() {
    let class = Class { capacity: Some(5 << 30), ..Class::new("now", Binding::Immediate) };
    let (cluster, storage) = member(Settings { classes: vec![class], ..Settings::default() });
    let told = || {
        let object = cluster.get("csistoragecapacities.storage.k8s.io", "kube-system", "csisc-now").unwrap();
        text(&object, "/capacity").to_owned()
    };
    live(&cluster, &storage, 1).await;
    assert_eq!(told(), "5Gi");
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    assert_eq!(told(), "4Gi");
    cluster.delete(CLAIMS, "default", "data").unwrap();
    live(&cluster, &storage, 1).await;
    assert_eq!(told(), "5Gi");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_there_is_chosen_again() {
    let (cluster, storage) = member(Settings::default());
    let mut elsewhere = claim("data", "openebs-hostpath");
    elsewhere["metadata"]["annotations"] = json!({names::SELECTED_NODE: "gone"});
    cluster.create(CLAIMS, elsewhere).unwrap();
    live(&cluster, &storage, 9).await;
    assert_eq!(annotation(&cluster.claim("data"), names::SELECTED_NODE), "");
    assert!(storage.volumes().is_empty() && cluster.reasons().contains(&"ProvisioningFailed".to_owned()));
    cluster.create(PODS, pod("web", &["data"])).unwrap();
    live(&cluster, &storage, 9).await;
    assert_eq!(phase(&cluster.pod("web")), "Running");
}
