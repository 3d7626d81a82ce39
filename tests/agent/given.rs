//! What pods name, kept in a member in which something is in the way of that.

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};

use super::{NODE, SHOP, World, standing, story, until};

/// Looked at before any other.
const FIRST: &str = "first";

/// The pod `web`, which needs the ConfigMap `settings`.
fn run_with_settings(world: &World, namespace: &str) {
    let map = json!({"metadata": {"namespace": namespace, "name": "settings"}, "data": {"a": "1"}});
    world.host.create("configmaps", map).unwrap();
    let env = json!([{"configMapRef": {"name": "settings"}}]);
    let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1", "envFrom": env}],
        "automountServiceAccountToken": false});
    world.host.create("pods", json!({"metadata": {"namespace": namespace, "name": "web"}, "spec": spec})).unwrap();
}

fn settings(world: &World, namespace: &str) -> Value {
    world.member.get("configmaps", namespace, "settings").map(|map| map["data"]["a"].clone()).unwrap_or_default()
}

#[test]
fn namespace_in_which_the_member_fails_keeps_no_other_one_from_being_kept_up_to_date() {
    for (verb, code, reason) in [(Verb::Patch, 500, "InternalError"), (Verb::Create, 404, "NotFound")] {
        story(1, async {
            let world = standing(1).await;
            world.host.create("namespaces", json!({"metadata": {"name": FIRST}})).unwrap();
            for namespace in [FIRST, SHOP] {
                run_with_settings(&world, namespace);
                let runs = || text(&world.host.get("pods", namespace, "web").unwrap(), "/status/phase") == "Running";
                until("it runs", runs).await;
            }
            world.member.faults().set(move |asked| {
                let fails = asked.verb == verb && asked.resource == "configmaps" && asked.namespace == FIRST;
                if fails { Action::Answer { code, reason } } else { Action::Pass }
            });
            for namespace in [FIRST, SHOP] {
                if verb == Verb::Create {
                    world.member.delete("configmaps", namespace, "settings").unwrap();
                }
                let change = |map: &mut Value| map["data"] = json!({"a": "2"});
                world.host.change("configmaps", namespace, "settings", change).unwrap();
            }
            until("the other one follows", || settings(&world, SHOP) == "2").await;
            assert_ne!(settings(&world, FIRST), "2");
            world.member.faults().clear();
            until("this one as well once the member takes it", || settings(&world, FIRST) == "2").await;
        });
    }
}
