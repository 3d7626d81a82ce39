//! Requests to clusters: how many, how they ended, and how long an answer takes.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::Counter, histogram::Histogram},
    registry::Registry,
};

use super::{HOST, Histograms, OfMember};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnyRequest {
    verb: String,
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberAnswer {
    member: String,
    verb: String,
    resource: String,
    code: String,
}

#[derive(Clone, Debug)]
pub(super) struct Requests {
    answers: Counters<MemberAnswer>,
    seconds: Histograms<AnyRequest>,
    unanswered: Counters<OfMember>,
}

impl Default for Requests {
    fn default() -> Self {
        let seconds = Histograms::new_with_constructor(buckets as fn() -> Histogram);
        Self { answers: Counters::default(), seconds, unanswered: Counters::default() }
    }
}

impl Requests {
    pub(super) fn register(&self, registry: &mut Registry) {
        let requests = "Requests to a cluster, by HTTP code, or why there is none";
        registry.register("member_requests", requests, self.answers.clone());
        let seconds = "Time to the head of a cluster's answer";
        registry.register("request_seconds", seconds, self.seconds.clone());
        registry.register("member_request_errors", "Requests that got no answer", self.unanswered.clone());
    }

    pub(super) fn ended(&self, cluster: &str, verb: &str, resource: &str, code: &str, took: Duration) {
        let labels = AnyRequest { verb: verb.to_owned(), resource: resource.to_owned() };
        // Of no member: a histogram for each of a thousand would be a page of ten megabytes.
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        let AnyRequest { verb, resource } = labels;
        self.answers.count(cluster, MemberAnswer { member: cluster.to_owned(), verb, resource, code: code.to_owned() });
    }

    pub(super) fn unanswered(&self, cluster: &str) {
        self.unanswered.count(cluster, OfMember { member: cluster.to_owned() });
    }

    /// Drops what is counted of members that have left: it would be told for ever.
    pub(super) fn forget_but(&self, members: &BTreeSet<String>) {
        self.answers.forget_but(members);
        self.unanswered.forget_but(members);
    }
}

/// By the cluster that they go with.
#[derive(Clone, Debug)]
struct Counters<L>(Arc<Mutex<HashMap<String, HashMap<L, Counter>>>>);

impl<L> Default for Counters<L> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<L> Counters<L> {
    fn forget_but(&self, members: &BTreeSet<String>) {
        self.lock().retain(|cluster, _| cluster == HOST || members.contains(cluster));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<L, Counter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Eq + Hash> Counters<L> {
    fn count(&self, cluster: &str, labels: L) {
        self.lock().entry(cluster.to_owned()).or_default().entry(labels).or_default().inc();
    }
}

impl<L: EncodeLabelSet> EncodeMetric for Counters<L> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (labels, counter) in self.lock().values().flatten() {
            counter.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

fn buckets() -> Histogram {
    Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{MemberNow, Metrics};

    #[test]
    fn counters_go_with_the_member_and_not_before_it_is_known_who_there_is() {
        let metrics = Metrics::new();
        for cluster in [HOST, "a", "b", "another-name-of-a"] {
            metrics.request(cluster, "get", "pods", "200", Duration::ZERO);
            metrics.unanswered(cluster);
        }
        let there = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&there);
        metrics.read_from(move || seen.lock().unwrap().clone());
        let told = || {
            let text = metrics.text().unwrap();
            let of = |family: &str| -> Vec<String> {
                let lines = text.lines().filter_map(|line| line.strip_prefix(family)?.strip_prefix("{member=\""));
                let mut names: Vec<_> = lines.map(|line| line.split('"').next().unwrap().to_owned()).collect();
                names.sort();
                names
            };
            let requests = of("kosmos_csi_member_requests_total");
            assert_eq!(requests, of("kosmos_csi_member_request_errors_total"));
            requests
        };
        assert_eq!(told(), [HOST, "a", "another-name-of-a", "b"]);
        let named = |member: &str, alias| MemberNow { member: member.to_owned(), alias, ..MemberNow::default() };
        *there.lock().unwrap() = Some(vec![named("a", false), named("another-name-of-a", true)]);
        assert_eq!(told(), [HOST, "a", "another-name-of-a"]);
        // The answer to a request of then.
        metrics.request("b", "get", "pods", "200", Duration::ZERO);
        metrics.unanswered("b");
        assert_eq!(told(), [HOST, "a", "another-name-of-a"]);
        assert!(!metrics.text().unwrap().contains("kosmos_csi_member_up{member=\"another"), "it tells of itself");
        *there.lock().unwrap() = Some(Vec::new());
        assert_eq!(told(), [HOST]);
    }
}
