//! What pods use: the member says it in the words of `metrics.k8s.io`, and whoever asks the kubelet of a virtual node is told it in
//! a kubelet's.

use std::{sync::Arc, time::Duration};

use agent::{
    KubeletAddress,
    usage::{Page, Ports, Usage},
};
use cluster::Dial;
use host::Host;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use member::{Registry, Scope, source::Account};
use serde_json::json;
use tokio::{sync::watch, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{SHOP, World, story, until};

const METRICS: &str = "pods.metrics.k8s.io";
pub(super) const SHARED: u16 = 10250;

/// An agent whose nodes have ports, and somebody who asks there.
pub(super) struct Scraped {
    pub(super) world: World,
    usage: Arc<Usage>,
    host: Host,
    members: Registry,
    _tasks: JoinSet<anyhow::Result<()>>,
}

impl Scraped {
    async fn new() -> Self {
        Self::by(|dial| dial).await
    }

    /// Who is asked there goes this way to the member.
    pub(super) async fn by(way: impl FnOnce(Dial) -> Dial) -> Self {
        let world = World::new(1).await;
        let usage = Arc::new(Usage::new(Ports::new(SHARED + 1..=SHARED + 2)));
        let shared = format!("10.0.0.7:{SHARED}").parse().unwrap();
        world.start_at("first", Some(KubeletAddress { shared, usage: Some(Arc::clone(&usage)) }));
        until("the node is ready", || world.is_ready()).await;
        let (mut tasks, mut clusters) = (JoinSet::new(), world.clusters("first"));
        clusters.dial = way(std::mem::take(&mut clusters.dial));
        let host = clusters.connect(&CancellationToken::new()).await.unwrap().unwrap();
        let (_, never_restored) = watch::channel(());
        let (members, _) = clusters.follow(&host, Account::VirtualNode, Scope::Nothing, &never_restored, &mut tasks);
        let scraped = Self { world, usage, host, members, _tasks: tasks };
        while scraped.members.get("m").await.is_ok_and(|member| member.closed().is_some()) {
            sleep(Duration::from_millis(100)).await;
        }
        scraped
    }

    fn port(&self) -> u64 {
        self.world.node().unwrap()["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap()
    }

    pub(super) async fn page(&self, page: Page, port: u16) -> String {
        // Longer than the member's word is believed.
        sleep(Duration::from_secs(11)).await;
        self.usage.page(page, &self.members, &self.host.id, port).await.unwrap()
    }

    /// The member has metrics-server.
    fn serves_metrics(&self) {
        let names = json!({"plural": "pods", "singular": "pod", "kind": "PodMetrics", "listKind": "PodMetricsList"});
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1beta1", "served": true, "storage": true, "schema": schema});
        let spec = json!({"group": "metrics.k8s.io", "scope": "Namespaced", "names": names, "versions": [version]});
        let definition = json!({"metadata": {"name": METRICS}, "spec": spec});
        self.world.member.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    }

    /// What it says of a pod is not said of a copy of this host's.
    fn is_no_longer_ours(&self, pod: &str) {
        let labels = json!({"kosmos.csi.io/host": "another"});
        self.world.member.change(METRICS, SHOP, pod, |metrics| metrics["metadata"]["labels"] = labels).unwrap();
    }

    /// It says what a pod uses, as of so many seconds ago.
    fn says(&self, pod: &str, cpu: &str, ago: i64) {
        let _ = self.world.member.delete(METRICS, SHOP, pod);
        let labels = json!({"kosmos.csi.io/host": self.world.host_id()});
        let at = Timestamp::now() - SignedDuration::from_secs(ago);
        let containers = json!([{"name": "c", "usage": {"cpu": cpu, "memory": "64Mi"}}]);
        let metrics = json!({"metadata": {"name": pod, "namespace": SHOP, "labels": labels},
            "timestamp": format!("{at:.0}"), "window": "15s", "containers": containers});
        self.world.member.create(METRICS, metrics).unwrap();
    }
}

pub(super) fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series} in\n{page}"));
    line[series.len()..].split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn what_a_pod_uses_in_the_member_is_told_at_the_port_of_its_node() {
    story(1, async {
        let scraped = Scraped::new().await;
        scraped.serves_metrics();
        scraped.world.run_pod("a", None);
        until("it runs", || scraped.world.phase("a") == "Running").await;
        assert_eq!(scraped.port(), u64::from(SHARED + 1));
        scraped.says("a", "500m", 40);
        let before = scraped.page(Page::Resource, SHARED + 1).await;
        scraped.says("a", "250m", 0);
        let after = scraped.page(Page::Resource, SHARED + 1).await;
        for series in [
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"shop\",pod=\"a\"}",
            "pod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"a\"}",
            "node_cpu_usage_seconds_total",
        ] {
            let used = value(&after, series) - value(&before, series);
            assert!((9.0..=11.0).contains(&used), "a quarter of 40 s, and {series} says {used}\n{after}");
        }
        assert!((value(&after, "node_memory_working_set_bytes") - f64::from(64 << 20)).abs() < 1.0);
        assert!(value(&after, "resource_scrape_error") < 0.5);
    });
}

#[test]
fn what_the_member_says_of_anything_else_is_not_told() {
    story(1, async {
        let scraped = Scraped::new().await;
        scraped.serves_metrics();
        scraped.world.run_pod("a", None);
        until("it runs", || scraped.world.phase("a") == "Running").await;
        scraped.says("made-up", "1", 0);
        scraped.says("a", "1", 0);
        scraped.is_no_longer_ours("a");
        for page in [Page::Resource, Page::Cadvisor, Page::Summary] {
            let said = scraped.page(page, SHARED + 1).await;
            assert!(!said.contains("made-up") && !said.contains("\"a\""), "{said}");
        }
    });
}

#[test]
fn member_without_metrics_is_no_node_that_is_down_and_is_asked_only_when_somebody_asks() {
    story(1, async {
        let scraped = Scraped::new().await;
        scraped.world.member.faults().record(true);
        let asked = || scraped.world.member.faults().log().iter().filter(|asked| asked.resource == METRICS).count();
        sleep(Duration::from_mins(2)).await;
        assert_eq!(asked(), 0);
        let said = scraped.page(Page::Resource, SHARED + 1).await;
        assert!(value(&said, "resource_scrape_error") > 0.5, "{said}");
        for _ in 0..5 {
            let again =
                scraped.usage.page(Page::Summary, &scraped.members, &scraped.host.id, SHARED + 1).await.unwrap();
            assert!(again.contains("kosmos-m"), "{again}");
        }
        assert_eq!(asked(), 1, "its word is believed for some seconds");
        assert_eq!(scraped.page(Page::Healthz, SHARED + 1).await, "ok");
        assert_eq!(scraped.page(Page::Resource, SHARED).await, "", "all nodes that have no port of their own");
    });
}

#[test]
fn node_keeps_its_port_when_another_process_leads() {
    story(1, async {
        let world = World::new(1).await;
        let address = |first: u16| KubeletAddress {
            shared: format!("10.0.0.7:{SHARED}").parse().unwrap(),
            usage: Some(Arc::new(Usage::new(Ports::new(first..=SHARED + 9)))),
        };
        let port =
            || world.node().and_then(|node| node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64());
        world.start_at("first", Some(address(SHARED + 5)));
        until("the node has a port", || port() == Some(u64::from(SHARED + 5))).await;
        world.kill();
        world.start_at("second", Some(address(SHARED + 1)));
        let renewed = || {
            world
                .host
                .get("leases.coordination.k8s.io", "kube-node-lease", super::NODE)
                .map(|lease| lease["spec"]["renewTime"].clone())
        };
        let before = renewed();
        until("the second one leads", || renewed() != before).await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(port(), Some(u64::from(SHARED + 5)));
    });
}
