//! Who may knock at all: only who shows a certificate of the authority that signs those of the host's API server.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

/// Where the certificates are. They are read for each connection, so that new ones count without a restart.
#[derive(Clone, Debug)]
pub struct Files {
    /// Signs the client certificates that are accepted.
    pub client_ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Files {
    /// Whether they would do: a sentence that names the file, where not.
    pub fn check(&self) -> Result<(), String> {
        self.read().map(drop)
    }

    /// What TLS needs, or a sentence that names the file.
    pub(super) fn read(&self) -> Result<Arc<ServerConfig>, String> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.client_ca)? {
            roots.add(certificate).map_err(|error| format!("{}: {error}", self.client_ca.display()))?;
        }
        let asked = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| format!("{}: {error}", self.client_ca.display()))?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| format!("{}: no private key in PEM: {error}", self.key.display()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(asked)
            .with_single_cert(certificates(&self.certificate)?, key)
            .map_err(|error| format!("{} and {}: {error}", self.certificate.display(), self.key.display()))?;
        // Streams are taken over from HTTP/1.1 alone.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(file: &PathBuf) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error| format!("{}: no certificate in PEM: {error}", file.display());
    let found = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(unreadable)?;
    if found.is_empty() { Err(format!("{}: no certificate in PEM", file.display())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn file_that_is_missing_or_holds_something_else_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap().pem();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let files = Files {
            client_ca: file("ca.crt", &certificate),
            certificate: file("tls.crt", &certificate),
            key: file("tls.key", &key.serialize_pem()),
        };
        assert!(files.read().is_ok());
        let other = file("other.key", &KeyPair::generate().unwrap().serialize_pem());
        for (files, named) in [
            (Files { client_ca: folder.path().join("missing"), ..files.clone() }, "missing"),
            (Files { client_ca: file("empty", ""), ..files.clone() }, "empty"),
            (Files { certificate: file("prose", "no certificate"), ..files.clone() }, "prose"),
            (Files { key: file("no.key", &certificate), ..files.clone() }, "no.key"),
            (Files { key: other, ..files.clone() }, "other.key"),
        ] {
            let told = files.read().unwrap_err();
            assert!(told.contains(named), "{named}: {told}");
        }
    }
}
