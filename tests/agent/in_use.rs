//! A volume stays attached to its virtual node as long as a copy in the member may write on it, whatever becomes of the pod in the host.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    Cluster,
    faults::{Action, Verb},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{ATTACHMENTS, NAMESPACE, NODE, PATIENCE, SHOP, STEP, World, lock, story, text, until};

/// How long the containers of a copy take to end.
const SLOW: Duration = Duration::from_secs(30);

/// Plays what the host's attach controller does about a volume that nobody wants on its node any more.
async fn attach_controller(host: Cluster, volume: String) {
    loop {
        let is_wanted = host.list("pods").iter().any(|pod| wants(pod));
        let node = host.get("nodes", "", NODE).unwrap();
        if !is_wanted && !list(&node, "volumesInUse").contains(&json!(volume)) {
            host.change("nodes", "", NODE, |node| node["status"]["volumesAttached"] = json!([])).unwrap();
            let _ = host.delete(ATTACHMENTS, "", "csi-x");
        }
        sleep(STEP).await;
    }
}

/// One that is to end, and whose containers were last told as waiting, is taken for one that has ended.
fn wants(pod: &Value) -> bool {
    let mut containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let runs = containers.any(|one| one["state"]["waiting"].is_null() && one["state"]["terminated"].is_null());
    let is_over = ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"));
    !is_over && (runs || text(pod, "/metadata/deletionTimestamp").is_empty())
}

fn list(node: &Value, field: &str) -> Vec<Value> {
    node["status"][field].as_array().cloned().unwrap_or_default()
}

impl World {
    fn is_in_use(&self) -> bool {
        list(&self.node().unwrap(), "volumesInUse").contains(&json!(self.volume_name()))
    }

    /// The pod `web` with the volume, whose copy takes long to end.
    fn run_slow_pod(&self, pulls: &str) {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
        let spec = json!({"nodeName": NODE, "terminationGracePeriodSeconds": 60, "volumes": [volume],
            "containers": [{"name": "c", "image": "i:1", "imagePullPolicy": pulls}]});
        self.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
    }

    async fn until_the_copy_has_ended(&self, what: &str) {
        let begun = Instant::now();
        while self.copy("web").is_some() {
            assert!(begun.elapsed() < PATIENCE, "{what}: nobody ends the copy");
            assert!(self.is_in_use(), "{what}: it is not in use, and a copy writes on it");
            assert!(self.host.get(ATTACHMENTS, "", "csi-x").is_some(), "{what}: it is detached from under a copy");
            sleep(STEP).await;
        }
    }
}

/// A node that is ready, and a claim whose volume is not attached yet.
async fn with_claim() -> World {
    let world = World::whose_pods_stop_after(1, SLOW).await;
    world.claim("data");
    world.start("first");
    until("the node is ready", || world.is_ready()).await;
    world
}

/// The same with a pod that runs.
async fn with_pod() -> World {
    let world = with_claim().await;
    world.run_slow_pod("IfNotPresent");
    world.attach();
    until("it runs", || world.phase("web") == "Running").await;
    world
}

#[test]
fn volume_is_detached_only_once_the_copy_has_ended_whose_pod_was_deleted_by_force_or_waits_for_an_image() {
    for (pulls, by_force) in [("IfNotPresent", true), ("Never", false)] {
        story(1, async {
            let world = with_claim().await;
            world.run_slow_pod(pulls);
            world.attach();
            let mut played = JoinSet::new();
            played.spawn(attach_controller(world.host.clone(), world.volume_name()));
            let is_told = || world.pod("web").is_some_and(|pod| pod["status"]["containerStatuses"].is_array());
            until("it is told of its containers", is_told).await;
            if by_force {
                world.host.delete_now("pods", SHOP, "web").unwrap();
            } else {
                world.host.delete("pods", SHOP, "web").unwrap();
            }
            sleep(SLOW / 2).await;
            assert!(world.copy("web").is_some(), "its containers end too soon for this test");
            world.until_the_copy_has_ended(pulls).await;
            until("it is detached", || world.host.get(ATTACHMENTS, "", "csi-x").is_none()).await;
            assert!(!world.is_in_use());
            until("the pod is gone", || world.pod("web").is_none()).await;
        });
    }
}

/// A kubelet too mounts nothing before its node says so.
#[test]
fn node_says_that_a_volume_is_in_use_before_the_copy_is_made_that_mounts_it() {
    story(1, async {
        let world = with_claim().await;
        let (host, volume, made) = (world.host.clone(), world.volume_name(), Arc::<Mutex<Vec<bool>>>::default());
        let seen = Arc::clone(&made);
        world.member.faults().set(move |asked| {
            if asked.verb == Verb::Create && asked.resource == "pods" {
                let node = host.get("nodes", "", NODE).unwrap();
                lock(&seen).push(list(&node, "volumesInUse").contains(&json!(volume)));
            }
            Action::Pass
        });
        world.run_slow_pod("IfNotPresent");
        sleep(Duration::from_secs(10)).await;
        assert!(!world.is_in_use(), "it is not attached yet");
        world.attach();
        until("it runs", || world.phase("web") == "Running").await;
        assert_eq!(*lock(&made), [true]);
    });
}

/// Between two tries nothing there can mount it.
#[test]
fn volume_of_a_pod_that_its_member_refuses_is_not_in_use() {
    story(1, async {
        let world = with_claim().await;
        world.member.faults().set(|asked| match asked.verb {
            Verb::Create if asked.resource == "pods" => Action::Answer { code: 422, reason: "Invalid" },
            _ => Action::Pass,
        });
        world.run_slow_pod("IfNotPresent");
        world.attach();
        until("it is refused", || world.says("web", "RefusedByMember", "does not take the pod")).await;
        sleep(Duration::from_secs(3)).await;
        assert!(!world.is_in_use());
        world.member.faults().clear();
        until("it runs", || world.phase("web") == "Running").await;
        assert!(world.is_in_use());
    });
}

/// It may be there: its own volumes stay in use.
#[test]
fn copy_that_cannot_be_asked_for_keeps_no_other_volume_in_use() {
    story(1, async {
        let (world, is_tried) = (with_claim().await, Arc::<Mutex<bool>>::default());
        let tried = Arc::clone(&is_tried);
        world.member.faults().set(move |asked| {
            let mut tried = lock(&tried);
            let is_made = asked.verb == Verb::Create && asked.resource == "pods";
            *tried |= is_made;
            let is_read = *tried && asked.verb == Verb::Get && asked.resource == "pods";
            if is_made || is_read { Action::Answer { code: 500, reason: "InternalError" } } else { Action::Pass }
        });
        world.run_slow_pod("IfNotPresent");
        world.attach();
        until("its copy is tried", || *lock(&is_tried)).await;
        sleep(Duration::from_secs(20)).await;
        let other = json!(format!("{}-other", world.volume_name()));
        let both = json!([world.volume_name(), other]);
        world.host.change("nodes", "", NODE, |node| node["status"]["volumesInUse"] = both).unwrap();
        let says_other = || list(&world.node().unwrap(), "volumesInUse").contains(&other);
        until("the other one is in use no more", || !says_other()).await;
        assert!(world.is_in_use(), "nobody knows whether there is a copy that writes");
    });
}

/// What the attach controller has in mind shows a moment later, if it is about to take the volume away.
#[test]
fn copy_is_made_also_where_the_attach_controller_does_not_know_that_its_volume_is_attached() {
    story(1, async {
        let world = with_claim().await;
        world.run_slow_pod("IfNotPresent");
        world.attach();
        world.host.change("nodes", "", NODE, |node| node["status"]["volumesAttached"] = json!([])).unwrap();
        until("it runs", || world.phase("web") == "Running").await;
        assert!(world.is_in_use());
    });
}

#[test]
fn volume_stays_in_use_while_its_member_is_away_and_until_the_next_agent_has_seen_what_runs_there() {
    story(1, async {
        let world = with_pod().await;
        let is_cut = Arc::new(Mutex::new(true));
        let still = Arc::clone(&is_cut);
        world.member.faults().set(move |_| if *lock(&still) { Action::Refuse } else { Action::Pass });
        world.host.delete_now("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(10)).await;
        assert!(world.is_in_use(), "nobody knows whether the copy writes");
        world.kill();
        world.start("second");
        sleep(Duration::from_mins(1)).await;
        assert!(world.is_in_use(), "the next agent knows it no better");
        *lock(&is_cut) = false;
        world.until_the_copy_has_ended("after the member is back").await;
        until("it is in use no more", || !world.is_in_use()).await;
    });
}

/// As by a cloud's controller. The Node that is made again says what the former one said.
#[test]
fn volume_stays_in_use_where_its_node_is_deleted_while_its_member_is_away() {
    story(1, async {
        let world = with_pod().await;
        let is_cut = Arc::new(Mutex::new(true));
        let still = Arc::clone(&is_cut);
        world.member.faults().set(move |_| if *lock(&still) { Action::Refuse } else { Action::Pass });
        until("the node is not ready", || !world.is_ready()).await;
        sleep(Duration::from_secs(5)).await;
        let before = world.node().unwrap()["metadata"]["uid"].clone();
        world.host.delete("nodes", "", NODE).unwrap();
        until("it is made again", || world.node().is_some_and(|node| node["metadata"]["uid"] != before)).await;
        assert!(world.is_in_use(), "the host detaches it");
        world.host.delete_now("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(10)).await;
        assert!(world.is_in_use(), "nobody knows whether the copy writes");
        *lock(&is_cut) = false;
        world.until_the_copy_has_ended("after the member is back").await;
        until("it is in use no more", || !world.is_in_use()).await;
    });
}

/// Of a Node that is gone the host detaches everything.
#[test]
fn node_of_a_member_that_has_left_stays_while_a_volume_is_in_use_there_and_says_so() {
    story(1, async {
        let world = with_pod().await;
        world.host.delete("secrets", NAMESPACE, "m").unwrap();
        until("it takes no new pods", || world.node().unwrap()["spec"]["unschedulable"] == true).await;
        world.host.delete_now("pods", SHOP, "web").unwrap();
        let says = || world.node().unwrap()["status"]["conditions"].to_string().contains("volumes are in use there");
        until("it says why it stays", says).await;
        sleep(Duration::from_mins(5)).await;
        assert!(world.is_in_use());
        world.join();
        world.until_the_copy_has_ended("after the member is back").await;
        until("it is in use no more", || !world.is_in_use()).await;
        world.host.delete("secrets", NAMESPACE, "m").unwrap();
        until("the node is gone", || world.node().is_none()).await;
    });
}

/// Whoever may write pods there may do so, and the host writes the whole Node each time.
#[test]
fn host_is_told_seldom_what_is_in_use_where_a_copy_says_something_else_all_the_time() {
    story(1, async {
        let world = with_pod().await;
        let (life, written) = (Arc::clone(&world.life), Arc::new(Mutex::new(0)));
        let counted = Arc::clone(&written);
        world.host.faults().set(move |asked| {
            if lock(&life).dead {
                return Action::Hang;
            }
            let is_told = asked.resource == "nodes" && asked.verb == Verb::Patch;
            *lock(&counted) += u32::from(is_told && !asked.body["status"]["volumesInUse"].is_null());
            Action::Pass
        });
        let mounts = text(&world.copy("web").unwrap(), "/metadata/annotations/kosmos.csi.io~1mounts").to_owned();
        let says = |mounts: &str| {
            let write = |copy: &mut Value| copy["metadata"]["annotations"]["kosmos.csi.io/mounts"] = json!(mounts);
            world.member.change("pods", SHOP, "web", write).unwrap();
        };
        for _ in 0..300 {
            for said in [r#"{"data": "m/other/data/0000000000000000"}"#, &mounts] {
                says(said);
                sleep(Duration::from_millis(500)).await;
            }
        }
        let written = *lock(&written);
        assert!((20..=85).contains(&written), "{written} times in five minutes");
        until("it is in use, as the copy says in the end", || world.is_in_use()).await;
    });
}

/// A volume stays attached where its pod was until then.
#[test]
fn what_is_in_use_is_told_five_seconds_later_at_most_however_much_was_told_before() {
    story(1, async {
        let (world, mut is_meant) = (with_pod().await, true);
        until("it is in use", || world.is_in_use()).await;
        let mounts = text(&world.copy("web").unwrap(), "/metadata/annotations/kosmos.csi.io~1mounts").to_owned();
        for _ in 0..100 {
            is_meant = !is_meant;
            let said = if is_meant { mounts.as_str() } else { r#"{"data": "m/other/data/0000000000000000"}"# };
            let write = |copy: &mut Value| copy["metadata"]["annotations"]["kosmos.csi.io/mounts"] = json!(said);
            world.member.change("pods", SHOP, "web", write).unwrap();
            sleep(Duration::from_millis(500)).await;
            if world.is_in_use() != is_meant {
                break;
            }
        }
        assert!(world.is_in_use() != is_meant, "it is told each time");
        let begun = Instant::now();
        until("it is told", || world.is_in_use() == is_meant).await;
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    });
}

/// The pod `web` is deleted by force while its copy is asked for, which meets this, and `other` is to have its volume.
async fn with_gone_pod(meets: Action) -> World {
    let (world, is_asked) = (with_claim().await, Arc::<Mutex<bool>>::default());
    let asked_for = Arc::clone(&is_asked);
    world.member.faults().set(move |asked| {
        if asked.verb != Verb::Create || asked.resource != "pods" || asked.name != "web" {
            return Action::Pass;
        }
        *lock(&asked_for) = true;
        meets.clone()
    });
    world.run_slow_pod("IfNotPresent");
    world.attach();
    until("its copy is asked for", || *lock(&is_asked)).await;
    world.host.delete_now("pods", SHOP, "web").unwrap();
    world.run_pod("other", Some("data"));
    world
}

#[test]
fn pod_waits_while_the_copy_of_one_that_is_gone_may_be_made_yet_with_its_volume() {
    story(1, async {
        let world = with_gone_pod(Action::Late(Duration::from_secs(8))).await;
        until("it says what it waits for", || world.says("other", "WaitsForVolume", "may still be created")).await;
        let (begun, mut came) = (Instant::now(), false);
        while begun.elapsed() < SLOW * 2 {
            came |= world.copy("web").is_some();
            assert!(world.copy("web").is_none() || world.copy("other").is_none(), "both, after {:?}", begun.elapsed());
            sleep(STEP).await;
        }
        assert!(came, "the request has not arrived");
        until("it runs", || world.phase("other") == "Running").await;
    });
}

#[test]
fn pod_gets_the_volume_of_one_that_is_gone_once_the_request_for_its_copy_is_lost() {
    story(1, async {
        let (world, begun) = (with_gone_pod(Action::Hang).await, Instant::now());
        until("it runs", || world.phase("other") == "Running").await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
}

/// As where a webhook there takes long: another one has the volume by then.
#[test]
fn pod_that_has_gone_before_what_it_names_has_come_to_the_member_gets_no_copy_there() {
    for by_force in [true, false] {
        story(1, async {
            let (world, is_asked) = (with_claim().await, Arc::<Mutex<bool>>::default());
            let asked_for = Arc::clone(&is_asked);
            world.member.faults().set(move |asked| {
                if asked.verb != Verb::Create || asked.resource != "configmaps" || asked.name != "settings" {
                    return Action::Pass;
                }
                *lock(&asked_for) = true;
                Action::Delay(Duration::from_secs(3))
            });
            let map = json!({"metadata": {"namespace": SHOP, "name": "settings"}, "data": {"a": "1"}});
            world.host.create("configmaps", map).unwrap();
            let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
            let containers =
                json!([{"name": "c", "image": "i:1", "envFrom": [{"configMapRef": {"name": "settings"}}]}]);
            let spec = json!({"nodeName": NODE, "terminationGracePeriodSeconds": 60, "volumes": [volume], "containers": containers});
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
            world.attach();
            until("what it names is asked for", || *lock(&is_asked)).await;
            if by_force {
                world.host.delete_now("pods", SHOP, "web").unwrap();
            } else {
                world.host.delete("pods", SHOP, "web").unwrap();
            }
            world.run_pod("other", Some("data"));
            let begun = Instant::now();
            while begun.elapsed() < SLOW {
                assert!(world.copy("web").is_none(), "it is made, after {:?}", begun.elapsed());
                sleep(STEP).await;
            }
            until("the other one runs", || world.phase("other") == "Running").await;
            until("the first is gone", || world.pod("web").is_none()).await;
            assert!(world.is_in_use());
        });
    }
}
