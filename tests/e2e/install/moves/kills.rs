//! SIGKILL for the controller that leads: its container is killed in its node, and the kubelet starts it again. Where its pod is deleted,
//! also by force, it is told to stop before, and gives its lease back.

use std::{convert::Infallible, fs, future::pending, ops::Range, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ContainerStatus, Pod},
};
use kube::{Api, ResourceExt, api::ListParams};
use tokio::time::sleep;

use super::PATIENCE;
use crate::clusters::{Cluster, wait_for};

/// The namespace, and the container in each pod of the controller.
const DRIVER: &str = "kosmos-csi";
pub(super) const KILLS: usize = 20;
const BETWEEN: Range<u64> = 1_000..8_000;
/// How a container ends that was killed.
const KILLED: i32 = 128 + 9;

#[derive(Default)]
pub(super) struct Kills {
    /// How many have ended as they had to.
    pub(super) done: usize,
    /// Who was killed last: he holds the lease until that is over.
    last: Option<String>,
    /// Whose end nobody has looked at yet: a trip may be over before that.
    struck: Option<(Pod, ContainerStatus)>,
}

impl Kills {
    /// So many in all. It has no end.
    pub(super) async fn go_on(&mut self, host: &Cluster) -> Result<Infallible> {
        loop {
            if let Some((pod, container)) = &self.struck {
                let ended = Box::pin(was_killed(host, pod, container)).await;
                ended.with_context(|| format!("kill the controller in {}", pod.name_any()))?;
                self.done += 1;
                eprintln!("kill {}: {}", self.done, pod.name_any());
                self.struck = None;
            }
            if self.done >= KILLS {
                return pending().await;
            }
            sleep(Duration::from_millis(fastrand::u64(BETWEEN))).await;
            Box::pin(self.strike(host)).await?;
        }
    }

    /// Nobody, where the one that leads has changed meanwhile.
    async fn strike(&mut self, host: &Cluster) -> Result<()> {
        let leader = leader(host).await?;
        let pods = controllers(host).await?;
        let pods = pods.list(&ListParams::default().labels("app.kubernetes.io/component=controller")).await?.items;
        make_way(host, &pods).await?;
        let is_leader = |pod: &&Pod| {
            let process = format!("{}_", pod.name_any());
            leader.as_ref().is_some_and(|leader| leader.starts_with(&process))
        };
        let Some(pod) = pods.iter().find(is_leader).filter(|_| leader != self.last) else { return Ok(()) };
        let Some(container) = driver(pod).filter(|container| is_running(container)) else { return Ok(()) };
        let id = container.container_id.as_deref().context("its container has no ID")?;
        let task = id.trim_start_matches("containerd://");
        match host.node_exec("ctr", &["-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", task]).await {
            Ok(_) => {
                self.struck = Some((pod.clone(), container.clone()));
                self.last = leader;
                Ok(())
            }
            // It has ended by itself, as after a kill before.
            Err(error) if format!("{error:#}").contains("not found") => Ok(()),
            Err(error) => Err(error.context(format!("kill the controller in {}", pod.name_any()))),
        }
    }

    /// All of them were, and the controllers are as before.
    pub(super) async fn end(&self, host: &Cluster) -> Result<()> {
        ensure!(self.done == KILLS, "{} of {KILLS} kills", self.done);
        let rollout = ["-n", DRIVER, "rollout", "status", "deployment/kosmos-csi-controller", "--timeout=180s"];
        host.kubectl(&rollout).await.map(drop)
    }
}

async fn controllers(host: &Cluster) -> Result<Api<Pod>> {
    Ok(Api::namespaced(host.client().await?, DRIVER))
}

/// The process that holds the lease: its pod, and a number.
async fn leader(host: &Cluster) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(host.client().await?, DRIVER);
    Ok(leases.get("kosmos-csi-leader").await?.spec.and_then(|spec| spec.holder_identity))
}

fn driver(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|container| container.name == DRIVER)
}

fn is_running(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// The kubelet lets a container wait longer and longer that ended again and again: then its pod makes way for a new one. There is no
/// driver in it that could be told to stop.
async fn make_way(host: &Cluster, pods: &[Pod]) -> Result<()> {
    let waits = |pod: &&Pod| {
        let waiting = driver(pod).and_then(|container| container.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
        pod.metadata.deletion_timestamp.is_none() && waiting == Some("CrashLoopBackOff")
    };
    for pod in pods.iter().filter(waits) {
        let delete = ["-n", DRIVER, "delete", "pod", &pod.name_any(), "--wait=false", "--ignore-not-found"];
        host.kubectl(&delete).await?;
    }
    Ok(())
}

/// And was not told to stop.
async fn was_killed(host: &Cluster, pod: &Pod, container: &ContainerStatus) -> Result<()> {
    let (name, id) = (pod.name_any(), container.container_id.clone().context("its container has no ID")?);
    let pods = controllers(host).await?;
    let code = wait_for("the kubelet has seen its end", PATIENCE, || async {
        let pod = pods.get(&name).await?;
        let states = driver(&pod).into_iter().flat_map(|container| [&container.state, &container.last_state]);
        let mut ends = states.flatten().filter_map(|state| state.terminated.as_ref());
        Ok(ends.find(|end| end.container_id.as_ref() == Some(&id)).map(|end| end.exit_code))
    })
    .await?;
    ensure!(code == KILLED, "it has ended with {code}");
    let place = format!("{DRIVER}_{name}_{}/{DRIVER}/{}.log", pod.uid().unwrap_or_default(), container.restart_count);
    let log = host.folder().join("log/pods").join(place);
    let log = fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
    let told = log.lines().find(|line| line.contains("SIGTERM") || line.contains("the lease is given back"));
    ensure!(told.is_none(), "it was told to stop before: {told:?}");
    Ok(())
}
