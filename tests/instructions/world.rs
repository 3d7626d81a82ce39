//! A host with members, all simulated, and the driver between them, on the thread that counts.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cluster::{Dial, Transport, metrics::Metrics};
use commands::{args::KosmosClusters, run::driver::Driver};
use csi::{
    controller::Controller,
    v1::{DeleteVolumeRequest, controller_server::Controller as _},
};
use http_body_util::BodyExt;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Config,
    client::{Body, DynBody},
};
use serde_json::json;
use simulate::{
    Cluster,
    service::Reply,
    storage::{Settings, Storage, Work},
    text,
};
use tokio::{runtime::Runtime, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tower::{BoxError, ServiceExt};

use super::{
    authority::AUTHORITY,
    provisioner::{creation, host_volume},
    uncounted::{Uncounted, counted},
};

const NAMESPACE: &str = "kosmos-csi";
const SHOP: &str = "shop";
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const DRIVER: &str = "kosmos.csi.io";
const PATIENCE: Duration = Duration::from_secs(10);
/// What a member's storage takes for a step: what is seen on a watch meanwhile is.
const STEP: Duration = Duration::from_millis(10);
/// Until what is done in the background for a change is done.
const SETTLED: Duration = Duration::from_secs(5);

pub struct World {
    host: Cluster,
    controller: Controller,
    _inside: JoinSet<()>,
    _driver: JoinSet<anyhow::Result<()>>,
    runtime: Runtime,
}

/// A volume of the host.
pub struct Volume {
    claim: String,
    name: String,
    handle: String,
}

impl World {
    pub fn new(members: usize) -> Self {
        fastrand::seed(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (host, controller, inside, work) = runtime.block_on(async {
            let (host, mut inside, mut work) = (Cluster::new("host", 1), JoinSet::new(), JoinSet::new());
            let dial = clusters(&host, members, &mut inside).await;
            let controller = start(dial, &mut work).await;
            sleep(SETTLED).await;
            (host, controller, inside, work)
        });
        Self { host, controller, _inside: inside, _driver: work, runtime }
    }

    /// A claim of the host gets its volume, in the first member.
    pub fn create(&self, number: usize) -> Volume {
        let claim = format!("data-{number}");
        let annotations = json!({
            "volume.beta.kubernetes.io/storage-provisioner": DRIVER, "volume.kubernetes.io/storage-provisioner": DRIVER,
            "volume.kubernetes.io/selected-node": "kosmos-m0",
        });
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "kosmos",
            "resources": {"requests": {"storage": "1Gi"}}});
        let metadata = json!({"namespace": SHOP, "name": claim, "annotations": annotations});
        let made = self.host.create(CLAIMS, json!({"metadata": metadata, "spec": spec})).unwrap();
        let uid = text(&made, "/metadata/uid");
        let (name, mut answer) = (format!("pvc-{uid}"), None);
        let request = creation(&name, &claim, "m0");
        self.settle();
        counted(
            &self.runtime,
            Box::pin(async { answer = Some(self.controller.create_volume(with_deadline(request)).await) }),
        );
        let given = answer.unwrap().unwrap().into_inner().volume.unwrap();
        self.host.create(VOLUMES, host_volume(&name, &claim, uid, &given)).unwrap();
        self.settle();
        Volume { claim, name, handle: given.volume_id }
    }

    /// The claim goes, and then its volume.
    pub fn delete(&self, volume: &Volume) {
        self.host.delete(CLAIMS, SHOP, &volume.claim).unwrap();
        self.settle();
        let released = self.host.get(VOLUMES, "", &volume.name).unwrap();
        assert_eq!(text(&released, "/status/phase"), "Released");
        let request = DeleteVolumeRequest { volume_id: volume.handle.clone(), ..DeleteVolumeRequest::default() };
        let mut answer = None;
        counted(
            &self.runtime,
            Box::pin(async { answer = Some(self.controller.delete_volume(with_deadline(request)).await) }),
        );
        answer.unwrap().unwrap();
        self.host.delete(VOLUMES, "", &volume.name).unwrap();
        self.settle();
    }

    fn settle(&self) {
        self.runtime.block_on(async { sleep(SETTLED).await });
    }
}

/// Everything but the driver.
async fn clusters(host: &Cluster, members: usize, inside: &mut JoinSet<()>) -> Dial {
    for namespace in [NAMESPACE, SHOP] {
        host.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
    }
    inside.spawn(Uncounted::new(simulate::controllers::run(host.clone())));
    let mut all = HashMap::from([(host.name().to_owned(), host.clone())]);
    for (number, seed) in (0..members).zip(1000..) {
        let member = Cluster::new(&format!("m{number}"), seed);
        member.create("namespaces", json!({"metadata": {"name": SHOP}})).unwrap();
        host.create("secrets", kubeconfig(member.name())).unwrap();
        inside.spawn(Uncounted::new(simulate::controllers::run(member.clone())));
        let work = || Work::takes(STEP..=STEP);
        let settings = Settings { provisioning: work(), deleting: work(), ..Settings::default() };
        let storage = Storage::new(member.clone(), settings);
        inside.spawn(Uncounted::new(async move { storage.run().await }));
        all.insert(member.name().to_owned(), member);
    }
    sleep(SETTLED).await;
    Dial::Within(Arc::new(move |address: &http::Uri| -> Transport {
        let cluster = all[address.host().unwrap()].clone();
        let answer = move |request: http::Request<Body>| {
            let answering = cluster.service("driver").oneshot(request);
            Uncounted::new(async move { answering.await.map(|answer| answer.map(whole)).map_err(BoxError::from) })
        };
        tower::service_fn(answer).boxed()
    }))
}

fn whole(body: Reply) -> Box<DynBody> {
    Box::new(Uncounted::new(BodyExt::map_err(body, BoxError::from)))
}

fn kubeconfig(member: &str) -> serde_json::Value {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: m, cluster: {{server: 'https://{member}', certificate-authority-data: {AUTHORITY}}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
    );
    let data = [("kubeconfig".to_owned(), ByteString(text.into()))].into();
    let mut secret = json!(Secret { data: Some(data), ..Secret::default() });
    secret["metadata"] = json!({"name": member, "namespace": NAMESPACE, "labels": {"kosmos.csi.io/member": member}});
    secret
}

async fn start(dial: Dial, work: &mut JoinSet<anyhow::Result<()>>) -> Controller {
    let driver = Driver {
        host: Config::new("https://host".parse().unwrap()),
        dial,
        members_dir: None,
        members_namespace: NAMESPACE.to_owned(),
        kosmos_clusters: KosmosClusters::Off,
        leaf_namespace: "kosmos-csi-leaves".to_owned(),
        mover_image: None,
        moves_at_once: 1,
        metrics: Metrics::new(),
    };
    let mut started = Box::pin(driver.start(work, &CancellationToken::new())).await.unwrap().unwrap();
    started.listed.wait_for(|listed| *listed).await.unwrap();
    started.controller
}

fn with_deadline<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    request
}
