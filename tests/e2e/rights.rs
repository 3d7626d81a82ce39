//! Rights that a release of the chart does not use in its short life, and those of the accounts in members: the
//! tests here, all together, use them.

use anyhow::{Error, Result, ensure};
use futures::future::try_join_all;
use operator::{
    objects::{ACCOUNT, PODS_ACCOUNT, STATS_ACCOUNT, Uses},
    rights::{Right, of},
};

use crate::{
    clusters::{AuditEntry, Cluster},
    pool::after_all,
    rare::{RARE, RARE_IN_MEMBERS, Rare},
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

async fn all_are_used(rigs: Vec<&Rig>, _: Vec<AuditEntry>) -> Result<()> {
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

/// Whether an entry is by the account, or by one like it that is a host's own.
fn is_of(account: &str, entry: &AuditEntry) -> bool {
    let name = entry.user.strip_prefix("system:serviceaccount:kosmos-csi:").unwrap_or_default();
    name == account || name.starts_with(&format!("{account}-host-"))
}

fn uses(right: &Right, entry: &AuditEntry) -> bool {
    let named = right.name.is_empty() || right.name == entry.name || right.subresource == "token";
    entry.verb == right.verb
        && (&entry.group, &entry.resource, &entry.subresource) == (&right.group, &right.resource, &right.subresource)
        && named
        && !entry.forbidden
}

async fn all_of_members_are_used(rigs: Vec<&Rig>, of_release: Vec<AuditEntry>) -> Result<()> {
    let objects = Uses::ALL.of(None).map_err(Error::msg)?;
    let members = rigs.iter().flat_map(|rig| rig.fleet.members());
    let entries = [try_join_all(members.map(Cluster::audit)).await?.concat(), of_release].concat();
    let mut idle = Vec::new();
    for account in [ACCOUNT, PODS_ACCOUNT, STATS_ACCOUNT] {
        let asked: Vec<&AuditEntry> = entries.iter().filter(|entry| is_of(account, entry)).collect();
        let is_rare = |right: &str| RARE_IN_MEMBERS.iter().any(|rare| rare.role == account && rare.kind == right);
        let unused = of(&objects, account).into_iter().filter(|right| !asked.iter().any(|entry| uses(right, entry)));
        let told = unused.map(|right| format!("{} {}", right.verb, right.subject())).filter(|right| !is_rare(right));
        let told = told.map(|right| format!("{account} may {right} and never does, in {} requests", asked.len()));
        idle.extend(told);
    }
    ensure!(idle.is_empty(), "\n{}", idle.join("\n"));
    Ok(())
}

#[test]
fn rights_of_all_accounts_in_members_are_used_by_all_these_tests() {
    if std::env::var_os("KOSMOS_CSI_ALL_TESTS").is_none() {
        println!("left out: only all tests together use all rights");
        return;
    }
    after_all("member-rights", all_of_members_are_used);
}
