//! Who goes through the proxy, and how he is led there.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{MEMBER, OTHER};
use crate::{
    agent,
    clusters::{
        Cluster,
        between::{Between, Upstream, Ways},
        wait_for,
    },
    rig::{DRIVER_NAMESPACE, PATIENCE, Rig},
};

const DRIVER: &str = "kosmos-csi";
const CONTROLLER: &str = "kosmos-csi-controller";
/// A Secret to which a token is bound.
const ENDS: &str = "ends";
/// An API server does not ask itself of a token again within ten seconds.
const BELIEVED: Duration = Duration::from_secs(12);
/// Elsewhere sidecars here are the administrator by a certificate, which ends at a proxy.
const SIDECARS: &str = "sidecars";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Of the driver.
    ToMember,
    /// Of the driver and its sidecars.
    ToHost,
    /// Of the agent, which has to be there.
    OfAgent,
}

impl Way {
    /// From now on it leads through the proxy alone.
    pub async fn lead_through(self, rig: &Rig) -> Result<Between> {
        let (to, account) = self.account(rig);
        // The accounts of the host have no namesakes in its members.
        let elsewhere = if self == Self::ToHost { DRIVER } else { account };
        let between = start(rig, to, elsewhere).await?;
        self.give_credentials(rig, &between).await?;
        let asks = wait_for("somebody asks the proxy", PATIENCE, || async { Ok((between.asked() > 0).then_some(())) });
        asks.await?;
        Ok(between)
    }

    /// Where it leads, and whose it is.
    fn account(self, rig: &Rig) -> (&Cluster, &'static str) {
        match self {
            Self::ToMember => (rig.fleet.member(MEMBER), DRIVER),
            Self::ToHost => (rig.fleet.host(), CONTROLLER),
            Self::OfAgent => (rig.fleet.member(MEMBER), agent::ACCOUNT),
        }
    }

    /// Whoever goes through the proxy has a new token, and the authority that the proxy has now.
    pub async fn give_credentials(self, rig: &Rig, between: &Between) -> Result<()> {
        let (to, account) = self.account(rig);
        self.give(rig, between, &to.kubeconfig_for(DRIVER_NAMESPACE, account).await?).await
    }

    /// The token of whoever goes through the proxy ends, as the Secret does that it is bound to.
    pub async fn end_token(self, rig: &Rig, between: &Between) -> Result<()> {
        let (to, account) = self.account(rig);
        to.kubectl(&["-n", DRIVER_NAMESPACE, "create", "secret", "generic", ENDS]).await?;
        self.give(rig, between, &to.kubeconfig_bound_to(ENDS, DRIVER_NAMESPACE, account).await?).await?;
        to.kubectl(&["-n", DRIVER_NAMESPACE, "delete", "secret", ENDS]).await?;
        sleep(BELIEVED).await;
        Ok(())
    }

    /// By way of the proxy; those of a host begin again with it.
    async fn give(self, rig: &Rig, between: &Between, direct: &str) -> Result<()> {
        let by = between.kubeconfig(direct)?;
        match self {
            Self::ToMember => rig.join_with(MEMBER, &by).await,
            Self::OfAgent => agent::give(rig.fleet.host(), MEMBER, &by).await,
            Self::ToHost => {
                let sidecars = between.kubeconfig(&sidecars(rig.fleet.host()).await?)?;
                rig.driver.kill().await?;
                rig.driver.reach_host_by(Some([by, sidecars])).await?;
                rig.driver.ensure(&rig.fleet).await
            }
        }
    }

    /// It is the straight one again.
    pub async fn lead_straight(self, rig: &Rig) -> Result<()> {
        match self {
            Self::ToMember => rig.join(MEMBER).await,
            Self::OfAgent => {
                let direct = rig.fleet.member(MEMBER).kubeconfig_for(DRIVER_NAMESPACE, agent::ACCOUNT).await?;
                agent::give(rig.fleet.host(), MEMBER, &direct).await
            }
            Self::ToHost => {
                rig.driver.kill().await?;
                rig.driver.reach_host_by(None).await?;
                rig.driver.ensure(&rig.fleet).await
            }
        }
    }
}

/// A proxy before a cluster, which can lead to the other member too.
async fn start(rig: &Rig, to: &Cluster, elsewhere: &str) -> Result<Between> {
    let other = rig.fleet.member(OTHER);
    let accepted = other.kubeconfig_for(DRIVER_NAMESPACE, elsewhere).await?;
    let accepted: Value = serde_json::from_str(&accepted)?;
    let token = accepted["users"][0]["user"]["token"].as_str().context("the other member has given a token")?;
    let ways = Ways {
        to: Upstream::new(without_credentials(to).await?, None)?,
        elsewhere: Upstream::new(without_credentials(other).await?, Some(token))?,
    };
    let listener = rig.fleet.listen("127.0.0.1:0")?;
    let folder = rig.fleet.folder().join(format!("between-{}", listener.local_addr()?.port()));
    Between::start(listener, ways, &folder)
}

/// A kubeconfig of an account for them that may all.
async fn sidecars(host: &Cluster) -> Result<String> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": SIDECARS, "namespace": DRIVER_NAMESPACE}});
    let may_all = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": SIDECARS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": SIDECARS, "namespace": DRIVER_NAMESPACE}],
    });
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [account, may_all]}).to_string()).await?;
    host.kubeconfig_for(DRIVER_NAMESPACE, SIDECARS).await
}

async fn without_credentials(cluster: &Cluster) -> Result<Config> {
    let mut kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    kubeconfig.auth_infos.clear();
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
