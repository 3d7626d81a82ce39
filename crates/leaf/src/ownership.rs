//! Is it ours? Labels and annotations of leaf objects, and the check that precedes every use of one. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use domain::volume::{
    Claim, DRIVER, HostId, VolumeHash,
    id::{is_label, is_subdomain},
};

pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const HOST: &str = "kosmos.csi.io/host";
pub const VOLUME: &str = "kosmos.csi.io/volume";

/// On leaf snapshots and their contents: the snapshot's own hash. `VOLUME` is its source's there.
pub const SNAPSHOT: &str = "kosmos.csi.io/snapshot";
/// On leaf groups and the snapshots in them, and for as long as it takes on the claims of a group.
pub const GROUP: &str = "kosmos.csi.io/group";

/// On a volume that the member's controller has found for a claim. One that is made for a claim names that from its beginning.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

pub const NAME: &str = "kosmos.csi.io/name";
/// On leaf snapshots: the handle of the volume they are of, and the driver that holds them.
pub const SOURCE: &str = "kosmos.csi.io/source";
pub const HOLDER: &str = "kosmos.csi.io/driver";
/// On leaf snapshots: the host's object for whose sake they were made, where anybody told.
pub const CONTENT: &str = "kosmos.csi.io/content";
pub const CLAIM: &str = "kosmos.csi.io/claim";
pub const CLAIM_UID: &str = "kosmos.csi.io/claim-uid";
pub const REQUEST: &str = "kosmos.csi.io/request";
/// On a claim that was there before this driver: the host that may use it as a volume.
pub const CONSENT: &str = "kosmos.csi.io/consent";
/// On a StorageClass or a namespace of a member: the hosts that may use it, by their ids, separated by commas. Without it all may.
pub const HOSTS: &str = "kosmos.csi.io/hosts";
pub const HAD_VOLUME: &str = "kosmos.csi.io/had-pv";
/// On a leaf claim that CreateVolume has begun to take back: its volume carries our labels, and the host was never told of it.
pub const WITHDRAWN: &str = "kosmos.csi.io/withdrawn";
/// On what was made in a member to bring a volume to a node of the host: which node, by its id.
pub const NODE: &str = "kosmos.csi.io/node";
/// On the same: the volume's handle. People write the same digits into many handles of imported volumes. Also on a leaf
/// claim and its volume that are elsewhere than the handle says.
pub const HANDLE: &str = "kosmos.csi.io/handle";
/// On which nodes of the host it is.
pub const PUBLISHED: &str = "kosmos.csi.io/published";
/// The version at which a node that was not on record was taken off, or the claim was already as it was asked to be: what was decided on
/// it may still be on its way.
pub const UNPUBLISHED: &str = "kosmos.csi.io/unpublished";

/// On a copy of a pod: the UID of the host's pod. Without it no pod in a member is touched.
pub const COPY_OF: &str = "kosmos.csi.io/pod-uid";
/// On a leaf claim and its volume: UIDs of the claims in whose place it was recreated.
pub const FORMER: &str = "kosmos.csi.io/former";
/// On a leaf claim that was recreated: the version as of which the member's controller was pointed to it.
pub const WOKEN: &str = "kosmos.csi.io/woken";
/// On a leaf volume whose claim was let go, or is being recreated: what that claim was.
pub const HEALING: &str = "kosmos.csi.io/healing";
/// On a leaf volume that is `Retain` because the host's is: its policy of before.
pub const POLICY_BEFORE: &str = "kosmos.csi.io/policy-before";
/// On a leaf volume: where its claim belongs, as `namespace/name`, while that is not where its class says.
pub const PLACE: &str = "kosmos.csi.io/place";
/// On a leaf claim: the move to another member that has it.
pub const MOVE: &str = "kosmos.csi.io/move";
/// A label on a volume that is kept after a move: the hash of the volume that it was the leaf of. Where to, an annotation says.
pub const MOVED: &str = "kosmos.csi.io/moved";
pub const MOVED_TO: &str = "kosmos.csi.io/moved-to";
/// A label on a leaf volume that only its policy keeps: it is being removed, and a write by which its data goes, or is out of
/// sight, may be on its way.
pub const REMOVAL: &str = "kosmos.csi.io/removal";
/// On a volume that a provisioner of the member has made. One without it was made by people, who want it as it is.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The prefix of every label and annotation of ours.
pub const OURS: &str = "kosmos.csi.io/";

pub const FINALIZER: &str = "kosmos.csi.io/protect";

/// Whether a claim says that this volume of the host had it. The handle, which it may say instead, is the same again where a volume has
/// moved away and back.
pub fn was_had_by(claim: &ObjectMeta, volume_uid: &str) -> bool {
    let had = claim.annotations.as_ref().and_then(|notes| notes.get(HAD_VOLUME));
    had.is_some_and(|had| had == volume_uid)
}

/// Whether a leaf says that it was made with this name. It does so also where somebody has taken its labels off.
pub fn is_named(leaf: &ObjectMeta, name: &str) -> bool {
    leaf.annotations.as_ref().and_then(|notes| notes.get(NAME)).is_some_and(|own| own == name)
}

/// For whom a leaf claim was made, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeFor {
    /// In the host, with this UID.
    pub claim: Claim,
    pub uid: String,
    /// The volume's name.
    pub volume: String,
}

impl MadeFor {
    /// None where nobody told which claim it was. Whoever may write in a member writes here what he likes: what is no name
    /// would lead a request elsewhere.
    pub fn read(metadata: &ObjectMeta) -> Option<Self> {
        Self::told(metadata.annotations.as_ref()?)
    }

    pub(super) fn told(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let annotation = |key| annotations.get(key).cloned();
        let (claim, uid, volume) = (annotation(CLAIM)?, annotation(CLAIM_UID)?, annotation(NAME)?);
        let (namespace, name) = claim.split_once('/')?;
        if !is_label(namespace, 63) || !is_subdomain(name) || !is_subdomain(&volume) {
            return None;
        }
        Some(Self { claim: Claim { namespace: namespace.to_owned(), name: name.to_owned() }, uid, volume })
    }
}

/// The labels of everything made in a member for this host.
pub fn host_labels(host: &HostId) -> BTreeMap<String, String> {
    BTreeMap::from([(MANAGED_BY.to_owned(), DRIVER.to_owned()), (HOST.to_owned(), host.0.clone())])
}

/// Whether an object with these labels was made for this host, or taken over.
pub fn is_labelled(labels: Option<&BTreeMap<String, String>>, host: &HostId) -> bool {
    host_labels(host).iter().all(|(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value)))
}

/// A namespace of a member as it is made for this host where it is missing. Nobody deletes it for us.
pub fn namespace(host: &HostId, name: &str) -> Namespace {
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(host_labels(host)), ..ObjectMeta::default() };
    Namespace { metadata, ..Namespace::default() }
}

/// The labels of everything made in a member for one volume.
pub fn labels(host: &HostId, hash: VolumeHash) -> BTreeMap<String, String> {
    let mut labels = host_labels(host);
    labels.insert(VOLUME.to_owned(), hash.to_string());
    labels
}

/// What the watches ask for.
pub fn selector(host: &HostId) -> String {
    format!("{MANAGED_BY}={DRIVER},{HOST}={host}")
}

/// The volume an object of ours belongs to; none where it is not ours.
pub fn volume_of(metadata: &ObjectMeta, host: &HostId) -> Option<VolumeHash> {
    hash_of(metadata, host, VOLUME)
}

/// The same by another of our labels.
pub fn hash_of(metadata: &ObjectMeta, host: &HostId, label: &str) -> Option<VolumeHash> {
    let labels = metadata.labels.as_ref()?;
    let is = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
    (is(MANAGED_BY, DRIVER) && is(HOST, &host.0)).then(|| VolumeHash::parse(labels.get(label)?))?
}

/// Former UIDs with one more. The first is the one that the host was given; of the others the latest are enough.
pub fn with_former(former: &str, uid: &str) -> String {
    const LATEST: usize = 7;
    if is_former(former, uid) {
        return former.to_owned();
    }
    let uids: Vec<&str> = former.split(',').filter(|former| !former.is_empty()).chain([uid]).collect();
    let (first, rest) = uids.split_at(1);
    [first, &rest[rest.len().saturating_sub(LATEST)..]].concat().join(",")
}

/// Whether a UID is among former ones.
pub fn is_former(former: &str, uid: &str) -> bool {
    !uid.is_empty() && former.split(',').any(|former| former == uid)
}

/// Whether an object is the one with this UID, or was made in its place.
pub fn is_or_was(metadata: &ObjectMeta, uid: &str) -> bool {
    let former = metadata.annotations.as_ref().and_then(|annotations| annotations.get(FORMER));
    metadata.uid.as_deref() == Some(uid) || former.is_some_and(|former| is_former(former, uid))
}

/// Whether a volume was there before the claim that it is bound to, whatever the clocks of API servers have made of that.
pub fn was_found(volume: &ObjectMeta) -> bool {
    volume.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(BOUND_BY_CONTROLLER))
}

/// Whose an object is that is not ours, in words for the user who wanted its name.
pub fn whose(metadata: &ObjectMeta, host: &HostId) -> String {
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key));
    match (label(HOST), label(MANAGED_BY)) {
        (Some(other), _) if *other != host.0 => format!("it belongs to another host cluster ({other})"),
        (Some(_), _) => {
            let name = metadata.annotations.as_ref().and_then(|annotations| annotations.get(NAME));
            format!(
                "it belongs to another volume or snapshot of this host ({})",
                name.map_or("unnamed", String::as_str)
            )
        }
        (None, Some(manager)) => format!("it is managed by {manager}"),
        (None, None) => match first_writer(metadata) {
            Some(writer) => format!("it was made by {writer}, not by this driver"),
            None => "it was not made by this driver".to_owned(),
        },
    }
}

fn first_writer(metadata: &ObjectMeta) -> Option<&str> {
    let writers = metadata.managed_fields.as_ref()?;
    let first = writers.iter().filter(|entry| entry.subresource.is_none()).min_by_key(|entry| entry.time.clone());
    first.and_then(|entry| entry.manager.as_deref())
}

/// Whether the member's administrator lets a host use what is annotated so.
pub fn is_open_to(host: &str, annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(HOSTS).is_none_or(|hosts| names(hosts, host))
}

pub fn names(hosts: &str, host: &str) -> bool {
    hosts.split(',').any(|named| named.trim() == host)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

    use super::*;

    #[test]
    fn what_names_hosts_is_open_to_them_alone_and_what_names_none_to_nobody() {
        let named = |hosts: &str| BTreeMap::from([(HOSTS.to_owned(), hosts.to_owned())]);
        assert!(is_open_to("h", &BTreeMap::new()));
        for (hosts, open) in [("h", true), ("a, h", true), ("a,hh", false), ("", false), ("*", false)] {
            assert_eq!(is_open_to("h", &named(hosts)), open, "{hosts:?}");
        }
    }

    fn host() -> HostId {
        HostId("h".to_owned())
    }

    fn hash() -> VolumeHash {
        VolumeHash::new(&host(), "pvc-1")
    }

    fn object(labels: BTreeMap<String, String>) -> ObjectMeta {
        ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }
    }

    #[test]
    fn for_whom_a_claim_was_made_is_told_by_names_alone() {
        let told = |claim: &str, volume: &str| {
            let annotations = [(CLAIM, claim), (CLAIM_UID, "u"), (NAME, volume)];
            MadeFor::told(&annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
        };
        let made_for = told("shop/data.0", "pvc-1").unwrap();
        assert_eq!((made_for.claim.to_string(), made_for.volume), ("shop/data.0".to_owned(), "pvc-1".to_owned()));
        for claim in ["shop", "shop/", "/data", "shop/?x", "shop/..", "shop/data/status", "a.b/data", "../data"] {
            assert_eq!(told(claim, "pvc-1"), None, "{claim}");
        }
        for volume in ["", "?x", "..", "pvc-1/status"] {
            assert_eq!(told("shop/data", volume), None, "{volume}");
        }
    }

    #[test]
    fn object_with_all_three_labels_is_ours() {
        assert_eq!(volume_of(&object(labels(&host(), hash())), &host()), Some(hash()));
    }

    #[test]
    fn object_that_lacks_or_changes_any_label_is_not_ours() {
        assert_eq!(volume_of(&ObjectMeta::default(), &host()), None);
        for key in [MANAGED_BY, HOST, VOLUME] {
            let mut missing = labels(&host(), hash());
            missing.remove(key);
            let mut changed = labels(&host(), hash());
            changed.insert(key.to_owned(), "other".to_owned());
            assert_eq!(volume_of(&object(missing), &host()), None, "without {key}");
            assert_eq!(volume_of(&object(changed), &host()), None, "with another {key}");
        }
    }

    #[test]
    fn first_and_latest_former_uids_are_kept() {
        let all = (0..20).fold(String::new(), |former, at| with_former(&former, &format!("u{at}")));
        assert_eq!(all, "u0,u13,u14,u15,u16,u17,u18,u19");
        assert_eq!(with_former(&all, "u0"), all);
        assert!(is_former(&all, "u0") && is_former(&all, "u13") && !is_former(&all, "u1") && !is_former("", ""));
    }

    #[test]
    fn the_user_is_told_whose_it_is() {
        let other = HostId("other".to_owned());
        assert!(whose(&object(labels(&other, hash())), &host()).contains("another host cluster (other)"));
        assert!(whose(&object(labels(&host(), hash())), &host()).contains("another volume or snapshot"));
        let helm = BTreeMap::from([(MANAGED_BY.to_owned(), "Helm".to_owned())]);
        assert!(whose(&object(helm), &host()).contains("managed by Helm"));
        let writer = |manager: &str, time: &str| -> ManagedFieldsEntry {
            serde_json::from_value(serde_json::json!({"manager": manager, "time": time})).unwrap()
        };
        let later = writer("kube-controller-manager", "2026-01-01T00:00:01Z");
        let writers = vec![later, writer("kubectl-create", "2026-01-01T00:00:00Z")];
        let by_hand = ObjectMeta { managed_fields: Some(writers), ..ObjectMeta::default() };
        assert!(whose(&by_hand, &host()).contains("kubectl-create"));
    }
}
