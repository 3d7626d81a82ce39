//! The host volume: whether a name has one, and which leaf a handle was given out for.

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume};
use kube::{Api, api::ListParams};

use super::{Host, unread};
use crate::{cluster, error::Result, volume::DRIVER};

/// The attribute under which a host volume keeps the UID of its leaf claim.
pub const LEAF_UID: &str = "leafClaimUID";

pub const LEAF_VOLUME: &str = "leafVolume";

/// What the host's own record says of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenOut {
    pub claim_uid: String,
    /// The leaf volume's name.
    pub volume: String,
}

impl Host {
    /// Whether the host has a volume of this name, or one that was given this handle: then the leaf is not ours to remove.
    pub async fn uses(&self, name: &str, handle: &str) -> Result<bool> {
        Ok(self.has_volume(name).await? || self.volume_with(handle).await?.is_some())
    }

    pub async fn has_volume(&self, name: &str) -> Result<bool> {
        let answer = self.volumes().get_metadata(name).await;
        let named = cluster::read(answer, name).map_err(|error| unread(&format!("get volume {name}"), &error))?;
        Ok(named.is_some())
    }

    /// The leaf that was given out with a handle.
    pub async fn leaf_of(&self, handle: &str) -> Result<Option<GivenOut>> {
        let source = self.volume_with(handle).await?;
        Ok(source.and_then(|source| {
            let mut attributes = source.volume_attributes?;
            let volume = attributes.remove(LEAF_VOLUME).unwrap_or_default();
            Some(GivenOut { claim_uid: attributes.remove(LEAF_UID)?, volume })
        }))
    }

    /// The handle of a volume of this driver's.
    pub async fn handle_of(&self, name: &str) -> Result<Option<String>> {
        let answer = self.volumes().get(name).await;
        let found = cluster::read(answer, name).map_err(|error| unread(&format!("get volume {name}"), &error))?;
        let source = found.and_then(|volume| volume.spec?.csi);
        Ok(source.filter(|source| source.driver == DRIVER).map(|source| source.volume_handle))
    }

    /// Reads all volumes: only for rare cases.
    async fn volume_with(&self, handle: &str) -> Result<Option<CSIPersistentVolumeSource>> {
        let all = self.volumes().list(&ListParams::default()).await;
        let all = all.map_err(|error| unread("list volumes", &error))?;
        let mut sources = all.items.into_iter().filter_map(|volume| volume.spec?.csi);
        Ok(sources.find(|source| source.volume_handle == handle))
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }
}
