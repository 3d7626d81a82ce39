//! How pods and their copies end, whoever ends them: nothing is told of an end that was not one, and none goes without a word.

use serde_json::{Value, json};

use super::{SHOP, World, standing, story, text, until};

fn is_leaving(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

async fn with_pod() -> World {
    let world = standing(1).await;
    world.run_pod("web", None);
    until("it runs", || world.phase("web") == "Running").await;
    world
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
