//! Whether a claim of a member may be given to the host as it is, and what the host gets.

use serde_json::{Value, json};

use super::objects::{ObjectStep, step, title, word};
use domain::volume::{DRIVER, HostId, LeafName, MEMBER_KEY, VolumeHash, VolumeId};
use leaf::ownership::{CONSENT, FINALIZER, HOST};

/// By this another agent marks what it keeps the same in several clusters.
const GLOBAL: &str = "kosmos.io/global";

/// What there is to do in the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    Write,
    There,
}

/// Judges a claim by what it says itself.
pub fn judge(claim: &Value, host: &HostId) -> Result<Consent, String> {
    let label = |key: &str| claim["metadata"]["labels"][key].as_str();
    let note = |key: &str| claim["metadata"]["annotations"][key].as_str();
    if let Some(owner) = label(HOST) {
        let whose = if owner == host.0 { "a leaf of this host already" } else { "a leaf of another host" };
        return Err(format!("the claim is {whose} (label {HOST}: {owner}): only its own host's driver may use it"));
    }
    if claim["metadata"]["finalizers"].as_array().into_iter().flatten().any(|finalizer| finalizer == FINALIZER) {
        return Err(format!(
            "the claim is a leaf whose labels were removed (finalizer {FINALIZER}): put the labels back, or type `kosmos-csi release`"
        ));
    }
    if !word(claim, "/metadata/deletionTimestamp").is_empty() {
        return Err("it is being deleted".to_owned());
    }
    for (kind, value) in [("annotation", note(GLOBAL)), ("label", label(GLOBAL))] {
        if value == Some("true") {
            return Err(format!(
                "the claim has the {kind} {GLOBAL}, by which clustertree would make a volume of it in the host: remove the {kind} from the claim and from its volume first"
            ));
        }
    }
    match word(claim, "/status/phase") {
        "Bound" => {}
        phase => return Err(format!("the claim is {phase}, and only a bound claim has data: wait until it is Bound")),
    }
    match note(CONSENT) {
        None => Ok(Consent::Write),
        Some(given) if given == host.0 => Ok(Consent::There),
        Some(other) => Err(format!(
            "the claim is given to another host ({CONSENT}: {other}), and both would write to it: remove the annotation once the other host no longer uses the claim"
        )),
    }
}

/// What the host's objects are called.
#[derive(Clone, Debug)]
pub struct Names {
    pub member: String,
    pub volume: String,
    pub namespace: String,
    pub claim: String,
}

/// The host's volume and claim for a claim of a member.
pub fn objects(leaf: &Value, names: &Names, host: &HostId) -> Result<[Value; 2], String> {
    let handle = handle(leaf, names, host)?;
    let spec = &leaf["spec"];
    let size = leaf.pointer("/status/capacity/storage").unwrap_or_else(|| &spec["resources"]["requests"]["storage"]);
    let mode = spec["volumeMode"].as_str().unwrap_or("Filesystem");
    let there = json!({"key": MEMBER_KEY, "operator": "In", "values": [names.member]});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": names.volume, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "accessModes": spec["accessModes"], "capacity": {"storage": size}, "volumeMode": mode,
            "storageClassName": "", "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": names.namespace, "name": names.claim},
            "csi": {"driver": DRIVER, "volumeHandle": handle},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
        },
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": names.claim, "namespace": names.namespace},
        "spec": {
            "accessModes": spec["accessModes"], "resources": {"requests": {"storage": size}}, "volumeMode": mode,
            "storageClassName": "", "volumeName": names.volume,
        },
    });
    Ok([volume, claim])
}

/// Which of them are to be made, by what the host has under their names; an error where that is something else.
pub fn missing(wanted: &[Value; 2], live: [Option<&Value>; 2]) -> Result<[bool; 2], String> {
    for (wanted, live) in wanted.iter().zip(live) {
        let Some(there) = live else { continue };
        if step(live, wanted) != ObjectStep::Leave {
            return Err(format!(
                "{} is there already, and differs from what this command would make: use other names (--volume, --host-claim), or delete it",
                title(wanted)
            ));
        }
        if !word(there, "/metadata/deletionTimestamp").is_empty() {
            return Err(format!("{} is being deleted: type this again once it has gone", title(wanted)));
        }
    }
    let [volume, claim] = live;
    let bound_to = volume.map(|volume| word(volume, "/spec/claimRef/uid")).unwrap_or_default();
    if !bound_to.is_empty() && bound_to != claim.map(|claim| word(claim, "/metadata/uid")).unwrap_or_default() {
        return Err(format!(
            "the claim to which {} is bound has been deleted since: delete that PersistentVolume (its policy is Retain, so the data stays), and type this again",
            title(&wanted[0])
        ));
    }
    Ok([volume.is_none(), claim.is_none()])
}

fn handle(leaf: &Value, names: &Names, host: &HostId) -> Result<String, String> {
    let (namespace, claim) = (word(leaf, "/metadata/namespace"), word(leaf, "/metadata/name"));
    let id = VolumeId::new(&names.member, namespace, claim, VolumeHash::new(host, &names.volume));
    match id.leaf {
        LeafName::Readable { .. } => Ok(id.to_string()),
        LeafName::Hashed(_) => Err(
            "the names of member, namespace and claim have more than 109 characters together, too many for a handle"
                .to_owned(),
        ),
    }
}

/// As it is applied.
pub fn yaml(objects: &[Value]) -> Result<String, String> {
    let texts: Result<Vec<String>, _> = objects.iter().map(serde_saphyr::to_string).collect();
    Ok(texts.map_err(|error| error.to_string())?.join("---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostId {
        HostId("h".to_owned())
    }

    fn claim(metadata: &Value, phase: &str) -> Value {
        let mut claim = json!({
            "metadata": {"name": "ledger", "namespace": "shop"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"},
            "status": {"phase": phase, "capacity": {"storage": "2Gi"}},
        });
        for (key, value) in metadata.as_object().unwrap() {
            claim["metadata"][key] = value.clone();
        }
        claim
    }

    #[test]
    fn only_a_bound_claim_that_is_nobody_elses_is_given() {
        assert_eq!(judge(&claim(&json!({}), "Bound"), &host()), Ok(Consent::Write));
        assert_eq!(judge(&claim(&json!({"annotations": {CONSENT: "h"}}), "Bound"), &host()), Ok(Consent::There));
        for (metadata, phase, said) in [
            (json!({}), "Pending", "only a bound claim"),
            (json!({"labels": {HOST: "x"}}), "Bound", "another host"),
            (json!({"labels": {HOST: "h"}}), "Bound", "this host already"),
            (json!({"finalizers": [FINALIZER]}), "Bound", "labels were removed"),
            (json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), "Bound", "being deleted"),
            (json!({"annotations": {GLOBAL: "true"}}), "Bound", "annotation kosmos.io/global"),
            (json!({"annotations": {CONSENT: "x"}}), "Bound", "another host (kosmos.csi.io/consent: x)"),
        ] {
            let refusal = judge(&claim(&metadata, phase), &host()).unwrap_err();
            assert!(refusal.contains(said), "{refusal}");
        }
    }

    #[test]
    fn what_the_host_gets_leads_to_the_claim_and_to_nothing_else() {
        let word = |text: &str| text.to_owned();
        let names = Names { member: word("m"), volume: word("v"), namespace: word("shop"), claim: word("books") };
        let [volume, claim] = objects(&claim(&json!({}), "Bound"), &names, &host()).unwrap();
        let id = VolumeId::parse(volume["spec"]["csi"]["volumeHandle"].as_str().unwrap()).unwrap();
        assert!(id.to_string().starts_with("m/shop/ledger/"), "{id}");
        assert_eq!(volume["spec"]["capacity"]["storage"], "2Gi", "what it has, not what it asked for");
        assert_eq!(volume["spec"]["claimRef"]["name"], "books");
        assert_eq!((&claim["spec"]["volumeName"], &claim["spec"]["storageClassName"]), (&json!("v"), &json!("")));
        let text = yaml(&[volume, claim]).unwrap();
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert_eq!(read[0]["spec"]["persistentVolumeReclaimPolicy"], "Retain", "{text}");
        assert_eq!(read[1]["kind"], "PersistentVolumeClaim", "{text}");
    }

    #[test]
    fn what_is_there_of_an_import_is_left_and_what_is_another_is_refused() {
        let word = |text: &str| text.to_owned();
        let names = Names { member: word("m"), volume: word("v"), namespace: word("shop"), claim: word("books") };
        let wanted = objects(&claim(&json!({}), "Bound"), &names, &host()).unwrap();
        let with = |object: &Value, path: &str, value: &str| {
            let (mut object, (field, key)) = (object.clone(), path.rsplit_once('/').unwrap());
            object.pointer_mut(field).unwrap()[key] = json!(value);
            object
        };
        let [volume, claim] = &wanted;
        let bound = with(volume, "/spec/claimRef/uid", "u");
        let its = with(claim, "/metadata/uid", "u");
        assert_eq!(missing(&wanted, [None, None]), Ok([true, true]));
        assert_eq!(missing(&wanted, [Some(volume), None]), Ok([false, true]));
        assert_eq!(missing(&wanted, [Some(&bound), Some(&its)]), Ok([false, false]));
        for (live, said) in [
            ([Some(&bound), None], "deleted since"),
            ([Some(&with(volume, "/spec/claimRef/name", "x")), None], "PersistentVolume v is there already"),
            ([Some(&with(volume, "/spec/csi/volumeHandle", "x")), None], "PersistentVolume v is there already"),
            ([None, Some(&with(claim, "/spec/volumeName", "x"))], "PersistentVolumeClaim shop/books is there already"),
            ([None, Some(&with(claim, "/metadata/deletionTimestamp", "now"))], "is being deleted"),
        ] {
            let refusal = missing(&wanted, live).unwrap_err();
            assert!(refusal.contains(said), "{refusal}");
        }
    }

    #[test]
    fn handle_that_would_be_too_long_is_refused() {
        let long =
            Names { member: "m".repeat(40), volume: "v".to_owned(), namespace: String::new(), claim: String::new() };
        let mut leaf = claim(&json!({}), "Bound");
        leaf["metadata"]["name"] = json!("c".repeat(90));
        assert!(objects(&leaf, &long, &host()).unwrap_err().contains("109"));
    }
}
