//! The driver with few volumes and with many, on simulated members: how long it takes to start, what a volume takes of
//! memory, and whether making the next one takes longer.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use csi::v1::Volume;
use domain::volume::{DRIVER, HostId};
use kube::{Client, Config};
use serde_json::{Value, json};
use simulate::Cluster;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    CLASS, MEMBER, NAMESPACE, binder, leaves,
    measure::{Run, closed_loop, median},
    process::memory,
    provisioner::{Host, HostClaim},
    report::{Row, print},
    subject::{Place, Subject, Terms},
    told::Told,
};

const SIZES: [u32; 3] = [100, 10_000, 100_000];
const ROUNDS: usize = 5;
const CALLERS: usize = 16;
const VOLUMES: usize = 1000;
/// Looks at a list in each round: one alone says more of the machine than of the driver.
const LISTS: usize = 40;
/// Of memory per volume, all included.
const BYTES: f64 = 700.0;

/// A driver with its member.
struct Stage {
    subject: Subject,
    host: Host,
    started: Duration,
    memory: (u64, u64),
    rates: Vec<f64>,
    lists: Vec<Duration>,
    _inside: JoinSet<()>,
    _folder: tempfile::TempDir,
}

pub async fn measure() -> Result<()> {
    let mut stages = Vec::new();
    for size in SIZES {
        let stage = Stage::start(size).await?;
        let (now, most) = stage.memory;
        println!("{size} volumes: ready after {:.2?}, {} KB, at most {} KB", stage.started, now >> 10, most >> 10);
        stages.push(stage);
    }
    for round in 0..=ROUNDS {
        for (size, stage) in SIZES.into_iter().zip(&mut stages) {
            let run = stage.create(round).await?;
            let mut lists = Vec::new();
            for _ in 0..LISTS {
                lists.push(stage.subject.list().await?);
            }
            let page = median(lists.iter().map(Duration::as_secs_f64).collect());
            println!("round {round}, {size} volumes: {:.0}/s, a page of a list in {:.1} ms", run.rate(), page * 1000.0);
            if round > 0 {
                stage.rates.push(run.rate());
                stage.lists.extend(lists);
            }
        }
    }
    print(&rows(&stages));
    Ok(())
}

impl Stage {
    async fn start(size: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut inside = JoinSet::new();
        let host = Cluster::new("host", 1);
        for name in [NAMESPACE, "kosmos-csi"] {
            let made = host.create("namespaces", json!({"metadata": {"name": name}}));
            made.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        }
        let identity = host.get("namespaces", "", "kube-system").context("a host without kube-system")?;
        let host_id = HostId(simulate::text(&identity, "/metadata/uid").to_owned());
        let member = filled(&host_id, size);
        let (host, member) = (serve(host, &mut inside).await?, serve(member, &mut inside).await?);
        inside.spawn(binder::run(Client::try_from(Config::new(member.parse()?))?, Told::default()));
        let place = Place::new(folder.path(), &kubeconfig(&host), &[(MEMBER, kubeconfig(&member))])?;
        let host = Host::new(&place.host()).await?;
        let first = host.claims("first", 1, DRIVER).await?;
        let begun = Instant::now();
        let subject = Subject::start(&Terms::own()?, &place).await?;
        for claim in &first {
            let made = subject.serves(claim).await?;
            host.volume(claim, &subject.driver, &made).await?;
        }
        let (started, memory) = (begun.elapsed(), memory(subject.id())?);
        let stage =
            Self { subject, host, started, memory, rates: vec![], lists: vec![], _inside: inside, _folder: folder };
        Ok(stage)
    }

    async fn create(&self, round: usize) -> Result<Run<(HostClaim, Volume)>> {
        let claims = self.host.claims(&format!("volume-{round}"), VOLUMES, &self.subject.driver).await?;
        let run = closed_loop(CALLERS, VOLUMES, |number| {
            let claim = &claims[number];
            async move { Ok((claim.clone(), self.subject.create(claim).await?.0)) }
        });
        let run = run.await?;
        for (claim, made) in &run.calls {
            self.host.volume(claim, &self.subject.driver, made).await?;
        }
        Ok(run)
    }
}

/// A member as it is after a long life, with nobody at work in it.
fn filled(host: &HostId, size: u32) -> Cluster {
    let first = Cluster::new("cluster38", 2);
    for name in (0..500).map(leaves::namespace).chain([NAMESPACE.to_owned()]) {
        let made = first.create("namespaces", json!({"metadata": {"name": name}}));
        assert!(made.is_ok(), "{made:?}");
    }
    let class =
        json!({"metadata": {"name": CLASS}, "provisioner": "bench.kosmos-csi.test", "volumeBindingMode": "Immediate"});
    let made = first.create("storageclasses.storage.k8s.io", class);
    assert!(made.is_ok(), "{made:?}");
    let mut objects: Vec<(String, Value)> =
        first.objects().into_iter().map(|(resource, object)| (resource, Value::clone(&object))).collect();
    for number in 0..size {
        objects.push(("persistentvolumeclaims".to_owned(), leaves::claim(host, number)));
        objects.push(("persistentvolumes".to_owned(), leaves::volume(host, number)));
    }
    Cluster::restored("cluster38", 2, objects)
}

async fn serve(cluster: Cluster, inside: &mut JoinSet<()>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    inside.spawn(simulate::serve(cluster, listener));
    Ok(address)
}

fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: m, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
    )
}

fn rows(stages: &[Stage]) -> Vec<Row> {
    let [few, many, most] = stages else { return Vec::new() };
    let bytes = |stage: &Stage, size: u32| (stage.memory.0 as f64 - few.memory.0 as f64) / f64::from(size - SIZES[0]);
    let rate = |stage: &Stage| median(stage.rates.clone());
    let list = |stage: &Stage| median(stage.lists.iter().map(Duration::as_secs_f64).collect());
    vec![
        Row::at_most("bytes of memory per volume, 10,000".to_owned(), Some(BYTES), bytes(many, SIZES[1])),
        Row::at_most("bytes of memory per volume, 100,000".to_owned(), Some(BYTES), bytes(most, SIZES[2])),
        Row::at_most(
            "most memory while starting, of that after (%)".to_owned(),
            Some(130.0),
            most.memory.1 as f64 / most.memory.0 as f64 * 100.0,
        ),
        Row::at_most("start with 100,000 (s)".to_owned(), Some(3.0), most.started.as_secs_f64()),
        Row::at_least(
            "rate with 100,000, of that with 10,000 (%)".to_owned(),
            Some(95.0),
            rate(most) / rate(many) * 100.0,
        ),
        Row::at_most(
            "page of ListVolumes with 100,000, of that with 10,000 (%)".to_owned(),
            Some(110.0),
            list(most) / list(many) * 100.0,
        ),
    ]
}
