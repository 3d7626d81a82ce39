//! What a virtual node says of itself: whether its member answers, and how much room there is. Pure.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::{
    super::object::{items, short},
    features,
    plan::patch_of,
    room::{self, Amounts},
};
use domain::volume::quantity;

/// In bytes, of what a member says: why it does not answer, and which version it is.
const MESSAGE: usize = 900;
const VERSION: usize = 64;
/// Nothing is known of these in a member as a whole, so they stand in nobody's way.
const NO_PRESSURE: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

/// Whether pods can run there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) ready: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What was found in the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedStatus {
    pub(super) room: Amounts,
    pub(super) version: String,
    pub(super) architecture: String,
    pub(super) kubelet_api: Option<SocketAddr>,
    pub(super) features: Vec<&'static str>,
}

/// The change from what a Node says to what is so; none where it says it. What is not known just now stays as it was.
pub(super) fn change(node: &Value, health: &Health, found: Option<&ObservedStatus>, now: &str) -> Option<Value> {
    let mut status = json!({});
    let conditions = conditions(node, health, now);
    if node["status"].get("conditions") != Some(&conditions) {
        status["conditions"] = conditions;
    }
    if let Some(found) = found {
        let room = |field: &str| room_as_written(&node["status"][field], &found.room);
        for (field, wanted) in
            [("capacity", room("capacity")), ("allocatable", room("allocatable")), ("nodeInfo", info(found))]
        {
            let changes = changes(&node["status"][field], wanted);
            if !changes.is_empty() {
                status[field] = Value::Object(changes);
            }
        }
        let (addresses, endpoints) = ways(found.kubelet_api);
        for (field, wanted) in [("addresses", addresses), ("daemonEndpoints", endpoints)] {
            if node["status"][field] != wanted {
                status[field] = wanted;
            }
        }
        if let Some(features) = features::to_tell(node, &found.features, status != json!({})) {
            status[features::DECLARED] = features;
        }
    }
    (status != json!({})).then(|| patch_of(node, json!({"status": status})))
}

/// A quantity that is there in other words, such as 5k for 5000, stays as it is written.
fn room_as_written(there: &Value, room: &Amounts) -> Map<String, Value> {
    let written = |name: &str, amount: u128| {
        let before = there.get(name).filter(|text| text.as_str().and_then(quantity::thousandths) == Some(amount));
        before.cloned().unwrap_or_else(|| json!(room::print(name, amount)))
    };
    room.iter().map(|(name, amount)| (name.clone(), written(name, *amount))).collect()
}

/// What of a map is to be written: what is new, and null for what is gone.
fn changes(there: &Value, mut wanted: Map<String, Value>) -> Map<String, Value> {
    for key in there.as_object().into_iter().flat_map(Map::keys) {
        if !wanted.contains_key(key) {
            wanted.insert(key.clone(), Value::Null);
        }
    }
    wanted.retain(|key, value| there.get(key) != Some(value) && !(there.get(key).is_none() && *value == json!("")));
    wanted
}

fn info(found: &ObservedStatus) -> Map<String, Value> {
    let version = short(&found.version, VERSION);
    let known = [
        ("kubeletVersion", version.as_str()),
        ("operatingSystem", "linux"),
        ("architecture", found.architecture.as_str()),
    ];
    let unknown = [
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "machineID",
        "osImage",
        "systemUUID",
    ];
    let unknown = unknown.into_iter().map(|field| (field, ""));
    known.into_iter().chain(unknown).map(|(field, value)| (field.to_owned(), json!(value))).collect()
}

/// Addresses and endpoint of who answers for the kubelet.
fn ways(kubelet_api: Option<SocketAddr>) -> (Value, Value) {
    let Some(kubelet_api) = kubelet_api else { return (Value::Null, json!({"kubeletEndpoint": {"Port": 0}})) };
    // No host name: an API server asks for that before any address, unless it is told otherwise, and nobody resolves it.
    let addresses = json!([{"type": "InternalIP", "address": kubelet_api.ip().to_string()}]);
    (addresses, json!({"kubeletEndpoint": {"Port": kubelet_api.port()}}))
}

/// Those of others stay; one that says the same keeps its times.
fn conditions(node: &Value, health: &Health, now: &str) -> Value {
    let calm = |kind| (kind, false, "MemberDecides", "the member looks after its own nodes".to_owned());
    let message = short(&health.message, MESSAGE);
    let ours = std::iter::once(("Ready", health.ready, health.reason, message)).chain(NO_PRESSURE.map(calm));
    let ours: Vec<_> = ours.collect();
    let is_ours = |one: &&Value| ours.iter().any(|(kind, ..)| one["type"] == *kind);
    let others = items(node, "/status/conditions").filter(|one| !is_ours(one)).cloned();
    let told = ours.iter().map(|(kind, holds, reason, message)| {
        let status = if *holds { "True" } else { "False" };
        let before = items(node, "/status/conditions").find(|one| one["type"] == *kind);
        let same = before.filter(|one| one["status"] == status);
        if let Some(same) = same.filter(|one| one["reason"] == *reason && one["message"] == *message) {
            return same.clone();
        }
        let since = same.map_or_else(|| json!(now), |one| one["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": since})
    });
    told.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(ready: bool, message: &str) -> Health {
        let reason = if ready { "MemberReady" } else { "MemberUnreachable" };
        Health { ready, reason, message: message.to_owned() }
    }

    fn found(cpu: u128) -> ObservedStatus {
        let room = Amounts::from([("cpu".to_owned(), cpu)]);
        let (version, architecture) = ("v1.36.3".to_owned(), "amd64".to_owned());
        ObservedStatus { room, version, architecture, kubelet_api: None, features: Vec::new() }
    }

    fn applied(node: &mut Value, change: &Value) {
        for (field, value) in change["status"].as_object().unwrap() {
            let map = value.is_object() && node["status"][field].is_object();
            if map {
                for (key, value) in value.as_object().unwrap() {
                    node["status"][field][key] = value.clone();
                }
                node["status"][field].as_object_mut().unwrap().retain(|_, value| !value.is_null());
            } else {
                node["status"][field] = value.clone();
            }
        }
    }

    #[test]
    fn what_is_said_already_is_not_written_again() {
        let mut node = json!({"metadata": {"name": "kosmos-m", "uid": "u", "resourceVersion": "1"}});
        let first = change(&node, &health(true, "it answers"), Some(&found(2000)), "1").unwrap();
        assert_eq!(first["metadata"], json!({"uid": "u", "resourceVersion": "1"}));
        applied(&mut node, &first);
        // An empty text is not kept by an API server.
        node["status"]["nodeInfo"].as_object_mut().unwrap().retain(|_, value| *value != "");
        assert_eq!(change(&node, &health(true, "it answers"), Some(&found(2000)), "2"), None);
        node["status"]["capacity"]["cpu"] = json!("2000m");
        assert_eq!(change(&node, &health(true, "it answers"), Some(&found(2000)), "2"), None, "in other words");
        let less = change(&node, &health(true, "it answers"), Some(&found(1500)), "2").unwrap();
        assert_eq!(less["status"], json!({"capacity": {"cpu": "1500m"}, "allocatable": {"cpu": "1500m"}}));
    }

    #[test]
    fn member_that_does_not_answer_is_told_of_and_nothing_else_changes() {
        let mut node = json!({"metadata": {"name": "kosmos-m"}});
        let other = json!({"type": "Theirs", "status": "True"});
        let first = change(&node, &health(true, ""), Some(&found(2000)), "1").unwrap();
        applied(&mut node, &first);
        node["status"]["conditions"].as_array_mut().unwrap().push(other.clone());
        let down = change(&node, &health(false, "connection refused"), None, "2").unwrap();
        let conditions = down["status"]["conditions"].as_array().unwrap();
        assert_eq!(down["status"].as_object().unwrap().len(), 1);
        assert_eq!(conditions[0]["status"], "False");
        assert_eq!(
            (&conditions[0]["lastTransitionTime"], &conditions[1]["lastTransitionTime"]),
            (&json!("2"), &json!("1"))
        );
        assert!(conditions.contains(&other));
        applied(&mut node, &down);
        let why = change(&node, &health(false, "no answer within 4 s"), None, "3").unwrap();
        assert_eq!(why["status"]["conditions"][0]["lastTransitionTime"], "2", "it has been so for longer");
    }

    #[test]
    fn what_a_member_says_of_itself_is_short_and_steers_no_terminal() {
        let node = json!({"metadata": {"name": "kosmos-m"}});
        let found = ObservedStatus { version: format!("v1\u{1b}[2J{}", "9".repeat(1000)), ..found(1) };
        let change = change(&node, &health(false, &format!("no\n{}", "x".repeat(9000))), Some(&found), "1").unwrap();
        let message = change["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.starts_with("no x") && message.len() == MESSAGE, "{message}");
        let version = change["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap();
        assert!(version.starts_with("v1\u{fffd}[2J9") && version.len() == VERSION, "{version}");
    }

    #[test]
    fn resource_that_is_gone_is_taken_away() {
        let mut node = json!({"metadata": {"name": "kosmos-m"}});
        let first = change(&node, &health(true, ""), Some(&found(2000)), "1").unwrap();
        applied(&mut node, &first);
        node["status"]["capacity"]["example.org/gpu"] = json!("4");
        let change = change(&node, &health(true, ""), Some(&found(2000)), "2").unwrap();
        assert_eq!(change["status"], json!({"capacity": {"example.org/gpu": null}}));
    }

    #[test]
    fn features_of_the_members_kubelets_are_declared() {
        let mut node = json!({"metadata": {"name": "kosmos-m"}});
        let declared = |features: &[&'static str]| ObservedStatus { features: features.to_vec(), ..found(1) };
        let first = change(&node, &health(true, ""), Some(&declared(&["A"])), "1").unwrap();
        assert_eq!(first["status"]["declaredFeatures"], json!(["A"]));
        applied(&mut node, &first);
        assert_eq!(change(&node, &health(true, ""), Some(&declared(&["A"])), "2"), None);
        let undeclared = change(&node, &health(true, ""), Some(&declared(&[])), "2").unwrap();
        assert_eq!(undeclared["status"], json!({"declaredFeatures": null}));
    }

    #[test]
    fn door_is_told_where_there_is_one() {
        let node = json!({"metadata": {"name": "kosmos-m"}});
        let found = ObservedStatus { kubelet_api: Some("10.0.0.7:10250".parse().unwrap()), ..found(1) };
        let change = change(&node, &health(true, ""), Some(&found), "1").unwrap();
        assert_eq!(change["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
        assert_eq!(
            change["status"]["addresses"],
            json!([{"type": "InternalIP", "address": "10.0.0.7"}]),
            "nobody resolves its name"
        );
    }
}
