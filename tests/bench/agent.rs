//! What the agent of virtual nodes takes when nothing happens, as a process among simulated members that have pods of their own and run
//! some of the host's.

use std::{
    fs::{self, File},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use simulate::{Cluster, text};
use tokio::time::{Instant, sleep};

use super::{
    PATIENCE,
    clusters::guardian::profile_folder,
    metrics::Metrics,
    process::{Apart, megabytes, memory, open_files, processor_time},
    question::{OF_A_THIRD, Plan, Question, THIRDS},
    replica::{FILES, MEMORY},
    report::Row,
    sheet::Sheet,
    subject::LOG,
    world::World,
};

const PODS_NAMESPACE: &str = "kosmos-csi-pods";
const SHOP: &str = "shop";
/// Of a member's own pods: its account is there from the beginning.
const THEIRS: &str = "default";
const WHO: &str = "agent";
const PROCESSOR: &str = "idle: of a processor (%)";
const TO_A_MEMBER: &str = "idle: requests to a member a second";
/// Pods of the host and of others in each member; fewer of the host's where there are many members.
const OURS: usize = 50;
const OURS_OF_MANY: usize = 5;
const FOREIGN: usize = 100;
const A_HUNDRED: usize = 100;
const A_THOUSAND: usize = 1000;
const LOOK: Duration = Duration::from_secs(1);
const SETTLED: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_mins(5);

pub async fn measure(world: &mut World, part: &str, sheet: &mut Sheet) -> Result<()> {
    let members = world.names.len();
    for name in [PODS_NAMESPACE, SHOP] {
        create(&world.host, "namespaces", json!({"metadata": {"name": name}}))?;
    }
    let host = world.host.clone();
    world.spawn(simulate::controllers::run(host));
    for member in &world.members {
        fill(member)?;
    }
    let metrics = Metrics::at_a_free_port()?;
    let begun = Instant::now();
    let mut agent = start(world, &metrics)?;
    until("all virtual nodes are ready", &mut agent, || all_ready(world)).await?;
    let ready = begun.elapsed();
    let has_account = || world.host.get("serviceaccounts", SHOP, "default").is_some();
    until("pods can be made", &mut agent, has_account).await?;
    let ours = if members > A_HUNDRED { OURS_OF_MANY } else { OURS };
    for (node, number) in world.names.iter().flat_map(|name| (0..ours).map(move |number| (name, number))) {
        create(&world.host, "pods", pod(SHOP, &format!("{node}-{number}"), &format!("kosmos-{node}")))?;
    }
    until("all pods run", &mut agent, || world.host.list("pods").iter().all(|pod| runs(pod))).await?;
    sleep(SETTLED).await;
    println!("  nothing happens for {} minutes", IDLE.as_secs() / 60);
    let so_far = async || anyhow::Ok((processor_time(agent.id())?.as_secs_f64(), metrics.requests().await?[0]));
    let mut looks = vec![so_far().await?];
    for _ in 0..THIRDS {
        sleep(IDLE / THIRDS).await;
        looks.push(so_far().await?);
    }
    let (before, now) = (looks[0], looks[looks.len() - 1]);
    let a_second = |now: f64, before: f64| (now - before) / IDLE.as_secs_f64();
    let (resident, _) = memory(agent.id())?;
    let figures = [
        ("virtual nodes are ready after (s)", ready.as_secs_f64()),
        (MEMORY, megabytes(resident)),
        (FILES, open_files(agent.id())? as f64),
        (PROCESSOR, a_second(now.0, before.0) * 100.0),
        (TO_A_MEMBER, a_second(now.1, before.1) / members as f64),
    ];
    sheet.add(part, WHO, &figures);
    for third in looks.windows(2) {
        let used = (third[1].0 - third[0].0) / (IDLE / THIRDS).as_secs_f64();
        sheet.add(part, WHO, &[(OF_A_THIRD, used * 100.0)]);
    }
    Ok(())
}

/// At a hundred members with fifty pods each, and at a thousand with five: up to there one agent is enough.
pub fn goals(sheet: &Sheet, plan: &Plan, count: usize) -> Vec<Row> {
    let goals = match count {
        A_HUNDRED => [60.0, 3.0],
        A_THOUSAND => [500.0, 50.0],
        _ => return Vec::new(),
    };
    let part = Question::Agent.part(count, plan.volumes);
    let row = |(figure, goal): (&str, f64)| {
        Some(Row::at_most(format!("{WHO}, {figure}"), Some(goal), sheet.middle(&part, WHO, figure)?))
    };
    [MEMORY, PROCESSOR].into_iter().zip(goals).filter_map(row).collect()
}

/// With pods of its own on its node.
fn fill(member: &Cluster) -> Result<()> {
    for number in 0..FOREIGN {
        create(member, "pods", pod(THEIRS, &format!("theirs-{number}"), &format!("{}-n1", member.name())))?;
    }
    Ok(())
}

fn pod(namespace: &str, name: &str, node: &str) -> Value {
    let resources = json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}});
    let container = json!({"name": "app", "image": "registry.example/shop/app:1.2.3", "resources": resources,
        "env": [{"name": "LOG", "value": "info"}], "ports": [{"containerPort": 8080}]});
    json!({
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "shop", "tier": "backend"}},
        "spec": {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [container]},
    })
}

fn create(cluster: &Cluster, resource: &str, object: Value) -> Result<()> {
    let made = cluster.create(resource, object);
    made.map(drop).map_err(|error| anyhow!("{resource} of {}: {error:?}", cluster.name()))
}

fn start(world: &World, metrics: &Metrics) -> Result<Apart> {
    let own = world.place.folder.join(WHO);
    fs::create_dir_all(&own).with_context(|| format!("make {}", own.display()))?;
    let log = File::create(own.join(LOG)).context("make a log")?;
    let mut command = Apart::command(profile_folder()?.join("kosmos-csi"));
    command
        .arg("virtual-node")
        .arg(format!("--kubeconfig={}", world.place.host().display()))
        .arg(format!("--members-dir={}", world.place.members().display()))
        .arg(format!("--members-namespace={PODS_NAMESPACE}"))
        .arg(format!("--admin-address={}", metrics.address))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    Apart::run(command.stdout(log.try_clone()?).stderr(log)).context("start the agent")
}

fn all_ready(world: &World) -> bool {
    let is_ready = |node: &Value| {
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let node = |name: &String| world.host.get("nodes", "", &format!("kosmos-{name}"));
    world.names.iter().all(|name| node(name).is_some_and(|node| is_ready(&node)))
}

fn runs(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running"
}

async fn until(what: &str, agent: &mut Apart, is_so: impl Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_so() {
        let ended = agent.ended()?;
        ensure!(ended.is_none(), "the agent has ended before {what}: {ended:?}");
        ensure!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(LOOK).await;
    }
    Ok(())
}
