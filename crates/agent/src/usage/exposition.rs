//! Prometheus' text format. Pure.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;

#[derive(Default)]
pub(super) struct Metrics(pub(super) String);

impl Metrics {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64, at: Option<Timestamp>) {
        let labels: Vec<String> = labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let at = at.map(|at| format!(" {}", at.as_millisecond())).unwrap_or_default();
        let _ = writeln!(self.0, "{name}{labels} {value}{at}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[expect(clippy::cast_precision_loss, reason = "a measure of bytes, which metrics carry so")]
pub(super) fn bytes(count: u64) -> f64 {
    count as f64
}
