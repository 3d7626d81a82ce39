//! Whose a host claim is in the eyes of clustertree, which runs the host's pods in members that Kosmos knows.
//!
//! It deletes and rewrites the leaf claim in the first cluster that a claim's annotation names, as soon as the host's claim
//! goes, whatever becomes of the volume. While a name stands first that is no cluster's, it leaves the leaf claim alone, and
//! adds its own behind.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::watcher::Event,
};
use serde_json::json;

use super::{Host, outcome, unread};
use cluster::{
    trimmed::{Reads, Trimmed},
    watch_one_by_one, with_causes,
};
use domain::error::{Error, Result};

pub(super) const OWNERS: &str = "kosmos-io/cluster-owners";
/// An underscore can be in no cluster's name.
const US: &str = "_kosmos-csi";

/// Who goes by whose a claim is.
#[derive(Clone, Debug)]
enum OfOwners {}

impl Reads for OfOwners {
    fn reads(key: &str) -> bool {
        key == OWNERS
    }
}

type OwnersClaim = Trimmed<PersistentVolumeClaim, OfOwners>;

/// A host claim, as far as that goes. Nothing of it may have any length: there may be very many that wait to be written.
#[derive(Clone, Debug)]
pub struct OwnedClaim {
    /// The host volume it is bound to.
    pub volume: Option<String>,
    /// Clustertree would take its leaf for its own.
    pub is_exposed: bool,
    namespace: String,
    name: String,
}

impl OwnedClaim {
    fn new(claim: &PersistentVolumeClaim) -> Self {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        Self {
            volume: volume.filter(|name| !name.is_empty()),
            is_exposed: with_us_first(owners_of(claim)).is_some(),
            namespace: claim.namespace().unwrap_or_default(),
            name: claim.name_any(),
        }
    }
}

fn owners_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.annotations().get(OWNERS).map(String::as_str)
}

/// The annotation as it should be; none where it is so.
pub(super) fn with_us_first(owners: Option<&str>) -> Option<String> {
    let names = owners.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<&str> = names.collect();
    if names.first() == Some(&US) {
        return None;
    }
    let others = names.into_iter().filter(|name| *name != US);
    Some(std::iter::once(US).chain(others).collect::<Vec<_>>().join(","))
}

/// Tells of every claim of the host, and then of each that changes, until it is dropped.
pub async fn follow_claims(host: &Host, tell: impl Fn(OwnedClaim)) {
    let claims = Api::<OwnersClaim>::all(host.client.clone());
    let take = |event: Event<OwnersClaim>| {
        if let Event::InitApply(claim) | Event::Apply(claim) = event {
            tell(OwnedClaim::new(&claim));
        }
    };
    let failed = |error: &kube::Error| {
        tracing::warn!(error = with_causes(error), "the host's claims cannot be watched");
    };
    watch_one_by_one(&host.client, &claims, None, take, failed).await;
}

/// Written only over the version that was read just now; where that has changed, news of it is on its way.
pub async fn protect(host: &Host, claim: &OwnedClaim) -> Result<()> {
    let claims = Api::<OwnersClaim>::namespaced(host.client.clone(), &claim.namespace);
    let now = cluster::read(claims.get(&claim.name).await, &claim.name);
    let now = now.map_err(|error| unread(&format!("get claim {}/{}", claim.namespace, claim.name), &error))?;
    let is_it = |now: &OwnersClaim| OwnedClaim::new(now).volume == claim.volume;
    let Some(now) = now.filter(is_it) else { return Ok(()) };
    let Some(owners) = with_us_first(owners_of(&now)) else { return Ok(()) };
    let change = json!({"metadata": {"resourceVersion": now.resource_version(), "annotations": {OWNERS: owners}}});
    let patched = claims.patch(&claim.name, &PatchParams::default(), &Patch::Merge(change)).await;
    match patched.map_err(|error| outcome(&format!("patch claim {}/{}", claim.namespace, claim.name), &error)) {
        Ok(_) | Err(Error::NotFound(_) | Error::InProgress(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_name_stands_first_and_no_other_name_is_lost() {
        for (before, after) in [
            (None, Some("_kosmos-csi")),
            (Some(""), Some("_kosmos-csi")),
            (Some("m1"), Some("_kosmos-csi,m1")),
            (Some("m1,_kosmos-csi, m2"), Some("_kosmos-csi,m1,m2")),
            (Some("_kosmos-csi"), None),
            (Some("_kosmos-csi,m1"), None),
        ] {
            assert_eq!(with_us_first(before).as_deref(), after, "{before:?}");
        }
    }
}
