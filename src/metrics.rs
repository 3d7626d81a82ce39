//! Every metric there is, with bounded labels: methods, codes, members, verbs and kinds.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodAndCode {
    method: String,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    member: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberRequest {
    member: String,
    verb: String,
    kind: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    rpc_started: Family<Method, Counter>,
    rpc_handled: Family<MethodAndCode, Counter>,
    rpc_seconds: Histograms<Method>,
    request_seconds: Histograms<MemberRequest>,
    request_errors: Family<OfMember, Counter>,
    member_up: Family<OfMember, Gauge>,
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("kosmos_csi");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "What is running", version);
        let rpc_started = Family::default();
        registry.register("rpc_started", "RPCs begun", rpc_started.clone());
        let rpc_handled = Family::default();
        registry.register(
            "rpc_handled",
            "RPCs answered, by gRPC code; CANCELLED where the caller gave up",
            rpc_handled.clone(),
        );
        let rpc_seconds = Histograms::new_with_constructor(rpc_buckets as fn() -> Histogram);
        registry.register("rpc_seconds", "Time from an RPC to its answer", rpc_seconds.clone());
        let request_seconds = Histograms::new_with_constructor(request_buckets as fn() -> Histogram);
        registry.register("member_request_seconds", "Time to the head of a cluster's answer", request_seconds.clone());
        let request_errors = Family::default();
        registry.register("member_request_errors", "Requests that got no answer", request_errors.clone());
        let member_up = Family::default();
        registry.register("member_up", "1 while a member answers and is the cluster it should be", member_up.clone());
        Self {
            registry: Arc::new(registry),
            rpc_started,
            rpc_handled,
            rpc_seconds,
            request_seconds,
            request_errors,
            member_up,
        }
    }

    pub fn rpc_started(&self, method: &str) {
        self.rpc_started.get_or_create(&Method { method: method.to_owned() }).inc();
    }

    pub fn rpc_handled(&self, method: &str, code: &str, took: Duration) {
        let labels = MethodAndCode { method: method.to_owned(), code: code.to_owned() };
        self.rpc_handled.get_or_create(&labels).inc();
        self.rpc_seconds.get_or_create(&Method { method: method.to_owned() }).observe(took.as_secs_f64());
    }

    pub fn request(&self, member: &str, verb: &str, kind: &str, took: Duration, answered: bool) {
        let labels = MemberRequest { member: member.to_owned(), verb: verb.to_owned(), kind: kind.to_owned() };
        self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        if !answered {
            self.request_errors.get_or_create(&OfMember { member: member.to_owned() }).inc();
        }
    }

    pub fn member_up(&self, member: &str, up: bool) {
        self.member_up.get_or_create(&OfMember { member: member.to_owned() }).set(up.into());
    }

    /// The text of `/metrics`.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn rpc_buckets() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

fn request_buckets() -> Histogram {
    Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0])
}
