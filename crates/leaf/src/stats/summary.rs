//! What a kubelet says of its pods' volumes at `/stats/summary`. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};

use super::{Figures, VolumeStats};

/// The copies on a node: the UIDs of the host's pods, by their own.
pub(super) type Copies = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Summary {
    pods: Option<Vec<PodStats>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodRef,
    volume: Option<Vec<Volume>>,
}

#[derive(Deserialize)]
struct PodRef {
    uid: String,
}

#[derive(Deserialize)]
struct Volume {
    name: String,
    #[serde(default)]
    time: String,
    /// Others than those of claims are of the node.
    #[serde(rename = "pvcRef")]
    claim: Option<IgnoredAny>,
    #[serde(flatten)]
    figures: Figures,
}

/// Of copies alone, and of their claims.
pub(super) fn volumes(summary: &[u8], copies: &Copies) -> Result<Vec<VolumeStats>, serde_json::Error> {
    let summary: Summary = serde_json::from_slice(summary)?;
    let of_pod = |pod: PodStats| {
        let pod_uid = copies.get(&pod.pod_ref.uid)?.clone();
        let claimed = pod.volume.into_iter().flatten().filter(|volume| volume.claim.is_some());
        Some(claimed.map(move |Volume { name, time, figures, .. }| VolumeStats {
            pod_uid: pod_uid.clone(),
            volume: name,
            time,
            figures,
        }))
    };
    Ok(summary.pods.into_iter().flatten().filter_map(of_pod).flatten().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_of_copies_are_told_and_nothing_else_of_the_node() {
        let pod = |uid: &str, volumes: &serde_json::Value| {
            json!({"podRef": {"name": "db-0", "namespace": "shop", "uid": uid}, "startTime": "2026-01-02T03:04:05Z",
            "containers": [{"name": "db", "rootfs": {"usedBytes": 1}}], "volume": volumes})
        };
        let data = json!({"time": "2026-01-02T03:04:05Z", "availableBytes": 30, "capacityBytes": 100, "usedBytes": 70,
            "inodesFree": 7, "inodes": 10, "inodesUsed": 3, "name": "data", "pvcRef": {"name": "leaf", "namespace": "shop"}});
        let disk = json!({"name": "disk", "capacityBytes": 5, "pvcRef": {"name": "raw", "namespace": "shop"}});
        let token = json!({"name": "token", "usedBytes": 12});
        let pods =
            json!([pod("c1", &json!([data, token, disk])), pod("other", &json!([data])), pod("c2", &json!(null))]);
        let summary = json!({"node": {"nodeName": "n", "fs": {"usedBytes": 1}}, "pods": pods}).to_string();
        let copies = Copies::from([("c1", "h1"), ("c2", "h2"), ("c3", "h3")].map(|(own, of)| (own.into(), of.into())));
        let told = volumes(summary.as_bytes(), &copies).unwrap();
        let figures = Figures {
            capacity_bytes: Some(100),
            available_bytes: Some(30),
            used_bytes: Some(70),
            inodes: Some(10),
            inodes_free: Some(7),
            inodes_used: Some(3),
        };
        let time = "2026-01-02T03:04:05Z".to_owned();
        let of_data = VolumeStats { pod_uid: "h1".to_owned(), volume: "data".to_owned(), time, figures };
        assert_eq!(told[0], of_data);
        assert_eq!((told[1].volume.as_str(), told[1].figures.capacity_bytes), ("disk", Some(5)));
        assert_eq!((told.len(), told[1].figures.used_bytes), (2, None), "{told:?}");
    }

    #[test]
    fn node_without_pods_has_no_volumes_and_what_is_no_summary_is_no_answer() {
        for none in [r#"{"pods":null}"#, r#"{"pods":[]}"#, "{}"] {
            assert_eq!(volumes(none.as_bytes(), &Copies::new()).unwrap(), []);
        }
        for wrong in ["", "404 page not found", r#"{"pods":{}}"#] {
            assert!(volumes(wrong.as_bytes(), &Copies::new()).is_err(), "{wrong}");
        }
    }
}
