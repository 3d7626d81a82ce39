//! Starts a host and a member, lets the measuring part run among them, and prints what that prints.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{
    CLASS, MEMBER, NAMESPACE, Plan,
    clusters::{Fleet, Process, Spec},
};

const LOOK: Duration = Duration::from_millis(500);

pub async fn measure(plan: &Plan) -> Result<()> {
    println!("starting a host and a member");
    let fleet = Fleet::start_named(Spec { members: 1, nodes: false }, None, |text| println!("{text}")).await?;
    prepare(&fleet).await?;
    let program = std::env::current_exe().context("find this program")?;
    let mut arguments = plan.arguments();
    arguments.push("inside".to_owned());
    arguments.extend([fleet.folder(), &fleet.tools().path("csi-provisioner")].map(|path| path.display().to_string()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    print_all(&fleet.spawn("measure", program, &arguments, &[])?).await
}

/// Nothing works in the clusters but what the bench has there.
async fn prepare(fleet: &Fleet) -> Result<()> {
    for cluster in fleet.clusters() {
        for process in ["kube-controller-manager", "kube-scheduler"] {
            cluster.stop(process).await?;
        }
        for name in [NAMESPACE, "kosmos-csi"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            cluster.apply(&namespace.to_string()).await?;
        }
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "bench.kosmos-csi.test", "volumeBindingMode": "Immediate",
    });
    fleet.member(MEMBER).apply(&class.to_string()).await
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
