//! A host and many members, all simulated in this process, each behind TLS at a port of its own.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use domain::volume::{HostId, VolumeHash, VolumeId};
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use leaf::ownership::{HAD_VOLUME, NAME, VOLUME};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};
use simulate::{
    Cluster, Lost,
    service::{Reply, answer},
    storage::{Settings, Storage, Work},
    text,
};
use tokio::{
    io::{copy, sink},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

use super::{
    NAMESPACE, PATIENCE,
    clusters::{
        certificates::{Authority, Credentials, kubeconfig},
        logs, wait_for,
    },
    leaves,
    subject::{LOG, Place},
};

const DRIVER_NAMESPACE: &str = "kosmos-csi";
const CERTIFICATE: &str = "server";
/// A member's own controller has bound the claim, and has nothing more to write on it.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
/// After a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(100);
/// What this process may have open where it is an administrator's, whatever the machine gives by default.
const OPEN_FILES: u64 = 1 << 17;
/// Of each member: two replicas have eight connections to it each, and it listens.
const FILES_OF_A_MEMBER: u64 = 20;
/// Of what is said without end, at a time.
const PIECE: &[u8] = &[b'x'; 64 << 10];
/// Of the target folder's logs: where those of drivers are kept that came to nothing.
const KEPT: &str = "bench-members";

/// Which member floods.
type Flood = Arc<RwLock<Option<String>>>;

/// What all servers have in common.
struct Front {
    authority: Authority,
    tls: TlsAcceptor,
    flood: Flood,
}

pub struct World {
    /// Of the members.
    pub names: Vec<String>,
    pub place: Place,
    pub host: Cluster,
    pub members: Vec<Cluster>,
    /// How the driver knows them.
    kubeconfigs: Vec<String>,
    /// Of one that takes connections and says nothing.
    dead: String,
    flood: Flood,
    inside: JoinSet<()>,
    _folder: tempfile::TempDir,
}

impl World {
    /// The host has so many volumes in each of them, whose storage takes so long for one more.
    pub async fn new(members: usize, volumes: u32, takes: Duration) -> Result<Self> {
        raise_open_files(members)?;
        let (folder, mut inside) = (tempfile::tempdir()?, JoinSet::new());
        let pki = folder.path().join("pki");
        let authority = Authority::create(&pki, "bench")?;
        let front = Front { tls: tls(&authority, &pki)?, authority, flood: Flood::default() };
        let host = Cluster::new("host", 1);
        make_namespace(&host, DRIVER_NAMESPACE)?;
        make_namespace(&host, NAMESPACE)?;
        let host_text = front.serve(&host, &mut inside).await?;
        let names: Vec<String> = (0..members).map(|number| format!("m{number:04}")).collect();
        let (mut clusters, mut kubeconfigs) = (Vec::new(), Vec::new());
        for (at, name) in (0_u32..).zip(&names) {
            let numbers = at * volumes..(at + 1) * volumes;
            let member = filled(&host, name, 1000 + u64::from(at), numbers)?;
            kubeconfigs.push(front.serve(&member, &mut inside).await?);
            inside.spawn(simulate::controllers::run(member.clone()));
            let work = || Work::takes(takes..=takes);
            let settings = Settings { provisioning: work(), deleting: work(), ..Settings::default() };
            let storage = Storage::new(member.clone(), settings);
            inside.spawn(async move { storage.run().await });
            clusters.push(member);
        }
        let place = Place::new(&folder.path().join("bench"), &host_text, &[])?;
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let dead = front.kubeconfig(&silent)?;
        inside.spawn(say_nothing(silent));
        let (members, flood) = (clusters, front.flood);
        let world = Self { names, place, host, members, kubeconfigs, dead, flood, inside, _folder: folder };
        world.let_die(0)?;
        Ok(world)
    }

    /// Something more that works in it.
    pub fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.inside.spawn(work);
    }

    /// Who does the work in the background.
    pub fn leader(&self) -> Option<String> {
        let lease = self.host.get("leases.coordination.k8s.io", DRIVER_NAMESPACE, "kosmos-csi-leader")?;
        Some(text(&lease, "/spec/holderIdentity").to_owned()).filter(|holder| !holder.is_empty())
    }

    /// Until somebody does it: who does not yet asks the host for a list of its volumes before it deletes one.
    pub async fn leads(&self) -> Result<()> {
        wait_for("a replica leads", PATIENCE, || async { Ok(self.leader().map(drop)) }).await
    }

    /// Whether the leaf with this handle says that the host has a volume for it.
    pub fn is_marked(&self, handle: &str) -> bool {
        let Some(id) = VolumeId::parse(handle) else { return false };
        let member = self.members.iter().find(|member| member.name() == id.member);
        let claim = member.zip(id.place()).and_then(|(member, at)| member.get(CLAIMS, &at.namespace, &at.claim));
        claim.is_some_and(|claim| claim["metadata"]["annotations"].get(HAD_VOLUME).is_some())
    }

    /// The last of them are not to be reached by whoever starts from now on; the others are.
    pub fn let_die(&self, last: usize) -> Result<()> {
        let alive = self.names.len() - last;
        for (at, (name, kubeconfig)) in self.names.iter().zip(&self.kubeconfigs).enumerate() {
            self.place.put(name, if at < alive { kubeconfig } else { &self.dead })?;
        }
        Ok(())
    }

    /// From now on this member floods, and no other one does.
    pub fn let_flood(&self, member: Option<&str>) {
        *self.flood.write().unwrap_or_else(PoisonError::into_inner) = member.map(str::to_owned);
    }

    /// What each process among these clusters said in its last life, in place of what was kept before of what is called so.
    pub fn keep_logs(&self, part: &str) -> Result<PathBuf> {
        let kept = logs::folder()?.join(KEPT).join(part.replace([' ', ','], "-"));
        drop(fs::remove_dir_all(&kept));
        fs::create_dir_all(&kept).with_context(|| format!("make {}", kept.display()))?;
        for own in fs::read_dir(&self.place.folder).context("list the folders of drivers")?.flatten() {
            let log = own.path().join(LOG);
            if log.is_file() {
                let name = own.file_name().to_string_lossy().into_owned();
                fs::copy(log, kept.join(format!("{name}.log"))).context("copy a log")?;
            }
        }
        Ok(kept)
    }
}

/// A member with leaves of these numbers, whose volumes the host has: all are bound and marked.
fn filled(host: &Cluster, name: &str, seed: u64, numbers: std::ops::Range<u32>) -> Result<Cluster> {
    let member = Cluster::new(name, seed);
    make_namespace(&member, NAMESPACE)?;
    if numbers.is_empty() {
        return Ok(member);
    }
    let identity = host.get("namespaces", "", "kube-system").context("a host without kube-system")?;
    let id = HostId(text(&identity, "/metadata/uid").to_owned());
    let objects = member.objects().into_iter().map(|(resource, object)| (resource, Value::clone(&object)));
    let mut objects: Vec<(String, Value)> = objects.collect();
    for number in numbers {
        let (mut claim, namespace) = (leaves::claim(&id, number), leaves::namespace(number));
        let volume = claim["metadata"]["annotations"][NAME].as_str().unwrap_or_default().to_owned();
        let (hash, mut leaf_volume) = (VolumeHash::new(&id, &volume), leaves::volume(&id, number));
        // As it is of the volume's name in life: what goes by that finds the leaf.
        for leaf in [&mut claim, &mut leaf_volume] {
            leaf["metadata"]["labels"][VOLUME] = json!(hash.to_string());
        }
        let at = VolumeId::new(name, &namespace, text(&claim, "/metadata/name"), hash);
        let made = host.create(VOLUMES, host_volume(&volume, &at.to_string(), &namespace, &claim));
        let bound =
            made.and_then(|_| host.change(VOLUMES, "", &volume, |made| made["status"]["phase"] = json!("Bound")));
        let bound = bound.map_err(|error| anyhow!("volume {volume}: {error:?}"))?;
        claim["metadata"]["annotations"][HAD_VOLUME] = json!(text(&bound, "/metadata/uid"));
        claim["metadata"]["annotations"][BIND_COMPLETED] = json!("yes");
        objects.extend([(CLAIMS.to_owned(), claim), (VOLUMES.to_owned(), leaf_volume)]);
    }
    Ok(Cluster::restored(name, seed, objects))
}

/// As external-provisioner makes it.
fn host_volume(name: &str, handle: &str, namespace: &str, leaf: &Value) -> Value {
    let attributes = json!({"leafClaimUID": leaf["metadata"]["uid"], "leafVolume": leaf["spec"]["volumeName"],
        "storage.kubernetes.io/csiProvisionerIdentity": "1-8081-bench"});
    json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "kosmos.csi.io"}},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace,
                "name": leaf["metadata"]["name"], "uid": leaf["metadata"]["annotations"]["kosmos.csi.io/claim-uid"]},
            "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle, "volumeAttributes": attributes},
        },
    })
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

impl Front {
    /// Its kubeconfig.
    async fn serve(&self, cluster: &Cluster, inside: &mut JoinSet<()>) -> Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let text = self.kubeconfig(&listener)?;
        inside.spawn(accept(cluster.clone(), listener, self.tls.clone(), Arc::clone(&self.flood)));
        Ok(text)
    }

    fn kubeconfig(&self, listener: &TcpListener) -> Result<String> {
        let server = format!("https://{}", listener.local_addr()?);
        kubeconfig("bench", &server, self.authority.certificate(), &Credentials::Token("t".to_owned()))
    }
}

/// Until it is dropped.
async fn accept(cluster: Cluster, listener: TcpListener, tls: TlsAcceptor, flood: Flood) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(cluster.clone(), tls.clone(), stream, Arc::clone(&flood)));
                }
                Err(error) => {
                    eprintln!("{} could not take a connection: {error}", cluster.name());
                    sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(cluster: Cluster, tls: TlsAcceptor, stream: TcpStream, flood: Flood) {
    // Who goes away meanwhile comes again.
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| respond(&cluster, &flood, request));
    drop(http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service).await);
}

async fn respond(cluster: &Cluster, flood: &Flood, request: Request<Incoming>) -> Result<Response<Reply>, Lost> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    if floods(flood, cluster.name()) {
        let (flood, member) = (Arc::clone(flood), cluster.name().to_owned());
        let pieces = stream::repeat_with(|| Ok::<_, Lost>(Frame::data(Bytes::from_static(PIECE))));
        let while_it_floods = pieces.take_while(move |_| std::future::ready(floods(&flood, &member)));
        return Ok(Response::new(StreamBody::new(while_it_floods).boxed_unsync()));
    }
    answer(cluster, "", &parts, body.into()).await
}

fn floods(flood: &Flood, member: &str) -> bool {
    flood.read().unwrap_or_else(PoisonError::into_inner).as_deref() == Some(member)
}

/// Takes connections, and says nothing on them until the other side goes.
async fn say_nothing(listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((mut stream, _)) => {
                    connections.spawn(async move { drop(copy(&mut stream, &mut sink()).await) });
                }
                Err(_) => sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// For so many members.
fn raise_open_files(members: usize) -> Result<()> {
    let of = |limit: Option<u64>| Rlimit { current: limit, maximum: limit };
    let is_less = |limit: Option<u64>, than: u64| limit.is_some_and(|limit| limit < than);
    // Who is no administrator has what the machine gives, which may do.
    if is_less(getrlimit(Resource::Nofile).maximum, OPEN_FILES) {
        setrlimit(Resource::Nofile, of(Some(OPEN_FILES))).ok();
    }
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, of(most)).context("have more files open")?;
    let enough = members as u64 * FILES_OF_A_MEMBER;
    ensure!(!is_less(most, enough), "this machine lets no process have {enough} files open: raise that (ulimit -Hn)");
    Ok(())
}
