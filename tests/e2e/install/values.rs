//! The chart under combinations of values: a real API server takes all that it renders.

use anyhow::{Context, Result};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::helm::{NAMESPACE, PODS_NAMESPACE, rendered};
use crate::{clusters::Cluster, pool::beside_others};

/// As people install it: bare, by GitOps, on OpenShift, behind a registry of their own, without a part, with all.
const COMBINATIONS: [&str; 12] = [
    "image.tag=0.1.0",
    "namespace.create=true,sidecars.snapshotter.enabled=true,snapshotClasses[0].name=photos,snapshotClasses[0].default=true",
    "virtualNode.enabled=false,sidecars.resizer.enabled=false,networkPolicy.enabled=false,ui.enabled=false",
    "controller.enabled=false,podDisruptionBudget.enabled=false",
    "sidecars.provisioner.enabled=false,csiDriver.storageCapacity=false,listenAddress=[::]",
    "node.enabled=true,node.members[0].name=a,node.members[0].nodeSelector.zone=x,node.members[0].leafDrivers={one.example},node.members[0].nfsServers={10.0.0.5},node.members[1].name=b,node.members[1].nodeSelector.zone=y,node.members[1].localFolders={/mnt/disks},nodeSecrets.enabled=true",
    "moves.enabled=true,moves.atOnce=5,controller.replicas=3,logs.format=json,logs.level=debug",
    "podSecurityContext.runAsUser=null,podSecurityContext.runAsGroup=null,podSecurityContext.fsGroup=null",
    "global.imageRegistry=mirror.example:5000/cache,global.imagePullSecrets[0].name=mirror,imagePullSecrets={mine}",
    "serviceMonitor.enabled=true,prometheusRule.enabled=true,grafana.dashboard.enabled=true,grafana.dashboard.annotations.grafana_folder=Storage",
    "virtualNode.nodeMode=node,virtualNode.replicas=1,virtualNode.kubelet.certificateSecret=own,virtualNode.kubelet.serviceIP=10.101.0.50,virtualNode.hostAddress=https://10.0.0.1:6443,networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring,networkPolicy.kubeletFrom[0].ipBlock.cidr=10.0.0.0/24,networkPolicy.egressTo[0].ipBlock.cidr=10.0.0.0/8",
    "controller.podLabels.team=one,controller.env[0].name=HTTPS_PROXY,controller.env[0].value=none,controller.topologySpreadConstraints[0].topologyKey=zone,controller.topologySpreadConstraints[0].maxSkew=1,controller.topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway,storageClasses[0].name=fast,storageClasses[0].members={a,b},storageClasses[0].default=true",
];

/// Of Prometheus' operator, which is not here: as much of its kinds as lets objects of them in.
const MONITORING: [(&str, &str); 2] = [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")];

fn kind_of_monitoring(kind: &str, plural: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// What the chart's objects lie in, and kinds that are others'.
async fn prepare(host: &Cluster) -> Result<()> {
    host.install_snapshot_crds().await?;
    for namespace in [NAMESPACE, PODS_NAMESPACE, "kosmos-csi-node", "kosmos-csi-secrets"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        host.apply(&namespace.to_string()).await?;
    }
    // A pod is taken only where its account is there.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kosmos-csi-test", "namespace": NAMESPACE}});
    host.apply(&account.to_string()).await?;
    for (kind, plural) in MONITORING {
        host.apply(&kind_of_monitoring(kind, plural).to_string()).await?;
        let name = format!("crd/{plural}.monitoring.coreos.com");
        host.kubectl(&["wait", "--for=condition=Established", &name, "--timeout=30s"]).await?;
    }
    Ok(())
}

#[test]
fn api_server_takes_what_the_chart_renders_under_each_combination_of_values() {
    beside_others("values", async |rig| {
        let host = rig.fleet.host();
        prepare(host).await?;
        let folder = tempfile::tempdir()?;
        let taken = COMBINATIONS.iter().enumerate().map(async |(at, values)| {
            let path = folder.path().join(format!("{at}.yaml"));
            std::fs::write(&path, rendered(&[values])?)?;
            let path = path.display().to_string();
            let apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", &path];
            host.kubectl(&apply).await.with_context(|| format!("the chart with {values}"))
        });
        try_join_all(taken).await?;
        for (_, plural) in MONITORING {
            host.kubectl(&["delete", "crd", &format!("{plural}.monitoring.coreos.com"), "--timeout=60s"]).await?;
        }
        Ok(())
    });
}
