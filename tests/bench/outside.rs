//! Starts a host and a member, lets the measuring part run among them, and prints what that prints.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{
    CLASS, MEMBER, NAMESPACE, Plan,
    clusters::{Cluster, Fleet, Process, Spec, logs, tools::cache_folder},
    conditions::SERVERS,
    subject::LOG,
};

const LOOK: Duration = Duration::from_millis(500);
const DRIVER_NAMESPACE: &str = "kosmos-csi";
/// In a cluster's folder: how the driver's own account there knows it.
pub const ACCOUNT: &str = "bench-account.kubeconfig";

pub async fn measure(plan: &Plan) -> Result<()> {
    println!("starting a host and a member");
    let fleet = Fleet::start_named(Spec { members: 1, nodes: false }, None, |text| println!("{text}")).await?;
    prepare(&fleet).await?;
    let program = std::env::current_exe().context("find this program")?;
    let mut arguments = plan.arguments();
    arguments.push("inside".to_owned());
    arguments.extend([fleet.folder(), &fleet.tools().path("csi-provisioner")].map(|path| path.display().to_string()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (servers, cache) = (servers(&fleet), cache_folder()?.display().to_string());
    let environment = [(SERVERS, servers.as_str()), ("KOSMOS_CSI_CACHE", cache.as_str())];
    let measured = print_all(&fleet.spawn("measure", program, &arguments, &environment)?).await;
    if measured.is_err() {
        println!("logs of servers and drivers: {}", keep_logs(&fleet)?.display());
    }
    measured
}

/// Those of all processes, and of each driver what it said in its last turn.
fn keep_logs(fleet: &Fleet) -> Result<PathBuf> {
    let kept = logs::keep(fleet, "bench")?;
    for stage in fs::read_dir(fleet.folder()).context("list the fleet's folder")?.flatten() {
        for driver in fs::read_dir(stage.path()).into_iter().flatten().flatten() {
            let (log, name) = (driver.path().join(LOG), [stage.file_name(), driver.file_name()]);
            if log.is_file() {
                let name = name.map(|name| name.to_string_lossy().into_owned()).join("-");
                fs::copy(log, kept.join(format!("{name}.log"))).context("copy a log")?;
            }
        }
    }
    Ok(kept)
}

/// Which they are, and of which Go all are built.
pub fn servers(fleet: &Fleet) -> String {
    let version = |binary: &str| fleet.tools().version(binary).to_owned();
    let go = Command::new("go").args(["env", "GOVERSION"]).output();
    let go = go.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned()).unwrap_or_default();
    let [api, etcd, provisioner] = ["kube-apiserver", "etcd", "csi-provisioner"].map(version);
    format!("Kubernetes {api}, etcd {etcd}, external-provisioner {provisioner}, of {go}")
}

/// Nothing works in the clusters but what the bench has there.
async fn prepare(fleet: &Fleet) -> Result<()> {
    fleet.host().apply(include_str!("../../deploy/host.yaml")).await?;
    fleet.member(MEMBER).apply(include_str!("../../deploy/member.yaml")).await?;
    keep_account(fleet.host(), "kosmos-csi-controller").await?;
    keep_account(fleet.member(MEMBER), "kosmos-csi").await?;
    for cluster in fleet.clusters() {
        for process in ["kube-controller-manager", "kube-scheduler"] {
            cluster.stop(process).await?;
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        cluster.apply(&namespace.to_string()).await?;
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "bench.kosmos-csi.test", "volumeBindingMode": "Immediate",
    });
    fleet.member(MEMBER).apply(&class.to_string()).await
}

async fn keep_account(cluster: &Cluster, account: &str) -> Result<()> {
    let kubeconfig = cluster.kubeconfig_for(DRIVER_NAMESPACE, account).await?;
    fs::write(cluster.folder().join(ACCOUNT), kubeconfig).context("write an account's kubeconfig")
}

/// Until it ends.
async fn print_all(measuring: &Process) -> Result<()> {
    let mut shown = 0;
    loop {
        let ended = measuring.wait(LOOK).await;
        let log = measuring.log()?;
        print!("{}", log.get(shown..).unwrap_or_default());
        shown = log.len();
        if let Ok(exit) = ended {
            ensure!(exit.code == Some(0), "measuring failed");
            return Ok(());
        }
    }
}
