//! Counters of what pods have used, as a kubelet has them, made of what a member says of the last seconds. Pure.
//!
//! A kubelet counts processor seconds from a container's start; `metrics.k8s.io` tells processors in use. Between two
//! readings the latter is taken to have held, and before the first one for a minute at most. So the difference between two looks at a
//! counter, by their times, is again what the member said. A counter begins low, as those of a container do that was restarted: whoever
//! knows a higher one takes no difference then.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{
    super::{
        host_pod::{Container, HostPod, KeptPod},
        object::Place,
    },
    reading::{ContainerId, Reading},
};

/// metrics-server leaves out a whole pod where one of its containers has used nothing at all.
const LEAST: f64 = 1e-6;
/// metrics-server has a figure for a container at the first look, if that began in the last minute.
const FIRST: f64 = 60.0;
/// What a member has not said again for so long is told no more.
pub(super) const STALE: Duration = Duration::from_mins(3);

/// Of one member's pods.
#[derive(Debug, Default)]
pub(super) struct Counters {
    containers: HashMap<ContainerId, Counter>,
    /// Of all pods that have been on a node, so that it never goes back.
    nodes: BTreeMap<String, f64>,
}

#[derive(Clone, Debug)]
struct Counter {
    pod_uid: String,
    started: Option<Timestamp>,
    usage: Usage,
}

/// What has been used until a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    pub(super) cpu_seconds: f64,
    /// At that moment.
    pub(super) cores: f64,
    pub(super) memory: u64,
    pub(super) at: Timestamp,
}

/// A container of a pod of the host.
#[derive(Clone, Debug)]
pub(super) struct ContainerUsage {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) started: Option<Timestamp>,
    pub(super) usage: Usage,
}

#[derive(Clone, Debug)]
pub(super) struct PodUsage {
    pub(super) pod: Place,
    pub(super) uid: String,
    pub(super) started: Option<Timestamp>,
    pub(super) containers: Vec<ContainerUsage>,
}

/// What pods use that are on one virtual node.
#[derive(Clone, Debug)]
pub(super) struct NodeUsage {
    pub(super) name: String,
    pub(super) usage: Usage,
    pub(super) pods: Vec<PodUsage>,
}

impl Counters {
    /// Goes on counting by what a member has said. Only these pods of the host count, which are on these nodes that stand for it, and only
    /// those that have a copy: another one's may have the name still.
    pub(super) fn take(&mut self, readings: &[Reading], nodes: &[String], pods: &[KeptPod], now: Timestamp) {
        let copied = pods.iter().filter(|(_, pod)| pod.parts().had_copy);
        let known: HashMap<&Place, &HostPod> = copied.map(|(place, pod)| (place, &**pod)).collect();
        let uid = |place: &Place| known.get(place).map(|pod| pod.uid());
        self.containers.retain(|id, counter| uid(&id.pod) == Some(counter.pod_uid.as_str()));
        self.nodes.retain(|node, _| nodes.contains(node));
        for reading in readings {
            if let Some(pod) = known.get(&reading.id.pod)
                && let Some(container) = pod.parts().containers.iter().find(|one| one.name == reading.id.container)
            {
                self.count(reading, pod, container.started, now);
            }
        }
    }

    /// `started`: since when its container runs, as the host's pod says.
    fn count(&mut self, reading: &Reading, pod: &HostPod, started: Option<Timestamp>, now: Timestamp) {
        let at = reading.at.min(now);
        // Of a container that was restarted nothing is known.
        let before = self.containers.get(&reading.id).filter(|before| before.started == started);
        if before.is_some_and(|before| before.usage.at >= at) {
            return;
        }
        let seconds = |since: Timestamp| at.duration_since(since).as_secs_f64().max(0.0);
        let used = match before {
            Some(before) => reading.cores * seconds(before.usage.at),
            None => (reading.cores * started.map_or(1.0, seconds).min(FIRST)).max(LEAST),
        };
        let cpu_seconds = before.map_or(0.0, |before| before.usage.cpu_seconds) + used;
        *self.nodes.entry(pod.node().unwrap_or_default()).or_default() += used;
        let usage = Usage { cpu_seconds, cores: reading.cores, memory: reading.memory, at };
        let counter = Counter { pod_uid: pod.uid().to_owned(), started, usage };
        self.containers.insert(reading.id.clone(), counter);
    }

    /// What is told of a node: of these pods of the host, which are on it.
    pub(super) fn of_node(&self, name: &str, pods: &[KeptPod], now: Timestamp) -> NodeUsage {
        let mut pods: Vec<PodUsage> = pods.iter().filter_map(|pod| self.of_pod(pod, now)).collect();
        pods.sort_by(|one, other| one.pod.cmp(&other.pod));
        let all = || pods.iter().flat_map(|pod| &pod.containers).map(|container| container.usage);
        let usage = Usage {
            cpu_seconds: self.nodes.get(name).copied().unwrap_or_default(),
            cores: all().map(|usage| usage.cores).sum(),
            memory: all().fold(0, |sum, usage| sum.saturating_add(usage.memory)),
            at: all().map(|usage| usage.at).max().unwrap_or(now),
        };
        NodeUsage { name: name.to_owned(), usage, pods }
    }

    /// None of which nothing is known.
    fn of_pod(&self, (place, pod): &KeptPod, now: Timestamp) -> Option<PodUsage> {
        let of_container = |one: &Container| {
            let id = ContainerId { pod: place.clone(), container: one.name.clone() };
            let counter = self.containers.get(&id).filter(|counter| counter.pod_uid == pod.uid())?;
            let fresh = now.duration_since(counter.usage.at) < SignedDuration::try_from(STALE).unwrap_or_default();
            let (name, image) = (one.name.clone(), one.image.clone());
            fresh.then_some(ContainerUsage { name, image, started: one.started, usage: counter.usage })
        };
        let containers: Vec<_> = pod.parts().containers.iter().filter_map(of_container).collect();
        let (pod, uid, started) = (place.clone(), pod.uid().to_owned(), pod.parts().started);
        (!containers.is_empty()).then_some(PodUsage { pod, uid, started, containers })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{
        super::super::{cache::Cached, host_pod::COPIED},
        *,
    };

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// Whose container runs since then.
    fn pod_since(started: i64, name: &str, uid: &str, node: &str) -> KeptPod {
        let running = json!({"running": {"startedAt": time(started).to_string()}});
        let pod: Value = json!({
            "metadata": {"namespace": "shop", "name": name, "uid": uid},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "db:1"}]},
            "status": {"conditions": [{"type": COPIED, "status": "True"}], "containerStatuses": [{"name": "main", "state": running}]},
        });
        (Place::of(&pod), Arc::new(HostPod::pack(pod)))
    }

    fn pod(name: &str, uid: &str, node: &str) -> KeptPod {
        pod_since(0, name, uid, node)
    }

    fn reading(name: &str, cores: f64, at: i64) -> Reading {
        let pod = Place { namespace: "shop".to_owned(), name: name.to_owned() };
        Reading { id: ContainerId { pod, container: "main".to_owned() }, cores, memory: 100, at: time(at) }
    }

    fn take(counters: &mut Counters, readings: &[Reading], pods: &[KeptPod], now: i64) {
        counters.take(readings, &["kosmos-m".to_owned()], pods, time(now));
    }

    fn seconds(counters: &Counters, pods: &[KeptPod], now: i64) -> (f64, Vec<f64>) {
        let node = counters.of_node("kosmos-m", pods, time(now));
        let of_pods = node.pods.iter().flat_map(|pod| &pod.containers).map(|one| one.usage.cpu_seconds).collect();
        (node.usage.cpu_seconds, of_pods)
    }

    #[test]
    fn difference_between_two_looks_is_what_the_member_said() {
        let (mut counters, pods) = (Counters::default(), [pod("a", "u1", "kosmos-m")]);
        take(&mut counters, &[reading("a", 0.5, 10)], &pods, 11);
        assert_eq!(seconds(&counters, &pods, 11), (5.0, vec![5.0]), "since its start");
        take(&mut counters, &[reading("a", 2.0, 25)], &pods, 26);
        assert_eq!(seconds(&counters, &pods, 26), (35.0, vec![35.0]));
        take(&mut counters, &[reading("a", 9.0, 25)], &pods, 40);
        assert_eq!(seconds(&counters, &pods, 40), (35.0, vec![35.0]), "the same reading once more");
    }

    #[test]
    fn pod_of_the_same_name_begins_again_and_its_node_goes_on() {
        let (mut counters, former) = (Counters::default(), [pod("a", "u1", "kosmos-m")]);
        take(&mut counters, &[reading("a", 1.0, 10)], &former, 10);
        let pods = [pod("a", "u2", "kosmos-m")];
        assert!(counters.of_node("kosmos-m", &pods, time(11)).pods.is_empty(), "another pod's figures");
        take(&mut counters, &[reading("a", 1.0, 30)], &pods, 30);
        assert_eq!(seconds(&counters, &pods, 30), (40.0, vec![30.0]));
    }

    #[test]
    fn counter_begins_low_whoever_leads_and_however_long_the_container_has_run() {
        let (mut counters, pods) = (Counters::default(), [pod("a", "u1", "kosmos-m")]);
        take(&mut counters, &[reading("a", 0.15, 864_000)], &pods, 864_000);
        let (node, of_pod) = seconds(&counters, &pods, 864_000);
        assert!((node - 9.0).abs() < 0.001 && (of_pod[0] - 9.0).abs() < 0.001, "{node} {of_pod:?}");
    }

    #[test]
    fn container_that_was_restarted_begins_again() {
        let (mut counters, mut pods) = (Counters::default(), [pod("a", "u1", "kosmos-m")]);
        take(&mut counters, &[reading("a", 1.0, 50)], &pods, 50);
        take(&mut counters, &[reading("a", 1.0, 3600)], &pods, 3600);
        pods[0] = pod_since(3610, "a", "u1", "kosmos-m");
        take(&mut counters, &[reading("a", 1.0, 3622)], &pods, 3622);
        assert_eq!(seconds(&counters, &pods, 3622), (3612.0, vec![12.0]), "since it was");
    }

    #[test]
    fn what_is_no_pod_of_the_host_on_a_node_of_the_member_does_not_count() {
        let (mut counters, pods) = (Counters::default(), [pod("a", "u1", "kosmos-m")]);
        let mut made_up = reading("a", 1.0, 10);
        made_up.id.container = "other".to_owned();
        take(&mut counters, &[reading("b", 1.0, 10), made_up], &pods, 10);
        assert_eq!(seconds(&counters, &pods, 10), (0.0, vec![]));
    }

    #[test]
    fn idle_container_is_told_and_one_that_is_not_spoken_of_any_more_is_not() {
        let (mut counters, pods) = (Counters::default(), [pod("a", "u1", "kosmos-m")]);
        take(&mut counters, &[reading("a", 0.0, 10)], &pods, 10);
        assert_eq!(seconds(&counters, &pods, 10), (LEAST, vec![LEAST]));
        take(&mut counters, &[], &pods, 60);
        assert_eq!(seconds(&counters, &pods, 60).1, [LEAST]);
        let late = 10 + i64::try_from(STALE.as_secs()).unwrap();
        assert!(seconds(&counters, &pods, late).1.is_empty());
    }

    #[test]
    fn member_whose_clock_is_ahead_cannot_stop_its_counters() {
        let (mut counters, pods) = (Counters::default(), [pod("a", "u1", "kosmos-m")]);
        take(&mut counters, &[reading("a", 1.0, 100_000)], &pods, 10);
        take(&mut counters, &[reading("a", 1.0, 100_000)], &pods, 20);
        assert_eq!(seconds(&counters, &pods, 20), (20.0, vec![20.0]));
    }
}
