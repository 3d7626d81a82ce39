//! The host volume: whether a name has one, and which leaf a handle was given out for.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, api::ListParams};

use super::{Host, outcome};
use crate::error::Result;

/// The attribute under which a host volume keeps the UID of its leaf claim.
pub const LEAF_UID: &str = "leafClaimUID";

impl Host {
    /// Whether the provisioner has written a volume of this name.
    pub async fn has_volume(&self, name: &str) -> Result<bool> {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let found = volumes.get_metadata_opt(name).await;
        Ok(found.map_err(|error| outcome(&format!("get volume {name}"), &error))?.is_some())
    }

    /// The leaf claim's UID that was given out with a handle. Reads all volumes: only for the rare case of a leaf that no
    /// longer carries our labels.
    pub async fn leaf_uid_of(&self, handle: &str) -> Result<Option<String>> {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let all = volumes.list(&ListParams::default()).await.map_err(|error| outcome("list volumes", &error))?;
        let sources = all.items.into_iter().filter_map(|volume| volume.spec?.csi);
        let ours = sources.into_iter().find(|source| source.volume_handle == handle);
        Ok(ours.and_then(|source| source.volume_attributes?.remove(LEAF_UID)))
    }
}
