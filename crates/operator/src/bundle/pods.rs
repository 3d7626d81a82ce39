//! What there is to read of pods besides their objects.

use serde_json::Value;

use crate::objects::word;

/// Ports with metrics.
const METRICS: [&str; 5] = ["admin", "provisioner", "attacher", "resizer", "snapshotter"];

/// Of one container.
#[derive(Debug, PartialEq, Eq)]
pub struct Log {
    pub path: String,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    /// Of the one before it, which has ended.
    pub previous: bool,
}

/// Where a process tells its metrics.
#[derive(Debug, PartialEq, Eq)]
pub struct Scrape {
    pub path: String,
    pub namespace: String,
    pub pod: String,
    pub port: u64,
}

pub fn logs_of(pod: &Value) -> Vec<Log> {
    let (namespace, name) = (word(pod, "/metadata/namespace"), word(pod, "/metadata/name"));
    let log = |container: &str, previous: bool| Log {
        path: format!("logs/{namespace}/{name}/{container}{}.log", if previous { ".previous" } else { "" }),
        namespace: namespace.to_owned(),
        pod: name.to_owned(),
        container: container.to_owned(),
        previous,
    };
    let of = |list: &str| pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let states = of("/status/initContainerStatuses").chain(of("/status/containerStatuses"));
    let restarted: Vec<&str> =
        states.filter(|state| state["restartCount"].as_u64() > Some(0)).map(|state| word(state, "/name")).collect();
    let containers = of("/spec/initContainers").chain(of("/spec/containers")).map(|container| word(container, "/name"));
    let logs = containers.flat_map(|container| {
        let previous = restarted.contains(&container).then(|| log(container, true));
        [Some(log(container, false)), previous].into_iter().flatten()
    });
    logs.collect()
}

/// By the names that the chart gives to ports: the driver's, and those of the sidecars.
pub fn scrapes_of(pod: &Value) -> Vec<Scrape> {
    let (namespace, name) = (word(pod, "/metadata/namespace"), word(pod, "/metadata/name"));
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    let scrapes = ports.filter_map(|port| {
        let (of, number) = (word(port, "/name"), port["containerPort"].as_u64()?);
        METRICS.contains(&of).then(|| Scrape {
            path: format!("metrics/{namespace}/{name}/{of}.txt"),
            namespace: namespace.to_owned(),
            pod: name.to_owned(),
            port: number,
        })
    });
    scrapes.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_container_has_a_log_and_one_that_was_started_again_has_two() {
        let pod = json!({
            "metadata": {"namespace": "kosmos-csi", "name": "controller-1"},
            "spec": {
                "initContainers": [{"name": "wait"}],
                "containers": [
                    {"name": "provisioner", "ports": [{"name": "provisioner", "containerPort": 9809}]},
                    {"name": "driver", "ports": [{"containerPort": 1}, {"name": "admin", "containerPort": 9808}]},
                ],
            },
            "status": {"containerStatuses": [{"name": "driver", "restartCount": 2}, {"name": "provisioner", "restartCount": 0}]},
        });
        let logs = logs_of(&pod);
        let paths: Vec<&str> =
            logs.iter().map(|log| log.path.trim_start_matches("logs/kosmos-csi/controller-1/")).collect();
        assert_eq!(paths, ["wait.log", "provisioner.log", "driver.log", "driver.previous.log"]);
        assert_eq!(logs.iter().filter(|log| log.previous).count(), 1);
        let scrapes = scrapes_of(&pod);
        let found: Vec<(u64, &str)> = scrapes.iter().map(|scrape| (scrape.port, scrape.path.as_str())).collect();
        assert_eq!(
            found,
            [
                (9809, "metrics/kosmos-csi/controller-1/provisioner.txt"),
                (9808, "metrics/kosmos-csi/controller-1/admin.txt")
            ]
        );
        assert!(logs_of(&json!({})).is_empty() && scrapes_of(&json!({"spec": {"containers": [{}]}})).is_empty());
    }
}
