//! How pods and their copies end, whoever ends them: nothing is told of an end that was not one, and none goes without a word.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::faults::{Action, Verb};
use tokio::time::sleep;

use super::{SHOP, World, condition, lock, story, text, until, with_pod};

fn is_leaving(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Kubernetes keeps what has a finalizer, as every pod of a Job, with no time left; a member would forget its copy at once.
#[test]
fn copy_of_a_pod_that_is_deleted_by_force_and_held_has_ended_before_the_pod_has() {
    story(1, async {
        let world = with_pod().await;
        let hold = |pod: &mut Value| pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
        world.host.change("pods", SHOP, "web", hold).unwrap();
        world.host.delete_now("pods", SHOP, "web").unwrap();
        assert_eq!(world.pod("web").unwrap()["metadata"]["deletionGracePeriodSeconds"], 0);
        until("its copy is told to end", || {
            let copy = world.copy("web");
            assert!(copy.is_some(), "it is forgotten at once");
            copy.is_some_and(|copy| is_leaving(&copy))
        })
        .await;
        until("its copy has ended", || {
            let copy = world.copy("web");
            let runs = copy.is_some_and(|copy| text(&copy, "/status/phase") == "Running");
            assert!(!runs || world.phase("web") == "Running", "the pod has ended before its copy");
            world.copy("web").is_none()
        })
        .await;
        until("the pod has", || ["Succeeded", "Failed"].contains(&&*world.phase("web"))).await;
        world.host.change("pods", SHOP, "web", |pod| pod["metadata"]["finalizers"] = json!([])).unwrap();
        until("it is gone", || world.pod("web").is_none()).await;
    });
}

/// The host answers so to each status of a pod, until that is over.
fn refuse_statuses(world: &World, code: u16, reason: &'static str) -> Arc<Mutex<bool>> {
    let is_refused = Arc::new(Mutex::new(true));
    let refused = Arc::clone(&is_refused);
    world.host.faults().set(move |asked| {
        let is_told = asked.verb == Verb::Patch && asked.resource == "pods" && asked.subresource == "status";
        if is_told && *lock(&refused) { Action::Answer { code, reason } } else { Action::Pass }
    });
    is_refused
}

/// A Job counts by it: its kubelet tells the end of a copy and lets it go in the same moment.
#[test]
fn pod_that_is_deleted_and_held_has_ended_as_its_copy_has_said_also_where_that_was_gone_before_it_was_told() {
    story(1, async {
        let world = with_pod().await;
        let hold = |pod: &mut Value| pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
        world.host.change("pods", SHOP, "web", hold).unwrap();
        let is_refused = refuse_statuses(&world, 500, "InternalError");
        world.host.delete("pods", SHOP, "web").unwrap();
        until("its copy is gone", || world.copy("web").is_none()).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(world.phase("web"), "Running");
        *lock(&is_refused) = false;
        until("it has ended", || world.phase("web") != "Running").await;
        let pod = world.pod("web").unwrap();
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((text(&pod, "/status/phase"), &ended["exitCode"]), ("Succeeded", &json!(0)), "{pod}");
        world.host.change("pods", SHOP, "web", |pod| pod["metadata"]["finalizers"] = json!([])).unwrap();
        until("it is gone", || world.pod("web").is_none()).await;
    });
}

/// Whether the pod `web` was told to have ended well before it was deleted for good.
fn has_told_before_it_went(world: &World) -> bool {
    let log = world.host.faults().log();
    let of_pod: Vec<_> = log.iter().filter(|asked| asked.resource == "pods" && asked.name == "web").collect();
    let place = |verb: Verb, phase: &str| {
        of_pod.iter().rposition(|asked| asked.verb == verb && text(&asked.body, "/status/phase") == phase)
    };
    let (ended, gone) = (place(Verb::Patch, "Succeeded"), place(Verb::Delete, ""));
    ended.is_some() && ended < gone
}

/// As of every pod that a kubelet ends: who follows it, and does not hold it, goes by what it said last.
#[test]
fn pod_that_is_deleted_says_how_its_copy_has_ended_before_it_goes() {
    story(1, async {
        let world = with_pod().await;
        world.host.faults().record(true);
        world.host.delete("pods", SHOP, "web").unwrap();
        until("it is gone", || world.pod("web").is_none()).await;
        assert!(has_told_before_it_went(&world), "{:?}", world.host.faults().log());
    });
}

#[test]
fn pod_that_is_deleted_stays_until_it_says_how_its_copy_has_ended_where_others_write_on_it_meanwhile() {
    story(1, async {
        let world = with_pod().await;
        let is_refused = refuse_statuses(&world, 409, "Conflict");
        world.host.delete("pods", SHOP, "web").unwrap();
        until("its copy is gone", || world.copy("web").is_none()).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(world.phase("web"), "Running", "it is gone without a word");
        world.host.faults().record(true);
        *lock(&is_refused) = false;
        until("it is gone", || world.pod("web").is_none()).await;
        assert!(has_told_before_it_went(&world), "{:?}", world.host.faults().log());
    });
}

/// As where their Kubernetes are of different versions.
#[test]
fn pod_that_is_deleted_goes_also_where_the_host_does_not_take_what_its_copy_said_of_its_end() {
    for finalizers in [json!([]), json!(["batch.kubernetes.io/job-tracking"])] {
        story(1, async {
            let world = with_pod().await;
            world.host.change("pods", SHOP, "web", |pod| pod["metadata"]["finalizers"] = finalizers.clone()).unwrap();
            world.host.faults().set(|asked| match text(&asked.body, "/status/phase") {
                "Succeeded" => Action::Answer { code: 422, reason: "Invalid" },
                _ => Action::Pass,
            });
            world.host.delete("pods", SHOP, "web").unwrap();
            if finalizers != json!([]) {
                until("it has ended", || world.phase("web") == "Failed").await;
                world.host.change("pods", SHOP, "web", |pod| pod["metadata"]["finalizers"] = json!([])).unwrap();
            }
            until("it is gone", || world.pod("web").is_none()).await;
        });
    }
}

/// As where the host does not answer while somebody in the member clears away what has ended: what is done is not done twice.
#[test]
fn pod_whose_copy_has_ended_before_it_was_deleted_in_its_member_has_ended_as_that_has() {
    story(1, async {
        let world = with_pod().await;
        let is_refused = refuse_statuses(&world, 500, "InternalError");
        let ends = |copy: &mut Value| {
            copy["status"]["phase"] = json!("Succeeded");
            copy["status"]["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 0}});
        };
        world.member.change("pods", SHOP, "web", ends).unwrap();
        sleep(Duration::from_secs(10)).await;
        world.member.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_secs(10)).await;
        assert!(world.copy("web").is_none() && world.phase("web") == "Running");
        *lock(&is_refused) = false;
        until("it has ended", || world.phase("web") != "Running").await;
        let pod = world.pod("web").unwrap();
        let said = (text(&pod, "/status/phase"), text(&pod, "/status/reason"), condition(&pod, "DisruptionTarget"));
        assert_eq!(said, ("Succeeded", "", String::new()), "{pod}");
        sleep(Duration::from_mins(2)).await;
        assert!(world.copy("web").is_none(), "it is done twice");
    });
}

/// As on a machine of the member that is off: nobody there stops it, and it stays.
#[test]
fn copy_that_is_deleted_in_its_member_and_stays_is_told_once_and_its_pod_is_not_ready_and_has_not_ended() {
    story(1, async {
        let world = with_pod().await;
        let hold = |copy: &mut Value| copy["metadata"]["finalizers"] = json!(["example.com/stays"]);
        world.member.change("pods", SHOP, "web", hold).unwrap();
        let before = world.pod("web").unwrap()["status"].clone();
        world.member.delete("pods", SHOP, "web").unwrap();
        until("it is told", || world.says("web", "EndingInMember", "in member m was deleted there")).await;
        let told = || world.host.list("events").iter().filter(|event| event["reason"] == "EndingInMember").count();
        until("an event says so", || told() == 1).await;
        let version = || world.pod("web").unwrap()["metadata"]["resourceVersion"].clone();
        let then = version();
        sleep(Duration::from_mins(10)).await;
        assert_eq!((told(), version()), (1, then), "it is told again and again");
        let pod = world.pod("web").unwrap();
        let said = ["Ready", "ContainersReady", "kosmos.csi.io/Copied"].map(|kind| condition(&pod, kind));
        assert_eq!(said, ["False", "False", "True"]);
        assert_eq!(text(&world.copy("web").unwrap(), "/status/phase"), "Succeeded", "it was stopped");
        for field in ["phase", "containerStatuses"] {
            assert_eq!(pod["status"][field], before[field], "{field}");
        }
        world.member.change("pods", SHOP, "web", |copy| copy["metadata"]["finalizers"] = json!([])).unwrap();
        until("it has failed", || world.phase("web") == "Failed").await;
        assert_eq!(world.pod("web").unwrap()["status"]["reason"], "DeletedInMember");
    });
}

/// As where somebody there takes over by Helm what has its name.
#[test]
fn pod_whose_copy_has_lost_its_labels_says_so_and_neither_fails_nor_goes_before_the_copy_has() {
    for is_put_back in [true, false] {
        story(1, async {
            let world = with_pod().await;
            let label = |with: &'static str| {
                let change = move |copy: &mut Value| {
                    copy["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!(with);
                };
                world.member.change("pods", SHOP, "web", change).unwrap();
            };
            label("Helm");
            until("it is told", || world.says("web", "LabelsChanged", "member m still runs")).await;
            let told = || world.host.list("events").iter().filter(|event| event["reason"] == "LabelsChanged").count();
            until("an event says so", || told() == 1).await;
            world.host.delete("pods", SHOP, "web").unwrap();
            sleep(Duration::from_mins(2)).await;
            let said = ["Ready", "kosmos.csi.io/Copied"].map(|kind| condition(&world.pod("web").unwrap(), kind));
            assert_eq!((world.phase("web").as_str(), said), ("Running", ["False", "True"].map(str::to_owned)));
            assert!(world.copy("web").is_some(), "it has no labels of ours");
            if is_put_back {
                label("kosmos.csi.io");
            } else {
                world.member.delete("pods", SHOP, "web").unwrap();
            }
            until("both are gone", || world.pod("web").is_none() && world.copy("web").is_none()).await;
        });
    }
}

/// Its copy is deleted there as well.
#[test]
fn pod_that_this_host_deletes_is_not_said_to_be_ended_by_its_member() {
    story(1, async {
        let world = with_pod().await;
        world.host.delete("pods", SHOP, "web").unwrap();
        until("it is gone", || world.pod("web").is_none()).await;
        sleep(Duration::from_mins(1)).await;
        assert!(!world.host.list("events").iter().any(|event| event["reason"] == "EndingInMember"));
    });
}

/// As on a machine of the member that is off, while others there are not.
#[test]
fn pod_that_this_host_deletes_says_once_that_its_copy_stays_longer_than_it_was_given_and_goes_with_it() {
    story(1, async {
        let world = with_pod().await;
        let hold = |copy: &mut Value| copy["metadata"]["finalizers"] = json!(["example.com/stays"]);
        world.member.change("pods", SHOP, "web", hold).unwrap();
        world.host.delete("pods", SHOP, "web").unwrap();
        let told = || world.host.list("events").iter().filter(|event| event["reason"] == "NotRemoved").count();
        sleep(Duration::from_secs(50)).await;
        assert_eq!(told(), 0, "it may take a minute longer");
        until("an event says so", || told() == 1).await;
        sleep(Duration::from_mins(10)).await;
        assert!(told() == 1 && world.pod("web").is_some() && world.copy("web").is_some());
        world.member.change("pods", SHOP, "web", |copy| copy["metadata"]["finalizers"] = json!([])).unwrap();
        until("it is gone", || world.pod("web").is_none()).await;
    });
}

/// Whoever makes a pod may hold it for as long as he likes.
#[test]
fn pod_that_has_ended_and_is_held_is_asked_about_no_more_and_goes_once_nobody_holds_it() {
    story(1, async {
        let world = with_pod().await;
        let hold = |pod: &mut Value| pod["metadata"]["finalizers"] = json!(["example.com/stays"]);
        world.host.change("pods", SHOP, "web", hold).unwrap();
        world.host.delete("pods", SHOP, "web").unwrap();
        until("it has ended", || ["Succeeded", "Failed"].contains(&&*world.phase("web"))).await;
        until("its copy too", || world.copy("web").is_none()).await;
        sleep(Duration::from_secs(30)).await;
        world.host.faults().record(true);
        sleep(Duration::from_mins(10)).await;
        let log = world.host.faults().log();
        let asked = log.iter().filter(|asked| asked.resource == "pods" && asked.name == "web").count();
        assert_eq!(asked, 0, "in ten minutes");
        world.host.change("pods", SHOP, "web", |pod| pod["metadata"]["finalizers"] = json!([])).unwrap();
        until("it is gone", || world.pod("web").is_none()).await;
    });
}
