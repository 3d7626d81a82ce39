//! Whether a claim in a member is the leaf that is meant: one judge for all who ask, which are the calls of the driver, what follows the
//! host, the agent, and the commands. Pure.
//!
//! Whoever may write volumes in the host writes any handle, and whoever may write claims in the member any label and annotation.
//! So a handle says where to look and proves nothing: a claim is meant only when it carries the volume's labels, or its
//! owner's consent. Less has let users of one cluster reach the volumes of another (CVE-2024-1725).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::ownership::{CONSENT, FINALIZER, HOST, NAME, VOLUME, selector, volume_of};
use domain::volume::{HostId, LeafName, VolumeHash, VolumeId};

/// Which leaf is looked for.
#[derive(Clone, Copy, Debug)]
pub enum Meant<'a> {
    /// That of a handle.
    Handle(&'a VolumeId),
    Volume(VolumeHash),
    /// Any of this host's.
    Any,
}

impl Meant<'_> {
    fn names(self, hash: VolumeHash) -> bool {
        match self {
            Self::Handle(id) => id.names(hash),
            Self::Volume(meant) => meant == hash,
            Self::Any => true,
        }
    }
}

/// What a claim is to whoever looks for a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity<'a> {
    /// The leaf, or a copy of it that carries all its labels.
    Leaf(VolumeHash),
    /// It was there before this driver, and its owner consents that this host uses it.
    Consents,
    /// A leaf, whose labels somebody took away: of which volume and host, nobody can tell.
    Stripped,
    /// It names this other host as its own.
    OtherHost(&'a str),
    /// The leaf of another volume of this host.
    OtherVolume(VolumeHash),
    Foreign,
}

/// Says nothing of where the claim is: a leaf may have been recreated at another place than its handle's.
pub fn judge<'a>(claim: &'a ObjectMeta, host: &HostId, meant: Meant<'_>) -> Identity<'a> {
    let named = claim.labels.as_ref().and_then(|labels| labels.get(HOST));
    let consent = claim.annotations.as_ref().and_then(|annotations| annotations.get(CONSENT));
    // Drivers of other hosts hold theirs by the same finalizer.
    let held = claim.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    match (volume_of(claim, host), named) {
        (Some(hash), _) if meant.names(hash) => Identity::Leaf(hash),
        (Some(hash), _) => Identity::OtherVolume(hash),
        (None, Some(other)) if *other != host.0 => Identity::OtherHost(other),
        _ if held => Identity::Stripped,
        // With a host's label it would show up among the leaves.
        (None, None) if consent == Some(&host.0) => Identity::Consents,
        _ => Identity::Foreign,
    }
}

/// Which labels to put back on a leaf from which somebody has taken some, in words. A readable handle has half of the hash, and the name that
/// the claim was made with has all of it. One that was made with the name of another volume, or for another host, may be theirs.
pub fn labels_of(claim: &ObjectMeta, host: &HostId, meant: Meant<'_>) -> String {
    let name = claim.annotations.as_ref().and_then(|annotations| annotations.get(NAME));
    let volume = match (name.map(|name| VolumeHash::new(host, name)), meant) {
        (Some(hash), _) if meant.names(hash) => hash.to_string(),
        (None, Meant::Volume(hash)) => hash.to_string(),
        (None, Meant::Handle(VolumeId { leaf: LeafName::Hashed(hash), .. })) => hash.to_string(),
        (None, Meant::Handle(VolumeId { leaf: LeafName::Readable { prefix, .. }, .. })) => {
            format!("<32 digits, which begin with {prefix}>")
        }
        _ => return "those that it had".to_owned(),
    };
    format!("{},{VOLUME}={volume}", selector(host))
}

/// Whether it carries the labels of this volume of this host.
pub fn is_leaf_of(claim: &ObjectMeta, host: &HostId, hash: VolumeHash) -> bool {
    matches!(judge(claim, host, Meant::Volume(hash)), Identity::Leaf(_))
}

/// To whom a volume belongs by its labels, in words, where that is not this leaf: another host, or another volume of this one. Made
/// free in the member, it is bound to whatever claim waits there.
pub fn other_owner(volume: &ObjectMeta, host: &HostId, hash: VolumeHash) -> Option<String> {
    let label = |key: &str| volume.labels.as_ref().and_then(|labels| labels.get(key));
    match (label(HOST), label(VOLUME)) {
        (Some(other), _) if *other != host.0 => Some(format!("another host cluster ({other})")),
        (_, Some(other)) if *other != hash.to_string() => {
            Some(format!("another volume of this host (label {VOLUME}={other})"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::ownership::labels;
    use domain::volume::DRIVER;

    const HANDLE: &str = "m/shop/data/0123456789abcdef";
    /// Readable handles carry half of it.
    const HASH: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    /// Labels, annotations, finalizers.
    fn claim(labels: &Value, annotations: &Value, held: bool) -> ObjectMeta {
        let finalizers = if held { json!([FINALIZER]) } else { json!(["kubernetes.io/pvc-protection"]) };
        from_value(json!({"name": "data", "labels": labels, "annotations": annotations, "finalizers": finalizers}))
            .unwrap()
    }

    #[test]
    fn claim_is_what_it_proves_to_be_and_nothing_that_its_name_or_a_handle_says() {
        let (host, hash) = (HostId("h".to_owned()), |text: &str| VolumeHash::parse(text).unwrap());
        let marked = |host: &str, hash: &str| json!(labels(&HostId(host.to_owned()), VolumeHash::parse(hash).unwrap()));
        let without = |key: &str| {
            let mut labels = marked("h", HASH);
            labels.as_object_mut().unwrap().remove(key);
            labels
        };
        let (none, to_us) = (json!({}), json!({CONSENT: "h"}));
        let to_others = json!({CONSENT: "x"});
        let mut managed_by_others = marked("h", HASH);
        managed_by_others["app.kubernetes.io/managed-by"] = json!("Helm");
        let cut =
            json!({"app.kubernetes.io/managed-by": DRIVER, HOST: "h", "kosmos.csi.io/volume": "0123456789abcdef"});
        for (case, labels, notes, held, expected) in [
            ("the leaf", marked("h", HASH), &none, true, Identity::Leaf(hash(HASH))),
            ("a copy of it, as tools make it", marked("h", HASH), &none, false, Identity::Leaf(hash(HASH))),
            ("the leaf, with a consent besides", marked("h", HASH), &to_us, true, Identity::Leaf(hash(HASH))),
            ("another volume's", marked("h", OTHER), &none, true, Identity::OtherVolume(hash(OTHER))),
            ("another volume's, with a consent", marked("h", OTHER), &to_us, true, Identity::OtherVolume(hash(OTHER))),
            ("another host's", marked("x", HASH), &none, true, Identity::OtherHost("x")),
            ("another host's that consents", marked("x", HASH), &to_us, true, Identity::OtherHost("x")),
            ("another host's label alone", json!({HOST: "x"}), &to_us, false, Identity::OtherHost("x")),
            ("without its labels", none.clone(), &none, true, Identity::Stripped),
            ("without its labels, with a consent", none.clone(), &to_us, true, Identity::Stripped),
            ("without its host", without(HOST), &none, true, Identity::Stripped),
            ("without its volume", without("kosmos.csi.io/volume"), &none, true, Identity::Stripped),
            ("without its manager", without("app.kubernetes.io/managed-by"), &none, true, Identity::Stripped),
            ("managed by others now", managed_by_others.clone(), &none, true, Identity::Stripped),
            ("never held, managed by others", managed_by_others, &to_us, false, Identity::Foreign),
            ("half of the hash", cut, &none, false, Identity::Foreign),
            ("somebody's", none.clone(), &none, false, Identity::Foreign),
            ("somebody's who consents", none.clone(), &to_us, false, Identity::Consents),
            ("who consents to another host", none.clone(), &to_others, false, Identity::Foreign),
            ("who consents, with our host's label", json!({HOST: "h"}), &to_us, false, Identity::Foreign),
        ] {
            let claim = claim(&labels, notes, held);
            for meant in [Meant::Handle(&VolumeId::parse(HANDLE).unwrap()), Meant::Volume(hash(HASH))] {
                assert_eq!(judge(&claim, &host, meant), expected, "{case}, {meant:?}");
            }
            let of_any = match expected {
                Identity::OtherVolume(hash) => Identity::Leaf(hash),
                same => same,
            };
            assert_eq!(judge(&claim, &host, Meant::Any), of_any, "{case}");
        }
    }

    #[test]
    fn who_is_to_put_labels_back_is_told_all_of_them_and_those_of_another_leaf_are_not_made_up() {
        let host = HostId("h".to_owned());
        let hash = VolumeHash::new(&host, "pvc-1");
        let readable = VolumeId::new("m", "shop", "data", hash);
        let hashed = VolumeId { member: "m".to_owned(), leaf: LeafName::Hashed(hash) };
        let all = format!("app.kubernetes.io/managed-by={DRIVER},kosmos.csi.io/host=h,kosmos.csi.io/volume={hash}");
        let named = claim(&json!({}), &json!({NAME: "pvc-1"}), true);
        let unnamed = claim(&json!({}), &json!({}), true);
        let another = claim(&json!({}), &json!({NAME: "pvc-2"}), true);
        for meant in [Meant::Handle(&readable), Meant::Handle(&hashed), Meant::Volume(hash)] {
            assert_eq!(labels_of(&named, &host, meant), all, "{meant:?}");
            assert_eq!(labels_of(&another, &host, meant), "those that it had", "{meant:?}");
        }
        for meant in [Meant::Handle(&hashed), Meant::Volume(hash)] {
            assert_eq!(labels_of(&unnamed, &host, meant), all, "{meant:?}");
        }
        let half = format!("<32 digits, which begin with {}>", hash.prefix());
        assert_eq!(labels_of(&unnamed, &host, Meant::Handle(&readable)), all.replace(&hash.to_string(), &half));
    }

    #[test]
    fn volume_belongs_to_another_where_a_label_of_ours_says_so() {
        let (host, hash) = (HostId("h".to_owned()), VolumeHash::parse(HASH).unwrap());
        for (case, labels, other) in [
            ("nobody has labelled it", json!({}), None),
            ("labels of a policy", json!({"team": "shop"}), None),
            ("its own", json!(labels(&host, hash)), None),
            ("of its own, those that are left", json!({VOLUME: HASH}), None),
            ("another host's", json!(labels(&HostId("x".to_owned()), hash)), Some("another host cluster (x)")),
            ("of another host's, the one that is left", json!({HOST: "x"}), Some("another host cluster (x)")),
            (
                "another volume's",
                json!(labels(&host, VolumeHash::parse(OTHER).unwrap())),
                Some("another volume of this host (label kosmos.csi.io/volume=fedcba9876543210fedcba9876543210)"),
            ),
            (
                "of another volume's, the one that is left",
                json!({VOLUME: OTHER}),
                Some("another volume of this host (label kosmos.csi.io/volume=fedcba9876543210fedcba9876543210)"),
            ),
        ] {
            let volume: ObjectMeta = from_value(json!({"name": "pv", "labels": labels})).unwrap();
            assert_eq!(other_owner(&volume, &host, hash).as_deref(), other, "{case}");
        }
    }

    #[test]
    fn handle_that_is_cut_short_names_every_volume_whose_hash_begins_like_it_and_no_other() {
        let (host, id) = (HostId("h".to_owned()), VolumeId::parse(HANDLE).unwrap());
        let same_half = VolumeHash::parse("0123456789abcdefffffffffffffffff").unwrap();
        let marked = ObjectMeta { labels: Some(labels(&host, same_half)), ..ObjectMeta::default() };
        assert_eq!(judge(&marked, &host, Meant::Handle(&id)), Identity::Leaf(same_half));
        let hashed = VolumeId::parse(&format!("m///{HASH}")).unwrap();
        assert_eq!(judge(&marked, &host, Meant::Handle(&hashed)), Identity::OtherVolume(same_half));
    }
}
