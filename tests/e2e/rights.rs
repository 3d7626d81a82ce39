//! Rights that a release of the chart does not use in its short life: the tests here, all together, use them.

use anyhow::{Result, ensure};
use futures::future::try_join_all;

use crate::{
    clusters::AuditEntry,
    pool::after_all,
    rare::{RARE, Rare},
    rig::Rig,
};

/// Whether an entry is by the account, or here the program, that the role is for. Sidecars are nobody's account here.
fn is_by(rare: &Rare, entry: &AuditEntry) -> bool {
    let sidecar = entry.user_agent.starts_with("csi-");
    let account = rare.role.rsplit('/').next().unwrap_or_default();
    match account {
        "kosmos-csi-sidecars" => sidecar,
        _ => {
            !sidecar && entry.user.starts_with("system:serviceaccount:") && entry.user.ends_with(&format!(":{account}"))
        }
    }
}

fn kind(entry: &AuditEntry) -> String {
    let subresource = if entry.subresource.is_empty() { String::new() } else { format!("/{}", entry.subresource) };
    let group = if entry.group.is_empty() { String::new() } else { format!(".{}", entry.group) };
    format!("{} {}{subresource}{group}", entry.verb, entry.resource)
}

async fn all_are_used(rigs: Vec<&Rig>) -> Result<()> {
    let logs = try_join_all(rigs.iter().map(|rig| rig.fleet.host().audit())).await?;
    let entries = logs.concat();
    let used =
        |rare: &Rare| entries.iter().any(|entry| kind(entry) == rare.kind && is_by(rare, entry) && !entry.forbidden);
    let idle = RARE.iter().filter(|rare| !used(rare));
    let told = |rare: &Rare| {
        let asked = entries.iter().filter(|entry| is_by(rare, entry)).count();
        format!("{} may {} and never does, in {asked} requests", rare.role, rare.kind)
    };
    let idle: Vec<String> = idle.map(told).collect();
    ensure!(idle.is_empty(), "\n{}", idle.join("\n"));
    Ok(())
}

#[test]
fn rights_that_one_release_leaves_are_used_by_all_these_tests() {
    if std::env::var_os("KOSMOS_CSI_ALL_TESTS").is_none() {
        println!("left out: only all tests together use all rights");
        return;
    }
    after_all("rights", all_are_used);
}
