//! `host backup`: reads what the host knows of its volumes, and writes one file.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::{
    args::operator::BackupHost,
    run::operator::{
        Report, connect,
        files::output,
        objects::{list, serves},
        print::patiently,
        volume,
    },
};
use cluster::Dial;
use domain::volume::DRIVER;
use host::{Host, pins};
use operator::{
    backup::{Backup, SNAPSHOTS, STORAGE, Seen},
    objects::word,
};

pub(in crate::run::operator) async fn backup(flags: &BackupHost, dial: &Dial) -> anyhow::Result<Report> {
    let now = Timestamp::now();
    let path = flags.output.clone().unwrap_or_else(|| file_of(now));
    let written = output(&path, async |file| write(flags, dial, now, &path, file).await);
    written.await.map(Report::well)
}

async fn write(
    flags: &BackupHost,
    dial: &Dial,
    now: Timestamp,
    path: &Path,
    file: &mut File,
) -> anyhow::Result<String> {
    let host = connect::host(&flags.host, dial).await?;
    let mut moving = under_way(&host).await?;
    let seen = patiently("reading the host's volumes", look(&host)).await?;
    moving.append(&mut under_way(&host).await?);
    let members = pins::pins(&host).await?;
    let (backup, left_out) = Backup::new(format!("{now:.0}"), host.id.0.clone(), members, &seen);
    if backup.members.is_empty() && !seen.volumes.is_empty() {
        bail!(
            "the host has volumes, but namespace {} has no record of members: name the driver's namespace by --members-namespace",
            host.namespace
        );
    }
    let text = backup.text().map_err(|why| anyhow!(why))?;
    file.write_all(text.as_bytes()).with_context(|| format!("write {}", path.display()))?;
    let left_out: String = left_out.iter().flat_map(|why| ["Left out: ", why, ".\n"]).collect();
    let moving = match moving.len() {
        0 => String::new(),
        some => format!("Moves under way: {some}. Make another backup once they have ended.\n"),
    };
    Ok(format!(
        "{left_out}{moving}{}: what leads to the volumes of host {}. Volumes: {}, snapshots: {}, members: {}. No Secret is in the file; keep it \
         outside of this cluster, where nobody else can change it.\n",
        path.display(),
        backup.host,
        backup.volumes.len(),
        backup.snapshots.len(),
        backup.members.len(),
    ))
}

/// By their UIDs. One that ends while the volumes are read has had its volume lead to either member by then, or be made again just then.
async fn under_way(host: &Host) -> anyhow::Result<BTreeSet<String>> {
    let moves = volume::under_way(&host.client, None).await?;
    Ok(moves.into_iter().filter_map(|of| of.metadata.uid).collect())
}

/// Volumes before claims: what is bound meanwhile is not in it, and nothing is taken for unbound.
async fn look(host: &Host) -> anyhow::Result<Seen> {
    let every = |_: &Value| true;
    let of_ours = |path: &'static str| move |object: &Value| word(object, path) == DRIVER;
    let if_served = async |version: &str, kind: &str, driver: &'static str| {
        if serves(&host.client, version, kind).await? {
            list(&host.client, version, kind, of_ours(driver)).await
        } else {
            Ok(Vec::new())
        }
    };
    let mut classes = list(&host.client, STORAGE, "StorageClass", of_ours("/provisioner")).await?;
    classes.append(&mut if_served(STORAGE, "VolumeAttributesClass", "/driverName").await?);
    classes.append(&mut if_served(SNAPSHOTS, "VolumeSnapshotClass", "/driver").await?);
    let volumes = list(&host.client, "v1", "PersistentVolume", of_ours("/spec/csi/driver")).await?;
    let names: BTreeSet<&str> = volumes.iter().map(|volume| word(volume, "/metadata/name")).collect();
    let is_bound = |claim: &Value| names.contains(word(claim, "/spec/volumeName"));
    let claims = list(&host.client, "v1", "PersistentVolumeClaim", is_bound).await?;
    let contents = if_served(SNAPSHOTS, "VolumeSnapshotContent", "/spec/driver").await?;
    let has_snapshots = !contents.is_empty();
    let snapshots =
        if has_snapshots { list(&host.client, SNAPSHOTS, "VolumeSnapshot", every).await? } else { Vec::new() };
    Ok(Seen {
        namespaces: list(&host.client, "v1", "Namespace", every).await?,
        classes,
        volumes,
        claims,
        contents,
        snapshots,
    })
}

fn file_of(now: Timestamp) -> PathBuf {
    format!("kosmos-csi-host-{}.json", now.strftime("%Y%m%dT%H%M%SZ")).into()
}
