//! What a member says of what containers use, in the words of `metrics.k8s.io`. Pure.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::super::object::{Place, items, text};
use domain::volume::quantity;

/// A container, by the place of its pod and its name, as the member says them: both may be made up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ContainerId {
    pub(super) pod: Place,
    pub(super) container: String,
}

/// What one container has used of late.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) id: ContainerId,
    /// Processors, on the average of the time that was looked at.
    pub(super) cores: f64,
    /// Bytes that it works with.
    pub(super) memory: u64,
    pub(super) at: Timestamp,
}

/// Of a pod's containers. What cannot be read is left out: it is the member's word.
pub(super) fn of_pod(metrics: &Value) -> Vec<Reading> {
    let Ok(at) = text(metrics, "/timestamp").parse::<Timestamp>() else { return Vec::new() };
    let pod = Place::of(metrics);
    let reading = |container: &Value| {
        Some(Reading {
            id: ContainerId { pod: pod.clone(), container: text(container, "/name").to_owned() },
            cores: cores(quantity::billionths(text(container, "/usage/cpu"))?),
            memory: quantity::parse(text(container, "/usage/memory"))?,
            at,
        })
    };
    items(metrics, "/containers").filter_map(reading).collect()
}

/// As far as anybody counts: a million processors are more than there are.
fn cores(billionths: u128) -> f64 {
    const MOST: u64 = 1_000_000_000_000_000;
    let most = u64::try_from(billionths).unwrap_or(MOST).min(MOST);
    std::time::Duration::from_nanos(most).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metrics(containers: &Value) -> Value {
        json!({"metadata": {"name": "db-0", "namespace": "shop"}, "timestamp": "2026-01-02T03:04:05Z", "window": "15s",
            "containers": containers})
    }

    #[test]
    fn processors_and_bytes_are_read_of_each_container() {
        let told = json!([
            {"name": "db", "usage": {"cpu": "250m", "memory": "64Mi"}},
            {"name": "proxy", "usage": {"cpu": "1500n", "memory": "2048Ki"}},
            {"name": "idle", "usage": {"cpu": "0", "memory": "0"}},
        ]);
        let read = of_pod(&metrics(&told));
        let said: Vec<_> = read.iter().map(|one| (one.id.container.as_str(), one.cores, one.memory)).collect();
        assert_eq!(said, [("db", 0.25, 64 << 20), ("proxy", 0.000_001_5, 2 << 20), ("idle", 0.0, 0)]);
        assert_eq!(read[0].id.pod.to_string(), "shop/db-0");
        assert_eq!(read[0].at, "2026-01-02T03:04:05Z".parse().unwrap());
    }

    #[test]
    fn what_is_no_figure_is_left_out_and_what_is_too_large_is_cut() {
        let told = json!([
            {"name": "a", "usage": {"cpu": "-1", "memory": "1"}},
            {"name": "b", "usage": {"cpu": "1"}},
            {"name": "c"},
            "d",
            {"name": "e", "usage": {"cpu": "9E", "memory": "1"}},
        ]);
        let read = of_pod(&metrics(&told));
        assert_eq!(read.len(), 1, "{read:?}");
        assert_eq!((read[0].id.container.as_str(), read[0].cores), ("e", 1e6));
        assert_eq!(of_pod(&json!({"containers": [{"name": "a"}]})), []);
    }
}
