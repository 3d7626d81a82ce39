//! Another agent takes over: after a stop or a kill, and where the member takes long to say what it has.

use std::time::Duration;

use serde_json::json;
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{Instant, sleep};

use super::{NAMESPACE, NODE, SHOP, STEP, World, condition, lock, standing, story, until};

/// Of a page of five hundred: less than an answer may take.
const PAGE: Duration = Duration::from_millis(3500);
/// After which Kubernetes takes a node for dead.
const GRACE: Duration = Duration::from_secs(40);

/// A node that is ready in a member that takes so many pages to tell what it has, and an agent that begins again.
async fn taken_over(pages: usize) -> World {
    let world = standing(1).await;
    for number in 0..pages * 500 {
        world.member.create("nodes", json!({"metadata": {"name": format!("n{number}")}})).unwrap();
    }
    world.kill();
    world.member.faults().set(|asked| {
        let takes_long = asked.verb == Verb::List && asked.resource == "nodes";
        if takes_long { Action::Delay(PAGE) } else { Action::Pass }
    });
    world.start("second");
    world
}

/// Its version; nothing where it was never made.
fn lease(world: &World) -> String {
    let lease = world.host.get("leases.coordination.k8s.io", "kube-node-lease", NODE);
    lease.map(|lease| text(&lease, "/metadata/resourceVersion").to_owned()).unwrap_or_default()
}

#[test]
fn node_stays_ready_and_alive_while_the_next_agent_lists_its_member_for_a_minute() {
    story(1, async {
        let world = taken_over(20).await;
        let ready = |world: &World| world.node().unwrap()["status"]["conditions"].clone();
        let (before, began) = (ready(&world), Instant::now());
        let (mut last, mut since) = (lease(&world), Instant::now());
        while began.elapsed() < PAGE * 20 {
            assert_eq!(ready(&world), before, "after {:?}", began.elapsed());
            if lease(&world) != last {
                (last, since) = (lease(&world), Instant::now());
            }
            assert!(since.elapsed() < GRACE, "it is not kept alive");
            sleep(STEP).await;
        }
        world.member.faults().clear();
        world.run_pod("p", None);
        until("a pod runs", || world.phase("p") == "Running").await;
        assert_eq!(ready(&world), before);
    });
}

#[test]
fn node_whose_member_does_not_come_to_the_end_of_its_lists_says_so_after_minutes() {
    story(1, async {
        let world = taken_over(60).await;
        let began = Instant::now();
        let said = || world.node().unwrap()["status"]["conditions"].to_string().contains("are still being listed");
        while !said() {
            assert!(began.elapsed() < Duration::from_mins(3), "nobody says what it waits for");
            sleep(STEP).await;
        }
        assert!(began.elapsed() > Duration::from_secs(100), "it was said too early");
        assert_eq!(condition(&world.node().unwrap(), "Ready"), "False");
        until("it is ready", || world.is_ready()).await;
    });
}

#[test]
fn agent_that_is_stopped_gives_its_lease_back_and_the_next_one_need_not_wait_for_its_end() {
    story(1, async {
        let world = standing(1).await;
        world.stop().await;
        let holder = || {
            let lease = world.host.get("leases.coordination.k8s.io", NAMESPACE, "kosmos-csi-virtual-node").unwrap();
            text(&lease, "/spec/holderIdentity").to_owned()
        };
        assert_eq!(holder(), "");
        let began = Instant::now();
        world.start("second");
        until("the next one leads", || !holder().is_empty()).await;
        assert!(began.elapsed() < Duration::from_secs(3), "after {:?}", began.elapsed());
    });
}

/// A pod's life from the node's making to the pod's end; the number of requests that wrote.
async fn life_of_a_pod(world: &World) -> u64 {
    world.claim("data");
    world.attach();
    world.start("first");
    let living = async {
        until("the node is ready", || world.is_ready()).await;
        world.run_pod("web", Some("data"));
        until("it runs", || world.phase("web") == "Running").await;
        let copy = world.copy("web").unwrap()["metadata"]["uid"].clone();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(world.phase("web"), "Running");
        assert_eq!(world.copy("web").unwrap()["metadata"]["uid"], copy, "it was made twice");
        world.host.delete("pods", SHOP, "web").unwrap();
        until("the pod is gone", || {
            assert!(world.pod("web").is_some() || world.copy("web").is_none(), "the pod is gone before its copy");
            world.pod("web").is_none()
        })
        .await;
        assert!(world.copy("web").is_none());
        sleep(Duration::from_secs(5)).await;
        assert!(world.copy("web").is_none() && world.is_ready());
    };
    tokio::select! {
        () = living => {}
        () = world.revive() => {}
    }
    lock(&world.life).writes
}

#[test]
fn agent_killed_at_any_write_goes_on_where_it_was() {
    let writes = story(1, async { life_of_a_pod(&World::new(1).await).await });
    assert!(writes > 8, "{writes} writes");
    for at in 1..=writes {
        for applied in [false, true] {
            story(at, async {
                let world = World::new(at).await;
                lock(&world.life).dies_at = Some((at, applied));
                life_of_a_pod(&world).await;
            });
        }
    }
}
