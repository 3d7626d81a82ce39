//! The leaf volume: marked as ours once it is bound, read to be handed on, and proved gone at the end.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Cluster, ownership, rows::VolumeRow};
use crate::{
    error::{Error, Result},
    volume::VolumeHash,
};

impl Cluster {
    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Puts our labels on the volume that is bound to this claim, and reads it in the same request.
    /// One that carries them already is known from the watch.
    pub async fn label_volume(&self, name: &str, hash: VolumeHash, claim_uid: &str) -> Result<VolumeRow> {
        let known = self.rows.row(hash).and_then(|row| row.volume);
        if let Some(volume) = known.filter(|volume| *volume.name == *name && *volume.claim_uid == *claim_uid) {
            return Ok(volume);
        }
        let labels = ownership::labels(&self.host, hash);
        let volume = self.patch_volume(name, &json!({"metadata": {"labels": labels}}), "label").await?;
        let volume = VolumeRow::new(&volume);
        if *volume.claim_uid == *claim_uid {
            return Ok(volume);
        }
        let reason = format!("member {}: leaf volume {name} is not bound to the leaf claim yet", self.member);
        Err(Error::InProgress(reason))
    }

    /// The host deletes, so the leaf volume must not outlive its claim.
    pub async fn make_deletable(&self, name: &str, uid: &str) -> Result<()> {
        let change = json!({"metadata": {"uid": uid}, "spec": {"persistentVolumeReclaimPolicy": "Delete"}});
        match self.patch_volume(name, &change, "make deletable").await {
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Believed only after this read: a watch also says "deleted" when somebody strips a label.
    pub async fn volume_is_gone(&self, name: &str, uid: Option<&str>) -> Result<bool> {
        let found = self.volumes().get_metadata_opt(name).await;
        let found = found.map_err(|error| self.outcome(&format!("get volume {name}"), &error))?;
        Ok(found.is_none_or(|volume| uid.is_some() && volume.metadata.uid.as_deref() != uid))
    }

    async fn patch_volume(&self, name: &str, change: &Value, what: &str) -> Result<PersistentVolume> {
        let patched = self.volumes().patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
        let volume = patched.map_err(|error| self.outcome(&format!("{what} volume {name}"), &error))?;
        self.rows.put_volume(&volume);
        Ok(volume)
    }
}
