//! The calls about one volume: the machine does its part first, then asks for the leaf driver where the volume is its.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use tokio::time::Instant;
use tracing::Span;

use super::{
    Node,
    convert::{self, path, volume_use},
};
use crate::{
    convert::missing,
    v1::{self, node_get_storage_health_response::StorageBackendHealth, node_service_capability::rpc::Type},
};
use domain::{
    error::{Error, Result},
    volume::{
        VolumeId,
        backing::{Attached, Backing, CsiLeaf},
    },
};
use mount::{Expanded, Linux, Machine, Progress};

impl Node {
    pub(super) async fn stage(
        &self,
        answer_by: Instant,
        request: v1::NodeStageVolumeRequest,
    ) -> Result<v1::NodeStageVolumeResponse> {
        let volume = named(&request.volume_id)?;
        let staging = path("staging_target_path", &request.staging_target_path)?;
        let way = volume_use(request.volume_capability.as_ref())?;
        let attached = self.attached(&request.publish_context, &volume)?;
        let (machine, leaves, id) = (Arc::clone(&self.machine), self.leaves.clone(), volume.clone());
        let work = async move {
            let (options, at, asked) = (attached.options.clone(), staging.clone(), id.clone());
            let before = blocking(&machine, move |machine| machine.record(&asked)).await?;
            let Progress::Ask(leaf) =
                blocking(&machine, move |machine| mount::stage::stage(machine, &attached, &at, &way)).await?
            else {
                return Ok(());
            };
            let staged = async { leaves.driver_of(leaf).await?.stage(request, &options).await }.await;
            // What was there before this call may be in use.
            if before.is_none() && staged.as_ref().is_err_and(Error::is_final) {
                blocking(&machine, move |machine| mount::undo::refused(machine, &id, &staging)).await?;
            }
            staged
        };
        self.works.run(&volume, answer_by, work).await?;
        Ok(v1::NodeStageVolumeResponse {})
    }

    pub(super) async fn unstage(
        &self,
        answer_by: Instant,
        request: v1::NodeUnstageVolumeRequest,
    ) -> Result<v1::NodeUnstageVolumeResponse> {
        let volume = named(&request.volume_id)?;
        let staging = path("staging_target_path", &request.staging_target_path)?;
        let (machine, leaves, id) = (Arc::clone(&self.machine), self.leaves.clone(), volume.clone());
        let work = async move {
            let (at, again) = (staging.clone(), id.clone());
            if let Progress::Ask(leaf) =
                blocking(&machine, move |machine| mount::undo::unstage(machine, &id, &at)).await?
            {
                leaves.driver_of(leaf).await?.unstage(request.staging_target_path).await?;
                blocking(&machine, move |machine| mount::undo::unstaged(machine, &again, &staging)).await?;
            }
            Ok(())
        };
        self.works.run(&volume, answer_by, work).await?;
        Ok(v1::NodeUnstageVolumeResponse {})
    }

    pub(super) async fn publish(
        &self,
        answer_by: Instant,
        request: v1::NodePublishVolumeRequest,
    ) -> Result<v1::NodePublishVolumeResponse> {
        let volume = named(&request.volume_id)?;
        let target = path("target_path", &request.target_path)?;
        let way = volume_use(request.volume_capability.as_ref())?;
        let attached = self.attached(&request.publish_context, &volume)?;
        let (machine, leaves, id) = (Arc::clone(&self.machine), self.leaves.clone(), volume.clone());
        let work = async move {
            let (staging, at, wanted) = (PathBuf::from(&request.staging_target_path), target.clone(), way.clone());
            let (options, readonly, reads) = (attached.options.clone(), attached.readonly, request.readonly);
            let asked = id.clone();
            let before = blocking(&machine, move |machine| machine.record(&asked)).await?;
            let is_new = before.is_none_or(|record| !record.targets.contains_key(&target));
            let publish = move |machine: &Machine<Linux>| {
                mount::publish::publish(machine, &attached, &staging, &at, &wanted, reads)
            };
            let leaf = match blocking(&machine, publish).await? {
                Progress::Ask(leaf) => leaf,
                Progress::Done => return Ok(()),
                Progress::Kept(files) => {
                    say_kept(files);
                    return Ok(());
                }
            };
            let given = async { leaves.driver_of(leaf).await?.publish(request, &options, readonly).await }.await;
            match given {
                Ok(true) => Ok(()),
                Ok(false) => {
                    let owned = blocking(&machine, move |machine| mount::publish::own(machine, &id, &target)).await;
                    // It is published, so this is not the end.
                    owned.map(say_kept).map_err(Error::while_a_leaf_may_exist)
                }
                Err(error) => {
                    if is_new && error.is_final() {
                        blocking(&machine, move |machine| mount::undo::refused_at(machine, &id, &target)).await?;
                    }
                    Err(error)
                }
            }
        };
        self.works.run(&volume, answer_by, work).await?;
        Ok(v1::NodePublishVolumeResponse {})
    }

    pub(super) async fn unpublish(
        &self,
        answer_by: Instant,
        request: v1::NodeUnpublishVolumeRequest,
    ) -> Result<v1::NodeUnpublishVolumeResponse> {
        let volume = named(&request.volume_id)?;
        let target = path("target_path", &request.target_path)?;
        let (machine, leaves, id) = (Arc::clone(&self.machine), self.leaves.clone(), volume.clone());
        let work = async move {
            let (at, again) = (target.clone(), id.clone());
            if let Progress::Ask(leaf) =
                blocking(&machine, move |machine| mount::undo::unpublish(machine, &id, &at)).await?
            {
                leaves.driver_of(leaf).await?.unpublish(request.target_path).await?;
                blocking(&machine, move |machine| mount::undo::unpublished(machine, &again, &target)).await?;
            }
            Ok(())
        };
        self.works.run(&volume, answer_by, work).await?;
        Ok(v1::NodeUnpublishVolumeResponse {})
    }

    pub(super) async fn expand(
        &self,
        answer_by: Instant,
        request: v1::NodeExpandVolumeRequest,
    ) -> Result<v1::NodeExpandVolumeResponse> {
        let volume = named(&request.volume_id)?;
        let at = path("volume_path", &request.volume_path)?;
        let required = request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
        let required = u64::try_from(required).unwrap_or_default();
        let (machine, leaves, id) = (Arc::clone(&self.machine), self.leaves.clone(), volume.clone());
        let work = async move {
            match blocking(&machine, move |machine| mount::measure::expand(machine, &id, &at, required)).await? {
                Expanded::To(bytes) => Ok(i64::try_from(bytes).unwrap_or(i64::MAX)),
                Expanded::Ask(leaf) => leaves.driver_of(leaf).await?.expand(request).await,
            }
        };
        let capacity_bytes = self.works.run(&volume, answer_by, work).await?;
        Ok(v1::NodeExpandVolumeResponse { capacity_bytes })
    }

    pub(super) async fn usage(
        &self,
        answer_by: Instant,
        request: v1::NodeGetVolumeStatsRequest,
    ) -> Result<v1::NodeGetVolumeStatsResponse> {
        let volume = named(&request.volume_id)?;
        let at = path("volume_path", &request.volume_path)?;
        let (machine, leaves, id) = (Arc::clone(&self.machine), self.leaves.clone(), volume.clone());
        let work = async move {
            if let Some(leaf) = leaf_of(&machine, id.clone()).await? {
                let leaf = leaves.driver_of(leaf).await?;
                if leaf.can(Type::GetVolumeStats) {
                    return leaf.usage(request).await;
                }
            }
            Ok(convert::usage(&blocking(&machine, move |machine| mount::measure::usage(machine, &id, &at)).await?))
        };
        self.looks.run(&volume, answer_by, work).await
    }

    pub(super) async fn health(
        &self,
        answer_by: Instant,
        request: v1::NodeGetVolumeHealthRequest,
    ) -> Result<v1::NodeGetVolumeHealthResponse> {
        let volume = named(&request.volume_id)?;
        let (machine, leaves, id) = (Arc::clone(&self.machine), self.leaves.clone(), volume.clone());
        let work = async move {
            let asked = id.clone();
            let troubles = blocking(&machine, move |machine| mount::measure::health(machine, &asked)).await?;
            let mut health = convert::health(id.clone(), troubles);
            if let Some(leaf) = leaf_of(&machine, id).await? {
                let leaf = leaves.driver_of(leaf).await?;
                if leaf.can(Type::GetVolumeHealth) {
                    let theirs = leaf.health(request).await?;
                    health.health_statuses.extend(theirs.into_iter().flat_map(|theirs| theirs.health_statuses));
                }
            }
            Ok(health)
        };
        let health = self.looks.run(&format!("the health of {volume}"), answer_by, work).await?;
        Ok(v1::NodeGetVolumeHealthResponse { volume_health: Some(health) })
    }

    /// What the controller has handed over; for a volume that this node can use at all.
    fn attached(&self, context: &HashMap<String, String>, volume: &str) -> Result<Attached> {
        let id = VolumeId::parse(volume).ok_or_else(|| Error::NotFound(format!("there is no volume {volume:?}")))?;
        let member = &id.member;
        if *member != self.info.member {
            return Err(Error::Refused(format!(
                "volume {volume} is in member {member}, and this node ({}) is set up with --member {}: a pod that uses \
                 the volume must go to a node of its member. If both names mean one cluster, a node whose plugin has \
                 --member {member} can use it",
                self.info.name, self.info.member
            )));
        }
        Attached::parse(&context.clone().into_iter().collect(), volume)
    }

    /// The leaf drivers whose volumes are here, as they answer now.
    pub(super) async fn storage_health(&self) -> Result<v1::NodeGetStorageHealthResponse> {
        let drivers = blocking(&self.machine, Machine::leaf_drivers).await?;
        let mut backend_health = Vec::new();
        for driver in drivers {
            if let Err(error) = self.leaves.driver_of(CsiLeaf { driver, ..CsiLeaf::default() }).await {
                backend_health.push(StorageBackendHealth {
                    status: v1::StorageHealthErrorType::StorageUnreachable.into(),
                    reason: "LeafDriverSilent".to_owned(),
                    message: error.to_string(),
                    volume_capability: None,
                });
            }
        }
        Ok(v1::NodeGetStorageHealthResponse { backend_health })
    }
}

fn say_kept(files: u64) {
    if files > 0 {
        tracing::warn!(
            files,
            "this node could not give all files to the pod's group (fsGroup), for example because an NFS server maps \
             root to nobody (root_squash), the filesystem can only be read, or a file is immutable: the pod has those \
             files as they are"
        );
    }
}

fn named(volume: &str) -> Result<String> {
    if volume.is_empty() {
        return Err(missing("volume_id"));
    }
    Span::current().record("volume.id", volume);
    Ok(volume.to_owned())
}

/// The leaf volume behind a volume, where it is a CSI driver's.
async fn leaf_of(machine: &Arc<Machine<Linux>>, volume: String) -> Result<Option<CsiLeaf>> {
    let record = blocking(machine, move |machine| machine.record(&volume)).await?;
    match record.map(|record| record.attached.backing) {
        Some(Backing::Csi(leaf)) => Ok(Some(leaf)),
        _ => Ok(None),
    }
}

/// A call to the kernel, on a thread of its own.
pub async fn blocking<T: Send + 'static>(
    machine: &Arc<Machine<Linux>>,
    call: impl FnOnce(&Machine<Linux>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let machine = Arc::clone(machine);
    let task = tokio::task::spawn_blocking(move || call(&machine));
    task.await.unwrap_or_else(|failed| Err(Error::InProgress(format!("a call to the kernel failed: {failed}"))))
}
