//! Claims with data that stay all the while, and the host's classes.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use serde_json::json;

use super::{MEMBER, OTHER};
use crate::{
    objects::{Place, handle},
    rig::{LATER, LOCAL_PATH, NOW, SHARED},
};

/// The host's class of the member that no fault concerns.
pub const OF_OTHER: &str = "other";
/// Of a claim that is written once.
pub const LINES: u64 = 1000;

/// What does not change about a claim with data.
pub struct Kept {
    pub name: &'static str,
    pub volume: String,
    handle: String,
    leaf_uid: Option<String>,
    pub leaf_volume: String,
}

impl Kept {
    pub async fn look(leaf: &Place<'_>, volume: &PersistentVolume, name: &'static str) -> Result<Self> {
        let claim = leaf.claims().get(name).await?;
        let leaf_uid = claim.uid();
        let leaf_volume = claim.spec.and_then(|spec| spec.volume_name).context("its leaf claim names a volume")?;
        Ok(Self { name, volume: volume.name_any(), handle: handle(volume), leaf_uid, leaf_volume })
    }

    pub async fn is_as_it_was(&self, host: &Place<'_>, leaf: &Place<'_>) -> Result<()> {
        let claim = host.claims().get(self.name).await?;
        let volume = claim.spec.and_then(|spec| spec.volume_name);
        ensure!(volume.as_deref() == Some(self.volume.as_str()), "its volume was {} and is {volume:?}", self.volume);
        let phase = claim.status.and_then(|status| status.phase);
        ensure!(phase.as_deref() == Some("Bound"), "it is {phase:?}");
        let now = handle(&host.volumes().get(&self.volume).await?);
        ensure!(now == self.handle, "its handle was {} and is {now}", self.handle);
        let uid = leaf.claims().get(self.name).await?.uid();
        ensure!(uid == self.leaf_uid, "its leaf claim was {:?} and is {uid:?}", self.leaf_uid);
        Ok(())
    }
}

/// So many lines, each with its number and the claim's name, are in the log of a claim.
pub fn writes_lines(claim: &str) -> String {
    format!("seq {LINES} | sed 's/$/ {claim}/' > /{claim}/log && sync")
}

/// Ends well if the log of a claim has all lines of another one, or of itself, up to this number, and none of anybody else's. The last one
/// may be cut.
pub fn reads(claim: &str, of: &str, last: u64) -> String {
    let has_all =
        "$2 != \"\" && index(of, $2) != 1 { strange = 1 } $1 == n + 1 { n++ } END { exit !(n >= last && !strange) }";
    format!("sort -n /{claim}/log | awk -v of={of} -v last={last} '{has_all}'")
}

/// The host's, by that of the leaves.
pub fn class(namespace: &str, leaf_class: &str) -> String {
    format!("{namespace}-{leaf_class}")
}

/// Of the host, each for one use.
pub async fn make_classes(host: &Place<'_>) -> Result<()> {
    let in_member = |leaf_class: &str, member: &str| json!({"leafStorageClass": leaf_class, "member": member});
    let mut local = in_member(LOCAL_PATH, MEMBER);
    local["leafBinding"] = json!("consumer");
    for (name, parameters) in [
        (NOW, in_member(NOW, MEMBER)),
        (SHARED, in_member(SHARED, MEMBER)),
        (OF_OTHER, in_member(NOW, OTHER)),
        (LOCAL_PATH, local),
    ] {
        host.class(&class(&host.namespace, name), "Immediate", parameters, &[]).await?;
    }
    let with_pod = json!({"leafStorageClass": LATER});
    host.class(&class(&host.namespace, LATER), "WaitForFirstConsumer", with_pod, &[MEMBER]).await
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    #[test]
    fn log_has_all_lines_of_the_claim_whose_it_is_and_none_of_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let here = |script: &str| {
            let script = script.replace("/copy/log", &folder.path().join("log").display().to_string());
            Command::new("sh").args(["-c", &script]).status().unwrap().success()
        };
        for (lines, has_all) in [
            ("1 kept\n2 kept\n2 kept\n3 kept\n", true),
            ("3 kept\n1 kept\n2 kept\n4 ke", true),
            ("1 kept\n2 kept\n3 kept\n4", true),
            ("1 kept\n3 kept\n", false),
            ("1 kept\n2 kept\n", false),
            ("1 kept\n2 kept\n3 kept\n2 ledger\n", false),
            ("1 ledger\n2 ledger\n3 ledger\n", false),
            ("", false),
        ] {
            fs::write(folder.path().join("log"), lines).unwrap();
            assert_eq!(here(&reads("copy", "kept", 3)), has_all, "{lines}");
        }
        assert!(here(&writes_lines("copy").replace(" && sync", "")) && here(&reads("copy", "copy", LINES)));
        assert!(!here(&reads("copy", "copy", LINES + 1)) && !here(&reads("copy", "kept", LINES)));
    }
}
