//! Disks that can be full without the machine's being so: small ones in memory, under a member's etcd and under its local-path volumes.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use super::fault::Disk;
use crate::{
    clusters::{Cluster, Fleet, control_plane::ETCD, wait_for},
    rig::PATIENCE,
};

const FILLER: &str = "filler";
/// Of etcd, besides what it has already, in MiB. For its next log it takes 64 at once, and two of these may come before the disk is to be
/// full.
const ROOM: u32 = 160;
/// As many bytes as a ConfigMap takes, or nearly.
const MOST: usize = 960 << 10;
/// As a node sees it.
const LOCAL_PATH: &str = "/var/lib/kubelet/local-path";
const SERVED_AGAIN: Duration = Duration::from_mins(2);

/// Both, in place of the large one. The mounts go with the fleet.
pub async fn make_small(member: &Cluster, fleet: &Fleet) -> Result<()> {
    member.stop_api_server().await?;
    member.stop(ETCD).await?;
    let script = format!(
        "cd {}; size=$(($(du -sm {ETCD} | cut -f1) + {ROOM})); mv {ETCD} {ETCD}-large; mkdir -m 700 {ETCD}; \
         mount -t tmpfs -o size=${{size}}m tmpfs {ETCD}; cp -a {ETCD}-large/. {ETCD}; rm -r {ETCD}-large",
        member.folder().display()
    );
    fleet.exec("sh", &["-ec", &script]).await?;
    member.resume().await?;
    // Few files rather than few bytes: the folder of a volume takes none of these.
    let script = format!("mkdir -p {LOCAL_PATH}; mount -t tmpfs -o size=16m,nr_inodes=64 tmpfs {LOCAL_PATH}");
    member.node_exec("sh", &["-ec", &script]).await.map(drop)
}

pub async fn fill(member: &Cluster, fleet: &Fleet, disk: Disk) -> Result<()> {
    match disk {
        Disk::LocalPath => {
            let script = format!("n=0; while touch {LOCAL_PATH}/{FILLER}-$n 2>/dev/null; do n=$((n + 1)); done");
            member.node_exec("sh", &["-c", &script]).await.map(drop)
        }
        Disk::Etcd => {
            let file = member.folder().join(ETCD).join(FILLER);
            let script = format!("dd if=/dev/zero of={} bs=64k 2>/dev/null || true", file.display());
            fleet.exec("sh", &["-c", &script]).await?;
            is_felt(member).await
        }
    }
}

/// Until nothing can be written any more. What is free in its files etcd still writes.
async fn is_felt(member: &Cluster) -> Result<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(member.client().await?);
    let map = json!({
        "metadata": {"generateName": format!("{FILLER}-"), "labels": {"app": FILLER}},
        "data": {FILLER: "x".repeat(MOST)},
    });
    let map: ConfigMap = serde_json::from_value(map)?;
    wait_for("etcd can write no more", PATIENCE, || async {
        Ok(maps.create(&PostParams::default(), &map).await.is_err().then_some(()))
    })
    .await
}

pub async fn empty(member: &Cluster, fleet: &Fleet, disk: Disk) -> Result<()> {
    match disk {
        Disk::LocalPath => {
            let script = format!("rm -f {LOCAL_PATH}/{FILLER}-*");
            member.node_exec("sh", &["-c", &script]).await.map(drop)
        }
        Disk::Etcd => {
            let file = member.folder().join(ETCD).join(FILLER).display().to_string();
            fleet.exec("rm", &["-f", &file]).await?;
            let maps: Api<ConfigMap> = Api::default_namespaced(member.client().await?);
            let fillers = ListParams::default().labels(&format!("app={FILLER}"));
            wait_for("the member can be written to again", SERVED_AGAIN, || async {
                // What has met the full disk may end after it was emptied.
                member.revive()?;
                maps.delete_collection(&DeleteParams::default(), &fillers).await?;
                Ok(Some(()))
            })
            .await
        }
    }
}
