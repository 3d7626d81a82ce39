//! What users make in the host, and what is looked at on both sides.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Event, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    clusters::{Cluster, images::BUSYBOX, wait_for},
    host_node::TAINT,
    rig::{DRIVER, MEMBER_KEY, PATIENCE},
};

pub const OURS: &str = "app.kubernetes.io/managed-by=kosmos.csi.io";

/// Of a pod that runs until it is deleted, however long a test takes.
pub const FOR_EVER: &str = "sleep 1000000";

/// A namespace of the host, and the objects in it. Its name is also that of the leaf namespace.
pub struct Place<'a> {
    pub cluster: &'a Cluster,
    pub client: Client,
    pub namespace: String,
}

impl<'a> Place<'a> {
    pub async fn new(cluster: &'a Cluster, namespace: &str) -> Result<Self> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        cluster.apply(&object.to_string()).await?;
        let place = Self::existing(cluster, namespace).await?;
        // Without it no pod is taken.
        let accounts: Api<ServiceAccount> = Api::namespaced(place.client.clone(), namespace);
        wait_for(&format!("{namespace} has its account"), PATIENCE, || async {
            Ok(accounts.get_opt("default").await?.map(drop))
        })
        .await?;
        Ok(place)
    }

    /// A namespace of a member, whose administrator lets pods of hosts in.
    pub async fn open(cluster: &'a Cluster, namespace: &str) -> Result<Self> {
        let place = Self::new(cluster, namespace).await?;
        cluster.kubectl(&["label", "--overwrite", "namespace", namespace, "kosmos.csi.io/pods=baseline"]).await?;
        Ok(place)
    }

    pub async fn existing(cluster: &'a Cluster, namespace: &str) -> Result<Self> {
        Ok(Self { cluster, client: cluster.client().await?, namespace: namespace.to_owned() })
    }

    /// By which members know this host.
    pub async fn host_id(&self) -> Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.get("kube-system").await?.uid().context("kube-system has a UID")
    }

    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A StorageClass of ours in the host. `members` become its allowedTopologies.
    pub async fn class(&self, name: &str, binding: &str, parameters: Value, members: &[&str]) -> Result<()> {
        let mut class = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": DRIVER,
            "volumeBindingMode": binding,
            "reclaimPolicy": "Delete",
            "allowVolumeExpansion": true,
            "parameters": parameters,
        });
        if !members.is_empty() {
            let expression = json!({"key": MEMBER_KEY, "values": members});
            class["allowedTopologies"] = json!([{"matchLabelExpressions": [expression]}]);
        }
        self.cluster.apply(&class.to_string()).await
    }

    pub async fn claim(&self, name: &str, class: &str) -> Result<PersistentVolumeClaim> {
        self.sized_claim(name, class, "64Mi").await
    }

    pub async fn sized_claim(&self, name: &str, class: &str, size: &str) -> Result<PersistentVolumeClaim> {
        let claim = json!({
            "metadata": {"name": name, "labels": {"app": "mine"}, "annotations": {"note": "not for the leaf"}},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}}},
        });
        Ok(self.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?)
    }

    /// A pod that may go to a virtual node, as users write it; `node` pins it to one.
    pub async fn tolerant_pod(&self, name: &str, claims: &[&str], node: Option<&str>) -> Result<()> {
        let mut pod = tolerant(name, claims);
        if let Some(node) = node {
            let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
            pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}});
        }
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// A tolerant pod that goes to one node where it can.
    pub async fn preferring_pod(&self, name: &str, claims: &[&str], node: &str) -> Result<()> {
        let mut pod = tolerant(name, claims);
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        pod["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 100, "preference": {"matchExpressions": [expression]}}]}});
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// A tolerant pod that asks for much.
    pub async fn greedy_pod(&self, name: &str, claims: &[&str], cpu: &str) -> Result<()> {
        let mut pod = tolerant(name, claims);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// Nobody runs host pods on virtual nodes yet, so nobody would confirm their end.
    pub async fn force_delete_pod(&self, name: &str) -> Result<()> {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    pub async fn node_of(&self, pod: &str) -> Result<String> {
        wait_for(&format!("pod {pod} has a node"), PATIENCE, || async {
            Ok(self.pods().get(pod).await?.spec.and_then(|spec| spec.node_name))
        })
        .await
    }

    pub async fn bound(&self, claim: &str) -> Result<PersistentVolume> {
        self.bound_within(claim, PATIENCE).await
    }

    pub async fn bound_within(&self, claim: &str, deadline: Duration) -> Result<PersistentVolume> {
        let what = format!("claim {claim} in {} is bound", self.cluster.name());
        wait_for(&what, deadline, || async {
            let found = self.claims().get(claim).await?;
            if found.status.and_then(|status| status.phase).as_deref() != Some("Bound") {
                return Ok(None);
            }
            let volume = found.spec.and_then(|spec| spec.volume_name).context("a bound claim names no volume")?;
            Ok(Some(self.volumes().get(&volume).await?))
        })
        .await
    }

    pub async fn delete_claim(&self, name: &str) -> Result<()> {
        self.claims().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn claim_is_gone(&self, name: &str) -> Result<()> {
        let what = format!("claim {name} is gone from {}", self.cluster.name());
        wait_for(&what, PATIENCE, || async { Ok(self.claims().get_opt(name).await?.is_none().then_some(())) }).await
    }

    pub async fn volume_is_gone(&self, name: &str) -> Result<()> {
        let what = format!("volume {name} is gone from {}", self.cluster.name());
        wait_for(&what, PATIENCE, || async { Ok(self.volumes().get_opt(name).await?.is_none().then_some(())) }).await
    }

    /// Waits for a warning on the claim that contains all the words.
    pub async fn warned(&self, claim: &str, words: &[&str]) -> Result<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let about = ListParams::default().fields(&format!("involvedObject.name={claim},type=Warning"));
        wait_for(&format!("an event of {claim} says {words:?}"), PATIENCE, || async {
            let messages = events.list(&about).await?.items.into_iter().filter_map(|event| event.message);
            Ok(messages.into_iter().find(|message| words.iter().all(|word| message.contains(word))))
        })
        .await
    }

    /// How many events of its namespace give this reason.
    pub async fn told(&self, reason: &str) -> Result<usize> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(events.list(&ListParams::default().fields(&format!("reason={reason}"))).await?.items.len())
    }

    /// Runs a pod with the claims to its end.
    pub async fn run(&self, name: &str, claims: &[&str], script: &str) -> Result<()> {
        let pod = serde_json::from_value(pod(name, claims, script))?;
        self.pods().create(&PostParams::default(), &pod).await?;
        wait_for(&format!("pod {name} has run"), PATIENCE, || async {
            let phase = self.pods().get(name).await?.status.and_then(|status| status.phase);
            Ok((phase.as_deref() == Some("Succeeded")).then_some(()))
        })
        .await?;
        self.pods().delete(name, &DeleteParams::default()).await?;
        wait_for("the pod is gone", PATIENCE, || async { Ok(self.pods().get_opt(name).await?.is_none().then_some(())) })
            .await
    }
}

/// All of our objects in a member that belong to a namespace: claims, volumes, consumer pods.
pub async fn ours(member: &Cluster, namespace: &str) -> Result<Vec<String>> {
    let client = member.client().await?;
    let labelled = ListParams::default().labels(OURS);
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace).list(&labelled).await?;
    let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&labelled).await?;
    let volumes = Api::<PersistentVolume>::all(client).list(&labelled).await?;
    let claimed_from = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.as_ref()?.namespace.clone();
    let volumes = volumes.iter().filter(|volume| claimed_from(volume).as_deref() == Some(namespace));
    let mut names: Vec<String> = claims.iter().map(|claim| format!("claim {}", claim.name_any())).collect();
    names.extend(volumes.map(|volume| format!("volume {}", volume.name_any())));
    names.extend(pods.iter().map(|pod| format!("pod {}", pod.name_any())));
    Ok(names)
}

/// Waits until a member holds nothing of ours in a namespace any more.
pub async fn nothing_of_ours(member: &Cluster, namespace: &str) -> Result<()> {
    wait_for(&format!("nothing of ours is left in {}", member.name()), PATIENCE, || async {
        let left = ours(member, namespace).await?;
        anyhow::ensure!(left.is_empty(), "still there: {left:?}");
        Ok(Some(()))
    })
    .await
}

/// A pod of one container, which sees each claim under its own name; for real nodes, the host's machine among them.
pub fn pod(name: &str, claims: &[&str], script: &str) -> Value {
    let volumes = claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
    let mounts = claims.iter().map(|claim| json!({"name": claim, "mountPath": format!("/{claim}")}));
    let container = json!({
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "volumeMounts": mounts.collect::<Vec<_>>(),
    });
    json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "volumes": volumes.collect::<Vec<_>>(),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "tolerations": [tolerated(TAINT)],
        },
    })
}

fn tolerated([key, value]: [&str; 2]) -> Value {
    json!({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"})
}

pub fn tolerant(name: &str, claims: &[&str]) -> Value {
    let mut pod = pod(name, claims, FOR_EVER);
    pod["spec"]["tolerations"] = json!([tolerated(["kosmos.io/node", "true"])]);
    pod
}

/// An attribute that the host volume carries.
pub fn attribute(volume: &PersistentVolume, key: &str) -> String {
    let attributes = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()?.volume_attributes.as_ref());
    attributes.and_then(|attributes| attributes.get(key)).cloned().unwrap_or_default()
}

pub fn handle(volume: &PersistentVolume) -> String {
    let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    source.map(|source| source.volume_handle.clone()).unwrap_or_default()
}
