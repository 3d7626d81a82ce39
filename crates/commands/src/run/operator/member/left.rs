//! What a member that is to be removed has of the host, now that nothing new comes there: what was made meanwhile, what runs there, and what
//! is there without the host's knowing it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    belongings::Belongings,
    copies::{self, Bound, There},
    counted_as, others,
};
use crate::{
    args::operator::Remove,
    run::operator::{
        connect::{self, Admin},
        look::leaf_claims,
        snapshots,
        whole::whole_of,
    },
};
use cluster::Dial;
use host::{Host, pins};
use leaf::{
    MemberClient,
    identity::{Identity, Meant, judge},
    moving::kept,
    ownership::{self, VOLUME},
    snapshot::served,
};
use member::source::Account;

const BY_FORCE: &str = "add --force to remove the member all the same";
const COPIES_END: &str =
    "The agent ends those whose pods have gone: type this again after that. With --force, nobody ends them any more";
const COPIES_STAY: &str = "No agent of this host has an account there, so nobody ends them: somebody there has made them, or their \
                           agent has gone. Have the member's administrator delete them, and type this again. With --force, they stay";
const OWN_END: &str = "The driver ends them itself: type this again after that. If a consumer (kosmos-csi-consumer-…) is there for longer than \
                       a quarter of an hour, somebody there has made it: have the member's administrator delete it. With --force, \
                       nobody ends them any more";

/// None where it may be removed. Its administrator, where he is here, sees what no account of the host may see or is there to look for.
pub(super) async fn told(
    flags: &Remove,
    host: &Host,
    agents: &Host,
    admin: Option<&Admin>,
    dial: &Dial,
) -> anyhow::Result<Option<String>> {
    let name = &flags.name;
    let left = Belongings::of(host, name).await?;
    if !left.is_empty() {
        return Ok(Some(format!(
            "it has {left}. Delete their claims and snapshots, and wait until moves have ended; or {BY_FORCE}"
        )));
    }
    let bound = copies::bound(host, name).await?;
    if let Some(pods) = pods(&bound) {
        return Ok(Some(format!(
            "it {pods}: kubectl drain -l {} --ignore-daemonsets --delete-emptydir-data (and --force for pods that no controller recreates). With \
             `member remove --force`, nobody ends them any more",
            copies::selector(name)
        )));
    }
    if let Some(way) = way(flags, host, agents, admin, Account::VirtualNode, dial).await?
        && let Some(why) = running(way, has_agent(flags, host, admin).await?).await
    {
        return Ok(Some(why));
    }
    let way = way(flags, host, agents, admin, Account::Driver, dial).await?;
    let Some(way) = way else { return Ok(None) };
    let leaves = match way {
        Ok(way) => leaves(&way.leaf).await,
        Err(reason) => Err(reason),
    };
    Ok(match leaves {
        Ok(leaves) if leaves.is_empty() => missed(host, admin).await?,
        Ok(leaves) => Some(format!(
            "it has {}. `kosmos-csi doctor` lists leaf claims and leaf snapshots that are orphans, `kosmos-csi volume discard` what moves have kept, \
             and the member's administrator deletes VolumeSnapshotContents of snapshots that have gone. doctor does not know claims without \
             the label {VOLUME}: he puts back the label that the leaf volume has, or deletes the claim if it is no leaf. Or {BY_FORCE}",
            leaves.join(", ")
        )),
        Err(reason) => {
            Some(format!("this command cannot see whether leaves of this host are there ({reason}); {BY_FORCE}"))
        }
    })
}

/// What is to be drained, and what for.
fn pods(Bound { running, ended }: &Bound) -> Option<String> {
    match (running.is_empty(), ended.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("runs {}. Have them run elsewhere", counted_as("pods", running))),
        (true, false) => Some(format!("has {}. Have them removed", counted_as("ended pods", ended))),
        (false, false) => Some(format!(
            "runs {}, and has {}. Have them run elsewhere, and removed",
            counted_as("pods", running),
            counted_as("ended pods", ended)
        )),
    }
}

/// What other hosts would miss, where the accounts go too.
async fn missed(host: &Host, admin: Option<&Admin>) -> anyhow::Result<Option<String>> {
    let Some(admin) = admin else { return Ok(None) };
    let hosts = others::without_account(host, &admin.client).await?;
    Ok((!hosts.is_empty()).then(|| {
        format!(
            "there are volumes of other hosts ({}) that have no account of their own and may use this host's: give each of these hosts an \
             account by `kosmos-csi member add`; or {BY_FORCE}",
            hosts.join(", ")
        )
    }))
}

/// By whom the member is looked at.
struct Viewer {
    leaf: MemberClient,
    /// An account of a folder of members may be the driver's, whoever is asked for.
    is_certain: bool,
}

/// None where the host has no such account; or why the member cannot be looked at.
async fn way(
    flags: &Remove,
    host: &Host,
    agents: &Host,
    admin: Option<&Admin>,
    account: Account,
    dial: &Dial,
) -> anyhow::Result<Option<Result<Viewer, String>>> {
    let name = &flags.name;
    if let Some(admin) = admin {
        let leaf = MemberClient::new(name, host.id.clone(), admin.client.clone());
        return Ok(Some(Ok(Viewer { leaf, is_certain: true })));
    }
    let named = connect::members_as(host, &flags.members, account).await?;
    let Some(definition) = named.get(name) else { return Ok(None) };
    // The driver's word counts first: where the agent's is another, it has no pods there.
    let mut record = pins::pins(agents).await?;
    record.extend(pins::pins(host).await?);
    let known = connect::known(host, name, definition, &record, dial).await;
    Ok(Some(known.map(|known| Viewer { leaf: known.leaf, is_certain: definition.secret.is_some() })))
}

/// Whether an agent may have an account there. The administrator looks there also where none has.
async fn has_agent(flags: &Remove, host: &Host, admin: Option<&Admin>) -> anyhow::Result<bool> {
    if admin.is_none() {
        return Ok(true);
    }
    let named = connect::members_as(host, &flags.members, Account::VirtualNode).await?;
    Ok(named.contains_key(&flags.name))
}

async fn running(way: Result<Viewer, String>, has_agent: bool) -> Option<String> {
    let there = match way {
        Ok(way) => copies::there(&way.leaf, way.is_certain).await,
        Err(why) => Err(why),
    };
    match there {
        Ok(There { copies, .. }) if !copies.is_empty() => {
            let end = if has_agent { COPIES_END } else { COPIES_STAY };
            Some(format!("it has {}. {end}", counted_as("copied pods", &copies)))
        }
        Ok(There { own, .. }) if !own.is_empty() => Some(format!(
            "it has {}, which move volumes or wait for them. {OWN_END}",
            counted_as("pods of the driver", &own)
        )),
        Ok(_) => None,
        Err(why) => Some(format!("this command cannot see whether pods of the host run there ({why}); {BY_FORCE}")),
    }
}

/// As people are told of them.
async fn leaves(leaf: &MemberClient) -> Result<Vec<String>, String> {
    let claims = names(&claims(leaf).await?);
    let snapshots = snapshots::of_member(leaf).await?;
    let contents = names(&snapshots::outlived(leaf, &snapshots).await?);
    let kept = names(&kept::list(leaf).await.map_err(|error| error.to_string())?);
    let all = [
        ("leaf claims", claims),
        ("leaf snapshots", names(&snapshots)),
        ("leaf groups of snapshots", groups(leaf).await.map_err(|error| error.to_string())?),
        ("retained snapshot contents", contents),
        ("kept volumes", kept),
    ];
    Ok(all.iter().filter(|(_, names)| !names.is_empty()).map(|(kinds, names)| counted_as(kinds, names)).collect())
}

/// Without those that have a label of ours and nothing else of a leaf: whoever makes claims there writes that on his.
async fn claims(leaf: &MemberClient) -> Result<Vec<PersistentVolumeClaim>, String> {
    let mut claims = leaf_claims(leaf).await?;
    let ours = ListParams::default().labels(&ownership::selector(&leaf.host));
    let volumes = whole_of::<PersistentVolume>(Api::all(leaf.client.clone()), &ours).await?;
    let bound: BTreeSet<String> = volumes.into_iter().filter_map(|volume| volume.spec?.claim_ref?.uid).collect();
    claims.retain(|claim| {
        let identity = judge(&claim.metadata, &leaf.host, Meant::Any);
        matches!(identity, Identity::Leaf(_) | Identity::Stripped)
            || claim.uid().is_some_and(|uid| bound.contains(&uid))
    });
    Ok(claims)
}

async fn groups(leaf: &MemberClient) -> domain::error::Result<Vec<String>> {
    let Some(groups) = served::groups(leaf).await? else { return Ok(Vec::new()) };
    Ok(groups.ours().await?.into_iter().map(|(_, group)| group.place.claim).collect())
}

fn names(objects: &[impl ResourceExt]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}
