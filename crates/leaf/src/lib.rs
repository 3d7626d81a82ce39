//! The objects inside one member: the leaf claim, its volume, the pod that consumes it, their snapshots, and what is known
//! of them all.
//!
//! Its page: `docs/design/volumes.md`.

mod affinity;
pub mod attachment;
pub mod backing;
pub mod capacity;
pub mod change;
pub mod claim;
pub mod class_row;
mod compact;
pub mod consumer;
pub mod events;
pub mod forgotten;
mod forward;
pub mod healing;
pub mod identity;
pub mod imported;
mod limits;
pub mod machine;
pub mod marks;
pub mod member_events;
pub mod moving;
mod notices;
pub mod ownership;
pub mod progress;
mod rejected_sizes;
pub mod release;
pub mod retention;
pub mod row;
pub mod rows;
pub mod saved;
pub mod scheduling;
pub mod secret;
mod segment;
pub mod sightings;
pub mod single;
pub mod snapshot;
pub mod stats;
pub mod trimmed;
pub mod volume;
pub mod volume_objects;
pub mod watch;

use std::{
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::{NamespaceResourceScope, Status},
};
use serde::de::DeserializeOwned;

use capacity::CapacityCache;
use cluster::with_causes;
use domain::{
    error::{Error, Result},
    volume::{HostId, Parameters, namespaces::Namespaces},
};
pub use rows::Rows;
use sightings::Sightings;
pub use snapshot::Snapshots;

/// One member as this folder sees it.
#[derive(Clone)]
pub struct MemberClient {
    pub member: String,
    /// Whose leaves are ours there.
    pub host: HostId,
    pub client: Client,
    pub namespaces: Namespaces,
    pub rows: Arc<Rows>,
    pub capacity: Arc<CapacityCache>,
    pub snapshots: Arc<Snapshots>,
    /// Which virtual machines it has, once somebody has asked and there are some.
    pub flavour: Arc<OnceLock<machine::Flavour>>,
}

impl std::fmt::Debug for MemberClient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Cluster").field("member", &self.member).finish_non_exhaustive()
    }
}

impl MemberClient {
    /// Nothing is known of it yet.
    pub fn new(member: &str, host: HostId, client: Client) -> Self {
        Self {
            member: member.to_owned(),
            rows: Arc::new(Rows::new(host.clone())),
            snapshots: Arc::new(Snapshots::new(host.clone())),
            capacity: Arc::default(),
            flavour: Arc::default(),
            host,
            client,
            namespaces: Namespaces::All,
        }
    }

    /// With rights in these namespaces alone.
    #[must_use]
    pub fn with_rights_in(self, namespaces: Namespaces) -> Self {
        Self { namespaces, ..self }
    }

    /// What it has is told to who looks through all members.
    #[must_use]
    pub fn seen_in(self, sightings: &Arc<Sightings>) -> Self {
        let rows = Rows::told_to(self.host.clone(), Some(Arc::clone(sightings)));
        Self { rows: Arc::new(rows), ..self }
    }

    /// The member's class for volumes of the host's class: the one that is named, else the member's default.
    pub fn class_for(&self, parameters: &Parameters) -> Option<String> {
        let named = parameters.leaf_class.at(&self.member).cloned();
        named.or_else(|| self.rows.default_class())
    }

    /// What lies in a namespace, or in any.
    pub fn within<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        let everywhere = || Api::all(self.client.clone());
        namespace.map_or_else(everywhere, |namespace| Api::namespaced(self.client.clone(), namespace))
    }

    /// What is listed in every namespace that may hold something of the host.
    pub async fn listed<K>(
        &self,
        of: impl Fn(Option<&str>) -> Api<K>,
        wanted: &ListParams,
    ) -> Result<Vec<K>, kube::Error>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let mut all = Vec::new();
        for namespace in self.namespaces.each() {
            all.append(&mut of(namespace).list(wanted).await?.items);
        }
        Ok(all)
    }

    /// What a member's answer means for us. `doing` says what was asked: "create claim shop/db".
    fn outcome(&self, doing: &str, error: &kube::Error) -> Error {
        match error {
            kube::Error::Api(status) => self.refusal(doing, status),
            other => {
                Error::Unreachable { member: self.member.clone(), reason: format!("{doing}: {}", with_causes(other)) }
            }
        }
    }

    fn refusal(&self, doing: &str, status: &Status) -> Error {
        let said = &status.message;
        let text = format!("member {}: {doing}: {said}", self.member);
        let unreachable = |reason: String| Error::Unreachable { member: self.member.clone(), reason };
        match status.code {
            400 | 422 => Error::Refused(text),
            401 => unreachable(format!("{doing}: it refuses the credentials of its kubeconfig (expired or revoked?)")),
            403 if cluster::exceeds_quota(status) => Error::NoPlace(text),
            403 if cluster::is_of_what_ends(status) => Error::InProgress(text),
            403 => Error::Denied(text),
            404 if cluster::says_what_is_missing(status) => Error::NotFound(text),
            409 if status.reason == "AlreadyExists" => Error::Exists(text),
            409 => Error::InProgress(text),
            code => unreachable(format!("{doing}: HTTP {code}: {said}")),
        }
    }
}

/// The member that lets us not do it.
pub fn denied_by(error: &Error) -> Option<&str> {
    let Error::Denied(said) = error else { return None };
    said.strip_prefix("member ")?.split_once(": ").map(|(member, _)| member)
}
