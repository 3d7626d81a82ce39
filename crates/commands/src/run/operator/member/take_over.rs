//! What a former cluster may do in a member ends where another one has taken over its volumes: two hosts that are one to a member
//! would write on the same leaves.

use anyhow::bail;
use kube::Client;
use serde_json::Value;

use crate::{
    args::operator::Add,
    run::operator::objects::{delete, read},
};
use host::Host;
use operator::{
    objects::{Uses, former_cluster, has_kubeconfig, title, tokens, word},
    table::Table,
};

/// An error where another cluster has what is given to this host, and nobody has said that it is to have it no more.
pub(super) async fn may_be_given(
    flags: &Add,
    client: &Client,
    host: Option<&Host>,
    tokens: &Value,
) -> anyhow::Result<()> {
    let Some(host) = host.filter(|_| !flags.take_over && !flags.dry_run) else { return Ok(()) };
    let live = read(client, tokens).await?;
    let whose = match live.as_ref().map(|live| former_cluster(live, tokens)) {
        Some(None) => return Ok(()),
        Some(Some(cluster)) => {
            format!("in this member, host {} is cluster {cluster}, as {} says", host.id, title(tokens))
        }
        None if *host.cluster == *host.id.0 => return Ok(()),
        None => "by its own record, this cluster has taken over the volumes of that host".to_owned(),
    };
    bail!(
        "this cluster ({}) wants to be host {} here, but {whose}. If no other cluster is that host any more, give --take-over: this ends all that \
         another cluster may do here as that host. Nothing was written",
        host.cluster,
        host.id
    )
}

/// Both accounts and all that was given to them, also what no Secret ends, unless this cluster has them already. An API server believes a
/// token that it has just seen for ten seconds more.
pub(super) async fn end(client: &Client, host: Option<&Host>, member: &str, table: &mut Table) -> anyhow::Result<()> {
    let Some(host) = host else { return Ok(()) };
    let tokens = tokens(Some(&host.id.0), Some(&host.cluster));
    if is_ours(read(client, &tokens).await?.as_ref(), &tokens) {
        return Ok(());
    }
    let objects = Uses::ALL.of(Some(&host.id.0)).map_err(anyhow::Error::msg)?;
    // The Secret last: it tells whoever types this again that not all is done.
    let is_account = |object: &&Value| word(object, "/kind") == "ServiceAccount" && has_kubeconfig(object);
    for object in objects.iter().filter(is_account).chain([&tokens]) {
        let Some(live) = read(client, object).await? else { continue };
        delete(client, &live, object).await?;
        table.row([title(object).as_str(), member, "removed: its tokens end within ten seconds"]);
    }
    Ok(())
}

fn is_ours(live: Option<&Value>, tokens: &Value) -> bool {
    live.is_some_and(|live| former_cluster(live, tokens).is_none())
}
