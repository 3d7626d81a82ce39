//! What a kubelet says of its pods' volumes at `/stats/summary`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, de::IgnoredAny};

use super::{Figures, VolumeStats};
use domain::printable::short;

/// A time in RFC 3339 is shorter.
const LONGEST_TIME: usize = 40;

/// The copies on a node, by their UIDs.
pub(super) type Copies = BTreeMap<String, CopiedPod>;

#[derive(Debug)]
pub(super) struct CopiedPod {
    /// The UID of the host's pod.
    pub(super) of: String,
    /// Those of claims, as the pod calls them.
    pub(super) volumes: BTreeSet<String>,
}

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

/// Of copies alone, and of the claims that these name, each once: a kubelet may say what it likes.
pub(super) fn volumes(summary: &[u8], copies: &Copies) -> Result<Vec<VolumeStats>, serde_json::Error> {
    let summary: Summary = serde_json::from_slice(summary)?;
    let mut told = BTreeMap::new();
    for pod in summary.pods.into_iter().flatten() {
        let Some((own, copy)) = copies.get_key_value(&pod.pod_ref.uid) else { continue };
        for Volume { name, time, claim, figures } in pod.volume.into_iter().flatten() {
            if claim.is_none() || !copy.volumes.contains(&name) {
                continue;
            }
            told.entry((own, name.clone())).or_insert_with(|| VolumeStats {
                pod_uid: copy.of.clone(),
                volume: name,
                time: short(&time, LONGEST_TIME),
                figures,
            });
        }
    }
    Ok(told.into_values().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// By their own UIDs, and those of the host's pods.
    fn copies(uids: &[(&str, &str)]) -> Copies {
        let copy = |of: &str| CopiedPod { of: of.to_owned(), volumes: ["data", "disk"].map(str::to_owned).into() };
        uids.iter().map(|(own, of)| ((*own).to_owned(), copy(of))).collect()
    }

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
        let copies = copies(&[("c1", "h1"), ("c2", "h2"), ("c3", "h3")]);
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
    fn volumes_that_no_copy_names_are_not_told_nor_one_twice_nor_any_time() {
        let (time, claim) = ("9".repeat(1000), json!({"name": "leaf", "namespace": "shop"}));
        let volume = |name: &str, used: u64| json!({"name": name, "usedBytes": used, "time": time, "pvcRef": claim});
        let pod =
            json!({"podRef": {"uid": "c1"}, "volume": [volume("data", 1), volume("data", 2), volume("made-up", 3)]});
        let summary = json!({"pods": [pod, pod]}).to_string();
        let told = volumes(summary.as_bytes(), &copies(&[("c1", "h1")])).unwrap();
        assert_eq!((told.len(), told[0].volume.as_str(), told[0].figures.used_bytes), (1, "data", Some(1)), "{told:?}");
        assert_eq!(told[0].time.len(), 40);
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
