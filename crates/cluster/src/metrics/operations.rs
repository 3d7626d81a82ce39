//! Calls of the interface under the name, labels and steps that CSI's sidecars have for theirs: what was made to show drivers shows this
//! one too.

use std::time::Duration;

use prometheus_client::{encoding::EncodeLabelSet, metrics::histogram::Histogram, registry::Registry};

use super::Histograms;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    driver_name: &'static str,
    method_name: &'static str,
    grpc_status_code: String,
}

#[derive(Clone, Debug)]
pub(super) struct Operations(Histograms<Operation>);

impl Default for Operations {
    fn default() -> Self {
        Self(Histograms::new_with_constructor(buckets as fn() -> Histogram))
    }
}

impl Operations {
    /// Its name has no prefix of ours.
    pub(super) fn register(&self, registry: &mut Registry) {
        let seconds = "Time from an RPC to its answer, by the labels of CSI's sidecars";
        registry.register("csi_plugin_operations_seconds", seconds, self.0.clone());
    }

    pub(super) fn ended(&self, driver: &'static str, path: &'static str, code: &str, took: Duration) {
        let grpc_status_code = spelled(code).to_owned();
        let operation = Operation { driver_name: driver, method_name: path, grpc_status_code };
        self.0.get_or_create(&operation).observe(took.as_secs_f64());
    }
}

/// As the sidecars spell a code. They are programs of Go.
fn spelled(code: &str) -> &str {
    match code {
        "Ok" => "OK",
        "Cancelled" => "Canceled",
        same => same,
    }
}

fn buckets() -> Histogram {
    Histogram::new([0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0])
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn calls_are_told_by_the_names_that_sidecars_have_for_them_too() {
        let metrics = Metrics::new();
        for (code, seconds) in [("Ok", 3), ("Cancelled", 0), ("Aborted", 0)] {
            let path = "/csi.v1.Controller/CreateVolume";
            metrics.rpc_handled("one.example", path, code, Duration::from_secs(seconds));
        }
        let text = metrics.text().unwrap();
        let of = "driver_name=\"one.example\",method_name=\"/csi.v1.Controller/CreateVolume\"";
        for line in [
            "# TYPE csi_plugin_operations_seconds histogram".to_owned(),
            format!("csi_plugin_operations_seconds_count{{{of},grpc_status_code=\"OK\"}} 1"),
            format!("csi_plugin_operations_seconds_count{{{of},grpc_status_code=\"Canceled\"}} 1"),
            format!("csi_plugin_operations_seconds_count{{{of},grpc_status_code=\"Aborted\"}} 1"),
            "kosmos_csi_rpc_handled_total{method=\"CreateVolume\",code=\"Ok\"} 1".to_owned(),
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is missing in\n{text}");
        }
        // The label of the bucket comes first.
        for (step, count) in [("2.5", 0), ("5.0", 1)] {
            let is_step = |line: &&str| line.contains("_seconds_bucket") && line.contains(&format!("le=\"{step}\""));
            let line = text.lines().filter(is_step).find(|line| line.contains(of) && line.contains("\"OK\"")).unwrap();
            assert!(line.ends_with(&format!(" {count}")), "{line}");
        }
    }
}
