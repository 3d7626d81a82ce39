//! The real scheduler among many virtual nodes that nobody keeps: how many pods with a claim it finds a node for in a second, and what of a
//! processor it takes for each, where it looks at the room that members tell of, in one class and in five, and where it does not.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use domain::volume::{DRIVER, MEMBER_KEY};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolumeClaim, Pod},
    storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{
    PATIENCE,
    again::answered,
    clusters::{Fleet, Spec, logs, wait_for},
    conditions,
    measure::Figures,
    outside::servers,
    process::{find, processor_time},
    sheet::Sheet,
};

const NAMESPACE: &str = "default";
const ROOM_NAMESPACE: &str = "kosmos-csi";
const SELECTED: &str = "volume.kubernetes.io/selected-node";
const PODS: usize = 100;
/// Requests at once.
const HANDS: usize = 16;
/// Until the scheduler has seen what was made.
const SETTLED: Duration = Duration::from_secs(5);
/// Of an answer that may be there.
const LOOK: Duration = Duration::from_millis(50);
/// A round of all cases takes no longer.
const ROUND: Duration = Duration::from_mins(5);
/// Objects for each node, or none and the scheduler is not to look for any.
const CASES: [(&str, usize); 3] = [("not looked at", 0), ("one class", 1), ("five classes", 5)];

const UNLIKE_LIFE: [&str; 5] = [
    "Nobody keeps the nodes, which pods tolerate, and nobody makes the volumes: a pod counts once its claim says for which node.",
    "No controller-manager works meanwhile; the bench, the API server and its etcd share the processors with the scheduler.",
    "etcd does not wait for the disk (--unsafe-no-fsync), and the API server writes an audit log without bodies.",
    "Pods ask for nothing but their claim, and have no affinity.",
    "The scheduler has the bound of requests that it has by itself, a hundred at once and then fifty a second, as mostly in life.",
];

/// A share of so many minutes goes on where the last one has ended.
pub async fn measure(nodes: usize, rounds: usize, minutes: Option<u64>, json: &Path) -> Result<()> {
    let until = minutes.map(|minutes| Instant::now() + Duration::from_mins(minutes));
    let fleet = Fleet::start_named(Spec { members: 0, nodes: false }, None, |text| println!("{text}")).await?;
    let host = fleet.host();
    host.stop("kube-controller-manager").await?;
    host.apply(include_str!("../../deploy/host.yaml")).await?;
    let process = find("kube-scheduler", &format!("{}/", host.folder().display()))?;
    let scheduled = Scheduled { client: host.client().await?, process, nodes };
    let mut head = conditions::conditions(&UNLIKE_LIFE);
    head["servers"] = json!(servers(&fleet));
    let mut sheet = Sheet::begin(json, minutes.is_some(), head, conditions::now())?;
    let done = Box::pin(scheduled.all(rounds, until, &mut sheet)).await;
    conditions::print(sheet.head());
    sheet.print();
    sheet.write()?;
    println!("\nall rounds as JSON: {}", json.display());
    if done.is_err() {
        println!("logs of servers: {}", logs::keep(&fleet, "bench-scheduler")?.display());
    }
    done
}

/// A host whose scheduler is at work.
struct Scheduled {
    client: Client,
    /// The scheduler's.
    process: u32,
    nodes: usize,
}

impl Scheduled {
    async fn all(&self, rounds: usize, until: Option<Instant>, sheet: &mut Sheet) -> Result<()> {
        let part = format!("{} nodes, {PODS} pods at once", self.nodes);
        let first = sheet.whole_rounds(&part);
        if first < rounds {
            self.prepare().await?;
        }
        for round in first..rounds {
            if until.is_some_and(|until| Instant::now() + ROUND > until) {
                let left = rounds - round;
                println!("the time is over, and {left} rounds are left: the same command goes on with them");
                return Ok(());
            }
            let mut seen = Vec::new();
            for (case, classes) in CASES.into_iter().cycle().skip(round).take(CASES.len()) {
                let figures = self.place(classes, &format!("round-{round}-{classes}")).await?;
                println!("round {round}, {case}: {figures:?}");
                seen.push((case, figures));
            }
            for (case, figures) in seen {
                sheet.add(&part, case, &figures);
            }
            sheet.write()?;
        }
        Ok(())
    }

    async fn prepare(&self) -> Result<()> {
        println!("making {} nodes", self.nodes);
        let all = (0..self.nodes).map(|number| self.node(number));
        stream::iter(all).buffer_unordered(HANDS).try_collect::<()>().await?;
        let classes = (0..CASES[CASES.len() - 1].1).map(|class| {
            json!({"metadata": {"name": format!("class-{class}")}, "provisioner": DRIVER,
                "volumeBindingMode": "WaitForFirstConsumer"})
        });
        for class in classes {
            make::<StorageClass>(&Api::all(self.client.clone()), class).await?;
        }
        Ok(())
    }

    async fn node(&self, number: usize) -> Result<()> {
        let (name, member) = (format!("kosmos-m{number:04}"), format!("m{number:04}"));
        let room = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
        let labels = json!({MEMBER_KEY: member, "kubernetes.io/hostname": name, "kosmos.io/node": "true"});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let node = json!({"metadata": {"name": name, "labels": labels},
            "status": {"conditions": ready, "capacity": room, "allocatable": room}});
        make::<Node>(&Api::all(self.client.clone()), node).await?;
        let driver = json!({"name": DRIVER, "nodeID": format!("virtual/{member}"), "topologyKeys": [MEMBER_KEY]});
        let csi_node = json!({"metadata": {"name": name}, "spec": {"drivers": [driver]}});
        make::<CSINode>(&Api::all(self.client.clone()), csi_node).await
    }

    /// Pods that come at once, until each has a node.
    async fn place(&self, classes: usize, tag: &str) -> Result<Figures> {
        self.tell_room(classes).await?;
        let (claims, pods) = (self.claims(), self.pods());
        for name in names(tag) {
            make(&claims, claim(&name, tag)).await?;
        }
        sleep(SETTLED).await;
        let (before, begun) = (processor_time(self.process)?, Instant::now());
        stream::iter(names(tag).map(|name| {
            let pods = pods.clone();
            async move { make(&pods, pod(&name, tag)).await }
        }))
        .buffer_unordered(HANDS)
        .try_collect::<()>()
        .await?;
        let of_tag = ListParams::default().labels(&format!("bench={tag}"));
        timeout(PATIENCE, self.all_have_nodes(&of_tag)).await.context("wait until all pods have a node")??;
        let took = begun.elapsed().as_secs_f64();
        let used = processor_time(self.process)?.saturating_sub(before).as_secs_f64();
        self.remove(&of_tag).await?;
        let each = used / PODS as f64;
        Ok(vec![("pods a second", PODS as f64 / took), ("processor seconds of the scheduler for each", each)])
    }

    /// Looked at as often as the time that is told has to be right.
    async fn all_have_nodes(&self, of_tag: &ListParams) -> Result<()> {
        let claims = self.claims();
        loop {
            let seen = answered(|| claims.list_metadata(of_tag)).await?;
            if seen.iter().filter(|claim| claim.annotations().contains_key(SELECTED)).count() == PODS {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    /// What each member says of so many classes; with none, nobody is to look.
    async fn tell_room(&self, classes: usize) -> Result<()> {
        let rooms = Api::<CSIStorageCapacity>::namespaced(self.client.clone(), ROOM_NAMESPACE);
        // Of thousands it takes longer than an answer may.
        wait_for("nobody tells of room", PATIENCE, || async {
            drop(rooms.delete_collection(&DeleteParams::default(), &ListParams::default()).await?);
            Ok(rooms.list_metadata(&ListParams::default()).await?.items.is_empty().then_some(()))
        })
        .await?;
        let looks = Patch::Merge(json!({"spec": {"storageCapacity": classes > 0}}));
        Api::<CSIDriver>::all(self.client.clone()).patch(DRIVER, &PatchParams::default(), &looks).await?;
        let each = (0..self.nodes).flat_map(|node| (0..classes).map(move |class| (node, class)));
        stream::iter(each.map(|(node, class)| {
            let rooms = rooms.clone();
            async move { make(&rooms, room(node, class)).await }
        }))
        .buffer_unordered(HANDS)
        .try_collect::<()>()
        .await
    }

    async fn remove(&self, all: &ListParams) -> Result<()> {
        let (claims, pods) = (self.claims(), self.pods());
        pods.delete_collection(&DeleteParams::default().grace_period(0), all).await?;
        claims.delete_collection(&DeleteParams::default(), all).await?;
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        for claim in claims.list_metadata(all).await? {
            claims.patch(&claim.name_any(), &PatchParams::default(), &free).await?;
        }
        wait_for("pods and claims are gone", PATIENCE, || async {
            let left = claims.list_metadata(all).await?.items.len() + pods.list_metadata(all).await?.items.len();
            Ok((left == 0).then_some(()))
        })
        .await
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}

fn names(tag: &str) -> impl Iterator<Item = String> {
    (0..PODS).map(move |number| format!("{tag}-{number}"))
}

fn claim(name: &str, tag: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"bench": tag}}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "class-0", "resources": {"requests": {"storage": "1Gi"}}}})
}

fn pod(name: &str, tag: &str) -> Value {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    json!({"metadata": {"name": name, "labels": {"bench": tag}}, "spec": {"tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "app", "image": "app:1"}], "volumes": volumes}})
}

fn room(node: usize, class: usize) -> Value {
    let member = format!("m{node:04}");
    json!({"metadata": {"name": format!("room-{node}-{class}")}, "storageClassName": format!("class-{class}"),
        "nodeTopology": {"matchLabels": {MEMBER_KEY: member}}, "capacity": "100Gi"})
}

async fn make<K: Clone + std::fmt::Debug + Serialize + DeserializeOwned>(api: &Api<K>, object: Value) -> Result<()> {
    let (object, create) = (serde_json::from_value(object)?, PostParams::default());
    match answered(|| api.create(&create, &object)).await {
        // The answer to an earlier try was lost.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => made.map(drop).context("make an object of the scheduler's"),
    }
}
