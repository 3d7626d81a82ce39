//! What volumes hold, in the words of a kubelet's `/metrics` and `/stats/summary`. Pure.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::{
    exposition::{Metrics, bytes},
    volumes::VolumeUsage,
};
use leaf::stats::Figures;

/// A metric, what it says, and which figure that is.
type Family = (&'static str, &'static str, fn(&Figures) -> Option<u64>);

const FAMILIES: [Family; 6] = [
    ("kubelet_volume_stats_capacity_bytes", "Bytes that the volume has", |figures| figures.capacity_bytes),
    ("kubelet_volume_stats_available_bytes", "Bytes that can still be written", |figures| figures.available_bytes),
    ("kubelet_volume_stats_used_bytes", "Bytes that are in use", |figures| figures.used_bytes),
    ("kubelet_volume_stats_inodes", "Inodes that the volume has", |figures| figures.inodes),
    ("kubelet_volume_stats_inodes_free", "Inodes that are free", |figures| figures.inodes_free),
    ("kubelet_volume_stats_inodes_used", "Inodes that are in use", |figures| figures.inodes_used),
];

/// Each claim once, however many pods of the node mount it.
pub(super) fn families(page: &mut Metrics, volumes: &[VolumeUsage]) {
    let mut claims: BTreeMap<(&str, &str), &VolumeUsage> = BTreeMap::new();
    for one in volumes {
        let latest = claims.entry((&one.pod.namespace, &one.claim)).or_insert(one);
        if latest.looked < one.looked {
            *latest = one;
        }
    }
    for (name, help, figure) in FAMILIES {
        let samples: Vec<_> = claims.iter().filter_map(|(claim, one)| Some((*claim, figure(&one.figures)?))).collect();
        if samples.is_empty() {
            continue;
        }
        page.family(name, "gauge", help);
        for ((namespace, claim), value) in samples {
            page.sample(name, &[("namespace", namespace), ("persistentvolumeclaim", claim)], bytes(value), None);
        }
    }
}

/// With each pod those that it mounts, also where nothing else is told of it.
pub(super) fn put_into(pods: &mut Vec<Value>, volumes: &[VolumeUsage]) {
    let uid = |pod: &Value| pod["podRef"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut places: HashMap<String, usize> = pods.iter().enumerate().map(|(at, pod)| (uid(pod), at)).collect();
    for one in volumes {
        let at = *places.entry(one.pod_uid.clone()).or_insert_with(|| {
            let name = json!({"name": one.pod.name, "namespace": one.pod.namespace, "uid": one.pod_uid});
            pods.push(json!({"podRef": name, "startTime": null, "containers": []}));
            pods.len() - 1
        });
        match pods[at].get_mut("volume").and_then(Value::as_array_mut) {
            Some(there) => there.push(entry(one)),
            None => pods[at]["volume"] = json!([entry(one)]),
        }
    }
}

fn entry(one: &VolumeUsage) -> Value {
    let mut entry = json!(one.figures);
    entry["name"] = json!(one.name);
    entry["time"] = json!(format!("{:.0}", one.looked));
    entry["pvcRef"] = json!({"name": one.claim, "namespace": one.pod.namespace});
    entry
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::{super::super::object::Place, *};

    fn usage(pod: &str, name: &str, claim: &str, figures: Figures, looked: &str) -> VolumeUsage {
        let looked: Timestamp = looked.parse().unwrap();
        let place = Place { namespace: "shop".to_owned(), name: pod.to_owned() };
        let pod_uid = format!("uid-of-{pod}");
        VolumeUsage { pod: place, pod_uid, name: name.to_owned(), claim: claim.to_owned(), figures, looked }
    }

    fn used(bytes: u64) -> Figures {
        Figures { used_bytes: Some(bytes), ..Figures::default() }
    }

    #[test]
    fn metrics_are_those_of_a_kubelet_by_the_hosts_claim() {
        let figures = Figures {
            capacity_bytes: Some(100),
            available_bytes: Some(30),
            used_bytes: Some(70),
            inodes: Some(10),
            inodes_free: Some(7),
            inodes_used: Some(3),
        };
        let mut page = Metrics::default();
        families(&mut page, &[usage("db-0", "data", "db", figures, "2026-01-02T03:04:05Z")]);
        for (name, value) in [
            ("capacity_bytes", 100),
            ("available_bytes", 30),
            ("used_bytes", 70),
            ("inodes", 10),
            ("inodes_free", 7),
            ("inodes_used", 3),
        ] {
            let line =
                format!("kubelet_volume_stats_{name}{{namespace=\"shop\",persistentvolumeclaim=\"db\"}} {value}");
            assert!(page.0.lines().any(|there| there == line), "{line}\n{}", page.0);
        }
    }

    #[test]
    fn claim_of_several_pods_is_told_once_with_what_was_seen_last_and_what_is_not_known_is_not_told() {
        let volumes = [
            usage("a", "data", "db", used(1), "2026-01-02T03:04:05Z"),
            usage("b", "data", "db", used(2), "2026-01-02T03:04:25Z"),
            usage("c", "other", "db", used(3), "2026-01-02T03:04:15Z"),
        ];
        let mut page = Metrics::default();
        families(&mut page, &volumes);
        let samples: Vec<&str> = page.0.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples, ["kubelet_volume_stats_used_bytes{namespace=\"shop\",persistentvolumeclaim=\"db\"} 2"]);
        let mut nothing = Metrics::default();
        families(&mut nothing, &[]);
        assert!(nothing.0.is_empty());
    }

    #[test]
    fn summary_has_them_with_their_pods_also_where_nothing_else_is_known_of_one() {
        let mut pods =
            vec![json!({"podRef": {"name": "a", "namespace": "shop", "uid": "uid-of-a"}, "containers": [1]})];
        let at = "2026-01-02T03:04:05Z";
        let volumes = [
            usage("a", "data", "db", used(1), at),
            usage("a", "logs", "db-logs", used(2), at),
            usage("b", "x", "y", used(3), at),
        ];
        put_into(&mut pods, &volumes);
        let of_data =
            json!({"name": "data", "time": at, "usedBytes": 1, "pvcRef": {"name": "db", "namespace": "shop"}});
        assert_eq!((pods.len(), &pods[0]["volume"][0], pods[0]["containers"] == json!([1])), (2, &of_data, true));
        assert_eq!(pods[0]["volume"][1]["pvcRef"]["name"], "db-logs");
        assert_eq!(pods[1]["podRef"], json!({"name": "b", "namespace": "shop", "uid": "uid-of-b"}));
        assert_eq!(pods[1]["volume"][0]["usedBytes"], 3);
    }
}
