//! `host adopt`: makes a backup's objects in this host, and has it be to its members who the former one was.

use anyhow::{Context, anyhow, bail};
use k8s_openapi::{api::apps::v1::Deployment, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    free,
    make::{Made, Maker},
    nodes::{self, Former, State},
};
use crate::{
    args::operator::AdoptHost,
    run::{
        Misuse,
        operator::{
            Report, connect,
            member::{counted, secret},
            print::patiently,
        },
    },
};
use cluster::{Dial, with_causes};
use domain::volume::{HostId, VolumeHash, VolumeId};
use host::{
    Host,
    pins::{self, Pin},
    volume::HostVolume,
};
use operator::{backup::Backup, status::CHART, table::Table};

/// On pods of controller and agent.
const STARTED_AS: &str = "kosmos.csi.io/host";

pub(in crate::run::operator) async fn adopt(flags: &AdoptHost, dial: &Dial) -> anyhow::Result<Report> {
    let misuse = |why: String| Misuse(format!("{}: {why}", flags.backup.display()));
    let text = std::fs::read_to_string(&flags.backup).map_err(|error| misuse(error.to_string()))?;
    let backup = Backup::parse(&text).map_err(misuse)?;
    let host = connect::host(&flags.members.host, dial).await?;
    free::may_be(flags, &host, &backup).await?;
    let adopted = pins::adopted(&host).await?;
    if let Some(adopted) = adopted.as_deref().filter(|adopted| is_older(&backup.made, adopted)) {
        bail!(
            "{} is of {}, which is older than the backup that this cluster was made from ({adopted}): it would bring back what people have deleted. \
             If you want that, remove the annotation kosmos.csi.io/adopted from ConfigMap {}/kosmos-csi-members. Nothing was written",
            flags.backup.display(),
            backup.made,
            host.namespace
        );
    }
    let records = records(flags, &host).await?;
    for record in &records {
        agrees(record, &backup).await?;
    }
    if !flags.dry_run {
        // First: a volume of a member that nobody knows is let go at a word.
        pin(&records, &backup).await?;
    }
    let is_made = adopted.is_some_and(|adopted| adopted == backup.made);
    let (told, is_whole) = if is_made { made_before(&backup) } else { make(flags, &host, &backup).await };
    if flags.dry_run {
        return Ok(Report::new(told + "Nothing was written: this is a dry run.\n", is_whole));
    }
    let rest = take_over(flags, &host, &records, &backup, is_whole, dial).await;
    let (rest, is_done) =
        rest.with_context(|| format!("{told}Not all was done: correct what the error says, and type this again"))?;
    Ok(Report::new(format!("{told}{rest}"), is_done && is_whole))
}

/// What is said of the objects, and whether all are there.
async fn make(flags: &AdoptHost, host: &Host, backup: &Backup) -> (String, bool) {
    let maker = Maker { client: &host.client, dry_run: flags.dry_run };
    let doing = format!("making {} volumes and {} snapshots", backup.volumes.len(), backup.snapshots.len());
    let made = patiently(&doing, maker.all(backup)).await;
    (told(backup, &made, flags.dry_run), made.left.is_empty())
}

fn made_before(backup: &Backup) -> (String, bool) {
    let told = "all was made before; objects that somebody has deleted since were not made again";
    (format!("Of host {}, as of {}: {told}.\n", backup.host, backup.made), true)
}

/// Of two times as backups have them.
fn is_older(made: &str, other: &str) -> bool {
    let read = |time: &str| time.parse::<Timestamp>().ok();
    read(made).zip(read(other)).is_some_and(|(made, other)| made < other)
}

/// Last: whoever is started with it finds the volumes. What is said of that, and whether nothing is left to do.
async fn take_over(
    flags: &AdoptHost,
    host: &Host,
    records: &[Host],
    backup: &Backup,
    is_whole: bool,
    dial: &Dial,
) -> anyhow::Result<(String, bool)> {
    let restarted = be(host, records, backup).await?;
    if is_whole {
        pins::note_adopted(host, &backup.host, &backup.made).await?;
    }
    let host = connect::host(&flags.members.host, dial).await?;
    let looking = nodes::look(flags, &host, dial);
    let mut former = patiently("asking the members which nodes have volumes", looking).await?;
    if flags.former_cluster_is_off {
        nodes::detach(flags, &host, &mut former, dial).await?;
    }
    let own = free::not_of(&host, backup).await?;
    let own: Vec<HostVolume> = own.into_iter().filter(|volume| was_made_as(&host.cluster, volume)).collect();
    let is_left = former.attached.iter().any(|attached| matches!(attached.state, State::Has | State::MayBeUsed));
    let is_done = former.unknown.is_empty() && own.is_empty() && !is_left;
    let told =
        [of_host(&host, &restarted, records.len() > 1), of_own(&own), of_members(&former), of_nodes(flags, &former)];
    Ok((told.concat(), is_done))
}

/// By a driver that was not restarted yet.
fn was_made_as(cluster: &str, volume: &HostVolume) -> bool {
    let hash = VolumeHash::new(&HostId(cluster.to_owned()), &volume.name);
    VolumeId::parse(&volume.handle).is_some_and(|id| id.names(hash))
}

fn of_own(own: &[HostVolume]) -> String {
    match own {
        [] => String::new(),
        own => format!(
            "\nMade meanwhile, as the host that this cluster was before: {}. The driver knows these no more: delete their claims here, and their \
             leaves in the members.\n",
            counted(own)
        ),
    }
}

/// The host as the driver has it, and as the agent has it, where there is one.
async fn records(flags: &AdoptHost, host: &Host) -> anyhow::Result<Vec<Host>> {
    if !secret::has_namespace(host).await? {
        bail!("the host has no namespace {}: install the chart first", host.namespace);
    }
    let mut records = vec![host.clone()];
    let agents = connect::agents(host, &flags.members.host);
    if secret::has_namespace(&agents).await? {
        records.push(agents);
    }
    Ok(records)
}

/// A member's name must not mean two clusters.
async fn agrees(record: &Host, backup: &Backup) -> anyhow::Result<()> {
    let pins = pins::pins(record).await?;
    for (name, identity) in &backup.members {
        match pins::compare(&pins, name, identity) {
            None | Some(Pin::Held) => {}
            Some(pin) => bail!("member {name}: {}. Nothing was written", member::quarantined(&pin, identity)),
        }
    }
    Ok(())
}

async fn pin(records: &[Host], backup: &Backup) -> anyhow::Result<()> {
    for record in records {
        for (name, identity) in &backup.members {
            match pins::pin(record, name, identity).await? {
                Pin::Held => {}
                pin => bail!("member {name}: {}", member::quarantined(&pin, identity)),
            }
        }
    }
    Ok(())
}

/// From now on this cluster is the host of the backup, unless it always was. What was restarted for that.
async fn be(host: &Host, records: &[Host], backup: &Backup) -> anyhow::Result<Vec<String>> {
    if *host.cluster == *backup.host {
        return Ok(Vec::new());
    }
    for record in records {
        pins::adopt(record, &backup.host).await?;
    }
    restart(records, &backup.host).await
}

/// Who the host is, controller and agent read as they start. They are restarted once, as by `kubectl rollout restart`.
async fn restart(records: &[Host], former: &str) -> anyhow::Result<Vec<String>> {
    let mut restarted = Vec::new();
    for Host { client, namespace, .. } in records {
        let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
        let listed = deployments.list(&ListParams::default().labels(CHART)).await;
        let listed = listed.map_err(|error| anyhow!("list Deployments in {namespace}: {}", with_causes(&error)))?;
        let started_as = |one: &Deployment| {
            let metadata = one.spec.as_ref()?.template.metadata.as_ref()?;
            metadata.annotations.as_ref()?.get(STARTED_AS).cloned()
        };
        for one in listed.into_iter().filter(|one| started_as(one).as_deref() != Some(former)) {
            let change = json!({"spec": {"template": {"metadata": {"annotations": {STARTED_AS: former}}}}});
            let (name, change) = (one.name_any(), Patch::Merge(change));
            let patched = deployments.patch(&name, &PatchParams::default(), &change).await;
            patched.map_err(|error| anyhow!("restart Deployment {name}: {}", with_causes(&error)))?;
            restarted.push(format!("Deployment {namespace}/{name}"));
        }
    }
    Ok(restarted)
}

fn told(backup: &Backup, made: &Made, dry_run: bool) -> String {
    let left: String = made.left.iter().flat_map(|why| ["Left: ", why, ".\n"]).collect();
    let of = format!("Of host {}, as of {}:", backup.host, backup.made);
    let would = "This cluster would be that host to its members, and controller and agent would be restarted: pods of the former \
                 cluster that still run in members would end.\n";
    let would = if dry_run { would } else { "" };
    format!("{of}\n{}\n{left}{would}", made.table(dry_run))
}

fn of_host(host: &Host, restarted: &[String], has_agent: bool) -> String {
    if *host.cluster == *host.id.0 {
        return String::new();
    }
    let started = match restarted {
        [] => "Controller and agent know it once they start.".to_owned(),
        restarted => format!("Restarted for that: {}.", restarted.join(" and ")),
    };
    let no_agent =
        "There is no namespace for an agent of virtual nodes: if you install one later, type this again after that.\n";
    let no_agent = if has_agent { "" } else { no_agent };
    format!(
        "This cluster is host {} to its members. {started}\n{no_agent}As soon as the agent runs, pods of the former cluster that still run in members \
         end; pods of this cluster on virtual nodes that use the same volumes wait for that.\n",
        host.id
    )
}

fn of_members(former: &Former) -> String {
    if former.unknown.is_empty() {
        return String::new();
    }
    let unknown: String = former.unknown.iter().flat_map(|(name, why)| ["  ", name, ": ", why, "\n"]).collect();
    let add = |name| ["  kosmos-csi member add ", name, " --member-kubeconfig FILE --take-over\n"];
    let add: String = former.unknown.keys().map(String::as_str).flat_map(add).collect();
    format!(
        "\nMembers that do not work with this cluster yet:\n{unknown}Have the administrator of each type this. It ends what the former cluster may do there; \
         until then both clusters write on the same leaves:\n{add}Then type `host adopt` again, to see which volumes nodes of the former cluster have.\n"
    )
}

fn of_nodes(flags: &AdoptHost, former: &Former) -> String {
    let mut table = Table::new(&["VOLUME", "FORMER NODE", "STATE"]);
    for attached in &former.attached {
        let state = match attached.state {
            State::Has => "has it",
            State::Leaves => "is being detached",
            State::IsWanted => "stays: a pod of this cluster uses it on a node of that name, or was sent there",
            State::MayBeUsed => "has it: a pod in the member mounts it, or may mount it",
        };
        table.row([attached.volume.clone(), attached.node.to_string(), state.to_owned()]);
    }
    let wait = "\nType this again once those pods have ended; to see them, this command needs the agent's account in the member.\n";
    let has_users = former.attached.iter().any(|attached| attached.state == State::MayBeUsed);
    match former.attached.as_slice() {
        [] => String::new(),
        _ if has_users => format!("\n{table}{wait}"),
        _ if flags.former_cluster_is_off => {
            format!("\n{table}\nTo see how that goes on: kubectl get volumeattachments\n")
        }
        _ => format!(
            "\n{table}\nNo other node gets a volume of this list that is for one node alone. Once the nodes of the former cluster are off: kosmos-csi host adopt {} \
             --former-cluster-is-off\n",
            flags.backup.display()
        ),
    }
}
