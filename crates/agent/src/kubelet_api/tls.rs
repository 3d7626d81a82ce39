//! Who may knock at all: only who shows a certificate of the authority that signs those of the host's API server, and where what
//! pods use is told, whoever shows none.

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    client::verify_server_name,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier},
};
use tokio::time::Instant;

use host::Host;

/// How long an authority that the host names is believed. A connection alone is to cause no
/// requests to the host; a token does, four at a time (`token.rs`).
const BELIEVED: Duration = Duration::from_mins(1);

/// What is shown to who connects. Files are read for each connection, so that new ones count without a restart.
#[derive(Clone, Debug)]
pub enum Shown {
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
    /// As a kubelet does without one: made at the start, for this process alone.
    Own {
        certificate: CertificateDer<'static>,
        key: Arc<PrivateKeyDer<'static>>,
    },
}

/// Whose client certificates are accepted.
#[derive(Clone, Debug)]
pub enum Authority {
    File(PathBuf),
    /// Those of whom the host's API server says that they sign its own.
    Host(Arc<Mutex<Option<(Instant, String)>>>),
}

/// What TLS needs.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub authority: Authority,
    pub shown: Shown,
}

impl Shown {
    /// Signed by itself, for the address at which it is shown.
    pub fn own(address: IpAddr) -> Result<Self, String> {
        let said = |error: rcgen::Error| format!("a certificate cannot be made: {error}");
        let key = KeyPair::generate().map_err(said)?;
        let certificate =
            CertificateParams::new([address.to_string()]).map_err(said)?.self_signed(&key).map_err(said)?;
        let certificate = certificate.der().clone();
        Ok(Self::Own { certificate, key: Arc::new(PrivateKeyDer::Pkcs8(key.serialize_der().into())) })
    }

    /// Whether an API server that verifies kubelets would find it at this address; a sentence where not.
    pub fn names(&self, address: IpAddr) -> Result<(), String> {
        let (certificates, _) = self.read()?;
        let unfit = |error: rustls::Error| format!("{} do not name it: {error}", self.name());
        let leaf = certificates.first().ok_or_else(|| format!("{}: no certificate", self.name()))?;
        let leaf = ParsedCertificate::try_from(leaf).map_err(unfit)?;
        verify_server_name(&leaf, &ServerName::IpAddress(address.into())).map_err(unfit)
    }

    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        match self {
            Self::Own { certificate, key } => Ok((vec![certificate.clone()], key.clone_key())),
            Self::Files { certificate, key } => {
                let secret = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| format!("{}: no private key in PEM: {error}", key.display()))?;
                Ok((certificates(certificate)?, secret))
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Own { .. } => "the certificate that was made at the start".to_owned(),
            Self::Files { certificate, key } => format!("{} and {}", certificate.display(), key.display()),
        }
    }
}

impl Authority {
    /// Of the host, asked when it is first wanted.
    pub fn of_host() -> Self {
        Self::Host(Arc::default())
    }

    async fn read(&self, host: &Host) -> Result<Vec<CertificateDer<'static>>, String> {
        let known = match self {
            Self::File(file) => return certificates(file),
            Self::Host(known) => known,
        };
        let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
        let believed = lock().clone().filter(|(asked, _)| asked.elapsed() < BELIEVED).map(|(_, text)| text);
        let text = if let Some(text) = believed {
            text
        } else {
            let text = host::access::client_authority(host).await.map_err(|error| error.to_string())?;
            *lock() = Some((Instant::now(), text.clone()));
            text
        };
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let found = found.map_err(|error| format!("the host's client authority is no certificate in PEM: {error}"))?;
        Ok(found)
    }
}

impl Credentials {
    /// Whether the files would do: a sentence that names the file, where not.
    pub fn check(&self) -> Result<(), String> {
        let authority = match &self.authority {
            Authority::File(file) => certificates(file)?,
            // The host's is not known yet, and any will do to see whether certificate and key fit each other.
            Authority::Host(_) => self.shown.read()?.0,
        };
        self.config(authority, false).map(drop)
    }

    /// What TLS needs, or a sentence that says what is wrong. `anonymous`: also whoever shows no certificate comes in.
    pub(super) async fn read(&self, host: &Host, anonymous: bool) -> Result<Arc<ServerConfig>, String> {
        self.config(self.authority.read(host).await?, anonymous)
    }

    fn config(&self, authority: Vec<CertificateDer<'static>>, anonymous: bool) -> Result<Arc<ServerConfig>, String> {
        let from = match &self.authority {
            Authority::File(file) => file.display().to_string(),
            Authority::Host(_) => "the host's client authority".to_owned(),
        };
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in authority {
            roots.add(certificate).map_err(|error| format!("{from}: {error}"))?;
        }
        let asked = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let asked = if anonymous { asked.allow_unauthenticated() } else { asked };
        let asked = asked.build().map_err(|error| format!("{from}: {error}"))?;
        let (certificate, key) = self.shown.read()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(asked)
            .with_single_cert(certificate, key)
            .map_err(|error| format!("{}: {error}", self.shown.name()))?;
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
        let (ca, shown, secret) =
            (file("ca.crt", &certificate), file("tls.crt", &certificate), file("tls.key", &key.serialize_pem()));
        let with = |ca: &PathBuf, certificate: &PathBuf, key: &PathBuf| {
            let shown = Shown::Files { certificate: certificate.clone(), key: key.clone() };
            Credentials { authority: Authority::File(ca.clone()), shown }.check()
        };
        assert_eq!(with(&ca, &shown, &secret), Ok(()));
        let unfit = Shown::Files {
            certificate: shown.clone(),
            key: file("unfit.key", &KeyPair::generate().unwrap().serialize_pem()),
        };
        let told = Credentials { authority: Authority::of_host(), shown: unfit }.check().unwrap_err();
        assert!(told.contains("unfit.key"), "{told}");
        let other = file("other.key", &KeyPair::generate().unwrap().serialize_pem());
        for (told, named) in [
            (with(&folder.path().join("missing"), &shown, &secret), "missing"),
            (with(&file("empty", ""), &shown, &secret), "empty"),
            (with(&ca, &file("prose", "no certificate"), &secret), "prose"),
            (with(&ca, &shown, &file("no.key", &certificate)), "no.key"),
            (with(&ca, &shown, &other), "other.key"),
        ] {
            let told = told.unwrap_err();
            assert!(told.contains(named), "{named}: {told}");
        }
    }

    #[test]
    fn address_that_a_certificate_does_not_name_is_told_before_an_api_server_refuses_it() {
        let shown = Shown::own("10.1.0.7".parse().unwrap()).unwrap();
        assert_eq!(shown.names("10.1.0.7".parse().unwrap()), Ok(()));
        for other in ["10.1.0.8", "fd00::7"] {
            let told = shown.names(other.parse().unwrap()).unwrap_err();
            assert!(told.contains("do not name it"), "{told}");
        }
    }

    #[test]
    fn certificate_of_its_own_is_for_its_address_and_another_one_at_each_start() {
        let own = || Shown::own("10.1.0.7".parse().unwrap()).unwrap().read().unwrap().0;
        let certificate = own();
        assert!(certificate[0].windows(4).any(|bytes| bytes == [10, 1, 0, 7]), "its address is not in it");
        assert_ne!(certificate, own());
        let shown = Shown::own("fd00::7".parse().unwrap()).unwrap();
        assert_eq!(Credentials { authority: Authority::of_host(), shown }.check(), Ok(()));
    }
}
