//! The files of `deploy/examples`, applied as they stand. Nobody runs pods on virtual nodes here: what is looked at is where
//! the scheduler puts them, and their volumes.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};

use crate::{
    clusters::{Fleet, wait_for},
    helm::checkout,
    release::PATIENCE,
    volumes::{GROWING, until},
};

fn example(file: &str) -> Result<String> {
    let path = checkout().join("deploy/examples").join(file);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

/// One claim in each member.
pub async fn stateful_set_is_spread_over_members(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    host.apply(&example("statefulset.yaml")?).await?;
    for claim in ["pvc/data-ledger-0", "pvc/data-ledger-1"] {
        wait_for(&format!("{claim} is made"), PATIENCE, || async { host.kubectl(&["get", claim]).await.map(Some) })
            .await?;
        until(host, "default", claim, "--for=jsonpath={.status.phase}=Bound").await?;
    }
    let nodes = host.kubectl(&["get", "pods", "-l", "app=ledger", "-o", "jsonpath={.items[*].spec.nodeName}"]).await?;
    let nodes: BTreeSet<&str> = nodes.split_whitespace().collect();
    ensure!(nodes == BTreeSet::from(["kosmos-cluster38", "kosmos-cluster39"]), "{nodes:?}");
    for member in fleet.members() {
        let claims = member.kubectl(&["get", "pvc", "-o", "jsonpath={.items[*].status.phase}"]).await?;
        ensure!(claims == "Bound", "{}: {claims:?}", member.name());
    }
    host.kubectl(&["delete", "statefulset,service", "ledger"]).await?;
    host.kubectl(&["delete", "pods", "-l", "app=ledger", "--force"]).await?;
    host.kubectl(&["delete", "pvc", "-l", "app=ledger", "--timeout=90s"]).await.map(drop)
}

/// A claim of a member becomes a volume of the host by consent, and stays when that goes.
pub async fn claim_of_a_member_is_imported_and_stays(fleet: &Fleet) -> Result<()> {
    let (host, member) = (fleet.host(), fleet.member("cluster38"));
    // A class that binds at once: nobody uses the claim in the member here.
    member.apply(&example("imported-member.yaml")?.replace("openebs-hostpath", GROWING)).await?;
    until(member, "shop", "pvc/archive", "--for=jsonpath={.status.phase}=Bound").await?;
    let id = host.kubectl(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"]).await?;
    member.kubectl(&["annotate", "-n", "shop", "pvc/archive", &format!("kosmos.csi.io/consent={id}")]).await?;
    host.apply(&example("imported.yaml")?).await?;
    until(host, "shop", "pvc/archive", "--for=jsonpath={.status.phase}=Bound").await?;
    wait_for("it is attached to its member's virtual node", PATIENCE, || async {
        let path =
            "jsonpath={range .items[*]}{.spec.source.persistentVolumeName} {.spec.nodeName} {.status.attached}{end}";
        let attached = host.kubectl(&["get", "volumeattachments", "-o", path]).await?;
        ensure!(attached == "archive kosmos-cluster38 true", "{attached:?}");
        Ok(Some(()))
    })
    .await?;
    host.kubectl(&["-n", "shop", "delete", "pod", "reader", "--force"]).await?;
    host.kubectl(&["-n", "shop", "delete", "pvc", "archive", "--timeout=90s"]).await?;
    host.kubectl(&["delete", "pv", "archive", "--timeout=90s"]).await?;
    let phase = member.kubectl(&["-n", "shop", "get", "pvc", "archive", "-o", "jsonpath={.status.phase}"]).await?;
    ensure!(phase == "Bound", "the member's claim is {phase:?}");
    member.kubectl(&["-n", "shop", "delete", "pvc", "archive", "--timeout=90s"]).await.map(drop)
}
