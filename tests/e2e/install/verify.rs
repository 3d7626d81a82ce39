//! `helm test` of a release that has members and classes.

use anyhow::{Result, ensure};

use super::{
    helm::{NAMESPACE, helm},
    release::kubeconfig,
};
use crate::clusters::Fleet;

/// By how a row of what it prints begins.
const ROWS: [&str; 6] = [
    "driver CSIDriver kosmos.csi.io is there",
    "leader kosmos-csi-controller-",
    "csi-provisioner kosmos-csi-controller-",
    "csi-attacher kosmos-csi-controller-",
    "class openebs-hostpath room in cluster38 (",
    "members 2: cluster38, cluster39",
];

pub async fn helm_test_says_what_there_is_and_leaves_its_pod_alone(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    let said = helm(&["test", "kosmos-csi", "--namespace", NAMESPACE, "--logs", &kubeconfig(host)])?;
    let rows: Vec<String> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in ROWS {
        ensure!(rows.iter().any(|said| said.starts_with(row)), "no {row:?} in: {said}");
    }
    let kinds = "pods,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings";
    let left = host.kubectl(&["-n", NAMESPACE, "get", kinds, "-o", "name"]).await?;
    let left: Vec<&str> = left.lines().filter(|line| line.contains("kosmos-csi-test")).collect();
    ensure!(left == ["pod/kosmos-csi-test"], "{left:?}");
    // As docs/install.md has it typed: Helm removes no hook with its release.
    let kinds = "pod,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding";
    host.kubectl(&["-n", NAMESPACE, "delete", kinds, "kosmos-csi-test", "--ignore-not-found"]).await.map(drop)
}
