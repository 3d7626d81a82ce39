//! Tables of everything that is neither a workload nor storage.

use serde_json::{Value, json};

use super::{
    super::store::text,
    Shown, age,
    view::{NONE, View},
};

pub(super) const SHOWN: &[Shown] = &[
    Shown {
        resource: "namespaces",
        columns: "Name,Status,Age",
        cells: |view| vec![view.name(), view.cell("/status/phase"), view.age()],
    },
    Shown {
        resource: "configmaps",
        columns: "Name,Data,Age",
        cells: |view| vec![view.name(), json!(view.len("/data") + view.len("/binaryData")), view.age()],
    },
    Shown {
        resource: "secrets",
        columns: "Name,Type,Data,Age",
        cells: |view| vec![view.name(), view.cell("/type"), json!(view.len("/data")), view.age()],
    },
    Shown { resource: "serviceaccounts", columns: "Name,Age", cells: |view| vec![view.name(), view.age()] },
    Shown { resource: "resourcequotas", columns: "Name,Request,Limit,Age", cells: quota },
    Shown { resource: "services", columns: "Name,Type,Cluster-IP,External-IP,Port(s),Age,+Selector", cells: service },
    Shown {
        resource: "endpoints",
        columns: "Name,Endpoints,Age",
        cells: |view| vec![view.name(), json!(endpoints(view)), view.age()],
    },
    Shown { resource: "events", columns: EVENT, cells: event },
    Shown { resource: "events.events.k8s.io", columns: EVENT, cells: event },
    Shown {
        resource: "leases.coordination.k8s.io",
        columns: "Name,Holder,Age",
        cells: |view| vec![view.name(), view.cell("/spec/holderIdentity"), view.age()],
    },
    Shown {
        resource: "networkpolicies.networking.k8s.io",
        columns: "Name,Pod-Selector,Age",
        cells: |view| vec![view.name(), view.selector("/spec/podSelector"), view.age()],
    },
    Shown {
        resource: "poddisruptionbudgets.policy",
        columns: "Name,Min Available,Max Unavailable,#Allowed Disruptions,Age",
        cells: |view| {
            let limit = |pointer: &str| json!(view.object.pointer(pointer).map_or_else(|| "N/A".to_owned(), plain));
            let limits = ["/spec/minAvailable", "/spec/maxUnavailable"].map(limit);
            [vec![view.name()], limits.into(), vec![view.count("/status/disruptionsAllowed"), view.age()]].concat()
        },
    },
    Shown {
        resource: "priorityclasses.scheduling.k8s.io",
        columns: "Name,#Value,?Global-Default,Age,PreemptionPolicy",
        cells: |view| {
            let policy = view.cell("/preemptionPolicy");
            vec![view.name(), view.count("/value"), view.is("/globalDefault", false), view.age(), policy]
        },
    },
    Shown { resource: "rolebindings.rbac.authorization.k8s.io", columns: BINDING, cells: binding },
    Shown { resource: "clusterrolebindings.rbac.authorization.k8s.io", columns: BINDING, cells: binding },
];

const EVENT: &str = "Last Seen,Type,Reason,Object,+Subobject,+Source,Message,+First Seen,+Count,+Name";
const BINDING: &str = "Name,Role,Age,+Users,+Groups,+ServiceAccounts";

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn quota(view: &View<'_>) -> Vec<Value> {
    let hard = view.object.pointer("/status/hard").and_then(Value::as_object).into_iter().flatten();
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in hard {
        let used = view.object["status"]["used"].get(resource).map_or_else(|| "0".to_owned(), plain);
        let line = format!("{resource}: {used}/{}", plain(hard));
        if resource.starts_with("limits") { limits.push(line) } else { requests.push(line) }
    }
    vec![view.name(), json!(requests.join(", ")), json!(limits.join(", ")), view.age()]
}

fn service(view: &View<'_>) -> Vec<Value> {
    let ports: Vec<String> = view.list("/spec/ports").iter().map(port).collect();
    let external = if view.word("/spec/type") == "ExternalName" { "/spec/externalName" } else { "/spec/externalIPs/0" };
    vec![
        view.name(),
        view.or("/spec/type", "ClusterIP"),
        view.or("/spec/clusterIP", NONE),
        view.or(external, NONE),
        json!(if ports.is_empty() { NONE.to_owned() } else { ports.join(",") }),
        view.age(),
        view.labels("/spec/selector"),
    ]
}

fn port(port: &Value) -> String {
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    match port["nodePort"].as_i64().filter(|node| *node > 0) {
        Some(node) => format!("{}:{node}/{protocol}", port["port"]),
        None => format!("{}/{protocol}", port["port"]),
    }
}

/// The first three, and how many more there are.
fn endpoints(view: &View<'_>) -> String {
    const SHOWN: usize = 3;
    let mut all: Vec<String> = Vec::new();
    for subset in view.list("/subsets") {
        let list = |field: &str| subset[field].as_array().map(Vec::as_slice).unwrap_or_default();
        for address in list("addresses") {
            let ip = text(address, "/ip");
            if list("ports").is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(list("ports").iter().map(|port| format!("{ip}:{}", port["port"])));
        }
    }
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    match (all.is_empty(), more) {
        (true, _) => NONE.to_owned(),
        (false, 0) => all.join(","),
        (false, more) => format!("{} + {more} more...", all.join(",")),
    }
}

/// Events of both groups: the younger one calls some fields by other names.
fn event(view: &View<'_>) -> Vec<Value> {
    let first = |pointers: &[&str]| {
        let mut words = pointers.iter().map(|pointer| view.word(pointer));
        words.find(|word| !word.is_empty()).unwrap_or_default().to_owned()
    };
    let begun = first(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let seen = first(&["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"]);
    let seen = if seen.is_empty() { &begun } else { &seen };
    let count = ["/series/count", "/count", "/deprecatedCount"].map(|pointer| view.number(pointer));
    let about = first(&["/involvedObject/kind", "/regarding/kind"]).to_lowercase();
    let object = match first(&["/involvedObject/name", "/regarding/name"]) {
        name if name.is_empty() => about,
        name => format!("{about}/{name}"),
    };
    let source = [
        first(&["/source/component", "/deprecatedSource/component", "/reportingComponent", "/reportingController"]),
        first(&["/source/host", "/deprecatedSource/host", "/reportingInstance"]),
    ];
    let [component, instance] = &source;
    vec![
        json!(age::since(seen, view.now)),
        view.cell("/type"),
        view.cell("/reason"),
        json!(object),
        json!(first(&["/involvedObject/fieldPath", "/regarding/fieldPath"])),
        json!(if instance.is_empty() { component.clone() } else { source.join(", ") }),
        json!(first(&["/message", "/note"]).trim()),
        json!(age::since(&begun, view.now)),
        json!(count.into_iter().find(|count| *count > 0).unwrap_or(1)),
        view.name(),
    ]
}

fn binding(view: &View<'_>) -> Vec<Value> {
    let of = |kind: &str| {
        let subjects = view.list("/subjects").iter().filter(|subject| subject["kind"] == kind);
        let name = |subject: &Value| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
            _ => text(subject, "/name").to_owned(),
        };
        json!(subjects.map(name).collect::<Vec<_>>().join(", "))
    };
    let role = format!("{}/{}", view.word("/roleRef/kind"), view.word("/roleRef/name"));
    vec![view.name(), json!(role), view.age(), of("User"), of("Group"), of("ServiceAccount")]
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn events_of_both_groups_read_alike() {
        let old = json!({
            "metadata": {"name": "e"}, "type": "Normal", "reason": "R", "message": " hello\n", "count": 3,
            "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet", "host": "n"},
            "firstTimestamp": "1970-01-01T00:00:00Z", "lastTimestamp": "1970-01-01T00:00:30Z",
        });
        let new = json!({
            "metadata": {"name": "e"}, "type": "Normal", "reason": "R", "note": "hello",
            "regarding": {"kind": "Pod", "name": "p"}, "reportingController": "kubelet", "reportingInstance": "n",
            "eventTime": "1970-01-01T00:00:00.000000Z", "series": {"count": 3, "lastObservedTime": "1970-01-01T00:00:30.000000Z"},
        });
        for object in [old, new] {
            let row = event(&View { object: &object, now: SystemTime::UNIX_EPOCH + Duration::from_secs(40) });
            assert_eq!(json!(row), json!(["10s", "Normal", "R", "pod/p", "", "kubelet, n", "hello", "40s", 3, "e"]));
        }
    }

    #[test]
    fn quota_tells_requests_from_limits() {
        let quota = json!({"metadata": {"name": "q"}, "status": {
            "hard": {"pods": "5", "limits.cpu": "2", "requests.storage": "10Gi"}, "used": {"pods": "1"},
        }});
        let row = super::quota(&View { object: &quota, now: SystemTime::now() });
        assert_eq!(json!(row), json!(["q", "pods: 1/5, requests.storage: 0/10Gi", "limits.cpu: 0/2", "<unknown>"]));
    }

    #[test]
    fn addresses_beyond_the_third_are_counted() {
        let ips: Vec<Value> = (1..=4).map(|last| json!({"ip": format!("10.0.0.{last}")})).collect();
        let object = json!({"subsets": [{"addresses": ips, "ports": [{"port": 80}]}]});
        let told = endpoints(&View { object: &object, now: SystemTime::now() });
        assert_eq!(told, "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 1 more...");
    }
}
