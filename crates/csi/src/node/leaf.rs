//! The member's own storage driver on this node: found as its kubelet finds it, asked what it can, and called with what is
//! the leaf volume's. What it answers becomes an outcome of ours in one place.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use tonic::{
    Code, Request, Response, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    registration::{InfoRequest, RegistrationClient},
    v1::{
        self, GetPluginInfoRequest, NodeGetCapabilitiesRequest, VolumeCapability,
        identity_client::IdentityClient,
        node_client::NodeClient,
        node_service_capability::{Type as Kind, rpc::Type},
        volume_capability::{AccessType, access_mode::Mode},
    },
};
use domain::{
    error::{Error, Result},
    volume::{backing::CsiLeaf, id::is_subdomain},
};

/// What is asked of a driver before the call itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// A leaf driver may check and format a disk; whoever waits is answered earlier.
const LONGEST_CALL: Duration = Duration::from_mins(10);
/// What a kubelet adds about the pod for drivers that ask for it. No member says it: a driver that gives the pod what its account
/// may have would go by it.
const POD_INFO: &str = "csi.storage.k8s.io/";

/// The drivers of this node.
#[derive(Clone, Debug)]
pub(super) struct Leaves {
    pub(super) kubelet_dir: PathBuf,
}

/// One of them, for one volume.
#[derive(Debug)]
pub(super) struct Leaf {
    volume: CsiLeaf,
    node: NodeClient<Channel>,
    can: Vec<Type>,
}

impl Leaves {
    /// The driver of a leaf volume, as it answers now.
    pub(super) async fn driver_of(&self, volume: CsiLeaf) -> Result<Leaf> {
        if !is_subdomain(&volume.driver) {
            return Err(Error::Invalid(format!("publish_context: {:?} is no name of a CSI driver", volume.driver)));
        }
        tracing::debug!(driver = volume.driver, "the leaf driver is asked");
        let (socket, channel) = self.find(&volume.driver).await?;
        let say = |status: Status| outcome(&volume.driver, "NodeGetCapabilities", &status);
        let mut node = NodeClient::new(channel);
        let answer = node.node_get_capabilities(within(NodeGetCapabilitiesRequest {}, PATIENCE)).await.map_err(say)?;
        let capabilities = answer.into_inner().capabilities.into_iter();
        let can = capabilities.filter_map(|capability| capability.r#type.map(|Kind::Rpc(rpc)| rpc.r#type()));
        let can: Vec<Type> = can.collect();
        tracing::debug!(driver = volume.driver, socket = %socket.display(), ?can, "the leaf driver answers");
        Ok(Leaf { volume, node, can })
    }

    /// Where the driver said to the kubelet that it is, else where drivers are by custom.
    async fn find(&self, driver: &str) -> Result<(PathBuf, Channel)> {
        let registered = self.registered(driver).await;
        let customary = self.kubelet_dir.join("plugins").join(driver).join("csi.sock");
        for socket in registered.into_iter().chain([customary]) {
            if let Some(channel) = self.answers(driver, &socket).await {
                return Ok((socket, channel));
            }
        }
        Err(Error::InProgress(format!(
            "the member's storage driver {driver} does not answer on this node: neither a socket in {} nor \
             plugins/{driver}/csi.sock beside it belongs to that driver. Install that driver's node plugin on this \
             node, or keep pods with its volumes off this node",
            self.kubelet_dir.join("plugins_registry").display()
        )))
    }

    /// By the registration sockets, the one that bears its name first.
    async fn registered(&self, driver: &str) -> Option<PathBuf> {
        let folder = self.kubelet_dir.join("plugins_registry");
        let mut sockets: Vec<PathBuf> =
            std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        sockets.sort_by_key(|socket| !socket.to_string_lossy().contains(driver));
        for socket in sockets.into_iter().filter(|socket| socket.extension().is_some_and(|ending| ending == "sock")) {
            let Ok(channel) = channel(&socket) else { continue };
            let asked = RegistrationClient::new(channel).get_info(within(InfoRequest {}, PATIENCE)).await;
            match asked.map(Response::into_inner) {
                Ok(info) if info.name == driver => return Some(PathBuf::from(info.endpoint)),
                _ => {}
            }
        }
        None
    }

    /// Whether the driver of this name is what answers on a socket.
    async fn answers(&self, driver: &str, socket: &std::path::Path) -> Option<Channel> {
        let channel = channel(socket).ok()?;
        let asked =
            IdentityClient::new(channel.clone()).get_plugin_info(within(GetPluginInfoRequest {}, PATIENCE)).await;
        (asked.ok()?.into_inner().name == driver).then_some(channel)
    }
}

impl Leaf {
    pub(super) fn can(&self, what: Type) -> bool {
        self.can.contains(&what)
    }

    pub(super) async fn stage(mut self, request: v1::NodeStageVolumeRequest, options: &[String]) -> Result<()> {
        if !self.can(Type::StageUnstageVolume) {
            return Ok(());
        }
        let request = v1::NodeStageVolumeRequest {
            volume_id: self.volume.handle.clone(),
            publish_context: own(&self.volume.context),
            volume_capability: request.volume_capability.map(|capability| self.capability(capability, options)),
            volume_context: self.context(&request.volume_context),
            ..request
        };
        let answer = self.node.node_stage_volume(within(request, LONGEST_CALL)).await;
        self.ended("NodeStageVolume", answer).map(drop)
    }

    pub(super) async fn unstage(mut self, staging: String) -> Result<()> {
        if !self.can(Type::StageUnstageVolume) {
            return Ok(());
        }
        let request =
            v1::NodeUnstageVolumeRequest { volume_id: self.volume.handle.clone(), staging_target_path: staging };
        let answer = self.node.node_unstage_volume(within(request, LONGEST_CALL)).await;
        self.undone("NodeUnstageVolume", answer)
    }

    /// Whether the driver has given the volume's files to the pod's group, where there is one.
    pub(super) async fn publish(
        mut self,
        request: v1::NodePublishVolumeRequest,
        options: &[String],
        readonly: bool,
    ) -> Result<bool> {
        let staged = self.can(Type::StageUnstageVolume);
        let request = v1::NodePublishVolumeRequest {
            volume_id: self.volume.handle.clone(),
            publish_context: own(&self.volume.context),
            staging_target_path: if staged { request.staging_target_path } else { String::new() },
            volume_capability: request.volume_capability.map(|capability| self.capability(capability, options)),
            volume_context: self.context(&request.volume_context),
            readonly: request.readonly || readonly,
            ..request
        };
        let answer = self.node.node_publish_volume(within(request, LONGEST_CALL)).await;
        self.ended("NodePublishVolume", answer)?;
        Ok(self.can(Type::VolumeMountGroup))
    }

    pub(super) async fn unpublish(mut self, target: String) -> Result<()> {
        let request = v1::NodeUnpublishVolumeRequest { volume_id: self.volume.handle.clone(), target_path: target };
        let answer = self.node.node_unpublish_volume(within(request, LONGEST_CALL)).await;
        self.undone("NodeUnpublishVolume", answer)
    }

    pub(super) async fn usage(
        mut self,
        request: v1::NodeGetVolumeStatsRequest,
    ) -> Result<v1::NodeGetVolumeStatsResponse> {
        let request = v1::NodeGetVolumeStatsRequest { volume_id: self.volume.handle.clone(), ..request };
        let answer = self.node.node_get_volume_stats(within(request, LONGEST_CALL)).await;
        self.ended("NodeGetVolumeStats", answer)
    }

    pub(super) async fn expand(mut self, request: v1::NodeExpandVolumeRequest) -> Result<i64> {
        if !self.can(Type::ExpandVolume) {
            return Ok(0);
        }
        let request = v1::NodeExpandVolumeRequest {
            volume_id: self.volume.handle.clone(),
            volume_capability: request.volume_capability.map(|capability| self.capability(capability, &[])),
            ..request
        };
        let answer = self.node.node_expand_volume(within(request, LONGEST_CALL)).await;
        Ok(self.ended("NodeExpandVolume", answer)?.capacity_bytes)
    }

    pub(super) async fn health(mut self, request: v1::NodeGetVolumeHealthRequest) -> Result<Option<v1::VolumeHealth>> {
        let request = v1::NodeGetVolumeHealthRequest { volume_id: self.volume.handle.clone(), ..request };
        let answer = self.node.node_get_volume_health(within(request, LONGEST_CALL)).await;
        Ok(self.ended("NodeGetVolumeHealth", answer)?.volume_health)
    }

    /// As the leaf volume's own kubelet would say it.
    fn capability(&self, mut capability: VolumeCapability, options: &[String]) -> VolumeCapability {
        if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
            if !self.volume.filesystem.is_empty() {
                mount.fs_type.clone_from(&self.volume.filesystem);
            }
            mount.mount_flags.splice(0..0, options.iter().cloned());
            if !self.can(Type::VolumeMountGroup) {
                mount.volume_mount_group.clear();
            }
        }
        if let Some(access) = &mut capability.access_mode
            && !self.can(Type::SingleNodeMultiWriter)
            && matches!(access.mode(), Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter)
        {
            access.set_mode(Mode::SingleNodeWriter);
        }
        capability
    }

    fn context(&self, given: &HashMap<String, String>) -> HashMap<String, String> {
        let pod = given.iter().filter(|(key, _)| key.starts_with(POD_INFO));
        let mut context = own(&self.volume.attributes);
        context.extend(pod.map(|(key, value)| (key.clone(), value.clone())));
        context
    }

    fn ended<T>(&self, method: &str, answer: Result<Response<T>, Status>) -> Result<T> {
        answer.map(Response::into_inner).map_err(|status| outcome(&self.volume.driver, method, &status))
    }

    /// What is not there needs no undoing.
    fn undone<T>(&self, method: &str, answer: Result<Response<T>, Status>) -> Result<()> {
        match answer {
            Err(status) if status.code() != Code::NotFound => Err(outcome(&self.volume.driver, method, &status)),
            _ => Ok(()),
        }
    }
}

/// What the member says of its volume.
fn own(map: &std::collections::BTreeMap<String, String>) -> HashMap<String, String> {
    map.iter().filter(|(key, _)| !key.starts_with(POD_INFO)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn channel(socket: &std::path::Path) -> Result<Channel, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("unix://{}", socket.display()))?.connect_lazy())
}

fn within<T>(message: T, patience: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(patience);
    request
}

/// A leaf driver's answer as an outcome of ours. Where it does not say that nothing was done, something may have been.
fn outcome(driver: &str, method: &str, status: &Status) -> Error {
    let text = format!("{method} of the member's storage driver {driver}: {:?}: {}", status.code(), status.message());
    match status.code() {
        Code::InvalidArgument => Error::Invalid(text),
        Code::OutOfRange => Error::OutOfRange(text),
        Code::NotFound => Error::NotFound(text),
        Code::AlreadyExists => Error::Exists(text),
        Code::FailedPrecondition | Code::Unimplemented => Error::Refused(text),
        Code::ResourceExhausted => Error::NoPlace(text),
        Code::PermissionDenied | Code::Unauthenticated => Error::Denied(text),
        _ => Error::InProgress(text),
    }
}

#[cfg(test)]
mod tests;
