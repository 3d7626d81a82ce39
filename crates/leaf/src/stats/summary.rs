//! What a kubelet says of its pods' volumes at `/stats/summary`, pod by pod as it comes: how much one of a tenant's says hides nothing of
//! another's. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use serde::{Deserialize, de::IgnoredAny};

use super::{Figures, VolumeStats};
use cluster::items::Items;
use domain::printable::short;

/// Of what one says, in bytes: of all its pods, of one of them, and besides.
const MOST: usize = 64 << 20;
const LONGEST_POD: usize = 1 << 20;
const LONGEST_REST: usize = 4 << 20;
/// A time in RFC 3339 is shorter.
const LONGEST_TIME: usize = 40;

/// The copies on a node, by their UIDs.
pub(super) type Copies = BTreeMap<String, CopiedPod>;

#[derive(Clone, Debug)]
pub(super) struct CopiedPod {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The UID of the host's pod.
    pub(super) of: String,
    /// Those of claims, as the pod calls them.
    pub(super) volumes: BTreeSet<String>,
}

#[derive(Deserialize)]
struct PageStats {
    #[expect(dead_code, reason = "it has to be a list, and its pods are taken out")]
    pods: Option<Vec<IgnoredAny>>,
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

/// A page as far as it has come. Told are copies alone, and of these the claims that they name, each once: a kubelet may say what it likes.
pub(super) struct Summary<'a> {
    copies: &'a Copies,
    pods: Items,
    read: usize,
    told: BTreeMap<(&'a String, String), VolumeStats>,
    /// Whether one of its pods could be read, and why one could not.
    is_known: bool,
    fault: Option<serde_json::Error>,
}

impl<'a> Summary<'a> {
    pub(super) fn of(copies: &'a Copies) -> Self {
        let pods = Items::of("pods", LONGEST_POD);
        Self { copies, pods, read: 0, told: BTreeMap::new(), is_known: false, fault: None }
    }

    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<(), String> {
        let copies = self.copies;
        let Self { pods, told, is_known, fault, .. } = self;
        let Ok(()) = pods.feed(piece, &mut |pod| -> Result<(), Infallible> {
            match volumes(pod, copies, told) {
                Ok(()) => *is_known = true,
                Err(error) => *fault = Some(error),
            }
            Ok(())
        });
        self.read += piece.len();
        let too_much = |most: usize| Err(format!("it says more than {} MiB", most >> 20));
        match (self.read, self.pods.unfinished()) {
            (read, _) if read > MOST => too_much(MOST),
            (_, rest) if rest > LONGEST_REST => too_much(LONGEST_REST),
            _ => Ok(()),
        }
    }

    /// All of it, once it has come. Where one of many pods says what nobody understands, the others are told.
    pub(super) fn end(self) -> Result<Vec<VolumeStats>, String> {
        let unread = |error: serde_json::Error| format!("it cannot be read: {error}");
        serde_json::from_slice::<PageStats>(self.pods.frame()).map_err(unread)?;
        match self.fault.filter(|_| !self.is_known) {
            Some(error) => Err(unread(error)),
            None => Ok(self.told.into_values().collect()),
        }
    }
}

fn volumes<'a>(
    pod: &[u8],
    copies: &'a Copies,
    told: &mut BTreeMap<(&'a String, String), VolumeStats>,
) -> Result<(), serde_json::Error> {
    let PodStats { pod_ref, volume } = serde_json::from_slice(pod)?;
    let Some((own, copy)) = copies.get_key_value(&pod_ref.uid) else { return Ok(()) };
    for Volume { name, time, claim, figures } in volume.into_iter().flatten() {
        if claim.is_none() || !copy.volumes.contains(&name) {
            continue;
        }
        told.entry((own, name.clone())).or_insert_with(|| VolumeStats {
            namespace: copy.namespace.clone(),
            pod: copy.name.clone(),
            pod_uid: copy.of.clone(),
            volume: name,
            time: short(&time, LONGEST_TIME),
            figures,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// By their own UIDs, and those of the host's pods.
    fn copies(uids: &[(&str, &str)]) -> Copies {
        let copy = |own: &str, of: &str| CopiedPod {
            namespace: "shop".to_owned(),
            name: format!("pod-{own}"),
            of: of.to_owned(),
            volumes: ["data", "disk"].map(str::to_owned).into(),
        };
        uids.iter().map(|(own, of)| ((*own).to_owned(), copy(own, of))).collect()
    }

    /// Of a whole page.
    fn volumes(page: &[u8], copies: &Copies) -> Result<Vec<VolumeStats>, String> {
        let mut summary = Summary::of(copies);
        summary.feed(page)?;
        summary.end()
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
        let [namespace, pod, pod_uid, volume] = ["shop", "pod-c1", "h1", "data"].map(str::to_owned);
        let of_data = VolumeStats { namespace, pod, pod_uid, volume, time, figures };
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
    fn pod_that_says_too_much_or_what_nobody_understands_hides_no_other() {
        let volume =
            |name: &str| json!({"name": name, "usedBytes": 1, "pvcRef": {"name": "leaf", "namespace": "shop"}});
        let long = json!({"podRef": {"uid": "c1"}, "volume": vec![volume("data"); LONGEST_POD / 50]});
        let odd = json!({"podRef": {"uid": "c2"}, "volume": [{"name": "data", "usedBytes": -1, "pvcRef": {}}]});
        let well = json!({"podRef": {"uid": "c3"}, "volume": [volume("data")]});
        let copies = copies(&[("c1", "h1"), ("c2", "h2"), ("c3", "h3")]);
        let page = |pods: &[&serde_json::Value]| json!({"node": {}, "pods": pods}).to_string();
        let told = volumes(page(&[&long, &odd, &well]).as_bytes(), &copies).unwrap();
        assert_eq!(told.iter().map(|one| one.pod_uid.as_str()).collect::<Vec<_>>(), ["h3"]);
        let unread = volumes(page(&[&odd]).as_bytes(), &copies).unwrap_err();
        assert!(unread.starts_with("it cannot be read: "), "{unread}");
    }

    #[test]
    fn kubelet_is_read_up_to_a_size() {
        let copies = Copies::new();
        let mut long = Summary::of(&copies);
        long.feed(b"{\"pods\":[").unwrap();
        long.read = MOST - 1;
        long.feed(b"{").unwrap();
        assert_eq!(long.feed(b"}").unwrap_err(), "it says more than 64 MiB");
        for begin in ["", "{\"pods\":["] {
            let mut endless = Summary::of(&copies);
            endless.feed(begin.as_bytes()).unwrap();
            let fault = endless.feed(&b" ".repeat(LONGEST_REST + 1)).unwrap_err();
            assert_eq!(fault, "it says more than 4 MiB", "{begin}");
        }
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
