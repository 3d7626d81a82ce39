//! The archive for who helps, of a release with volumes: as an administrator types it.

use std::{collections::BTreeMap, fs::File, io::Read};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;
use tar::Archive;

use super::{dashboard, helm::NAMESPACE, release::PROGRAM};
use crate::clusters::Fleet;

/// Files whose paths begin and end so, and what each of them holds.
const HOLDS: [(&str, &str, &str); 13] = [
    ("status.txt", "", "WHAT"),
    ("doctor.json", "", "\"FindingList\""),
    ("host/events.json", "", "\"reason\""),
    ("host/persistentvolumes.json", "", "cluster38/growth/nginx-pvc"),
    ("host/volumesnapshots.json", "", "nginx-before"),
    ("host/leases.json", "", "external-resizer-kosmos-csi-io"),
    ("logs/kosmos-csi/kosmos-csi-controller-", "/kosmos-csi.log", " INFO "),
    ("logs/kosmos-csi/kosmos-csi-controller-", "/csi-provisioner.log", "\n"),
    ("logs/kosmos-csi-pods/kosmos-csi-virtual-node-", "/kosmos-csi.log", " INFO "),
    ("logs/kosmos-csi-node/kosmos-csi-node-", "/kosmos-csi.log", " INFO "),
    ("metrics/kosmos-csi/kosmos-csi-controller-", "/admin.txt", "kosmos_csi_build_info{version="),
    ("metrics/kosmos-csi/kosmos-csi-controller-", "/provisioner.txt", "csi_sidecar_operations_seconds"),
    ("members/cluster38/persistentvolumeclaims.json", "", "kosmos.csi.io/protect"),
];

fn unpacked(path: &str) -> Result<BTreeMap<String, String>> {
    let mut archive = Archive::new(GzDecoder::new(File::open(path)?));
    let files = archive.entries()?.map(|entry| {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text)?;
        Ok((path.split_once('/').context("it is in a folder")?.1.to_owned(), text))
    });
    files.collect()
}

pub async fn has_all_that_helps_and_no_token(fleet: &Fleet) -> Result<()> {
    let folder = tempfile::tempdir_in(fleet.folder())?;
    let path = folder.path().join("all.tar.gz").display().to_string();
    let host = format!("--kubeconfig={}", fleet.host().kubeconfig_inside().display());
    let told = fleet.exec(PROGRAM, &["support-bundle", &host, "--output", &path]).await?;
    eprintln!("{told}");
    ensure!(!told.contains("NOT THERE"), "{told}");
    let files = unpacked(&path)?;
    for (begin, end, held) in HOLDS {
        let of: Vec<_> = files.iter().filter(|(path, _)| path.starts_with(begin) && path.ends_with(end)).collect();
        ensure!(!of.is_empty(), "there is no {begin}…{end}: {:?}", files.keys());
        ensure!(of.iter().any(|(_, text)| text.contains(held)), "{begin}…{end} has no {held}: {:?}", of[0]);
    }
    dashboard::finds_data_for_every_query(&files)?;
    let tokens = tokens(fleet).await?;
    let telling = files.iter().find(|(_, text)| tokens.iter().any(|token| text.contains(token)));
    ensure!(telling.is_none(), "{:?} tells a token", telling.map(|(path, _)| path));
    Ok(())
}

/// By which the host asks its members.
async fn tokens(fleet: &Fleet) -> Result<Vec<String>> {
    let path = "jsonpath={range .items[*]}{.data.kubeconfig}{\"\\n\"}{end}";
    let label = "kosmos.csi.io/member";
    let listed = fleet.host().kubectl(&["-n", NAMESPACE, "get", "secrets", "-l", label, "-o", path]).await?;
    let kubeconfigs = listed.lines().map(|encoded| {
        let bytes: k8s_openapi::ByteString = serde_json::from_value(Value::from(encoded))?;
        let kubeconfig: Value = serde_saphyr::from_str(&String::from_utf8(bytes.0)?)?;
        let token = kubeconfig["users"][0]["user"]["token"].as_str().context("it has a token")?;
        Ok(token.to_owned())
    });
    let tokens = kubeconfigs.collect::<Result<Vec<String>>>()?;
    ensure!(tokens.len() == 2 && tokens.iter().all(|token| token.len() > 100), "{listed}");
    Ok(tokens)
}
