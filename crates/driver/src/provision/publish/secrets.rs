//! Secrets that a leaf driver wants on a node. The node gets them from its kubelet, out of a Secret of the host which the
//! host volume names; it is kept equal to the member's at each publish. They are in no context, and in no message.

use super::super::{Provisioner, find::FoundLeaf};
use domain::{
    error::{Error, Result},
    volume::secrets::{self, Copy, SecretRefs},
};
use host::secret::SecretsOf;
use leaf::{backing::LeafVolume, ownership};

/// What is to be copied, and to whom it will belong.
pub(super) struct SecretCopies {
    copies: Vec<Copy>,
    of: SecretsOf,
}

/// None where the leaf driver wants no Secret.
pub(super) async fn secrets(
    provisioner: &Provisioner,
    found: &FoundLeaf,
    volume: &LeafVolume,
    handle: &str,
) -> Result<Option<SecretCopies>> {
    if volume.secrets == SecretRefs::default() {
        return Ok(None);
    }
    let name = name_of(found).await?;
    let of = host::secret::of(&provisioner.host, name.as_deref(), handle).await?;
    let of = of.ok_or_else(|| Error::NotFound(format!("no volume of the host has the handle {handle}")))?;
    Ok(Some(SecretCopies { copies: secrets::copies(&volume.secrets, &of.refs)?, of }))
}

/// The name of the host volume, where the leaf claim tells it.
async fn name_of(found: &FoundLeaf) -> Result<Option<String>> {
    if found.imported {
        return Ok(None);
    }
    let claim = leaf::claim::read(found.leaf()?, &found.claim.place).await?;
    Ok(claim.and_then(|claim| claim.metadata.annotations?.remove(ownership::NAME)))
}

pub(super) async fn hand_over(provisioner: &Provisioner, found: &FoundLeaf, wanted: &SecretCopies) -> Result<()> {
    for copy in &wanted.copies {
        let data = leaf::secret::read(found.leaf()?, &copy.from).await?;
        host::secret::keep(&provisioner.host, &copy.to, &wanted.of, found.hash, &data).await?;
    }
    Ok(())
}
