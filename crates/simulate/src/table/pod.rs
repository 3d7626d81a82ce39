//! What a pod is up to, in a word: its phase says too little of containers that wait, crash or have yet to begin.

use serde_json::{Value, json};

use super::{
    super::store::text,
    Shown, age,
    view::{NONE, View},
};

pub(super) const SHOWN: &[Shown] = &[Shown {
    resource: "pods",
    columns: "Name,Ready,Status,Restarts,Age,+IP,+Node,+Nominated Node,+Readiness Gates",
    cells,
}];

fn cells(view: &View<'_>) -> Vec<Value> {
    let found = PodSummary::of(view);
    vec![
        view.name(),
        json!(format!("{}/{}", found.ready, found.containers)),
        json!(found.status),
        json!(found.restarts.print(view)),
        view.age(),
        view.or("/status/podIPs/0/ip", NONE),
        view.or("/spec/nodeName", NONE),
        view.or("/status/nominatedNodeName", NONE),
        gates(view),
    ]
}

/// Of a pod that has ended, how.
pub(super) fn condition(view: &View<'_>) -> Option<Value> {
    let (reason, message) = match view.word("/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

fn gates(view: &View<'_>) -> Value {
    let gates = view.list("/spec/readinessGates");
    let open = gates.iter().filter(|gate| view.has_condition(text(gate, "/conditionType"))).count();
    if gates.is_empty() { json!(NONE) } else { json!(format!("{open}/{}", gates.len())) }
}

#[derive(Default)]
struct Restarts<'a> {
    count: i64,
    /// Times in objects sort as texts.
    last: &'a str,
}

impl<'a> Restarts<'a> {
    fn add(&mut self, container: &'a Value) {
        self.count += container["restartCount"].as_i64().unwrap_or(0);
        self.last = self.last.max(text(container, "/lastState/terminated/finishedAt"));
    }

    fn print(&self, view: &View<'_>) -> String {
        if self.count == 0 || self.last.is_empty() {
            return self.count.to_string();
        }
        format!("{} ({} ago)", self.count, age::since(self.last, view.now))
    }
}

struct PodSummary<'a> {
    status: String,
    ready: usize,
    containers: usize,
    restarts: Restarts<'a>,
}

impl<'a> PodSummary<'a> {
    fn of(view: &View<'a>) -> Self {
        let first =
            |pointers: [&str; 2]| pointers.map(|pointer| view.word(pointer)).into_iter().find(|word| !word.is_empty());
        let sidecars = view.list("/spec/initContainers").iter().filter(|container| goes_on(container)).count();
        let mut found = Self {
            status: first(["/status/reason", "/status/phase"]).unwrap_or_default().to_owned(),
            ready: 0,
            containers: view.list("/spec/containers").len() + sidecars,
            restarts: Restarts::default(),
        };
        if is_gated(view) {
            "SchedulingGated".clone_into(&mut found.status);
        }
        if !found.begin(view) || view.has_condition("Initialized") {
            found.run(view);
        }
        if view.is_terminating() {
            let lost = view.word("/status/reason") == "NodeLost";
            let ended = ["Succeeded", "Failed"].contains(&view.word("/status/phase"));
            if lost {
                "Unknown".clone_into(&mut found.status);
            } else if !ended {
                "Terminating".clone_into(&mut found.status);
            }
        }
        found
    }

    /// Looks at the init containers; whether one of them is still to end.
    fn begin(&mut self, view: &View<'a>) -> bool {
        let specs = view.list("/spec/initContainers");
        let (mut begins, mut of_sidecars) = (false, Restarts::default());
        for (position, container) in view.list("/status/initContainerStatuses").iter().enumerate() {
            let sidecar = specs.iter().any(|spec| spec["name"] == container["name"] && goes_on(spec));
            self.restarts.add(container);
            if sidecar {
                of_sidecars.add(container);
            }
            let state = &container["state"];
            if state["terminated"]["exitCode"] == 0 {
                continue;
            }
            if sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            self.status = match text(state, "/waiting/reason") {
                _ if state["terminated"].is_object() => format!("Init:{}", ended(&state["terminated"])),
                "" | "PodInitializing" => format!("Init:{position}/{}", specs.len()),
                reason => format!("Init:{reason}"),
            };
            begins = true;
            break;
        }
        if !begins || view.has_condition("Initialized") {
            self.restarts = of_sidecars;
        }
        begins
    }

    fn run(&mut self, view: &View<'a>) {
        let mut runs = false;
        for container in view.list("/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            let state = &container["state"];
            match text(state, "/waiting/reason") {
                "" if state["terminated"].is_object() => self.status = ended(&state["terminated"]),
                "" if container["ready"] == true && state["running"].is_object() => {
                    runs = true;
                    self.ready += 1;
                }
                "" => {}
                reason => reason.clone_into(&mut self.status),
            }
        }
        if self.status == "Completed" && runs {
            let ready = view.has_condition("Ready");
            (if ready { "Running" } else { "NotReady" }).clone_into(&mut self.status);
        }
    }
}

/// An init container that runs beside the others.
fn goes_on(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn is_gated(view: &View<'_>) -> bool {
    let gated = |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated";
    view.list("/status/conditions").iter().any(gated)
}

fn ended(terminated: &Value) -> String {
    let number = |field: &str| terminated[field].as_i64().unwrap_or(0);
    match (text(terminated, "/reason"), number("signal")) {
        ("", 0) => format!("ExitCode:{}", number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn shown(spec: &Value, status: &Value, leaving: bool) -> String {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
        if leaving {
            pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
        }
        let view = View { object: &pod, now: SystemTime::UNIX_EPOCH + Duration::from_mins(1) };
        let cells = cells(&view);
        let words: Vec<&str> = cells.iter().take(4).skip(1).filter_map(Value::as_str).collect();
        words.join(" ")
    }

    fn container(state: &Value) -> Value {
        json!({"name": "a", "restartCount": 0, "ready": state["running"].is_object(), "state": state})
    }

    #[test]
    fn state_of_containers_says_more_than_the_phase() {
        let one = json!({"containers": [{"name": "a"}]});
        let status = |phase: &str, state: Value| json!({"phase": phase, "containerStatuses": [container(&state)]});
        for (status, leaving, expected) in [
            (json!({"phase": "Pending"}), false, "0/1 Pending 0"),
            (json!({"phase": "Pending"}), true, "0/1 Terminating 0"),
            (json!({"phase": "Running", "reason": "NodeLost"}), true, "0/1 Unknown 0"),
            (json!({"phase": "Failed", "reason": "Evicted"}), true, "0/1 Evicted 0"),
            (status("Pending", json!({"waiting": {"reason": "ContainerCreating"}})), false, "0/1 ContainerCreating 0"),
            (status("Running", json!({"running": {}})), false, "1/1 Running 0"),
            (status("Failed", json!({"terminated": {"exitCode": 3}})), false, "0/1 ExitCode:3 0"),
            (status("Failed", json!({"terminated": {"exitCode": 137, "signal": 9}})), false, "0/1 Signal:9 0"),
            (
                status("Succeeded", json!({"terminated": {"exitCode": 0, "reason": "Completed"}})),
                false,
                "0/1 Completed 0",
            ),
        ] {
            assert_eq!(shown(&one, &status, leaving), expected);
        }
    }

    #[test]
    fn init_containers_come_first() {
        let spec = json!({"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let init = |state: Value| {
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "restartCount": 2, "state": state,
            "lastState": {"terminated": {"finishedAt": "1970-01-01T00:00:30Z"}}}]})
        };
        assert_eq!(shown(&spec, &init(waiting("CrashLoopBackOff")), false), "0/2 Init:CrashLoopBackOff 2 (30s ago)");
        assert_eq!(shown(&spec, &init(waiting("PodInitializing")), false), "0/2 Init:0/2 2 (30s ago)");
        assert_eq!(
            shown(&spec, &init(json!({"terminated": {"exitCode": 1}})), false),
            "0/2 Init:ExitCode:1 2 (30s ago)"
        );
        let running = json!({"phase": "Running",
            "initContainerStatuses": [
                {"name": "i", "restartCount": 2, "state": {"terminated": {"exitCode": 0}}},
                {"name": "s", "restartCount": 1, "started": true, "ready": true, "state": {"running": {}}},
            ],
            "containerStatuses": [container(&json!({"running": {}}))]});
        assert_eq!(shown(&spec, &running, false), "2/2 Running 1");
    }

    #[test]
    fn container_that_ended_beside_one_that_runs_is_not_the_end() {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        let containers = [
            container(&json!({"running": {}})),
            container(&json!({"terminated": {"exitCode": 0, "reason": "Completed"}})),
        ];
        let status = json!({"phase": "Running", "containerStatuses": containers});
        assert_eq!(shown(&spec, &status, false), "1/2 NotReady 0");
    }
}
