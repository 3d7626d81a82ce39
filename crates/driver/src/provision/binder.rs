//! How a leaf claim comes to be bound: by the member itself, by a pod, by a node written on it, or by whoever comes.

use super::{
    attempt::{Attempt, Evidence, NoCapacity},
    volume_creation::VolumeCreation,
};
use domain::{
    error::{Error, Result},
    volume::{
        LeafBinding,
        plan::{self, Binder, Creation},
    },
};
use leaf::{Rows, ownership, row::ClaimRow};

impl VolumeCreation<'_> {
    pub(super) fn class(&self) -> Result<String> {
        self.leaf.class_for(&self.spec.parameters).ok_or_else(|| self.no_class("a default StorageClass"))
    }

    /// What binds the leaf claim, by its class and the parameter `leafBinding`.
    pub(super) fn binder(&self, row: Option<&ClaimRow>) -> Result<Binder> {
        let name = match row {
            Some(row) => row.class.to_string(),
            None => self.class()?,
        };
        let class = self.leaf.rows.class(&name);
        if class.is_none() && row.is_none() {
            return Err(self.no_class(&format!("StorageClass {name:?}")));
        }
        if row.is_none() && class.as_ref().is_some_and(|class| !class.open) {
            return Err(self.closed_class(&name));
        }
        let waits = class.is_some_and(|class| class.waits_for_pod);
        Ok(match self.spec.parameters.leaf_binding.at(&self.leaf.member).copied().unwrap_or_default() {
            // Whoever has the copy may remove its source, so it is copied before that.
            LeafBinding::Deferred if self.spec.request.source.is_none() => Binder::Anybody,
            LeafBinding::Consumer => Binder::Consumer,
            _ if !waits => Binder::Member,
            LeafBinding::Auto | LeafBinding::Deferred if self.wanted_nodes().is_empty() => Binder::Consumer,
            LeafBinding::Auto | LeafBinding::Deferred | LeafBinding::SelectedNode => Binder::Node,
        })
    }

    /// With a selected node the scheduler may choose another member. Else it is never final: a class may still come.
    fn no_class(&self, what: &str) -> Error {
        let classes = self.leaf.rows.class_names();
        let there =
            if classes.is_empty() { "it has none".to_owned() } else { format!("it has {}", classes.join(", ")) };
        let reason = format!(
            "member {} lacks {what}; {there}. Make it there, or name another with the parameter leafStorageClass.{}",
            self.leaf.member, self.leaf.member
        );
        self.unmade(reason)
    }

    fn closed_class(&self, class: &str) -> Error {
        self.unmade(format!(
            "StorageClass {class:?} of member {} is not open to this host. The member's administrator opens it by the id {} in \
             its annotation {}",
            self.leaf.member, self.leaf.host.0, ownership::HOSTS
        ))
    }

    fn unmade(&self, reason: String) -> Error {
        if self.node_selected() { Error::NoPlace(reason) } else { Error::InProgress(reason) }
    }

    pub(super) fn node_selected(&self) -> bool {
        self.owner.is_some_and(|owner| owner.node_selected)
    }

    /// The member's nodes that the requirement names: the scheduler's own choice alone, where it has made one.
    pub(super) fn wanted_nodes(&self) -> Vec<&str> {
        let mut nodes = self.spec.nodes_of(&self.leaf.member);
        if self.node_selected() {
            nodes.truncate(1);
        }
        nodes
    }

    /// The one node that will do, where there is only one.
    pub(super) fn only_node(&self) -> Option<String> {
        match self.wanted_nodes().as_slice() {
            [node] => Some((*node).to_owned()),
            _ => None,
        }
    }

    pub(super) fn next_step(&self, rows: &Rows, binder: Binder) -> Creation {
        let claim = rows.observed_claim(self.hash, &self.place);
        plan::creation(&self.spec.request, self.fingerprint, claim.as_ref(), binder)
    }

    /// The node to be written on the claim; none where all were tried in vain. Nodes of a member cannot be read, so where
    /// the requirement names none, it is one that the member names itself where it tells its capacity.
    pub(super) async fn pick(&self, attempt: &Attempt) -> Result<Option<String>> {
        let wanted = self.wanted_nodes();
        let nodes: Vec<String> = if wanted.is_empty() {
            leaf::capacity::hear(self.leaf).await?;
            let (class, size) = (self.class()?, self.spec.request.required.max(1));
            self.leaf.capacity.nodes(&class, size).ok_or_else(|| self.no_node(&class))?
        } else {
            wanted.into_iter().map(str::to_owned).collect()
        };
        Ok(nodes.into_iter().find(|node| !attempt.tried.contains(node)))
    }

    fn no_node(&self, class: &str) -> Error {
        Error::Refused(format!(
            "leafBinding is selected-node, but the topology names no node of member {}, and the member names none \
             either, because its class {class} has no CSIStorageCapacity for single nodes: set leafBinding.{} to \
             consumer",
            self.leaf.member, self.leaf.member
        ))
    }

    /// The claim names no node any more: the member's provisioner has taken back the one that was written on it.
    pub(super) async fn select(&self, row: &ClaimRow, attempt: &mut Attempt) -> Result<Option<NoCapacity>> {
        let reason = leaf::events::lack_of_room(self.leaf, &row.place.namespace, &row.uid).await;
        if let (Some(_), Some(node)) = (&reason, attempt.tried.last()) {
            self.remember(&row.class, Some(node), Evidence::Event);
        }
        match (self.pick(attempt).await?, reason) {
            (Some(node), _) => {
                leaf::claim::select_node(self.leaf, row, &node).await?;
                attempt.tried.push(node);
                Ok(None)
            }
            (None, Some(reason)) => Ok(Some(NoCapacity { reason, node: self.only_node(), by: Evidence::Event })),
            (None, None) => Err(self.late().await),
        }
    }
}
