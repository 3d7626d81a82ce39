//! Claims and volumes that were there before the driver, as far as it may use them: they are read, and removed only where
//! their own policy says so. They get neither labels nor a finalizer.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt};

use super::MemberClient;
use domain::error::Result;

/// The volume behind an imported claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedVolume {
    pub name: String,
    pub uid: String,
    /// It goes with its claim, by the member's own policy.
    pub deletes: bool,
    claim_uid: String,
}

impl ImportedVolume {
    fn new(volume: &PersistentVolume) -> Self {
        let spec = volume.spec.as_ref();
        let claim_uid = spec.and_then(|spec| spec.claim_ref.as_ref()?.uid.clone());
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        Self {
            name: volume.name_any(),
            uid: volume.uid().unwrap_or_default(),
            deletes: policy == Some("Delete"),
            claim_uid: claim_uid.unwrap_or_default(),
        }
    }

    pub fn is_bound_to(&self, claim_uid: &str) -> bool {
        !claim_uid.is_empty() && self.claim_uid == claim_uid
    }
}

pub async fn read(client: &MemberClient, volume: &str) -> Result<Option<ImportedVolume>> {
    let answer = Api::<PersistentVolume>::all(client.client.clone()).get(volume).await;
    let doing = format!("get volume {volume}");
    let found = cluster::read(answer, volume).map_err(|error| client.outcome(&doing, &error))?;
    Ok(found.as_ref().map(ImportedVolume::new))
}
