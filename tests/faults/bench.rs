//! A host, members with storage, and the driver itself, all in this process: requests go from the driver to the clusters
//! without a socket, and time is tokio's, so that a paused clock makes hours pass in milliseconds.
//!
//! The driver can be killed at any moment. Its tasks, connections and memory are gone then, and whatever it may still send
//! hangs: each incarnation signs its requests with a name of its own.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cluster::{Dial, Transport, metrics::Metrics};
use commands::{args::KosmosClusters, run::driver::Driver};
use csi::{
    client::{CallError, Client},
    controller::Controller,
    v1::{self, controller_server::Controller as _},
};
use kube::Config;
use serde_json::json;
use simulate::{
    Cluster,
    storage::{Settings, Storage},
    text,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tower::ServiceExt;

use crate::{
    fixture,
    guard::Guard,
    process::{Outside, Process},
    sidecar::Sidecar,
    tokens::{Doorman, whole},
};

/// How long the provisioner waits for an answer, by default.
pub const PATIENCE: Duration = Duration::from_secs(10);
pub const DRIVER_NAMESPACE: &str = "kosmos-csi";
/// The namespace of the users.
pub const SHOP: &str = "shop";

pub struct Bench {
    pub host: Cluster,
    pub members: Vec<Cluster>,
    pub storages: Vec<Storage>,
    pub guard: Arc<Guard>,
    pub sidecar: Sidecar,
    driver: Mutex<Option<Incarnation>>,
    /// Another replica, which nobody calls.
    second: Mutex<Option<Incarnation>>,
    /// Another replica, beside which all sidecars are but the provisioner.
    beside: Mutex<Option<Incarnation>>,
    incarnations: Mutex<u32>,
    /// Whether the driver takes Kosmos `Cluster` objects for members.
    pub kosmos_clusters: Mutex<KosmosClusters>,
    /// With it, the driver moves volumes.
    pub mover_image: Mutex<Option<String>>,
    /// Of the driver that was started last.
    metrics: Mutex<Metrics>,
    /// Requests that earlier incarnations have sent.
    sent_before: AtomicU64,
    /// Who lets requests to a member in.
    pub doorman: Mutex<Option<Arc<Doorman>>>,
    outside: Option<Outside>,
    process: Mutex<Option<Process>>,
    inside: JoinSet<()>,
}

/// One life of the driver.
struct Incarnation {
    name: String,
    metrics: Metrics,
    controller: watch::Receiver<Option<Controller>>,
    ended: CancellationToken,
    _work: JoinSet<()>,
}

impl Bench {
    /// Clusters with their controllers and storage, as a user finds them, and no driver yet.
    pub async fn new(seed: u64, members: usize, settings: &Settings) -> Arc<Self> {
        let bench = Self::clusters(seed, members, settings, Duration::ZERO);
        for member in &bench.members {
            bench.host.create("secrets", fixture::kubeconfig(member.name())).unwrap();
        }
        // What lives in the clusters makes its own objects first.
        sleep(Duration::from_secs(1)).await;
        Arc::new(bench)
    }

    /// The same with a driver that has served for a moment.
    pub async fn serving(members: usize, settings: &Settings) -> Arc<Self> {
        let bench = Self::new(1, members, settings).await;
        bench.start();
        bench.serves().await;
        sleep(Duration::from_millis(100)).await;
        bench
    }

    /// One member, whose namespaces get their accounts only after a while.
    pub async fn busy(seed: u64, settings: &Settings, accounts_after: Duration) -> Arc<Self> {
        let bench = Self::clusters(seed, 1, settings, accounts_after);
        bench.host.create("secrets", fixture::kubeconfig(bench.members[0].name())).unwrap();
        sleep(Duration::from_secs(1)).await;
        Arc::new(bench)
    }

    /// The same, for the real process.
    pub async fn outside(seed: u64, members: usize, settings: &Settings) -> Arc<Self> {
        let mut bench = Self::clusters(seed, members, settings, Duration::ZERO);
        let clusters: Vec<Cluster> = std::iter::once(&bench.host).chain(&bench.members).cloned().collect();
        bench.outside = Some(Outside::serve(&clusters, &mut bench.inside).await);
        sleep(Duration::from_secs(1)).await;
        Arc::new(bench)
    }

    fn clusters(seed: u64, members: usize, settings: &Settings, accounts_after: Duration) -> Self {
        let mut inside = JoinSet::new();
        let host = Cluster::new("host", seed);
        inside.spawn(simulate::controllers::run(host.clone()));
        let members: Vec<Cluster> = (0..members).map(|at| member(seed, at, accounts_after, &mut inside)).collect();
        let storages: Vec<Storage> =
            members.iter().map(|member| Storage::new(member.clone(), settings.clone())).collect();
        for storage in storages.clone() {
            inside.spawn(async move { storage.run().await });
        }
        for namespace in [DRIVER_NAMESPACE, SHOP] {
            host.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
        }
        let guard = Guard::new(&host, &members);
        Self {
            host,
            members,
            storages,
            guard,
            sidecar: Sidecar::default(),
            driver: Mutex::default(),
            second: Mutex::default(),
            beside: Mutex::default(),
            incarnations: Mutex::default(),
            kosmos_clusters: Mutex::new(KosmosClusters::Off),
            mover_image: Mutex::default(),
            metrics: Mutex::new(Metrics::new()),
            sent_before: AtomicU64::new(0),
            doorman: Mutex::default(),
            outside: None,
            process: Mutex::default(),
            inside,
        }
    }

    /// Starts the driver. One that is at work already is killed.
    pub fn start(&self) {
        self.kill();
        let mut count = lock(&self.incarnations);
        *count += 1;
        self.sent_before.store(self.guard.sent(), Ordering::Relaxed);
        if let Some(outside) = &self.outside {
            *lock(&self.process) = Some(outside.start());
            return;
        }
        *lock(&self.driver) = Some(self.incarnate(format!("driver-{count}")));
    }

    /// Starts another replica beside the driver. Its requests are signed with the name that is given.
    pub fn start_second(&self, name: &str) {
        *lock(&self.second) = Some(self.incarnate(name.to_owned()));
    }

    /// Starts another replica that is called. Each sidecar has a leader of its own: the provisioner is beside the new one, or stays where it
    /// is, and all others are beside the other one.
    pub fn start_beside(&self, provisions: bool) {
        self.end_beside();
        let mut count = lock(&self.incarnations);
        *count += 1;
        let new = self.incarnate(format!("driver-{count}"));
        drop(count);
        lock(&self.guard.history).two_are_called = true;
        let other = if provisions { lock(&self.driver).replace(new) } else { Some(new) };
        *lock(&self.beside) = other;
    }

    /// Ends the one beside which the provisioner is not, as SIGKILL does.
    pub fn end_beside(&self) {
        if let Some(beside) = lock(&self.beside).take() {
            self.end(&beside);
        }
        lock(&self.guard.history).two_are_called = false;
        if let Some(driver) = lock(&self.driver).as_ref() {
            lock(&self.metrics).clone_from(&driver.metrics);
        }
    }

    /// What the driver signs its requests with.
    pub fn driver_name(&self) -> Option<String> {
        lock(&self.driver).as_ref().map(|driver| driver.name.clone())
    }

    fn incarnate(&self, name: String) -> Incarnation {
        let (controller, started) = watch::channel(None);
        let (mut work, driver) = (JoinSet::new(), self.driver_called(&name));
        let metrics = driver.metrics.clone();
        work.spawn(live(driver, controller, Arc::clone(&self.guard)));
        Incarnation { name, metrics, controller: started, ended: CancellationToken::new(), _work: work }
    }

    /// Ends the driver as SIGKILL does: at once, with all that it knew.
    pub fn kill(&self) {
        if let Some(driver) = lock(&self.driver).take() {
            self.end(&driver);
        }
        if let Some(process) = lock(&self.process).take() {
            process.kill();
        }
    }

    fn end(&self, driver: &Incarnation) {
        self.guard.silence(&driver.name);
        lock(&self.guard.history).was_killed(&driver.name);
        driver.ended.cancel();
    }

    /// How many requests had been sent when the driver was last started.
    pub fn sent_before_start(&self) -> u64 {
        self.sent_before.load(Ordering::Relaxed)
    }

    pub fn is_outside(&self) -> bool {
        self.outside.is_some()
    }

    pub fn is_up(&self) -> bool {
        self.controller().is_some() || lock(&self.process).is_some()
    }

    /// The service, where the driver is at work in this process.
    pub fn controller(&self) -> Option<Controller> {
        lock(&self.driver).as_ref()?.controller.borrow().clone()
    }

    pub fn host_id(&self) -> String {
        text(&self.host.get("namespaces", "", "kube-system").unwrap(), "/metadata/uid").to_owned()
    }

    pub fn member_of(&self, handle: &str) -> Option<&Cluster> {
        self.members.iter().find(|member| handle.split('/').next() == Some(member.name()))
    }

    /// Waits until the driver serves.
    pub async fn serves(&self) {
        if let Some(outside) = &self.outside {
            return outside.serves().await;
        }
        let started = lock(&self.driver).as_ref().map(|driver| driver.controller.clone());
        let mut started = started.expect("the driver was started");
        let served = timeout(Duration::from_mins(5), started.wait_for(Option::is_some)).await;
        drop(served.expect("the driver serves").expect("the driver lives"));
    }

    pub async fn create(&self, request: v1::CreateVolumeRequest) -> Result<v1::Volume, Status> {
        if self.is_outside() {
            return self.client()?.create_volume(request, PATIENCE).await.map_err(as_status);
        }
        let request = with_deadline(request);
        let answer = called(&self.driver, |driver| async move { driver.create_volume(request).await }).await;
        answer.map(|answer| answer.volume.expect("an answer holds a volume"))
    }

    pub async fn delete(&self, request: v1::DeleteVolumeRequest) -> Result<(), Status> {
        if self.is_outside() {
            return self.client()?.delete_volume(request.volume_id, PATIENCE).await.map_err(as_status);
        }
        let request = with_deadline(request);
        called(&self.driver, |driver| async move { driver.delete_volume(request).await }).await.map(drop)
    }

    fn client(&self) -> Result<Client, Status> {
        let process = lock(&self.process);
        process.as_ref().map(|process| process.client.clone()).ok_or_else(|| Status::unavailable("nobody serves"))
    }

    /// One call of a sidecar that is not the provisioner.
    pub async fn call<T, F>(&self, ask: impl FnOnce(Controller) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let are_two = lock(&self.beside).is_some();
        called(if are_two { &self.beside } else { &self.driver }, ask).await
    }

    fn driver_called(&self, name: &str) -> Driver {
        let clusters: Vec<Cluster> = std::iter::once(&self.host).chain(&self.members).cloned().collect();
        let name = name.to_owned();
        let metrics = Metrics::new();
        lock(&self.metrics).clone_from(&metrics);
        let doorman = lock(&self.doorman).clone();
        let dial = move |address: &http::Uri| -> Transport {
            let wanted = clusters.iter().find(|cluster| Some(cluster.name()) == address.host());
            let service = wanted.expect("an address of this bench").service(&name);
            if let Some(doorman) =
                doorman.clone().filter(|doorman| address.host().is_some_and(|at| doorman.is_before(at)))
            {
                return doorman.before(service);
            }
            service.map_response(move |answer| answer.map(whole)).map_err(Into::into).boxed()
        };
        Driver {
            host: Config::new("https://host".parse().unwrap()),
            dial: Dial::Within(Arc::new(dial)),
            members_dir: None,
            members_namespace: DRIVER_NAMESPACE.to_owned(),
            kosmos_clusters: *lock(&self.kosmos_clusters),
            leaf_namespace: "kosmos-csi-leaves".to_owned(),
            mover_image: lock(&self.mover_image).clone(),
            moves_at_once: 1,
            metrics,
        }
    }

    /// What the driver that was started last says of itself.
    pub fn metrics(&self) -> String {
        lock(&self.metrics).text().unwrap()
    }
}

/// One call, as over a socket: it breaks when the driver dies, and its caller gives up after a while.
async fn called<T, F>(driver: &Mutex<Option<Incarnation>>, ask: impl FnOnce(Controller) -> F) -> Result<T, Status>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    let broken = || Status::unavailable("the connection was lost");
    let (controller, ended) = {
        let driver = lock(driver);
        let driver = driver.as_ref().ok_or_else(broken)?;
        (driver.controller.borrow().clone(), driver.ended.clone())
    };
    let asking = timeout(PATIENCE, ask(controller.ok_or_else(broken)?));
    match ended.run_until_cancelled(asking).await {
        None => Err(broken()),
        Some(Err(_)) => Err(Status::deadline_exceeded("the caller gave up")),
        Some(Ok(answer)) => answer.map(Response::into_inner),
    }
}

/// The driver's work, until this is dropped.
async fn live(driver: Driver, controller: watch::Sender<Option<Controller>>, guard: Arc<Guard>) {
    let (mut tasks, never) = (JoinSet::new(), CancellationToken::new());
    let started = Box::pin(driver.start(&mut tasks, &never)).await;
    let mut started = started.expect("the driver starts").expect("nobody stops it");
    if started.listed.wait_for(|listed| *listed).await.is_ok() {
        controller.send_replace(Some(started.controller));
    }
    let ended = tasks.join_next().await;
    guard.report(format!("I8: a task of the driver ended by itself: {ended:?}"));
}

fn member(seed: u64, at: usize, accounts_after: Duration, inside: &mut JoinSet<()>) -> Cluster {
    let cluster = Cluster::new(&format!("m{at}"), seed.wrapping_mul(1000).wrapping_add(at as u64 + 1));
    cluster.create("namespaces", json!({"metadata": {"name": SHOP}})).unwrap();
    let gold =
        json!({"metadata": {"name": fixture::GOLD}, "driverName": "storage.simulated", "parameters": {"iops": "1"}});
    cluster.create("volumeattributesclasses.storage.k8s.io", gold).unwrap();

    inside.spawn(simulate::controllers::run_busy(cluster.clone(), accounts_after));
    cluster
}

pub fn with_deadline<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    request
}

fn as_status(refusal: CallError) -> Status {
    Status::new(refusal.code, refusal.message)
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
