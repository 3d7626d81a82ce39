//! Tables of what makes pods, and of nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::store::text,
    Shown, age,
    view::{NONE, View},
};

pub(super) const SHOWN: &[Shown] = &[
    Shown {
        resource: "deployments.apps",
        columns: "Name,Ready,Up-to-date,Available,Age,+Containers,+Images,+Selector",
        cells: |view| {
            let own = vec![
                view.name(),
                ready(view),
                view.count("/status/updatedReplicas"),
                view.count("/status/availableReplicas"),
            ];
            [own, vec![view.age()], template(view), vec![view.selector("/spec/selector")]].concat()
        },
    },
    Shown {
        resource: "replicasets.apps",
        columns: "Name,#Desired,#Current,#Ready,Age,+Containers,+Images,+Selector",
        cells: |view| {
            let counts =
                ["/spec/replicas", "/status/replicas", "/status/readyReplicas"].map(|pointer| view.count(pointer));
            [vec![view.name()], counts.into(), vec![view.age()], template(view), vec![view.selector("/spec/selector")]]
                .concat()
        },
    },
    Shown {
        resource: "statefulsets.apps",
        columns: "Name,Ready,Age,+Containers,+Images",
        cells: |view| [vec![view.name(), ready(view), view.age()], template(view)].concat(),
    },
    Shown {
        resource: "daemonsets.apps",
        columns: "Name,#Desired,#Current,#Ready,#Up-to-date,#Available,Node Selector,Age,+Containers,+Images,+Selector",
        cells: |view| {
            let counts = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ]
            .map(|field| view.count(&format!("/status/{field}")));
            let nodes = vec![view.labels("/spec/template/spec/nodeSelector"), view.age()];
            [vec![view.name()], counts.into(), nodes, template(view), vec![view.selector("/spec/selector")]].concat()
        },
    },
    Shown {
        resource: "jobs.batch",
        columns: "Name,Status,Completions,Duration,Age,+Containers,+Images,+Selector",
        cells: |view| {
            let own =
                vec![view.name(), json!(outcome(view)), json!(completions(view)), json!(duration(view)), view.age()];
            [own, template(view), vec![view.selector("/spec/selector")]].concat()
        },
    },
    Shown {
        resource: "nodes",
        columns: "Name,Status,Roles,Age,Version,+Internal-IP,+External-IP,+OS-Image,+Kernel-Version,+Container-Runtime",
        cells: |view| {
            const UNKNOWN: &str = "<unknown>";
            vec![
                view.name(),
                json!(health(view)),
                json!(roles(view)),
                view.age(),
                view.cell("/status/nodeInfo/kubeletVersion"),
                address(view, "InternalIP"),
                address(view, "ExternalIP"),
                view.or("/status/nodeInfo/osImage", UNKNOWN),
                json!(kernel(view)),
                view.or("/status/nodeInfo/containerRuntimeVersion", UNKNOWN),
            ]
        },
    },
];

fn kernel(view: &View<'_>) -> String {
    match (view.word("/status/nodeInfo/kernelVersion"), view.word("/status/nodeInfo/architecture")) {
        ("", _) => "<unknown>".to_owned(),
        (kernel, "") => kernel.to_owned(),
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    }
}

fn ready(view: &View<'_>) -> Value {
    json!(format!("{}/{}", view.number("/status/readyReplicas"), view.number("/spec/replicas")))
}

fn template(view: &View<'_>) -> Vec<Value> {
    ["name", "image"].map(|field| json!(view.joined("/spec/template/spec/containers", field))).into()
}

fn outcome(view: &View<'_>) -> &'static str {
    const SAID: [(&str, &str); 5] = [
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ];
    let ended = SAID.iter().position(|(condition, _)| view.has_condition(condition));
    match ended.and_then(|position| SAID.get(position).map(|(_, word)| (position, *word))) {
        Some((position, word)) if position < 2 || !view.is_terminating() => word,
        _ if view.is_terminating() => "Terminating",
        _ => "Running",
    }
}

fn completions(view: &View<'_>) -> String {
    let succeeded = view.number("/status/succeeded");
    match (view.object.pointer("/spec/completions"), view.number("/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(view: &View<'_>) -> String {
    let Ok(begun) = humantime::parse_rfc3339(view.word("/status/startTime")) else { return String::new() };
    age::between(begun, humantime::parse_rfc3339(view.word("/status/completionTime")).unwrap_or(view.now))
}

fn health(view: &View<'_>) -> String {
    let known = view.list("/status/conditions").iter().find(|condition| condition["type"] == "Ready");
    let word = known.map_or("Unknown", |ready| if ready["status"] == "True" { "Ready" } else { "NotReady" });
    if view.is("/spec/unschedulable", false) == true { format!("{word},SchedulingDisabled") } else { word.to_owned() }
}

fn roles(view: &View<'_>) -> String {
    let labels = view.object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let role = |(key, value): (&'_ String, &'_ Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { NONE.to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address(view: &View<'_>, kind: &str) -> Value {
    let found = view.list("/status/addresses").iter().find(|address| address["type"] == kind);
    json!(found.map_or(NONE, |address| text(address, "/address")))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn node_tells_its_health_and_roles() {
        let node = json!({
            "metadata": {"labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "worker", "a": "b"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}], "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]},
        });
        let view = View { object: &node, now: SystemTime::now() };
        assert_eq!(
            (health(&view).as_str(), roles(&view).as_str()),
            ("NotReady,SchedulingDisabled", "control-plane,worker")
        );
        assert_eq!((address(&view, "InternalIP"), address(&view, "ExternalIP")), (json!("1.2.3.4"), json!(NONE)));
    }

    #[test]
    fn job_tells_how_it_ended_and_how_long_it_took() {
        let mut job = json!({
            "metadata": {"deletionTimestamp": "x"}, "spec": {"parallelism": 3},
            "status": {"startTime": "1970-01-01T00:00:00Z", "completionTime": "1970-01-01T00:00:05Z",
                "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]},
        });
        let told = |job: &Value| {
            let view = View { object: job, now: SystemTime::now() };
            format!("{} {} {}", outcome(&view), completions(&view), duration(&view))
        };
        assert_eq!(told(&job), "Terminating 0/1 of 3 5s");
        job["status"]["conditions"][0]["type"] = json!("Complete");
        assert_eq!(told(&job), "Complete 0/1 of 3 5s");
    }
}
