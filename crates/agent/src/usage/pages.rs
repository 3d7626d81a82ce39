//! What a kubelet serves of itself and its pods, by the names that a kubelet has for it. Pure.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    counters::{ContainerUsage, NodeUsage, PodUsage, Usage},
    exposition::{Metrics, bytes},
    volume_pages,
    volumes::VolumeUsage,
};

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Healthz,
    Kubelet,
    Resource,
    Cadvisor,
    /// Probes are the member's kubelet's: there are none here.
    Probes,
    Summary,
}

impl Page {
    pub(crate) fn parse(path: &str) -> Option<Self> {
        Some(match path {
            "/healthz" => Self::Healthz,
            "/metrics" => Self::Kubelet,
            "/metrics/resource" => Self::Resource,
            "/metrics/cadvisor" => Self::Cadvisor,
            "/metrics/probes" => Self::Probes,
            "/stats/summary" => Self::Summary,
            _ => return None,
        })
    }

    /// What of a node is to be allowed to who asks, as with a kubelet.
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Summary => "stats",
            _ => "metrics",
        }
    }

    pub(super) fn tells_usage(self) -> bool {
        matches!(self, Self::Resource | Self::Cadvisor | Self::Summary)
    }

    pub(super) fn tells_volumes(self) -> bool {
        matches!(self, Self::Kubelet | Self::Summary)
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Healthz => "text/plain; charset=utf-8",
            Self::Summary => "application/json",
            _ => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Where no node is meant: whoever asks every node is to find none of them down.
    pub(super) fn of_nobody(self) -> Option<String> {
        match self {
            Self::Healthz => Some("ok".to_owned()),
            Self::Summary => None,
            _ => Some(String::new()),
        }
    }

    /// `failed`: the member does not say anything just now of what its pods use.
    pub(super) fn of(self, node: &NodeUsage, volumes: &[VolumeUsage], failed: bool) -> String {
        match self {
            Self::Healthz => "ok".to_owned(),
            Self::Kubelet => kubelet(node, volumes),
            Self::Resource => resource(node, failed),
            Self::Cadvisor => cadvisor(node),
            Self::Probes => String::new(),
            Self::Summary => summary(node, volumes).to_string(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 with their thousandths")]
fn unix(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1000.0
}

const CPU: &str = "container_cpu_usage_seconds_total";
const MEMORY: &str = "container_memory_working_set_bytes";
const STARTED: &str = "container_start_time_seconds";

fn containers(node: &NodeUsage) -> impl Iterator<Item = (&PodUsage, &ContainerUsage)> {
    node.pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
}

fn of_container<'a>(pod: &'a PodUsage, container: &'a ContainerUsage) -> [(&'static str, &'a str); 3] {
    [("container", &container.name), ("namespace", &pod.pod.namespace), ("pod", &pod.pod.name)]
}

fn resource(node: &NodeUsage, failed: bool) -> String {
    let mut page = Metrics::default();
    page.family(CPU, "counter", "Processor seconds that the container has used");
    for (pod, one) in containers(node) {
        page.sample(CPU, &of_container(pod, one), one.usage.cpu_seconds, Some(one.usage.at));
    }
    page.family(MEMORY, "gauge", "Bytes that the container works with");
    for (pod, one) in containers(node) {
        page.sample(MEMORY, &of_container(pod, one), bytes(one.usage.memory), Some(one.usage.at));
    }
    page.family(STARTED, "gauge", "When the container began, in seconds since 1970");
    for (pod, one) in containers(node) {
        if let Some(started) = one.started {
            page.sample(STARTED, &of_container(pod, one), unix(started), None);
        }
    }
    let (cpu, memory) = ("pod_cpu_usage_seconds_total", "pod_memory_working_set_bytes");
    page.family(cpu, "counter", "Processor seconds that the pod has used");
    for pod in &node.pods {
        let usage = sum(pod);
        page.sample(cpu, &of_pod(pod), usage.cpu_seconds, Some(usage.at));
    }
    page.family(memory, "gauge", "Bytes that the pod works with");
    for pod in &node.pods {
        let usage = sum(pod);
        page.sample(memory, &of_pod(pod), bytes(usage.memory), Some(usage.at));
    }
    let (cpu, memory) = ("node_cpu_usage_seconds_total", "node_memory_working_set_bytes");
    page.family(cpu, "counter", "Processor seconds that this host's pods on the node have used");
    page.sample(cpu, &[], node.usage.cpu_seconds, Some(node.usage.at));
    page.family(memory, "gauge", "Bytes that this host's pods on the node work with");
    page.sample(memory, &[], bytes(node.usage.memory), Some(node.usage.at));
    let error = "resource_scrape_error";
    page.family(error, "gauge", "1 where the member did not say what its pods use");
    page.sample(error, &[], f64::from(u8::from(failed)), None);
    page.0
}

fn of_pod(pod: &PodUsage) -> [(&'static str, &str); 2] {
    [("namespace", &pod.pod.namespace), ("pod", &pod.pod.name)]
}

fn sum(pod: &PodUsage) -> Usage {
    let usages = || pod.containers.iter().map(|container| container.usage);
    Usage {
        cpu_seconds: usages().map(|usage| usage.cpu_seconds).sum(),
        cores: usages().map(|usage| usage.cores).sum(),
        memory: usages().fold(0, |sum, usage| sum.saturating_add(usage.memory)),
        at: usages().map(|usage| usage.at).max().unwrap_or(Timestamp::UNIX_EPOCH),
    }
}

/// Dashboards look for what has an image.
fn cadvisor(node: &NodeUsage) -> String {
    let mut page = Metrics::default();
    let labels = |pod, one| {
        let [container, namespace, name] = of_container(pod, one);
        [container, ("image", one.image.as_str()), namespace, name]
    };
    page.family(CPU, "counter", "Processor seconds that the container has used");
    for (pod, one) in containers(node) {
        page.sample(CPU, &labels(pod, one), one.usage.cpu_seconds, Some(one.usage.at));
    }
    page.family(MEMORY, "gauge", "Bytes that the container works with");
    for (pod, one) in containers(node) {
        page.sample(MEMORY, &labels(pod, one), bytes(one.usage.memory), Some(one.usage.at));
    }
    page.0
}

fn kubelet(node: &NodeUsage, volumes: &[VolumeUsage]) -> String {
    let mut page = Metrics::default();
    page.family("kubelet_node_name", "gauge", "The node; always 1");
    page.sample("kubelet_node_name", &[("node", &node.name)], 1.0, None);
    volume_pages::families(&mut page, volumes);
    page.0
}

fn summary(node: &NodeUsage, volumes: &[VolumeUsage]) -> Value {
    let usage = |usage: &Usage| {
        let time = format!("{:.0}", usage.at);
        json!({
            "cpu": {"time": time, "usageNanoCores": nanos(usage.cores), "usageCoreNanoSeconds": nanos(usage.cpu_seconds)},
            "memory": {"time": time, "workingSetBytes": usage.memory},
        })
    };
    let with = |mut object: Value, more: Value| {
        if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
            object.extend(more);
        }
        object
    };
    let since = |started: Option<Timestamp>| started.map(|started| format!("{started:.0}"));
    let of_container =
        |one: &ContainerUsage| with(json!({"name": one.name, "startTime": since(one.started)}), usage(&one.usage));
    let of_pod = |pod: &PodUsage| {
        let name = json!({"name": pod.pod.name, "namespace": pod.pod.namespace, "uid": pod.uid});
        let containers: Vec<Value> = pod.containers.iter().map(of_container).collect();
        let whole = json!({"podRef": name, "startTime": since(pod.started), "containers": containers});
        with(whole, usage(&sum(pod)))
    };
    let mut pods: Vec<Value> = node.pods.iter().map(of_pod).collect();
    volume_pages::put_into(&mut pods, volumes);
    json!({"node": with(json!({"nodeName": node.name}), usage(&node.usage)), "pods": pods})
}

fn nanos(value: f64) -> u64 {
    std::time::Duration::try_from_secs_f64(value)
        .map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::{super::super::object::Place, *};

    fn node() -> NodeUsage {
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let usage = Usage { cpu_seconds: 12.5, cores: 0.25, memory: 4096, at };
        let container = |name: &str, image: &str| ContainerUsage {
            name: name.to_owned(),
            image: image.to_owned(),
            started: Some(at),
            usage,
        };
        let pod = PodUsage {
            pod: Place { namespace: "shop".to_owned(), name: "db-0".to_owned() },
            uid: "u1".to_owned(),
            started: Some(at),
            containers: vec![container("db", "db:1"), container("proxy", "a\"b\\c\nd")],
        };
        let whole = Usage { cpu_seconds: 30.0, ..sum(&pod) };
        NodeUsage { name: "kosmos-m".to_owned(), usage: whole, pods: vec![pod] }
    }

    #[test]
    fn resource_page_has_what_metrics_server_reads() {
        let page = Page::Resource.of(&node(), &[], false);
        for line in [
            "# TYPE container_cpu_usage_seconds_total counter",
            "container_cpu_usage_seconds_total{container=\"db\",namespace=\"shop\",pod=\"db-0\"} 12.5 1767323045000",
            "container_memory_working_set_bytes{container=\"proxy\",namespace=\"shop\",pod=\"db-0\"} 4096 1767323045000",
            "container_start_time_seconds{container=\"db\",namespace=\"shop\",pod=\"db-0\"} 1767323045",
            "pod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"db-0\"} 25 1767323045000",
            "pod_memory_working_set_bytes{namespace=\"shop\",pod=\"db-0\"} 8192 1767323045000",
            "node_cpu_usage_seconds_total 30 1767323045000",
            "node_memory_working_set_bytes 8192 1767323045000",
            "resource_scrape_error 0",
        ] {
            assert!(page.lines().any(|there| there == line), "{line}\n{page}");
        }
        assert!(Page::Resource.of(&node(), &[], true).contains("resource_scrape_error 1"));
    }

    #[test]
    fn cadvisors_page_names_the_image_whatever_is_in_its_name() {
        let page = Page::Cadvisor.of(&node(), &[], false);
        assert!(page.contains("image=\"a\\\"b\\\\c\\nd\",namespace=\"shop\""), "{page}");
        assert!(page.lines().all(|line| line.starts_with('#') || line.starts_with("container_")), "{page}");
    }

    #[test]
    fn summary_says_the_same_in_json() {
        let said: Value = serde_json::from_str(&Page::Summary.of(&node(), &[], false)).unwrap();
        assert_eq!(said["node"]["nodeName"], "kosmos-m");
        assert_eq!(said["node"]["cpu"]["usageCoreNanoSeconds"], 30_000_000_000_u64);
        let pod = &said["pods"][0];
        assert_eq!(pod["podRef"], json!({"name": "db-0", "namespace": "shop", "uid": "u1"}));
        assert_eq!(pod["cpu"]["usageNanoCores"], 500_000_000);
        assert_eq!(pod["containers"][1]["memory"], json!({"time": "2026-01-02T03:04:05Z", "workingSetBytes": 4096}));
    }

    #[test]
    fn every_other_page_is_answered_so_that_nobodys_target_is_down() {
        assert_eq!(Page::Healthz.of(&node(), &[], false), "ok");
        assert_eq!(Page::Probes.of(&node(), &[], false), "");
        assert!(Page::Kubelet.of(&node(), &[], true).contains("kubelet_node_name{node=\"kosmos-m\"} 1"));
        for path in ["/metrics/", "/metrics/cpu", "/stats", "/pods", "", "/healthz/ping"] {
            assert_eq!(Page::parse(path), None, "{path}");
        }
    }
}
