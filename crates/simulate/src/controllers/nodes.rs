//! Nodes: one that is not ready keeps a taint that pods do not tolerate. A new one has it until it says that it is.

use serde_json::{Value, json};

use crate::{
    Cluster,
    object::{items, name, set, text},
};

const NODES: &str = "nodes";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

pub(super) async fn run(cluster: Cluster) {
    let mut changes = crate::follow::follow(&cluster, &[NODES]);
    loop {
        let change = changes.next().await;
        // A node that is gone has no taints.
        drop(cluster.change(NODES, "", name(&change.object), tell));
    }
}

fn tell(node: &mut Value) {
    let conditions = items(node, "/status/conditions").iter();
    let ready = conditions.filter(|one| text(one, "/type") == "Ready").map(|one| text(one, "/status")).next();
    let wanted = match ready {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    let taints = items(node, "/spec/taints");
    let is_ours = |taint: &Value| {
        [NOT_READY, UNREACHABLE].contains(&text(taint, "/key")) && text(taint, "/effect") == "NoSchedule"
    };
    let before: Vec<&str> = taints.iter().filter(|taint| is_ours(taint)).map(|taint| text(taint, "/key")).collect();
    if before.iter().copied().eq(wanted) {
        return;
    }
    let kept = taints.iter().filter(|taint| !is_ours(taint)).cloned();
    let told: Vec<Value> = kept.chain(wanted.map(|key| json!({"key": key, "effect": "NoSchedule"}))).collect();
    set(node, &["spec", "taints"], json!(told));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taint_follows_the_condition_and_others_stay() {
        let mut node =
            json!({"spec": {"taints": [{"key": "own", "effect": "NoSchedule"}]}, "status": {"conditions": []}});
        for (status, expected) in
            [("False", vec!["own", NOT_READY]), ("Unknown", vec!["own", UNREACHABLE]), ("True", vec!["own"])]
        {
            node["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
            tell(&mut node);
            let keys: Vec<&str> = items(&node, "/spec/taints").iter().map(|taint| text(taint, "/key")).collect();
            assert_eq!(keys, expected, "{status}");
        }
    }
}
