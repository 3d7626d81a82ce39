//! `member remove`: takes a member's kubeconfig away, once the host has nothing there that would miss it.

use std::path::PathBuf;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::{
    belongings::Belongings,
    bindings, copies, left,
    others::{self, Accounts},
    secret,
};
use crate::{
    args::operator::{MemberAccess, Remove},
    run::operator::{
        Report,
        connect::{self, Admin},
        objects::{Done, read, remove as remove_object},
        print::{not_all, patiently},
    },
};
use cluster::Dial;
use host::{
    Host,
    pins::{self, Pin},
};
use operator::{
    narrow::shared_roles,
    objects::{NAMESPACE, STATS_ACCOUNT, Uses, former_cluster, is_own, own_name, title, tokens, word},
    table::Table,
};

pub(in crate::run::operator) async fn remove(flags: &Remove, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.members.host, dial).await?;
    let agents = connect::agents(&host, &flags.members.host);
    let secrets = secret::of_member(&host, &flags.name).await?;
    let of_agents = secret::of_member(&agents, &flags.name).await?;
    let admin = admin(flags, [&host, &agents], dial).await?;
    let mut table = Table::new(&["OBJECT", "CLUSTER", "RESULT"]);
    if secrets.is_empty() && of_agents.is_empty() && flags.member_kubeconfig.is_none() {
        return nothing(flags, &host).await;
    }
    let left = patiently("counting what it has", Belongings::of(&host, &flags.name)).await?;
    if !left.is_empty() && !flags.force {
        let why = format!(
            "Member {} is not removed: it has {left}. Delete their claims and snapshots, and wait until moves have ended; or add --force: then \
             the driver answers every call for them with UNAVAILABLE until the member is back.\n",
            flags.name
        );
        return Ok(Report::new(why, false));
    }
    for secret in &secrets {
        secret::cordon(&host, secret, true).await?;
    }
    if !flags.force {
        let has_nodes = copies::close(&host, &flags.name).await.with_context(|| unseen(flags, true))?;
        let why = left::told(flags, &host, &agents, admin.as_ref(), dial).await;
        if let Some(why) = why.with_context(|| unseen(flags, has_nodes))? {
            return Ok(Report::new(closed(flags, has_nodes, &why), false));
        }
    }
    let removed = async {
        remove_secrets(&agents, &of_agents, &mut table).await?;
        remove_secrets(&host, &secrets, &mut table).await?;
        match admin {
            Some(admin) => remove_account(flags, &host, &admin, &mut table).await,
            None => Ok(stays(&host)),
        }
    };
    let removed = removed.await;
    let tokens = removed.with_context(|| not_all(&table))?;
    let nodes = if flags.force { String::new() } else { leave_closed(flags, &host).await };
    Ok(Report::well(closing(flags, &table, &left, &(tokens + &nodes))))
}

/// What is left in the member for its administrator.
fn stays(host: &Host) -> String {
    let (tokens, reader) = (title(&tokens(Some(&host.id.0), None)), own_name(STATS_ACCOUNT, &host.id.0));
    format!(
        "Its tokens stay valid there until they end. To end them at once, the member's administrator deletes {tokens} there. If a pod there \
         reports how full volumes are (--volume-stats), he also deletes Deployment {NAMESPACE}/{reader}, ServiceAccount {NAMESPACE}/{reader} \
         and ClusterRoleBinding {reader}: that pod has a token of its own.\n"
    )
}

/// With --force they were not closed, and no right to them is needed. What fails is told: all else is done by now.
async fn leave_closed(flags: &Remove, host: &Host) -> String {
    let Err(error) = copies::leave_closed(host, &flags.name).await else { return String::new() };
    format!(
        "Its virtual nodes stay closed to pods if the member comes back ({error}): `kubectl uncordon -l {}` opens them then.\n",
        copies::selector(&flags.name)
    )
}

fn closed(flags: &Remove, has_nodes: bool, why: &str) -> String {
    let name = &flags.name;
    let opening = opening(flags, has_nodes);
    format!("Member {name} is not removed: {why}.\nIt is closed to new volumes and pods now. {opening}.\n")
}

/// What an error on the way leaves behind.
fn unseen(flags: &Remove, has_nodes: bool) -> String {
    let name = &flags.name;
    let opening = opening(flags, has_nodes);
    format!("member {name} is not removed, but closed to new volumes and pods now. {opening}. This stopped the command")
}

fn opening(flags: &Remove, has_nodes: bool) -> String {
    let name = &flags.name;
    let nodes = if has_nodes {
        format!(", and `kubectl uncordon -l {}` opens its virtual nodes", copies::selector(name))
    } else {
        String::new()
    };
    format!("If you keep it, `kosmos-csi member uncordon {name}` opens it again{nodes}")
}

/// The way to take away what `member add` has made there: never in a cluster that is another member, or that the name does not mean.
async fn admin(flags: &Remove, records: [&Host; 2], dial: &Dial) -> anyhow::Result<Option<Admin>> {
    let Some(path) = &flags.member_kubeconfig else { return Ok(None) };
    let access = MemberAccess { member_kubeconfig: PathBuf::clone(path), member_context: flags.member_context.clone() };
    let admin = connect::admin(&access, dial).await?;
    for record in records {
        is_meant(flags, record, &admin.identity).await?;
    }
    let [host, _] = records;
    let wanted = tokens(Some(&host.id.0), Some(&host.cluster));
    let live = read(&admin.client, &wanted).await?;
    if let Some(cluster) = live.as_ref().and_then(|live| former_cluster(live, &wanted)) {
        bail!(
            "in this member, host {} is cluster {cluster} now, and the accounts there belong to that cluster: nothing was removed. Without \
             --member-kubeconfig, this command removes only this cluster's own Secrets",
            host.id
        )
    }
    Ok(Some(admin))
}

/// A cluster that nobody has on record may have accounts of before.
async fn is_meant(flags: &Remove, record: &Host, identity: &str) -> anyhow::Result<()> {
    let name = &flags.name;
    match pins::compare(&pins::pins(record).await?, name, identity) {
        None | Some(Pin::Held) => Ok(()),
        Some(Pin::Moved { pinned }) => {
            bail!(
                "--member-kubeconfig leads to cluster {identity}, but member {name} is cluster {pinned}: nothing was removed"
            )
        }
        Some(Pin::SameAs { name: other }) => bail!(
            "--member-kubeconfig leads to cluster {identity}, which is member {other}: nothing was removed. To remove {other}, type that \
             name; to remove only the Secrets of {name}, leave --member-kubeconfig out"
        ),
    }
}

async fn nothing(flags: &Remove, host: &Host) -> anyhow::Result<Report> {
    let name = &flags.name;
    if let Some(definition) = connect::members(host, &flags.members).await?.get(name) {
        let why = format!(
            "Member {name} is named by {}, which this command does not delete: delete it yourself, once `kosmos-csi get volumes --member {name}` \
             lists none.\n",
            definition.origin
        );
        return Ok(Report::new(why, false));
    }
    let pinned = pins::pins(host).await?.contains_key(name);
    let known = if pinned { "it was removed before; `member forget` forgets it" } else { "there never was one" };
    Ok(Report::new(format!("No Secret in {} names a member {name}: {known}.\n", host.namespace), false))
}

async fn remove_secrets(host: &Host, secrets: &[Secret], table: &mut Table) -> anyhow::Result<()> {
    for secret in secrets {
        secret::delete(host, secret).await?;
        table.row([format!("Secret {}/{}", host.namespace, secret.name_any()).as_str(), "(host)", "removed"]);
    }
    Ok(())
}

/// What gives rights goes first. The namespace stays: leaves may be in it. What is to be told of tokens that stay good.
async fn remove_account(flags: &Remove, host: &Host, admin: &Admin, table: &mut Table) -> anyhow::Result<String> {
    let mut objects = Uses::ALL.of(Some(&host.id.0)).map_err(anyhow::Error::msg)?;
    objects.push(tokens(Some(&host.id.0), None));
    let narrow = bindings::others(&admin.client, Some(&host.id.0), &objects).await?;
    if !narrow.is_empty() {
        objects.extend(shared_roles());
    }
    objects.extend(narrow);
    objects.extend(bindings::in_own_namespace(&admin.client, Some(&host.id.0)).await?);
    let accounts = Accounts::of(&admin.client).await?;
    let shared = accounts.has_others(host) || others::has_given(&admin.client, &objects).await?;
    for object in objects.iter().rev().filter(|object| word(object, "/kind") != "Namespace") {
        if shared && !is_own(object) {
            table.row([title(object).as_str(), &flags.name, "left: others use it"]);
            continue;
        }
        let Done { title, result } = remove_object(&admin.client, object).await?;
        table.row([title.as_str(), &flags.name, result]);
    }
    if !accounts.may_be_any_hosts {
        return Ok(String::new());
    }
    Ok(format!(
        "An account that may be any host's stays there, as other hosts may use it: deleting {} there ends its tokens for all of them.\n",
        title(&tokens(None, None))
    ))
}

fn closing(flags: &Remove, table: &Table, left: &Belongings, tokens: &str) -> String {
    let name = &flags.name;
    let unavailable = if left.is_empty() {
        String::new()
    } else {
        format!("It has {left}: the driver answers every call for them with UNAVAILABLE until the member is back.\n")
    };
    format!(
        "{table}\n{unavailable}{tokens}No data was touched. The host still has on record which cluster {name} was, so that it can come \
         back; `kosmos-csi member forget {name}` removes the record.\n"
    )
}
