//! The host claim a volume is made for: who waits for it, what he wrote, and the member once chosen for him.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    Host, outcome,
    owners::{OWNERS, with_us_first},
    unread,
};
use cluster::{
    json_patch::{self, Operation, add, test},
    trimmed::{Reads, Trimmed},
};
use domain::{
    error::{Error, Result},
    volume::Claim,
};

/// On a claim: the member that was chosen for it.
const CHOSEN_MEMBER: &str = "kosmos.csi.io/member";
/// Beside it: the UID of the claim for which it was chosen. Backups and tools bring claims back with all their annotations.
const CHOSEN_FOR: &str = "kosmos.csi.io/member-of";
/// The provisioner and the scheduler write on the same claim at the same time.
const TRIES: usize = 4;
/// Letters of a UID.
const UID: usize = 36;
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Whose turn it is to make the volume, as the host's controller says.
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// Who goes by what a claim says of its member.
#[derive(Clone, Debug)]
enum OfMember {}

impl Reads for OfMember {
    fn reads(key: &str) -> bool {
        [CHOSEN_MEMBER, CHOSEN_FOR, SELECTED_NODE, PROVISIONER, OWNERS].contains(&key)
    }
}

fn claims(host: &Host, namespace: &str) -> Api<Trimmed<PersistentVolumeClaim, OfMember>> {
    Api::namespaced(host.client.clone(), namespace)
}

/// A host claim as far as it bears on its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClaim {
    pub uid: String,
    /// The size in the user's own words.
    pub size: Option<String>,
    pub node_selected: bool,
    /// The member recorded for it.
    pub member: Option<String>,
    /// The host volume it is bound to.
    pub volume: Option<String>,
    /// Who makes its volume, once that is said.
    pub provisioner: Option<String>,
    /// Which clusters clustertree has copied it to.
    owners: Option<String>,
    version: String,
}

/// A member chosen for a claim, and whether clustertree copies pods there as well.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    pub member: &'a str,
    pub clustertree: bool,
}

impl HostClaim {
    fn new(claim: &PersistentVolumeClaim) -> Self {
        let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
        Self {
            uid: claim.uid().unwrap_or_default(),
            size: requests.and_then(|requests| requests.get("storage")).map(|size| size.0.clone()),
            node_selected: claim.annotations().contains_key(SELECTED_NODE),
            member: chosen_member(claim).map(str::to_owned),
            volume: claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty()),
            provisioner: claim.annotations().get(PROVISIONER).cloned(),
            owners: claim.annotations().get(OWNERS).cloned(),
            version: claim.resource_version().unwrap_or_default(),
        }
    }
}

/// The member that was chosen for this very claim.
pub fn chosen_member(claim: &PersistentVolumeClaim) -> Option<&str> {
    let is_its_own = claim.annotations().get(CHOSEN_FOR).is_some_and(|uid| Some(uid) == claim.metadata.uid.as_ref());
    claim.annotations().get(CHOSEN_MEMBER).filter(|_| is_its_own).map(String::as_str)
}

/// The claim's UID, where the provisioner's volume name tells it (`pvc-<uid>`, or after the prefix that it was given).
pub fn uid_in_name(volume_name: &str) -> Option<&str> {
    let (prefix, uid) = volume_name.split_at_checked(volume_name.len().checked_sub(UID)?)?;
    if !prefix.ends_with('-') {
        return None;
    }
    let groups: Vec<usize> = uid.split('-').map(str::len).collect();
    (groups == [8, 4, 4, 4, 12]).then_some(uid)
}

/// The claim as it is now; none when it is gone or another one has taken its name.
pub async fn read(host: &Host, claim: &Claim, volume_name: &str) -> Result<Option<HostClaim>> {
    let doing = format!("get claim {}/{}", claim.namespace, claim.name);
    let answer = claims(host, &claim.namespace).get(&claim.name).await;
    let found = cluster::read(answer, &claim.name).map_err(|error| unread(&doing, &error))?;
    let found = found.map(|claim| HostClaim::new(&claim));
    Ok(found.filter(|claim| uid_in_name(volume_name).is_none_or(|uid| uid == claim.uid)))
}

/// Writes down a choice that was made before anything was read, and reads the claim by that, as it was before. It is written only on the claim
/// that the volume is for, where that has neither a member on record, for whomever, nor a volume: what another process has chosen meanwhile
/// stays, and nothing comes of this where it arrives late. None where the claim has to be read first.
pub async fn record_unread(
    host: &Host,
    claim: &Claim,
    volume_name: &str,
    chosen: Chosen<'_>,
) -> Result<Option<HostClaim>> {
    let Some(uid) = uid_in_name(volume_name) else { return Ok(None) };
    let doing = format!("record member {} on claim {}/{}", chosen.member, claim.namespace, claim.name);
    let paths = [CHOSEN_MEMBER, CHOSEN_FOR, OWNERS].map(path_of);
    let ours = with_us_first(None).filter(|_| chosen.clustertree);
    let operations = first_record(uid, chosen.member, ours.as_deref(), &paths);
    match json_patch::send(claims(host, &claim.namespace), &claim.name, &operations).await {
        Ok(claim) => Ok(Some(HostClaim { member: None, ..HostClaim::new(&claim) })),
        // It is not there, or not as it has to be, or others write on it all the time.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(None),
        Err(error) => Err(unread(&doing, &error)),
    }
}

fn path_of(annotation: &str) -> String {
    format!("/metadata/annotations/{}", annotation.replace('/', "~1"))
}

fn first_record<'a>(
    uid: &'a str,
    member: &'a str,
    ours: Option<&'a str>,
    paths: &'a [String; 3],
) -> Vec<Operation<'a, Option<&'a str>>> {
    let [of_member, made_for, owners] = paths;
    let mut operations = vec![
        test("/metadata/uid", Some(uid)),
        test("/spec/volumeName", None),
        test(of_member, None),
        add(of_member, Some(member)),
        add(made_for, Some(uid)),
    ];
    if ours.is_some() {
        operations.extend([test(owners, None), add(owners, ours)]);
    }
    operations
}

/// Writes down the choice before anything is made, so that no later call can choose another member. Written only over
/// the version on which the choice was made: another process may have chosen as well.
pub async fn record_member(
    host: &Host,
    claim: &Claim,
    seen: &HostClaim,
    volume: &str,
    chosen: Chosen<'_>,
) -> Result<()> {
    let doing = format!("record member {} on claim {}/{}", chosen.member, claim.namespace, claim.name);
    let claims = claims(host, &claim.namespace);
    let (mut version, mut owners) = (seen.version.clone(), seen.owners.clone());
    for _ in 0..TRIES {
        let mut change = json!({"metadata": {
            "resourceVersion": version,
            "annotations": {CHOSEN_MEMBER: chosen.member, CHOSEN_FOR: seen.uid},
        }});
        if let Some(ours) = with_us_first(owners.as_deref()).filter(|_| chosen.clustertree) {
            change["metadata"]["annotations"][OWNERS] = json!(ours);
        }
        match claims.patch(&claim.name, &PatchParams::default(), &Patch::Merge(change)).await {
            Ok(_) => return Ok(()),
            Err(error) => match outcome(&doing, &error) {
                Error::NotFound(reason) => return Err(Error::InProgress(reason)),
                Error::InProgress(_) => {}
                other => return Err(other),
            },
        }
        match read(host, claim, volume).await? {
            Some(now) if now.member == seen.member => (version, owners) = (now.version, now.owners),
            _ => break,
        }
    }
    Err(Error::InProgress(format!("{doing}: the claim was changed meanwhile")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_on_record_counts_only_for_the_claim_it_was_chosen_for() {
        for (record, counts) in [
            (json!({CHOSEN_MEMBER: "m", CHOSEN_FOR: "u"}), true),
            (json!({CHOSEN_MEMBER: "m", CHOSEN_FOR: "of the claim in the backup"}), false),
            (json!({CHOSEN_MEMBER: "m"}), false),
            (json!({CHOSEN_FOR: "u"}), false),
        ] {
            let claim = serde_json::from_value(json!({"metadata": {"uid": "u", "annotations": record}})).unwrap();
            assert_eq!(chosen_member(&claim), counts.then_some("m"), "{record}");
        }
    }

    #[test]
    fn uid_is_read_only_from_names_that_carry_one() {
        let uid = "ad86ef86-23c1-407e-a8e7-0b3e44d36254";
        for prefix in ["pvc-", "kosmos-", "my-own-", "-"] {
            assert_eq!(uid_in_name(&format!("{prefix}{uid}")), Some(uid));
        }
        for name in ["pvc-", "pvc-1", "ad86ef86-23c1-407e-a8e7-0b3e44d36254", "sanity-controller-x"] {
            assert_eq!(uid_in_name(name), None, "{name}");
        }
    }
}
