//! Who may be at the other end: the one who has the key of one certificate, which was made for this copy.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{self, BufReader},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// The name in both certificates. Nobody is found by it.
pub const NAME: &str = "mover";

/// One's own certificate and key, and the other's certificate, as a Secret of the type `kubernetes.io/tls` names them.
const OWN_CERTIFICATE: &str = "tls.crt";
const OWN_KEY: &str = "tls.key";
const OTHER_CERTIFICATE: &str = "ca.crt";

/// TLS asks for 4 KiB at a time, of what fits into one call to the kernel.
const READ_AT_ONCE: usize = 64 << 10;

pub type Stream = TlsStream<BufReader<TcpStream>>;

#[derive(Clone)]
pub enum Keys {
    Sender(TlsConnector),
    Receiver(TlsAcceptor),
}

#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("{0}: no certificate or key in PEM: {1}")]
    File(String, rustls::pki_types::pem::Error),
    #[error("the certificates cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the other's certificate cannot be used: {0}")]
    Other(#[from] rustls::server::VerifierBuilderError),
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Sender(_) => "Keys::Sender",
            Self::Receiver(_) => "Keys::Receiver",
        })
    }
}

impl Keys {
    pub fn of_sender(folder: &Path) -> Result<Self, Unusable> {
        let (certificate, key, others) = read(folder)?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(others)
            .with_client_auth_cert(vec![certificate], key)?;
        Ok(Self::Sender(TlsConnector::from(Arc::new(config))))
    }

    pub fn of_receiver(folder: &Path) -> Result<Self, Unusable> {
        let (certificate, key, others) = read(folder)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(others), provider()).build()?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)?;
        Ok(Self::Receiver(TlsAcceptor::from(Arc::new(config))))
    }

    /// Both ends are connected to; who of them is TLS's client is settled by what it does.
    pub async fn over(&self, stream: TcpStream) -> io::Result<Stream> {
        let stream = BufReader::with_capacity(READ_AT_ONCE, stream);
        match self {
            Self::Sender(connector) => {
                let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
                connector.connect(name, stream).await.map(TlsStream::Client)
            }
            Self::Receiver(acceptor) => acceptor.accept(stream).await.map(TlsStream::Server),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

type Read = (CertificateDer<'static>, PrivateKeyDer<'static>, RootCertStore);

/// The other's certificate signs itself and is the only authority, so nobody passes who has another key.
fn read(folder: &Path) -> Result<Read, Unusable> {
    let at = |name: &str| folder.join(name);
    let named = |name: &str| {
        let name = at(name).display().to_string();
        move |error| Unusable::File(name, error)
    };
    let certificate = CertificateDer::from_pem_file(at(OWN_CERTIFICATE)).map_err(named(OWN_CERTIFICATE))?;
    let key = PrivateKeyDer::from_pem_file(at(OWN_KEY)).map_err(named(OWN_KEY))?;
    let other = CertificateDer::from_pem_file(at(OTHER_CERTIFICATE)).map_err(named(OTHER_CERTIFICATE))?;
    let mut others = RootCertStore::empty();
    others.add(other)?;
    Ok((certificate, key, others))
}
