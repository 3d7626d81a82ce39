//! Leaf snapshots and groups of them against the host's own records: which of them nobody in the host can ask for any more.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Compared, Finding, MemberSide};
use domain::volume::{
    LeafPlace, VolumeHash, VolumeId,
    snapshot::{group_id, leaf_group_name},
};

/// What the host has on record of its snapshots and groups.
#[derive(Clone, Debug, Default)]
pub struct HostSnapshots {
    /// The half of the hash that every handle carries, of all to which a record leads.
    led_to: BTreeSet<String>,
    /// Names of the records: one without a handle may be of a snapshot that is being made.
    records: BTreeSet<String>,
    /// Why they could not be read.
    pub unread: Option<String>,
}

/// A leaf snapshot with our labels.
#[derive(Clone, Debug)]
pub struct LeafSnapshot {
    pub place: LeafPlace,
    pub uid: String,
    pub hash: VolumeHash,
    /// What the host would call it.
    pub handle: String,
    /// The group it is part of.
    pub group: Option<VolumeHash>,
    /// The record of the host for which it was made, where anybody told.
    pub asked_by: Option<String>,
    /// Seconds since it was made.
    pub age: i64,
    pub terminating: bool,
}

/// Every text in a record that has the form of a handle.
fn collect(record: &Value, led_to: &mut BTreeSet<String>) {
    match record {
        Value::String(text) => led_to.extend(VolumeId::parse(text).map(|id| id.hashes().start().prefix())),
        Value::Array(all) => {
            for one in all {
                collect(one, led_to);
            }
        }
        Value::Object(all) => {
            for one in all.values() {
                collect(one, led_to);
            }
        }
        _ => {}
    }
}

impl HostSnapshots {
    /// Takes in a VolumeSnapshotContent, or one of a group.
    pub fn add(&mut self, name: &str, record: &Value) {
        self.records.insert(name.to_owned());
        collect(record, &mut self.led_to);
    }

    fn explains(&self, snapshot: &LeafSnapshot) -> bool {
        let leads_to = |hash: VolumeHash| self.led_to.contains(&hash.prefix());
        leads_to(snapshot.hash)
            || snapshot.group.is_some_and(leads_to)
            || snapshot.asked_by.as_ref().is_some_and(|record| self.records.contains(record))
    }

    pub(super) fn judge(&self, side: &MemberSide, older_than: i64, compared: &mut Compared) {
        if self.unread.is_some() {
            return;
        }
        if let Some(reason) = &side.unread_snapshots {
            let message = format!("doctor did not compare its snapshots: {reason}");
            compared.findings.push(Finding::new("member", &side.member, message));
        }
        let mut named = BTreeSet::new();
        for snapshot in side.snapshots.iter().filter(|snapshot| !snapshot.terminating && !self.explains(snapshot)) {
            if snapshot.age < older_than {
                compared.young += 1;
                continue;
            }
            let finding = match snapshot.group {
                Some(group) => stray_group(side, group, &snapshot.place.namespace),
                None => stray(&side.member, snapshot),
            };
            if named.insert(finding.name.clone()) {
                compared.findings.push(finding);
            }
        }
    }
}

fn stray(member: &str, snapshot: &LeafSnapshot) -> Finding {
    let LeafSnapshot { place, handle, .. } = snapshot;
    let message = format!(
        "no VolumeSnapshotContent of the host leads to the leaf snapshot, and its data stays. To use it again, make one with the \
         snapshotHandle {handle}. If nobody wants it, set the deletionPolicy of its VolumeSnapshotContent in the member to Delete, as \
         its data stays otherwise, and then type `kubectl delete volumesnapshot -n {} {}` there",
        place.namespace, place.claim
    );
    Finding::of(&snapshot.uid, "snapshot", &format!("{member}/{place}"), message)
}

/// A group goes as a whole, so it is named instead of its snapshots.
fn stray_group(side: &MemberSide, group: VolumeHash, namespace: &str) -> Finding {
    let (member, name) = (&side.member, leaf_group_name(group));
    let is_part = |part: &&LeafSnapshot| part.group == Some(group) && part.place.namespace == namespace;
    let parts: Vec<&str> = side.snapshots.iter().filter(is_part).map(|part| part.handle.as_str()).collect();
    let message = format!(
        "no VolumeGroupSnapshotContent of the host leads to the leaf group, none to a snapshot of it, and its data stays. To use it again, \
         make one with the volumeGroupSnapshotHandle {} and the volumeSnapshotHandles {}. If nobody wants it, set the \
         deletionPolicy of its VolumeGroupSnapshotContent in the member, and of the VolumeSnapshotContents of its snapshots, to \
         Delete, as its data stays otherwise, and then type `kubectl delete volumegroupsnapshot -n {namespace} {name}` there",
        group_id(member, namespace, group),
        parts.join(", ")
    );
    Finding::of(&group.to_string(), "group", &format!("{member}/{namespace}/{name}"), message)
}

#[cfg(test)]
mod tests {
    use domain::volume::{HostId, snapshot::leaf_name};
    use serde_json::json;

    use super::*;

    const HOUR: i64 = 3600;

    fn host() -> HostId {
        HostId("h".to_owned())
    }

    fn snapshot(name: &str, group: Option<&str>) -> LeafSnapshot {
        let hash = VolumeHash::of_snapshot(&host(), name);
        let place = LeafPlace { namespace: "shop".to_owned(), claim: leaf_name(hash) };
        LeafSnapshot {
            uid: name.to_owned(),
            hash,
            handle: VolumeId::new("m", &place.namespace, &place.claim, hash).to_string(),
            group: group.map(|group| VolumeHash::of_group(&host(), group)),
            asked_by: Some(format!("content-of-{name}")),
            age: 2 * HOUR,
            terminating: false,
            place,
        }
    }

    fn compared(known: &HostSnapshots, snapshots: Vec<LeafSnapshot>) -> Compared {
        let side = MemberSide { member: "m".to_owned(), snapshots, ..MemberSide::default() };
        let mut compared = Compared::default();
        known.judge(&side, HOUR, &mut compared);
        compared
    }

    fn judged(known: &HostSnapshots, snapshots: Vec<LeafSnapshot>) -> (Vec<String>, usize) {
        let compared = compared(known, snapshots);
        (compared.findings.into_iter().map(|finding| finding.name).collect(), compared.young)
    }

    #[test]
    fn snapshot_to_which_nothing_leads_is_named_and_whatever_may_lead_to_it_explains_it() {
        let one = snapshot("a", None);
        let name = format!("snapshot:m/{}", one.place);
        let none = HostSnapshots::default();
        assert_eq!(judged(&none, vec![one.clone()]), (vec![name], 0));
        let (mut made, mut restored, mut asked) = (none.clone(), none.clone(), none.clone());
        made.add("other", &json!({"status": {"snapshotHandle": one.handle}}));
        restored.add("other", &json!({"spec": {"source": {"snapshotHandle": one.handle}}}));
        asked.add("content-of-a", &json!({}));
        let unread = HostSnapshots { unread: Some("it is silent".to_owned()), ..none.clone() };
        for known in [made, restored, asked, unread] {
            assert_eq!(judged(&known, vec![one.clone()]), (Vec::new(), 0), "{known:?}");
        }
        assert_eq!(judged(&none, vec![LeafSnapshot { age: HOUR - 1, ..one.clone() }]), (Vec::new(), 1));
        assert_eq!(judged(&none, vec![LeafSnapshot { terminating: true, ..one }]), (Vec::new(), 0));
    }

    #[test]
    fn group_is_named_once_and_explained_by_a_handle_of_its_own_or_of_each_snapshot_in_it() {
        let parts = || vec![snapshot("a", Some("g")), snapshot("b", Some("g"))];
        let group = VolumeHash::of_group(&host(), "g");
        let name = leaf_group_name(group);
        let none = HostSnapshots::default();
        assert_eq!(judged(&none, parts()), (vec![format!("group:m/shop/{name}")], 0));
        let (mut whole, mut each) = (none.clone(), none);
        let handle = VolumeId::new("m", "shop", &name, group).to_string();
        whole.add("other", &json!({"status": {"volumeGroupSnapshotHandle": handle}}));
        let handles: Vec<String> = parts().into_iter().map(|part| part.handle).collect();
        each.add("other", &json!({"spec": {"source": {"groupSnapshotHandles": {"volumeSnapshotHandles": handles}}}}));
        for known in [whole, each] {
            assert_eq!(judged(&known, parts()), (Vec::new(), 0), "{known:?}");
        }
    }

    /// Also a group that is being made, whose snapshots have no handles in the host yet.
    #[test]
    fn group_is_explained_by_the_record_that_its_snapshots_were_made_for() {
        let mut asked = HostSnapshots::default();
        asked.add("content-of-g", &json!({}));
        let part = |name| LeafSnapshot { asked_by: Some("content-of-g".to_owned()), ..snapshot(name, Some("g")) };
        assert_eq!(judged(&asked, vec![part("a"), part("b")]), (Vec::new(), 0));
    }

    #[test]
    fn finding_says_by_which_handles_the_data_is_used_again_and_how_it_goes() {
        let (one, parts) = (snapshot("a", None), [snapshot("b", Some("g")), snapshot("c", Some("g"))]);
        let group = VolumeHash::of_group(&host(), "g");
        let whole = group_id("m", "shop", group).to_string();
        let found = compared(&HostSnapshots::default(), [&[one.clone()][..], &parts].concat()).findings;
        let [single, all] = found.as_slice() else { panic!("{found:?}") };
        for handle in [&whole, &parts[0].handle, &parts[1].handle] {
            assert!(all.message.contains(handle.as_str()), "{}", all.message);
        }
        assert!(single.message.contains(&one.handle), "{}", single.message);
        for message in [&single.message, &all.message] {
            let (policy, delete) = (message.find("deletionPolicy"), message.find("kubectl delete"));
            assert!(policy.is_some() && policy < delete, "else what is retained stays: {message}");
        }
    }
}
