//! Requests to clusters: how many, how they ended, and how long an answer takes. There are several for each volume: names are kept for
//! the first one of a kind, and those that follow are counted by them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::Counter, histogram::Histogram},
    registry::Registry,
};

use super::{HOST, Histograms};

/// What a request is about, as it is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Subject {
    pub(crate) verb: &'static str,
    pub(crate) resource: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Requests {
    answers: Answers,
    seconds: Histograms<Subject>,
    unanswered: Unanswered,
}

impl Default for Requests {
    fn default() -> Self {
        let seconds = Histograms::new_with_constructor(buckets as fn() -> Histogram);
        Self { answers: Answers::default(), seconds, unanswered: Unanswered::default() }
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

    pub(crate) fn ended(&self, cluster: &str, subject: &Subject, code: &str, took: Duration) {
        // Of no member: a histogram for each of a thousand would be a page of ten megabytes.
        self.seconds.get_or_create(subject).observe(took.as_secs_f64());
        self.answers.count(cluster, subject, code);
    }

    pub(crate) fn unanswered(&self, cluster: &str) {
        self.unanswered.lock().entry(cluster.to_owned()).or_default().inc();
    }

    /// Drops what is counted of members that have left: it would be told for ever.
    pub(super) fn forget_but(&self, members: &BTreeSet<String>) {
        let stays = |cluster: &String| cluster == HOST || members.contains(cluster);
        self.answers.lock().retain(|cluster, _| stays(cluster));
        self.unanswered.lock().retain(|cluster, _| stays(cluster));
    }
}

/// How often each code came, by subject.
type Codes = HashMap<Subject, BTreeMap<String, Counter>>;

/// By the cluster that they go with.
#[derive(Clone, Debug, Default)]
struct Answers(Arc<Mutex<HashMap<String, Codes>>>);

impl Answers {
    fn count(&self, cluster: &str, subject: &Subject, code: &str) {
        let mut clusters = self.lock();
        if let Some(counter) = clusters.get(cluster).and_then(|codes| codes.get(subject)?.get(code)) {
            counter.inc();
            return;
        }
        let codes = clusters.entry(cluster.to_owned()).or_default().entry(subject.clone()).or_default();
        codes.entry(code.to_owned()).or_default().inc();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Codes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EncodeMetric for Answers {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (cluster, subjects) in &*self.lock() {
            for (subject, codes) in subjects {
                for (code, counter) in codes {
                    let (member, code) = (("member", &**cluster), ("code", &**code));
                    let labels = [member, ("verb", subject.verb), ("resource", &*subject.resource), code];
                    counter.encode(encoder.encode_family(&labels)?)?;
                }
            }
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

/// By the cluster.
#[derive(Clone, Debug, Default)]
struct Unanswered(Arc<Mutex<HashMap<String, Counter>>>);

impl Unanswered {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Counter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EncodeMetric for Unanswered {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (cluster, counter) in &*self.lock() {
            counter.encode(encoder.encode_family(&[("member", &**cluster)])?)?;
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
        let asked = |cluster: &str, code: &str| {
            let subject = Subject { verb: "get", resource: "pods".to_owned() };
            metrics.requests().ended(cluster, &subject, code, Duration::ZERO);
            metrics.requests().unanswered(cluster);
        };
        for cluster in [HOST, "a", "b", "another-name-of-a"] {
            asked(cluster, "200");
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
        asked("b", "200");
        assert_eq!(told(), [HOST, "a", "another-name-of-a"]);
        assert!(!metrics.text().unwrap().contains("kosmos_csi_member_up{member=\"another"), "it tells of itself");
        *there.lock().unwrap() = Some(Vec::new());
        assert_eq!(told(), [HOST]);
    }

    #[test]
    fn requests_are_counted_by_what_they_are_about_and_how_they_ended() {
        let metrics = Metrics::new();
        let subject = |verb, resource: &str| Subject { verb, resource: resource.to_owned() };
        for (times, subject, code) in [
            (2, subject("get", "pods"), "200"),
            (1, subject("get", "pods"), "404"),
            (3, subject("list", "pods"), "200"),
            (1, subject("get", "nodes"), "no answer"),
        ] {
            (0..times).for_each(|_| metrics.requests().ended("a", &subject, code, Duration::ZERO));
        }
        let text = metrics.text().unwrap();
        for line in [
            r#"member_requests_total{member="a",verb="get",resource="pods",code="200"} 2"#,
            r#"member_requests_total{member="a",verb="get",resource="pods",code="404"} 1"#,
            r#"member_requests_total{member="a",verb="list",resource="pods",code="200"} 3"#,
            r#"member_requests_total{member="a",verb="get",resource="nodes",code="no answer"} 1"#,
            r#"request_seconds_count{verb="get",resource="pods"} 3"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
