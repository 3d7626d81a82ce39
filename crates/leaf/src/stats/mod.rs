//! How full the volumes are that copies of pods mount. A member's kubelets say it on a page of their own. A reader in the member reads
//! that for one host, and its agent asks the reader, by a port-forward to the loopback of its pod.

mod ask;
mod copies;
mod kubelet;
mod reader;
mod share;
mod summary;

use serde::{Deserialize, Serialize};

use domain::volume::HostId;

pub use ask::{ask, ask_each};
pub use kubelet::{Kubelets, Trust};
pub use reader::Reader;

/// Where readers are, and what their pods' names begin with: one that is a host's own says whose, after that.
pub const NAMESPACE: &str = "kosmos-csi";
pub const NAME: &str = "kosmos-csi-stats";
const OF_ONE: &str = "kosmos-csi-stats-host-";
/// How many characters an API server adds to make the name of a pod. Behind the id of a host there is room for nothing else.
const ADDED: usize = 5;
/// On the loopback of its pod alone. Whoever connects is told, in one line, and need not ask.
pub const PORT: u16 = 7741;

/// In the words of a kubelet. A filesystem may not know all of it, and a disk has no inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Figures {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<u64>,
}

/// A volume of a copy. Which claim it is of, the host's pod says, and nobody in the member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStats {
    /// Where the copy is, which is where its pod is in the host. Any other pod may carry the same UID.
    pub namespace: String,
    pub pod: String,
    /// The UID of the host's pod.
    pub pod_uid: String,
    /// As the pod calls it.
    pub volume: String,
    /// When the kubelet has looked, in its own form.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time: String,
    #[serde(flatten)]
    pub figures: Figures,
}

/// All that a reader says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReaderAnswer {
    pub volumes: Vec<VolumeStats>,
    /// Which kubelets it could not read, and why: some of them.
    pub unread: Vec<String>,
}

/// The readers among pods of their namespace that tell of this host's volumes: those of its own first, then those of any host's.
pub fn readers_of(mut pods: Vec<String>, host: &HostId) -> Vec<String> {
    let own = format!("{OF_ONE}{host}");
    let is_own = |pod: &str| pod.strip_prefix(&own).is_some_and(|added| added.len() == ADDED);
    pods.retain(|pod| is_own(pod) || is_of_all(pod));
    pods.sort_by_key(|pod| !is_own(pod));
    pods
}

/// Whether a pod is a reader of all hosts' volumes, which the account of one host may not ask where a policy of the member holds it.
fn is_of_all(pod: &str) -> bool {
    pod.strip_prefix(NAME).is_some_and(|rest| rest.starts_with('-')) && !pod.starts_with(OF_ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_asks_its_own_reader_before_one_of_any_host_and_never_anothers() {
        let pods = [
            "kosmos-csi-stats-7d9f-x2x",
            "kosmos-csi-stats-host-h2x7d2k",
            "kosmos-csi-stats-host-h11x7d2k",
            "kosmos-csi-stats-host-h1x7d2k",
            "kosmos-csi-statsx",
            "db-0",
        ];
        let readers = |host: &str| readers_of(pods.map(str::to_owned).into(), &HostId(host.to_owned()));
        assert_eq!(readers("h1"), ["kosmos-csi-stats-host-h1x7d2k", "kosmos-csi-stats-7d9f-x2x"]);
        assert_eq!(readers("h3"), ["kosmos-csi-stats-7d9f-x2x"]);
    }

    #[test]
    fn what_is_told_is_read_again_and_what_is_no_figure_is_not() {
        let figures = Figures { used_bytes: Some(u64::MAX), inodes: Some(0), ..Figures::default() };
        let [namespace, pod, pod_uid, volume] = ["shop", "db-0", "u", "data"].map(str::to_owned);
        let one = VolumeStats { namespace, pod, pod_uid, volume, time: String::new(), figures };
        let told = ReaderAnswer { volumes: vec![one], unread: vec!["node n: no answer".to_owned()] };
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<ReaderAnswer>(&text).unwrap(), told, "{text}");
        assert!(text.contains("\"podUid\":\"u\"") && !text.contains("null") && !text.contains('\n'), "{text}");
        assert_eq!(serde_json::from_str::<ReaderAnswer>("{}").unwrap(), ReaderAnswer::default());
        for figure in ["-1", "0.5", "\"1\"", "18446744073709551616", "1e99"] {
            let said = |figure: &str| {
                let text = format!(
                    r#"{{"volumes":[{{"namespace":"n","pod":"p","podUid":"u","volume":"v","usedBytes":{figure}}}]}}"#
                );
                serde_json::from_str::<ReaderAnswer>(&text)
            };
            assert!(said("1").is_ok() && said(figure).is_err(), "{figure}");
        }
    }
}
