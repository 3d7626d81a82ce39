//! Whose a host claim is in the eyes of clustertree, which runs the host's pods in members that Kosmos knows.
//!
//! It deletes and rewrites the leaf claim in the first cluster that a claim's annotation names, as soon as the host's claim
//! goes, whatever becomes of the volume. While a name stands first that is no cluster's, it leaves the leaf claim alone, and
//! adds its own behind.

use std::future::ready;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use serde_json::json;

use super::{Host, outcome};
use cluster::{
    pauses,
    trimmed::{Reads, Trimmed},
    with_causes,
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

/// A host claim, as far as that goes.
#[derive(Clone, Debug)]
pub struct OwnedClaim {
    /// The host volume it is bound to.
    pub volume: Option<String>,
    namespace: String,
    name: String,
    version: String,
    owners: Option<String>,
}

impl OwnedClaim {
    fn new(claim: &PersistentVolumeClaim) -> Self {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        Self {
            volume: volume.filter(|name| !name.is_empty()),
            namespace: claim.namespace().unwrap_or_default(),
            name: claim.name_any(),
            version: claim.resource_version().unwrap_or_default(),
            owners: claim.annotations().get(OWNERS).cloned(),
        }
    }

    /// Clustertree would take its leaf for its own.
    pub fn is_exposed(&self) -> bool {
        with_us_first(self.owners.as_deref()).is_some()
    }
}

fn seen(event: Result<Event<OwnersClaim>, watcher::Error>) -> Option<OwnedClaim> {
    match event {
        Ok(Event::InitApply(claim) | Event::Apply(claim)) => Some(OwnedClaim::new(&claim)),
        Ok(Event::Init | Event::InitDone | Event::Delete(_)) => None,
        Err(error) => {
            tracing::warn!(error = with_causes(&error), "the host's claims cannot be watched");
            None
        }
    }
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

/// Every claim of the host, and then each that changes. Ends never.
pub fn owned_claims(host: &Host) -> impl Stream<Item = OwnedClaim> + Send + use<> {
    let claims = Api::<OwnersClaim>::all(host.client.clone());
    let events = watcher(claims, watcher::Config::default()).backoff(ExponentialBackoff::from(pauses()));
    events.filter_map(|event| ready(seen(event)))
}

/// Written only over the version that was seen; where that has changed, news of it is on its way.
pub async fn protect(host: &Host, claim: &OwnedClaim) -> Result<()> {
    let Some(owners) = with_us_first(claim.owners.as_deref()) else { return Ok(()) };
    let change = json!({"metadata": {"resourceVersion": claim.version, "annotations": {OWNERS: owners}}});
    let claims = Api::<OwnersClaim>::namespaced(host.client.clone(), &claim.namespace);
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
