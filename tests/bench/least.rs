//! The least that a driver can do that gives claims of a member: it makes one, waits in one watch with all who wait, and
//! answers. Or it watches nothing and answers before, or marks the volume besides, to know it again. It is a process with a
//! socket, asked and measured as any other, and has as many requests under way as the driver beside which it stands.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use clap::ValueEnum;
use csi::v1::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, CreateVolumeRequest, CreateVolumeResponse,
    DeleteVolumeRequest, DeleteVolumeResponse, GetPluginInfoRequest, GetPluginInfoResponse, Volume,
    controller_server::{Controller, ControllerServer},
    controller_service_capability::rpc::Type,
    identity_server::{Identity, IdentityServer},
};
use futures::stream;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use leaf::trimmed::Trimmed;
use serde_json::{Value, json};
use tokio::{net::UnixListener, sync::Semaphore};
use tonic::{Request, Response, Status, transport::Server};

use super::{
    CLASS,
    again::answered,
    clusters::kubernetes,
    seen::{self, Seen},
};

const NAME: &str = "least.kosmos-csi.test";
/// As the driver bounds its own requests to a cluster: so many, of which so many begin something.
const UNDER_WAY: usize = 32;
const BEGINNING: usize = 24;
const CALLS_AT_ONCE: u32 = 10_000;

/// When it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    Accepted,
    Bound,
    Marked,
}

struct Least {
    client: Client,
    seen: Seen,
    until: Until,
    under_way: Semaphore,
    beginning: Semaphore,
}

/// As a process of its own, until it is killed.
pub async fn process(socket: &Path, kubeconfig: &Path, until: Until) -> Result<()> {
    let (client, seen) = (kubernetes::client(kubeconfig).await?, Seen::default());
    // Who waits for nothing reads nothing of what becomes of it.
    if until != Until::Accepted {
        tokio::spawn(seen.clone().follow(client.clone()));
    }
    let (under_way, beginning) = (Semaphore::new(UNDER_WAY), Semaphore::new(BEGINNING));
    let least = Arc::new(Least { client, seen, until, under_way, beginning });
    let listener = UnixListener::bind(socket).with_context(|| format!("serve {}", socket.display()))?;
    let callers =
        stream::unfold(listener, async |listener| Some((listener.accept().await.map(|(stream, _)| stream), listener)));
    Server::builder()
        .max_concurrent_streams(CALLS_AT_ONCE)
        .add_service(IdentityServer::from_arc(Arc::clone(&least)))
        .add_service(ControllerServer::from_arc(least))
        .serve_with_incoming(callers)
        .await
        .context("serve")
}

impl Least {
    async fn create(&self, request: &CreateVolumeRequest) -> Result<Volume> {
        let told =
            |key: &str| request.parameters.get(&format!("csi.storage.k8s.io/{key}")).context("whose claim is it?");
        let (namespace, name) = (told("pvc/namespace")?, told("pvc/name")?);
        let labels = json!({"app.kubernetes.io/managed-by": NAME, "bench.kosmos-csi.test/volume": request.name,
            "bench.kosmos-csi.test/host": "6a2f8d1e-5f0c-4f0a-9c57-3f3c0d4c5b1a"});
        let claim = Trimmed::of(serde_json::from_value(manifest(request, name, &labels))?);
        let place = format!("{namespace}/{name}");
        let is_bound = (self.until != Until::Accepted).then(|| self.seen.bound(&place));
        let (claims, create) = (self.claims(namespace), PostParams::default());
        let made = {
            let _beginning = self.beginning.acquire().await?;
            let _place = self.under_way.acquire().await?;
            match answered(|| claims.create(&create, &claim)).await {
                Err(kube::Error::Api(status)) if status.code == 409 => answered(|| claims.get(name)).await?,
                made => made?,
            }
        };
        // Asked for again, it may be so already, and no watch says it twice.
        if let Some(is_bound) = is_bound
            && !seen::is_bound(&made)
        {
            is_bound.await.context("wait until it is bound")?;
        }
        if self.until == Until::Marked {
            let (volume, patch) = (format!("pvc-{}", made.uid().unwrap_or_default()), PatchParams::default());
            let volumes = Api::<Trimmed<PersistentVolume>>::all(self.client.clone());
            let labelled = Patch::Merge(json!({"metadata": {"labels": labels}}));
            let _place = self.under_way.acquire().await?;
            answered(|| volumes.patch(&volume, &patch, &labelled)).await?;
        }
        Ok(Volume { volume_id: place, capacity_bytes: 1 << 30, ..Volume::default() })
    }

    /// And waits until the claim has gone, where it waits.
    async fn delete(&self, volume: &str) -> Result<()> {
        let (namespace, name) = volume.split_once('/').context("a handle has two parts")?;
        let is_gone = (self.until != Until::Accepted).then(|| self.seen.gone(volume));
        let (claims, delete) = (self.claims(namespace), DeleteParams::default());
        let place = self.under_way.acquire().await?;
        match answered(|| claims.delete(name, &delete)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            deleted => drop(deleted?),
        }
        drop(place);
        match is_gone {
            Some(is_gone) => is_gone.await.context("wait until it has gone"),
            None => Ok(()),
        }
    }

    fn claims(&self, namespace: &str) -> Api<Trimmed<PersistentVolumeClaim>> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// As long as those that the driver makes.
fn manifest(request: &CreateVolumeRequest, name: &str, labels: &Value) -> Value {
    let asked = json!({"required": 1_u64 << 30, "limit": 0, "access": ["ReadWriteOnce"], "mode": "Filesystem",
        "parameters": {"leafStorageClass": CLASS}});
    let annotations =
        json!({"bench.kosmos-csi.test/request": asked.to_string(), "bench.kosmos-csi.test/name": request.name});
    json!({
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn refused(error: &anyhow::Error) -> Status {
    Status::internal(format!("{error:#}"))
}

#[tonic::async_trait]
impl Controller for Least {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let volume = self.create(request.get_ref()).await.map_err(|error| refused(&error))?;
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        self.delete(&request.get_ref().volume_id).await.map_err(|error| refused(&error))?;
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capabilities = [Type::CreateDeleteVolume, Type::SingleNodeMultiWriter].map(Into::into).to_vec();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }
}

#[tonic::async_trait]
impl Identity for Least {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse { name: NAME.to_owned(), ..GetPluginInfoResponse::default() }))
    }
}
