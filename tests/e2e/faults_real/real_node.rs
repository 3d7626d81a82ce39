//! The host's real node, where the driver's plugin mounts volumes of the member: pods that use one, of which one runs all the while.

use anyhow::{Result, ensure};
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{
    MEMBER,
    kept::{Kept, class},
    pods::runs,
};
use crate::{
    host_node::{HostNode, NEAR, storage_objects},
    objects::{Place, pod},
    rig::{PATIENCE, Rig},
};

/// The host's class, and the leaf's.
pub const NEAR_CLASS: &str = "near";
const LEAF_CLASS: &str = "ext4";
/// A claim and its pod.
const KEEPER: &str = "near-kept";
/// It ends where it cannot write.
const WRITES: &str = "while date > /near-kept/now; do sleep 0.1; done";

pub struct RealNode<'a> {
    pub node: Mutex<HostNode<'a>>,
    pub kept: Kept,
    keeper: Option<String>,
}

impl<'a> RealNode<'a> {
    /// Whether its pod may begin again is the policy of that.
    pub async fn begin(rig: &'a Rig, host: &Place<'_>, leaf: &Place<'_>, policy: &str) -> Result<Self> {
        for object in storage_objects(NEAR) {
            leaf.cluster.apply(&object.to_string()).await?;
        }
        let node = Mutex::new(HostNode::start(rig, NEAR).await?);
        let parameters = json!({"leafStorageClass": LEAF_CLASS});
        host.class(&class(&host.namespace, NEAR_CLASS), "WaitForFirstConsumer", parameters, &[MEMBER]).await?;
        let mut keeper = pod(KEEPER, &[KEEPER], WRITES);
        keeper["spec"]["restartPolicy"] = json!(policy);
        comes(host, KEEPER, keeper).await?;
        runs(host, KEEPER, PATIENCE).await?;
        let kept = Kept::look(leaf, &host.bound(KEEPER).await?, KEEPER).await?;
        let keeper = host.pods().get(KEEPER).await?.uid();
        Ok(Self { node, kept, keeper })
    }

    /// It writes, and is no other one.
    pub async fn keeper_runs_on(&self, host: &Place<'_>) -> Result<()> {
        runs(host, KEEPER, PATIENCE).await?;
        let now = host.pods().get(KEEPER).await?.uid();
        ensure!(now == self.keeper, "the pod on the real node was {:?} and is {now:?}", self.keeper);
        Ok(())
    }

    pub async fn end(self, host: &Place<'_>) -> Result<()> {
        host.pods().delete(KEEPER, &DeleteParams::default()).await?;
        host.delete_claim(KEEPER).await?;
        host.volume_is_gone(&self.kept.volume).await?;
        self.node.into_inner().end().await
    }
}

/// A user's pod, after its claim, if that is not there already.
pub async fn comes(host: &Place<'_>, name: &str, pod: Value) -> Result<()> {
    if host.claims().get_opt(name).await?.is_none() {
        host.claim(name, &class(&host.namespace, NEAR_CLASS)).await?;
    }
    host.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}
