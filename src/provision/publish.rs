//! ControllerPublishVolume and ControllerUnpublishVolume: one node more or less for a volume.

use super::{
    Provisioner,
    find::{Found, Sought},
    validate,
};
use crate::{
    attach,
    error::{Error, Result},
    volume::{AccessMode, NodeId, VolumeMode, plan::Phase, published::Publication},
};

impl Provisioner {
    pub async fn publish(
        &self,
        handle: &str,
        node: &str,
        (access, mode): (AccessMode, VolumeMode),
        readonly: bool,
    ) -> Result<()> {
        let found = self.find_to_change(handle).await?;
        let node = NodeId::parse(node).ok_or_else(|| Error::NotFound(format!("there is no node {node:?}")))?;
        let id = node.to_string();
        if !found.claim.life.published.is_on(&id) {
            attach::check(&node, &found.id.member, &self.members, &self.host).await?;
            usable(&found)?;
        }
        if let Some(obstacle) = validate::obstacle(&found.claim, access, mode) {
            return Err(Error::Refused(obstacle));
        }
        if found.imported {
            // Nothing is ever written on it, so nothing fences it but the host's own attach controller.
            return Ok(());
        }
        attach::publish(found.leaf()?, found.hash, &found.claim, &id, Publication { access, readonly }).await
    }

    /// Of a volume or a node that is not there, nothing is attached.
    pub async fn unpublish(&self, handle: &str, node: &str) -> Result<()> {
        let found = match self.seek(handle).await? {
            Sought::Found(found) => found,
            Sought::Stripped(member, place) => return Err(attach::stripped(member.leaf()?, &place)),
            Sought::Unknown => return Ok(()),
        };
        if found.imported {
            return Ok(());
        }
        let leaf = found.leaf()?;
        if self.is_copy(leaf, &found.id, found.hash, &found.claim).await? {
            return Ok(());
        }
        attach::unpublish(leaf, found.hash, &found.claim, (!node.is_empty()).then_some(node)).await
    }
}

fn usable(found: &Found) -> Result<()> {
    let about = format!("member {}: leaf claim {}", found.member.name, found.claim.place);
    match found.claim.size() {
        size if size.terminating => Err(Error::InProgress(format!("{about} is being removed there"))),
        size if size.phase == Phase::Lost => Err(Error::Refused(format!("{about} has lost its volume"))),
        // One that waits for its first pod (leafBinding deferred) gets it only once it is published.
        _ => Ok(()),
    }
}
