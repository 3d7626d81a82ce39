//! A host and many members, all simulated in this process, each behind TLS at a port of its own.

use std::{net::Ipv4Addr, path::Path, sync::Arc};

use anyhow::{Context, Result, anyhow};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::json;
use simulate::{
    Cluster, Lost,
    service::{Reply, answer},
    storage::{Settings, Storage},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::{
    NAMESPACE,
    clusters::certificates::{Authority, Credentials, kubeconfig},
    subject::Place,
};

const DRIVER_NAMESPACE: &str = "kosmos-csi";
const CERTIFICATE: &str = "server";

pub struct World {
    /// Of the members.
    pub names: Vec<String>,
    pub place: Place,
    host: Cluster,
    authority: Authority,
    /// Takes connections and says nothing.
    dead: TcpListener,
    _inside: JoinSet<()>,
    _folder: tempfile::TempDir,
}

impl World {
    pub async fn new(members: usize) -> Result<Self> {
        raise_open_files()?;
        let (folder, mut inside) = (tempfile::tempdir()?, JoinSet::new());
        let pki = folder.path().join("pki");
        let authority = Authority::create(&pki, "bench")?;
        let tls = tls(&authority, &pki)?;
        let host = Cluster::new("host", 1);
        make_namespace(&host, DRIVER_NAMESPACE)?;
        make_namespace(&host, NAMESPACE)?;
        let host_text = serve(&host, &tls, &authority, &mut inside).await?;
        let names: Vec<String> = (0..members).map(|number| format!("m{number:04}")).collect();
        let mut kubeconfigs = Vec::new();
        for (seed, name) in (1000..).zip(&names) {
            let member = Cluster::new(name, seed);
            make_namespace(&member, NAMESPACE)?;
            kubeconfigs.push((name.as_str(), serve(&member, &tls, &authority, &mut inside).await?));
            inside.spawn(simulate::controllers::run(member.clone()));
            let storage = Storage::new(member, Settings::default());
            inside.spawn(async move { storage.run().await });
        }
        let place = Place::new(&folder.path().join("bench"), &host_text, &kubeconfigs)?;
        let dead = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self { names, place, host, authority, dead, _inside: inside, _folder: folder })
    }

    /// Whether a replica does the work in the background.
    pub fn has_leader(&self) -> bool {
        self.host.get("leases.coordination.k8s.io", DRIVER_NAMESPACE, "kosmos-csi-leader").is_some()
    }

    /// The last of them are not to be reached any more by whoever starts from now on.
    pub fn let_die(&self, last: usize) -> Result<()> {
        let text = text(&self.dead, &self.authority)?;
        for name in self.names.iter().rev().take(last) {
            self.place.put(name, &text)?;
        }
        Ok(())
    }
}

fn make_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    let made = cluster.create("namespaces", json!({"metadata": {"name": name}}));
    made.map(drop).map_err(|error| anyhow!("namespace {name} of {}: {error:?}", cluster.name()))
}

fn tls(authority: &Authority, folder: &Path) -> Result<TlsAcceptor> {
    authority.server(CERTIFICATE, &["127.0.0.1"])?;
    let file = |end: &str| folder.join(format!("{CERTIFICATE}.{end}"));
    let certificate = CertificateDer::from_pem_file(file("crt")).context("read a certificate")?;
    let key = PrivateKeyDer::from_pem_file(file("key")).context("read a key")?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(Arc::new(config).into())
}

/// Its kubeconfig.
async fn serve(
    cluster: &Cluster,
    tls: &TlsAcceptor,
    authority: &Authority,
    inside: &mut JoinSet<()>,
) -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let text = text(&listener, authority)?;
    inside.spawn(accept(cluster.clone(), listener, tls.clone()));
    Ok(text)
}

fn text(listener: &TcpListener, authority: &Authority) -> Result<String> {
    let server = format!("https://{}", listener.local_addr()?);
    kubeconfig("bench", &server, authority.certificate(), &Credentials::Token("t".to_owned()))
}

/// Until it is dropped.
async fn accept(cluster: Cluster, listener: TcpListener, tls: TlsAcceptor) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(cluster.clone(), tls.clone(), stream))),
                Err(error) => eprintln!("{} could not take a connection: {error}", cluster.name()),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(cluster: Cluster, tls: TlsAcceptor, stream: TcpStream) {
    // Who goes away meanwhile comes again.
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| respond(&cluster, request));
    drop(http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service).await);
}

async fn respond(cluster: &Cluster, request: Request<Incoming>) -> Result<Response<Reply>, Lost> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    answer(cluster, "", &parts, body.into()).await
}

/// A thousand members are some eight thousand connections.
fn raise_open_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("have more files open")
}
