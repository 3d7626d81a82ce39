//! How much of what a member says of a pod the host is told. The member's administrator decides what it says, and the host writes all
//! that down. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::super::object::{items, short, text};
use domain::printable::printable;

/// Of one text, in bytes: a kubelet takes no longer message of a container.
const LONGEST: usize = 4 << 10;
/// Of one field of a status.
const LARGEST: usize = 64 << 10;
/// What is told of a container only where there is room for it: without the rest nobody would know whether it runs.
const OF_LESS_USE: [&str; 5] = ["volumeMounts", "resources", "allocatedResources", "allocatedResourcesStatus", "user"];
/// What the host counts against its quotas, also where it is more than the pod asks for; and where a container asks for it.
const COUNTED: [(&str, &str); 2] = [("resources", "/resources"), ("allocatedResources", "/resources/requests")];
const STATUSES: [&str; 3] =
    ["/status/containerStatuses", "/status/initContainerStatuses", "/status/ephemeralContainerStatuses"];
/// Fields that hold a time.
const TIMES: [&str; 4] = ["lastProbeTime", "lastTransitionTime", "startedAt", "finishedAt"];
/// Of a pod: the host's own are among them, and that which says which copy it has.
const MOST_CONDITIONS: usize = 32;

pub(super) fn line(said: &str) -> String {
    short(said, LONGEST)
}

/// The same with its texts in one line each; none where it is too much altogether.
pub(super) fn told(said: &Value) -> Option<Value> {
    Some(lines(said)).filter(fits)
}

fn fits(told: &Value) -> bool {
    told.to_string().len() <= LARGEST
}

/// Of what is said of containers that which fits; none where not even the most needful does.
fn of_use(said: &Value) -> Option<Value> {
    told(said).or_else(|| {
        let mut told = lines(said);
        for fields in told.as_array_mut()?.iter_mut().filter_map(Value::as_object_mut) {
            fields.retain(|name, _| !OF_LESS_USE.contains(&name.as_str()));
        }
        Some(told).filter(fits)
    })
}

/// What is kept of the status of a copy: its owner has a kubelet say as much of containers as he likes. Of more than the host is told of a field,
/// only what it is told.
pub(super) fn kept(status: &Value) -> Value {
    if fits(status) {
        return status.clone();
    }
    let is_of_containers = |field: &str| STATUSES.iter().any(|list| list.strip_prefix("/status/") == Some(field));
    let kept = |(field, said): (&String, &Value)| {
        let kept = match field.as_str() {
            "conditions" => Some(Value::Array(conditions(&Value::Null, items(said, "")))),
            list if is_of_containers(list) => of_use(said),
            _ => told(said),
        };
        Some((field.clone(), kept?))
    };
    status.as_object().into_iter().flatten().filter_map(kept).collect()
}

/// A time as API servers tell it. They take others too, as the last second of the year 9999 in the west: that they tell by a year of five digits, which
/// hardly anybody reads, nor any list of the host's pods that holds it.
pub(super) fn is_time(said: &Value) -> bool {
    said.as_str().is_some_and(|text| text.ends_with('Z') && text.parse::<Timestamp>().is_ok())
}

fn lines(said: &Value) -> Value {
    let field = |(name, value): (&String, &Value)| {
        let is_unread = TIMES.contains(&name.as_str()) && !is_time(value);
        let told = match name.as_str() {
            _ if is_unread => Value::Null,
            "terminated" => last_words(value),
            _ => lines(value),
        };
        (name.clone(), told)
    };
    match said {
        Value::String(said) => json!(line(said)),
        Value::Array(all) => all.iter().map(lines).collect(),
        Value::Object(fields) => fields.iter().map(field).collect(),
        other => other.clone(),
    }
}

/// Of a container that has ended: its message may have several lines, as its programmer wrote them.
fn last_words(said: &Value) -> Value {
    let mut told = lines(said);
    if let Some(message) = said["message"].as_str() {
        let mut message = printable(message).into_owned();
        message.truncate(message.floor_char_boundary(LONGEST));
        told["message"] = json!(message);
    }
    told
}

/// What the host is told of the containers that a pod has in this list, of each once; none where nothing is said, or too much of all that the copy
/// has.
pub(super) fn of_containers(pod: &Value, list: &str, said: &Value) -> Option<Value> {
    let mut open: BTreeMap<&str, &Value> = items(pod, list).map(|one| (text(one, "/name"), one)).collect();
    let told = |one: &Value| Some(as_asked(pod, one, open.remove(text(one, "/name"))?));
    // The same of what a watch has told, of which no more is kept, as of what was read.
    let all: Vec<Value> = items(&of_use(said)?, "").filter_map(told).collect();
    if all.is_empty() { None } else { of_use(&Value::Array(all)) }
}

/// What is said of a container, with what it takes only where that is what it asks for, or what the host was told before: no copy is resized with
/// its pod, and one that takes more than its pod now asks for goes on being counted.
fn as_asked(pod: &Value, said: &Value, container: &Value) -> Value {
    let before = STATUSES.into_iter().flat_map(|list| items(pod, list)).find(|one| one["name"] == container["name"]);
    let mut told = said.clone();
    for (field, asked) in COUNTED {
        let takes = told.get(field);
        let is_known = before.is_some_and(|before| before.get(field) == takes);
        if takes != container.pointer(asked) && !is_known {
            told.as_object_mut().map(|fields| fields.remove(field));
        }
    }
    told
}

/// What is new of the same of a pod as a whole, which asks for that as one. A host that does not know it, as before Kubernetes 1.35, drops it each
/// time, so it is told with something else, or where some is kept.
pub(super) fn of_whole(pod: &Value, copy: &Value, with_others: bool) -> Vec<(String, Value)> {
    let mut new = Vec::new();
    for (field, asked) in COUNTED {
        let asked = pod["spec"].pointer(asked);
        let said = copy["status"].get(field).filter(|said| asked == Some(*said)).and_then(told);
        let before = pod["status"].get(field);
        let is_new = |said: &Value| before.map_or(with_others, |before| before != said);
        new.extend(said.filter(is_new).map(|said| (field.to_owned(), said)));
    }
    new
}

/// Of these conditions each type once, and no more new ones than a pod has room for.
pub(super) fn conditions<'a>(pod: &Value, said: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let there: BTreeSet<&str> = items(pod, "/status/conditions").map(|one| text(one, "/type")).collect();
    let (mut room, mut left) = ((MOST_CONDITIONS - 1).saturating_sub(there.len()), LARGEST);
    let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
    for one in said.filter(|one| !text(one, "/type").is_empty()) {
        let (kind, Some(told)) = (text(one, "/type"), told(one)) else { continue };
        let size = told.to_string().len();
        let is_new = !there.contains(kind);
        if is_new && room == 0 || size > left || !seen.insert(kind) {
            continue;
        }
        (room, left) = (room - usize::from(is_new), left - size);
        all.push(told);
    }
    all
}

#[cfg(test)]
mod tests {
    use member::policy::PodNetworks;

    use super::{
        super::status::{Source, mirrored},
        *,
    };

    #[test]
    fn texts_are_short_lines_that_steer_no_terminal_but_for_last_words_which_may_have_several() {
        let long = format!("a\n\u{1b}[2J{}", "x".repeat(9000));
        let said = json!({"waiting": {"message": long}, "terminated": {"exitCode": 1, "message": long}});
        let told = told(&json!({"state": said})).unwrap();
        for (message, begin) in [("waiting", "a \u{fffd}[2Jx"), ("terminated", "a\n\u{fffd}[2Jx")] {
            let message = text(&told, &format!("/state/{message}/message"));
            assert!(message.starts_with(begin) && message.len() == LONGEST, "{message}");
        }
        assert_eq!(told["state"]["terminated"]["exitCode"], 1);
        assert_eq!(lines(&told), told, "it is told once");
    }

    #[test]
    fn time_that_nobody_reads_is_not_told() {
        let at = |time: &str| json!({"type": "Ready", "lastTransitionTime": time, "state": {"running": {"startedAt": time}}});
        let usual = at("2026-01-01T00:00:00Z");
        assert_eq!(told(&usual), Some(usual));
        let without = json!({"type": "Ready", "lastTransitionTime": null, "state": {"running": {"startedAt": null}}});
        for time in ["9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00+12:00", "soon", ""] {
            assert_eq!(told(&at(time)), Some(without.clone()), "{time}");
        }
        assert_eq!(told(&without), Some(without), "it is told once");
    }

    #[test]
    fn what_is_too_much_is_not_told_at_all() {
        let many: Vec<Value> = (0..10_000).map(|number| json!({"ip": number.to_string()})).collect();
        assert_eq!(told(&json!(many)), None);
        assert!(told(&json!(many[..2])).is_some());
    }

    /// A kubelet says of each mount some 130 bytes.
    #[test]
    fn containers_with_many_mounts_are_told_of_without_these() {
        let names: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
        let container = |name: &String| json!({"name": name, "resources": {"requests": {"cpu": "1"}}});
        let pod = json!({"spec": {"containers": names.iter().map(container).collect::<Vec<_>>()}});
        let mount = json!({"name": "v", "mountPath": "/x".repeat(50), "readOnly": true});
        let status = |name: &String, mounts: usize| {
            let (resources, user) = (json!({"requests": {"cpu": "1"}}), json!({"linux": {"uid": 0}}));
            json!({"name": name, "ready": true, "volumeMounts": vec![&mount; mounts], "resources": resources,
                "allocatedResources": {"cpu": "1"}, "allocatedResourcesStatus": [], "user": user})
        };
        let told = |mounts: usize| {
            let said: Value = names.iter().map(|name| status(name, mounts)).collect();
            of_containers(&pod, "/spec/containers", &said).unwrap()
        };
        assert_eq!(told(1)[11], status(&names[11], 1), "all that fits is told");
        let bare: Value = names.iter().map(|name| json!({"name": name, "ready": true})).collect();
        assert_eq!(told(50), bare);
        let long = json!([{"name": "c0", "state": vec!["x".repeat(LONGEST); 20]}]);
        assert_eq!(of_containers(&pod, "/spec/containers", &long), None);
    }

    #[test]
    fn containers_that_the_pod_has_not_are_not_spoken_of() {
        let pod = json!({"spec": {"containers": [{"name": "c"}]}});
        let named = |name: &str, number: u32| json!({"name": name, "restartCount": number});
        let said = json!([named("injected", 0), named("c", 1), named("c", 2), {}]);
        assert_eq!(of_containers(&pod, "/spec/containers", &said), Some(json!([named("c", 1)])));
        assert_eq!(of_containers(&pod, "/spec/initContainers", &said), None);
    }

    /// Quotas of the host's namespace take the larger one of what a pod asks for and what is said to be given to it.
    #[test]
    fn member_says_of_no_container_that_it_takes_more_than_it_asks_for() {
        let asked = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}});
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": asked}, {"name": "d"}]}});
        let status = |name: &str, resources: &Value, allocated: &Value| json!({"name": name, "ready": true, "resources": resources, "allocatedResources": allocated});
        let told = |status: &Value| of_containers(&pod, "/spec/containers", &json!([status])).unwrap()[0].clone();
        let honest = status("c", &asked, &json!({"cpu": "1"}));
        assert_eq!(told(&honest), honest);
        let much = json!({"requests": {"cpu": "1000000"}});
        let none = json!({});
        for lie in [status("c", &much, &much["requests"]), status("c", &none, &none), status("d", &much, &much)] {
            assert_eq!(told(&lie), json!({"name": lie["name"], "ready": true}));
        }
    }

    /// Its copy is not made smaller: else a user would have one after the other for the quota of the smallest.
    #[test]
    fn container_whose_pod_asks_for_less_than_before_goes_on_being_told_with_what_it_takes() {
        let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let status = |cpu: &str| json!({"name": "c", "resources": asks(cpu), "allocatedResources": {"cpu": cpu}});
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": asks("10m")}]},
            "status": {"containerStatuses": [status("4")]}});
        let told = |cpu: &str| of_containers(&pod, "/spec/containers", &json!([status(cpu)])).unwrap()[0].clone();
        assert_eq!((told("4"), told("10m")), (status("4"), status("10m")));
        assert_eq!(told("8"), json!({"name": "c"}));
    }

    #[test]
    fn pod_as_a_whole_is_told_with_what_it_takes_where_it_asks_for_that_or_did() {
        let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
        for (field, takes, lie) in
            [("resources", asks("4"), asks("8")), ("allocatedResources", json!({"cpu": "4"}), json!({"cpu": "8"}))]
        {
            let told = |pod: &Value, said: &Value| of_whole(pod, &json!({"status": {field: said}}), true);
            let mut pod = json!({"spec": {"resources": asks("4")}, "status": {}});
            assert_eq!((told(&pod, &lie), told(&pod, &takes)), (Vec::new(), vec![(field.to_owned(), takes.clone())]));
            pod["status"][field] = asks("10m");
            assert_eq!(told(&pod, &takes).len(), 1, "{field} is something else now");
            pod["status"][field] = takes.clone();
            pod["spec"]["resources"] = asks("10m");
            assert!(told(&pod, &takes).is_empty(), "it takes that still, and that stays told");
            assert!(told(&json!({"spec": {}, "status": {}}), &lie).is_empty());
        }
    }

    #[test]
    fn what_a_pod_takes_as_a_whole_is_not_told_again_and_again_to_a_host_that_drops_it() {
        let asks = json!({"requests": {"cpu": "4"}});
        let copy = json!({"metadata": {"uid": "c"}, "status": {"phase": "Running", "resources": asks}});
        let mut pod = json!({"metadata": {"uid": "u", "resourceVersion": "7"},
            "spec": {"containers": [], "resources": asks}, "status": {"phase": "Pending"}});
        let who = Source { member: "m", networks: &PodNetworks::Any };
        let change = mirrored(&pod, &copy, who, "1").unwrap();
        assert_eq!(change["status"]["resources"], asks);
        pod["status"] = change["status"].clone();
        pod["status"].as_object_mut().unwrap().remove("resources");
        assert_eq!(mirrored(&pod, &copy, who, "2"), None);
    }

    #[test]
    fn conditions_have_an_end_and_those_that_are_there_go_on_being_told() {
        let named = |number: usize| json!({"type": format!("T{number}"), "status": "True"});
        let mut pod = json!({"status": {"conditions": [named(99)]}});
        let said: Vec<Value> = (0..100).chain([5]).map(named).collect();
        let types = |pod: &Value| {
            let told = conditions(pod, said.iter());
            told.iter().map(|one| text(one, "/type").to_owned()).collect::<Vec<_>>()
        };
        let first = types(&pod);
        assert_eq!((first.len(), first.last().map(String::as_str)), (MOST_CONDITIONS - 1, Some("T99")));
        pod["status"]["conditions"] = (50..100).map(named).collect();
        assert_eq!(types(&pod).len(), 50, "there is no room for more");
        let long = |kind: &str| json!({"type": kind, "a": vec!["x".repeat(4000); 10]});
        let told = conditions(&pod, [long("A"), long("T60"), long("T61"), json!({"status": "True"})].iter());
        assert_eq!(told.len(), 1, "what is longer than all may be is left out");
    }
}
