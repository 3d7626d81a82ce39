//! What volumes of the host's pods hold: which of a member's words are believed, and of which claim they are. Pure.

use std::collections::{HashMap, HashSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{
    super::{host_pod::KeptPod, object::Place},
    counters::STALE,
};
use leaf::stats::{Figures, VolumeStats};

/// A volume, by the place and the UID of its pod, and its name there. In a member anybody may write that UID on a pod of his, and nobody has
/// one in the place of the copy.
type VolumeId = (Place, String, String);

/// Of one member's pods.
#[derive(Debug, Default)]
pub(super) struct Volumes(HashMap<VolumeId, Known>);

#[derive(Clone, Copy, Debug)]
struct Known {
    figures: Figures,
    /// When the kubelet has looked, as it says.
    looked: Timestamp,
    told: Timestamp,
}

/// What a volume of a pod of the host holds, and which claim of the host it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VolumeUsage {
    pub(super) pod: Place,
    pub(super) pod_uid: String,
    pub(super) name: String,
    pub(super) claim: String,
    pub(super) figures: Figures,
    pub(super) looked: Timestamp,
}

impl Volumes {
    /// Takes what a member has said. Only claims that these pods of the host mount count, and of the pods only those that have a copy.
    pub(super) fn take(&mut self, said: Vec<VolumeStats>, pods: &[KeptPod], now: Timestamp) {
        let copied = pods.iter().filter(|(_, pod)| pod.parts().had_copy);
        let mounted: HashSet<VolumeId> = copied.flat_map(ids).collect();
        self.0.retain(|id, _| mounted.contains(id));
        for VolumeStats { namespace, pod, pod_uid, volume, time, figures } in said {
            let id = (Place { namespace, name: pod }, pod_uid, volume);
            if mounted.contains(&id) {
                // Whoever reads a time reads none with a sign before its year.
                let known = |looked: Timestamp| looked.min(now).max(Timestamp::UNIX_EPOCH);
                let looked = time.parse().map_or(now, known);
                self.0.insert(id, Known { figures, looked, told: now });
            }
        }
    }

    /// What is told of these pods of the host, which are on one node.
    pub(super) fn of_pods(&self, pods: &[KeptPod], now: Timestamp) -> Vec<VolumeUsage> {
        let mut all: Vec<VolumeUsage> = pods.iter().flat_map(|pod| self.of_pod(pod, now)).collect();
        all.sort_by(|one, other| (&one.pod, &one.name).cmp(&(&other.pod, &other.name)));
        all
    }

    fn of_pod(&self, (place, pod): &KeptPod, now: Timestamp) -> Vec<VolumeUsage> {
        let of_claim = |(name, claim): &(String, String)| {
            let id = (place.clone(), pod.uid().to_owned(), name.clone());
            let Known { figures, looked, told } = *self.0.get(&id)?;
            let fresh = now.duration_since(told) < SignedDuration::try_from(STALE).unwrap_or_default();
            let (pod, pod_uid, name) = id;
            fresh.then(|| VolumeUsage { pod, pod_uid, name, claim: claim.clone(), figures, looked })
        };
        pod.parts().claims.iter().filter_map(of_claim).collect()
    }
}

fn ids((place, pod): &KeptPod) -> impl Iterator<Item = VolumeId> {
    pod.parts().claims.iter().map(|(volume, _)| (place.clone(), pod.uid().to_owned(), volume.clone()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{
        super::super::{
            cache::Cached,
            host_pod::{COPIED, HostPod},
        },
        *,
    };

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn kept(pod: Value) -> KeptPod {
        (Place::of(&pod), Arc::new(HostPod::pack(pod)))
    }

    /// With a claim, one that was made for it, and a volume of another kind.
    fn whole(name: &str, uid: &str) -> Value {
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "db"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}, {"name": "tmp", "emptyDir": {}}]);
        json!({
            "metadata": {"namespace": "shop", "name": name, "uid": uid},
            "spec": {"nodeName": "kosmos-m", "volumes": volumes},
            "status": {"conditions": [{"type": COPIED, "status": "True"}]},
        })
    }

    fn pod(name: &str, uid: &str) -> KeptPod {
        kept(whole(name, uid))
    }

    /// Of a pod of that name.
    fn said_of(pod: &str, uid: &str, volume: &str, used: u64, at: &str) -> VolumeStats {
        let figures = Figures { used_bytes: Some(used), ..Figures::default() };
        let [namespace, pod, pod_uid, volume, time] = ["shop", pod, uid, volume, at].map(str::to_owned);
        VolumeStats { namespace, pod, pod_uid, volume, time, figures }
    }

    fn said(uid: &str, volume: &str, used: u64, at: &str) -> VolumeStats {
        said_of("a", uid, volume, used, at)
    }

    /// The claims that are told, each with how many bytes.
    fn told(volumes: &Volumes, pods: &[KeptPod], now: i64) -> Vec<(String, Option<u64>)> {
        volumes.of_pods(pods, time(now)).into_iter().map(|one| (one.claim, one.figures.used_bytes)).collect()
    }

    #[test]
    fn figures_are_told_of_the_hosts_claim_that_the_pods_own_volume_names() {
        let (mut volumes, pods) = (Volumes::default(), [pod("a", "u1")]);
        volumes.take(vec![said("u1", "data", 1, ""), said("u1", "scratch", 2, "")], &pods, time(0));
        assert_eq!(told(&volumes, &pods, 1), [("db".to_owned(), Some(1)), ("a-scratch".to_owned(), Some(2))]);
        let one = &volumes.of_pods(&pods, time(1))[0];
        assert_eq!((one.pod.to_string(), one.pod_uid.as_str(), one.looked), ("shop/a".to_owned(), "u1", time(0)));
    }

    #[test]
    fn what_no_pod_of_the_host_mounts_there_is_neither_told_nor_kept() {
        let mut bare = whole("b", "u2");
        bare["status"] = json!({});
        let (mut volumes, pods) = (Volumes::default(), [pod("a", "u1"), kept(bare)]);
        let lies = (0..1000).map(|number| said("u1", &format!("v{number}"), 1, ""));
        let lies = lies.chain([said("u1", "tmp", 1, ""), said_of("b", "u2", "data", 1, ""), said("u3", "data", 1, "")]);
        volumes.take(lies.collect(), &pods, time(0));
        assert!(told(&volumes, &pods, 0).is_empty() && volumes.0.is_empty());
        volumes.take(vec![said("u1", "data", 1, "")], &pods, time(0));
        volumes.take(vec![], &[pod("a", "u9")], time(1));
        assert!(volumes.0.is_empty(), "a pod of the same name is another one");
    }

    #[test]
    fn pod_that_somebody_makes_into_a_second_copy_says_nothing_of_the_volumes_of_the_first() {
        let (mut volumes, pods) = (Volumes::default(), [pod("a", "u1")]);
        let elsewhere = VolumeStats { namespace: "theirs".to_owned(), ..said("u1", "data", 8, "") };
        let forged = [said_of("b", "u1", "data", 9, ""), elsewhere];
        volumes.take(forged.to_vec(), &pods, time(0));
        assert!(told(&volumes, &pods, 0).is_empty() && volumes.0.is_empty());
        let all = [&forged[..], &[said("u1", "data", 1, "")], &forged[..]].concat();
        volumes.take(all, &pods, time(0));
        assert_eq!(told(&volumes, &pods, 0), [("db".to_owned(), Some(1))]);
    }

    #[test]
    fn last_word_is_told_for_some_minutes_and_no_clock_of_a_member_makes_it_longer() {
        let (mut volumes, pods) = (Volumes::default(), [pod("a", "u1")]);
        volumes.take(vec![said("u1", "data", 1, "2999-01-01T00:00:00Z")], &pods, time(0));
        assert_eq!(volumes.of_pods(&pods, time(0))[0].looked, time(0));
        volumes.take(vec![said("u1", "data", 1, "-000001-01-01T00:00:00Z")], &pods, time(5));
        assert_eq!(volumes.of_pods(&pods, time(5))[0].looked, Timestamp::UNIX_EPOCH, "it has a year that is told");
        volumes.take(vec![said("u1", "data", 2, "2001-01-01T00:00:00Z")], &pods, time(10));
        volumes.take(vec![], &pods, time(60));
        assert_eq!(told(&volumes, &pods, 60), [("db".to_owned(), Some(2))]);
        assert!(told(&volumes, &pods, 10 + i64::try_from(STALE.as_secs()).unwrap()).is_empty());
    }
}
