//! What the proxy shows to who connects.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::super::certificates::Authority;

const FILE: &str = "proxy";

pub struct Certificates {
    folder: PathBuf,
    /// How often another one has come in the place of its own.
    replaced: usize,
    /// Of the proxy's own certificate, in PEM.
    pub authority: String,
    pub own: Arc<ServerConfig>,
    /// For the same address, by an authority of the same name.
    pub strange: Arc<ServerConfig>,
}

impl Certificates {
    pub fn create(folder: &Path) -> Result<Self> {
        let (authority, own) = signed(&folder.join("own"))?;
        let (_, strange) = signed(&folder.join("strange"))?;
        Ok(Self { folder: folder.to_owned(), replaced: 0, authority, own, strange })
    }

    /// Its own is by another authority from now on.
    pub fn replace(&mut self) -> Result<()> {
        self.replaced += 1;
        (self.authority, self.own) = signed(&self.folder.join(format!("own-{}", self.replaced)))?;
        Ok(())
    }
}

fn signed(folder: &Path) -> Result<(String, Arc<ServerConfig>)> {
    let authority = Authority::create(folder, FILE)?;
    authority.server(FILE, &["127.0.0.1"])?;
    let certificate =
        CertificateDer::from_pem_file(folder.join(format!("{FILE}.crt"))).context("read a certificate")?;
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{FILE}.key"))).context("read a key")?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    // Clients of Go would speak HTTP/2 else.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((authority.certificate().to_owned(), Arc::new(config)))
}
