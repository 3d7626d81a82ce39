//! Secrets that a leaf driver wants on a node. The node gets them from its kubelet, out of a Secret of the host which the
//! host volume names; it is kept equal to the member's at each publish. They are in no context, and in no message.

use super::super::{Provisioner, find::Found};
use domain::{
    error::{Error, Result},
    volume::secrets::{self, Copy, SecretRefs},
};
use host::secret::SecretsOf;
use leaf::{backing::LeafVolume, ownership};

/// What is to be copied, and to whom it will belong.
pub(super) struct Wanted {
    copies: Vec<Copy>,
    of: SecretsOf,
}

impl Provisioner {
    /// None where the leaf driver wants no Secret.
    pub(super) async fn secrets(&self, found: &Found, volume: &LeafVolume, handle: &str) -> Result<Option<Wanted>> {
        if volume.secrets == SecretRefs::default() {
            return Ok(None);
        }
        let name = self.name_of(found).await?;
        let of = self.host.secrets_of(name.as_deref(), handle).await?;
        let of = of.ok_or_else(|| Error::NotFound(format!("no volume of the host has the handle {handle}")))?;
        Ok(Some(Wanted { copies: secrets::copies(&volume.secrets, &of.refs)?, of }))
    }

    /// The name of the host volume, where the leaf claim tells it.
    async fn name_of(&self, found: &Found) -> Result<Option<String>> {
        if found.imported {
            return Ok(None);
        }
        let claim = found.leaf()?.read_claim(&found.claim.place).await?;
        Ok(claim.and_then(|claim| claim.metadata.annotations?.remove(ownership::NAME)))
    }

    pub(super) async fn hand_over(&self, found: &Found, wanted: &Wanted) -> Result<()> {
        for copy in &wanted.copies {
            let data = found.leaf()?.read_secret(&copy.from).await?;
            self.host.keep_secret(&copy.to, &wanted.of, found.hash, &data).await?;
        }
        Ok(())
    }
}
