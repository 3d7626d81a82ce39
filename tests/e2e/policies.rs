//! What admission refuses to an account whose rights have no names, by the account's own token.

use anyhow::{Result, bail, ensure};
use http::Request;
use kube::{
    Client, Config,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{
    agent::{ACCOUNT, Agent, NODE},
    clusters::wait_for,
    objects::{Place, pod},
    pool::on_fleet,
    rig::{DRIVER_NAMESPACE, PATIENCE},
};

/// An account's own client.
struct Account(Client);

impl Account {
    async fn of(place: &Place<'_>, name: &str) -> Result<Self> {
        // The account's own leads to where its cluster is for other clusters.
        let own = Kubeconfig::from_yaml(&place.cluster.kubeconfig_for(DRIVER_NAMESPACE, name).await?)?;
        let mut kubeconfig = Kubeconfig::read_from(place.cluster.kubeconfig())?;
        kubeconfig.auth_infos[0].auth_info.clone_from(&own.auth_infos[0].auth_info);
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self(Client::try_from(config)?))
    }

    /// A request that changes nothing, whatever is answered.
    async fn tries(&self, method: &str, path: &str, body: &Value) -> Result<(), String> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All"))
            .header("content-type", if method == "PATCH" { "application/merge-patch+json" } else { "application/json" })
            .body(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() });
        let answer = self.0.request::<Value>(request.map_err(|error| error.to_string())?).await;
        answer.map(drop).map_err(|error| error.to_string())
    }

    async fn is_refused(&self, by: &str, attempts: &[(&str, &str, Value)]) -> Result<()> {
        for (method, path, body) in attempts {
            let words = format!("ValidatingAdmissionPolicy '{by}'");
            match self.tries(method, path, body).await {
                Ok(()) => bail!("{method} {path} is allowed"),
                Err(told) => ensure!(told.contains(&words), "{method} {path}: {told}"),
            }
        }
        Ok(())
    }
}

#[test]
fn agents_account_writes_only_virtual_nodes_and_their_pods() {
    on_fleet("policies", async |rig| {
        let agent = Agent::start(rig).await?;
        let host = Place::new(rig.fleet.host(), "policies").await?;
        let real = host.cluster.node_name();
        let mut there = pod("there", &[], "sleep 1000");
        there["spec"]["nodeName"] = json!(real);
        host.pods().create(&PostParams::default(), &serde_json::from_value(there)?).await?;
        let account = Account::of(&host, ACCOUNT).await?;
        let node = |name: &str| format!("/api/v1/nodes/{name}");
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        wait_for("the policy is in force", PATIENCE, || async {
            account.is_refused(ACCOUNT, &[("PATCH", &node(&real), label.clone())]).await.map(Some)
        })
        .await?;
        let [nodes, csi_nodes] = ["/api/v1/nodes", "/apis/storage.k8s.io/v1/csinodes"];
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let pods = "/api/v1/namespaces/policies/pods";
        let drivers = json!({"drivers": [{"name": "other.example", "nodeID": "x", "topologyKeys": []}]});
        let new = |spec: &Value| json!({"metadata": {"name": "worker-9"}, "spec": spec});
        let attempts = [
            ("PATCH", &*node(&real), label.clone()),
            ("PATCH", &*node(&real), json!({"metadata": {"labels": {"kosmos.io/node": "true"}}})),
            ("PATCH", &*node(&real), json!({"spec": {"unschedulable": true}})),
            ("PATCH", &*node(&real), json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})),
            (
                "PATCH",
                &*format!("{nodes}/{real}/status"),
                json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}}),
            ),
            (
                "PATCH",
                &*format!("{nodes}/{real}/status"),
                json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}),
            ),
            ("DELETE", &*node(&real), Value::Null),
            ("POST", nodes, new(&json!({}))),
            ("PATCH", &*node(NODE), json!({"metadata": {"labels": {"kosmos.io/node": null}}})),
            ("PATCH", &*format!("{csi_nodes}/{real}"), json!({"spec": drivers})),
            ("POST", csi_nodes, new(&drivers)),
            ("POST", leases, new(&json!({"holderIdentity": "worker-9"}))),
            ("PATCH", &*format!("{leases}/{real}"), json!({"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}})),
            ("DELETE", &*format!("{pods}/there"), Value::Null),
            ("PATCH", &*format!("{pods}/there/status"), json!({"status": {"podIP": "10.9.9.9"}})),
            ("PATCH", &*format!("{pods}/there/status"), json!({"status": {"phase": "Failed"}})),
        ];
        account.is_refused(ACCOUNT, &attempts).await?;
        let own = account.tries("PATCH", &node(NODE), &label).await;
        ensure!(own.is_ok(), "its own node: {own:?}");
        host.pods().delete("there", &DeleteParams::default().grace_period(0)).await?;
        agent.end().await
    });
}
