//! What is read and written in the host: the claims volumes are made for, their volumes and pods, and which member is
//! which cluster.
//!
//! Its page: `docs/design/clusters.md`.

pub mod access;
pub mod attachments;
pub mod claim;
pub mod class;
pub mod events;
pub mod identity;
pub mod lately;
pub mod moves;
pub mod node;
pub mod owners;
pub mod pins;
pub mod pod;
pub mod replacement;
pub mod secret;
pub mod shared_handles;
pub mod snapshot;
pub mod volume;
pub mod volumes;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Client, Resource, ResourceExt,
    api::GetParams,
    core::{PartialObjectMeta, Request},
};

use cluster::{Origin, WhoAnswers, with_causes};
use domain::{
    error::{Error, Result},
    volume::{HostId, id::is_uid},
};
use identity::Identity;

/// For an answer to arrive whole.
const PATIENCE: Duration = Duration::from_secs(5);

/// The host cluster.
#[derive(Clone)]
pub struct Host {
    pub id: HostId,
    /// The UID of its own `kube-system` namespace.
    pub cluster: Arc<str>,
    pub client: Client,
    /// The driver's own namespace.
    pub namespace: String,
    recent: Arc<events::Recent>,
    pub lately: Arc<lately::RecentEvents>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Host").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Host {
    pub async fn connect(client: Client, namespace: String) -> Result<Self> {
        let Identity { id, cluster } = Identity::read(&client, &namespace).await?;
        Ok(Self { id, cluster: cluster.into(), client, namespace, recent: Arc::default(), lately: Arc::default() })
    }
}

const NO_UID: &str = "it does not say who it is: the UID of its namespace kube-system is not a UID";

/// A cluster is who its `kube-system` namespace says it is.
pub async fn identity(client: &Client) -> Result<String, kube::Error> {
    identity_and_origin(client).await.map(|(identity, _)| identity)
}

/// The same, with what tells its other answers from those of other clusters.
pub async fn identity_and_origin(client: &Client) -> Result<(String, Origin), kube::Error> {
    let request = Request::new(Namespace::url_path(&(), None)).get_metadata("kube-system", &GetParams::default());
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    let who_answers = WhoAnswers::on(&mut request);
    let answer = tokio::time::timeout(PATIENCE, client.request::<PartialObjectMeta<Namespace>>(request)).await;
    let unclear = |what: &str| kube::Error::Service(what.into());
    let namespace = answer.map_err(|_| unclear("its answer does not end"))??;
    // It would be written into the record of all members.
    let uid = namespace.uid().filter(|uid| is_uid(uid)).ok_or_else(|| unclear(NO_UID))?;
    Ok((uid, who_answers.origin()))
}

/// A read without a result. That something is not there is told by `cluster::read` alone: a "not found" that proves nothing
/// must never be taken for an answer.
fn unread(doing: &str, error: &kube::Error) -> Error {
    match error {
        kube::Error::Api(status) => Error::HostUnreachable(format!("{doing}: {}", status.message)),
        other => Error::HostUnreachable(format!("{doing}: {}", with_causes(other))),
    }
}

/// What the host's answer to a write means for us.
fn outcome(doing: &str, error: &kube::Error) -> Error {
    match error {
        kube::Error::Api(status) if cluster::says_what_is_missing(status) => {
            Error::NotFound(format!("{doing}: {}", status.message))
        }
        kube::Error::Api(status) if status.code == 409 => Error::InProgress(format!("{doing}: {}", status.message)),
        other => unread(doing, other),
    }
}

/// Somebody else was faster, or the answer of before was lost: the next look tells.
fn passed(doing: &str, answer: Result<(), kube::Error>) -> Result<()> {
    match answer.map_err(|error| outcome(doing, &error)) {
        Ok(()) | Err(Error::NotFound(_) | Error::InProgress(_)) => Ok(()),
        Err(other) => Err(other),
    }
}
