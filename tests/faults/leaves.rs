//! What is in the members for a volume, looked up in their stores directly: neither the driver's word nor its requests are
//! needed for it.

use std::sync::Arc;

use domain::volume::{HostId, VolumeHash};
use serde_json::Value;
use simulate::{Cluster, text};

use crate::{
    attach::double::ATTACHMENTS,
    bench::{Bench, lock},
    moves,
};

/// The kinds that the driver leaves in members.
const KINDS: [&str; 4] = ["persistentvolumeclaims", "persistentvolumes", "pods", ATTACHMENTS];

impl Bench {
    pub fn hash(&self, volume: &str) -> VolumeHash {
        VolumeHash::new(&HostId(self.host_id()), volume)
    }

    /// Everything that carries the labels of a volume, in words.
    pub fn leaf_objects(&self, volume: &str) -> Vec<String> {
        let hash = self.hash(volume).to_string();
        self.all_ours().filter(|(_, _, object, of)| *of == hash && !self.is_planted(object)).map(described).collect()
    }

    /// The same right after an answer that promises that nothing is left: what is on its way for longer than anybody waits
    /// may come even then.
    pub fn leaf_objects_in_time(&self, volume: &str) -> Vec<String> {
        let hash = self.hash(volume).to_string();
        let is_meant = |object: &Value| !self.is_planted(object) && !moves::is_copy(object);
        let all = self.all_ours().filter(|(_, _, object, of)| *of == hash && is_meant(object));
        let in_time = all.filter(|(member, _, object, _)| !lock(&self.guard.history).may_come_late(member, object));
        in_time.map(described).collect()
    }

    /// Consumers that came late: those that a volume lives with hold nothing after a while, and go with it.
    pub fn late_consumers(&self) -> Vec<String> {
        let pods = self.all_ours().filter(|(_, kind, ..)| *kind == "pods");
        let late = pods.filter(|(member, _, pod, _)| lock(&self.guard.history).may_come_late(member, pod));
        late.map(described).collect()
    }

    /// Everything in any member that carries this host's labels and was not planted.
    pub fn leftovers(&self) -> Vec<String> {
        self.all_ours().filter(|(_, _, object, _)| !self.is_planted(object)).map(described).collect()
    }

    fn is_planted(&self, object: &Value) -> bool {
        lock(&self.guard.history).was_planted(object)
    }

    fn all_ours(&self) -> impl Iterator<Item = (&Cluster, &'static str, Arc<Value>, String)> {
        let of = |member, kind: &'static str| {
            Cluster::list(member, kind).into_iter().map(move |object| (member, kind, object))
        };
        let all = self.members.iter().flat_map(move |member| KINDS.into_iter().flat_map(move |kind| of(member, kind)));
        all.filter_map(|(member, kind, object)| {
            let hash = lock(&self.guard.history).volume_of(&object)?.to_owned();
            Some((member, kind, object, hash))
        })
    }

    /// The leaf claim that a handle leads to. One that was recreated elsewhere says which handle is its own; of one whose handle names
    /// no place, its labels tell. Of several that could be meant, the one counts to which the volume that they name is bound: others came
    /// late.
    pub fn leaf_behind(&self, handle: &str) -> Result<Arc<Value>, String> {
        let parts: Vec<&str> = handle.split('/').collect();
        let [member, namespace, claim, hash] = parts.as_slice() else { return Err("it is no handle".to_owned()) };
        let member = self.member_of(member).ok_or("there is no such member")?;
        let is_marked =
            |leaf: &Arc<Value>| lock(&self.guard.history).volume_of(leaf).is_some_and(|of| of.starts_with(hash));
        let says_so = |leaf: &Arc<Value>| {
            leaf["metadata"]["annotations"]["kosmos.csi.io/handle"] == handle && !self.is_planted(leaf)
        };
        let all = member.list("persistentvolumeclaims");
        let elsewhere = all.iter().filter(|leaf| says_so(leaf) && is_marked(leaf)).cloned();
        let by_hash = || all.iter().find(|leaf| is_marked(leaf) && !self.is_planted(leaf)).cloned();
        let there = if claim.is_empty() { by_hash() } else { member.get("persistentvolumeclaims", namespace, claim) };
        let meant: Vec<Arc<Value>> = elsewhere.chain(there).collect();
        let first = meant.first().ok_or("there is no such leaf claim")?;
        let behind = member.get("persistentvolumes", "", text(first, "/spec/volumeName"));
        let has_it = |leaf: &&Arc<Value>| {
            let is_bound_to = |volume: &Arc<Value>| text(volume, "/spec/claimRef/uid") == text(leaf, "/metadata/uid");
            is_marked(leaf) && behind.as_ref().is_some_and(is_bound_to)
        };
        let leaf = meant.iter().find(has_it).unwrap_or(first);
        if is_marked(leaf) { Ok(Arc::clone(leaf)) } else { Err(format!("its leaf claim is not ours: {leaf}")) }
    }
}

fn described((member, kind, object, _): (&Cluster, &str, Arc<Value>, String)) -> String {
    let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
    format!("{kind} {namespace}/{name} in {} ({})", member.name(), object["status"]["phase"])
}
