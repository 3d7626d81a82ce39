//! Pods of the host that an agent runs in the member: one that runs all the while, and those of users.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::DeleteParams};
use tokio::sync::Mutex;

use crate::{
    agent::{Agent, NODE, gone, phase},
    clusters::wait_for,
    driver::Launch,
    objects::Place,
    rig::{MEMBERS, Rig},
};

/// Runs all the while, and its copy of the same name in the member.
pub const KEEPER: &str = "keeper";

pub struct Pods<'a> {
    pub agent: Mutex<Agent<'a>>,
    /// Of the pod that runs all the while, and of its copy.
    uids: [Option<String>; 2],
}

impl<'a> Pods<'a> {
    pub async fn begin(rig: &'a Rig, launch: &Launch, (host, leaf): (&Place<'_>, &Place<'_>)) -> Result<Self> {
        let agent = Agent::start_as(rig, launch, &MEMBERS.map(|member| format!("kosmos-{member}"))).await?;
        let agent = Mutex::new(agent);
        host.tolerant_pod(KEEPER, &[], Some(NODE)).await?;
        phase(host, KEEPER, "Running").await?;
        Ok(Self { agent, uids: uids(host, leaf).await? })
    }

    /// It has not begun again, here or there.
    pub async fn keeper_runs_on(&self, host: &Place<'_>, leaf: &Place<'_>) -> Result<()> {
        phase(host, KEEPER, "Running").await?;
        let now = uids(host, leaf).await?;
        ensure!(now == self.uids, "pod and copy were {:?} and are {now:?}", self.uids);
        Ok(())
    }

    /// One of a user runs, on a node that is ready.
    pub async fn runs(&self, host: &Place<'_>, name: &str, within: Duration) -> Result<()> {
        runs(host, name, within).await?;
        self.is_ready(within).await
    }

    /// The member's node of the host is.
    pub async fn is_ready(&self, within: Duration) -> Result<()> {
        self.agent.lock().await.ready(NODE, true, within).await
    }

    pub async fn end(self, host: &Place<'_>) -> Result<()> {
        host.pods().delete(KEEPER, &DeleteParams::default()).await?;
        gone(host, KEEPER).await?;
        self.agent.into_inner().end().await
    }
}

/// The host says that the member's node is not ready.
pub async fn are_away(host: &Place<'_>) -> Result<bool> {
    let node = Api::<Node>::all(host.client.clone()).get(NODE).await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    Ok(conditions.iter().any(|one| one.type_ == "Ready" && one.status != "True"))
}

pub async fn runs(host: &Place<'_>, name: &str, within: Duration) -> Result<()> {
    wait_for(&format!("pod {name} runs"), within, || async {
        let phase = host.pods().get(name).await?.status.and_then(|status| status.phase);
        ensure!(phase.as_deref() == Some("Running"), "it is {phase:?}");
        Ok(Some(()))
    })
    .await
}

async fn uids(host: &Place<'_>, leaf: &Place<'_>) -> Result<[Option<String>; 2]> {
    Ok([host.pods().get(KEEPER).await?.uid(), leaf.pods().get(KEEPER).await?.uid()])
}
