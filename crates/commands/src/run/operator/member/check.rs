//! `member check`: a member from its kubeconfig to its storage classes, a line for each. What depends on something that
//! has failed is not asked.

use std::time::Duration;

use k8s_openapi::{
    api::{core::v1::Pod, storage::v1::StorageClass},
    apimachinery::pkg::apis::meta::v1::APIResourceList,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::rights::{self, Whose, typed};
use crate::{
    args::operator::Check,
    run::operator::{
        Report,
        connect::{self, now},
        print::patiently,
    },
};
use cluster::{Dial, with_causes};
use domain::volume::namespaces::Namespaces;
use host::{Host, pins};
use leaf::{
    Rows,
    stats::{self, ReaderAnswer},
};
use member::{
    kubeconfig as rules,
    source::{Account, MemberDefinition},
    token::Token,
};
use operator::{
    kubeconfig::{self, until},
    objects::{ACCOUNT, NAMESPACE, PODS_ACCOUNT, Uses},
    rights::{Right, missing},
    table::Table,
};

/// For each reader of volumes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lines so far.
struct Sheet {
    table: Table,
    well: bool,
    /// What is missing in detail.
    more: String,
}

impl Sheet {
    fn ok(&mut self, what: &str, detail: impl Into<String>) {
        self.table.row([what.to_owned(), "ok".to_owned(), detail.into()]);
    }

    /// It works without.
    fn note(&mut self, what: &str, detail: impl Into<String>) {
        self.table.row([what.to_owned(), "note".to_owned(), detail.into()]);
    }

    fn failed(&mut self, what: &str, detail: impl Into<String>) {
        self.table.row([what.to_owned(), "FAILED".to_owned(), detail.into()]);
        self.well = false;
    }
}

pub(in crate::run::operator) async fn check(flags: &Check, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.members.host, dial).await?;
    let named = connect::members(&host, &flags.members).await?;
    let mut sheet = Sheet { table: Table::new(&["CHECK", "RESULT", "DETAIL"]), well: true, more: String::new() };
    match named.get(&flags.name) {
        Some(definition) => {
            sheet.ok("named", &definition.origin);
            if definition.policy.cordoned {
                sheet.note("cordon", "the member is closed to new volumes");
            }
            patiently("asking the member", examine(flags, &host, definition, dial, &mut sheet)).await?;
        }
        None => sheet.failed("named", nowhere(flags, &host, &named.keys().cloned().collect::<Vec<_>>())),
    }
    let Sheet { table, well, more } = sheet;
    Ok(Report::new(format!("{table}{more}"), well))
}

fn nowhere(flags: &Check, host: &Host, named: &[String]) -> String {
    let folder = if flags.members.members_dir.is_some() { " or file in --members-dir" } else { "" };
    let there = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
    format!("no Secret in {}{folder} names this member; members: {there}", host.namespace)
}

async fn examine(
    flags: &Check,
    host: &Host,
    definition: &MemberDefinition,
    dial: &Dial,
    sheet: &mut Sheet,
) -> anyhow::Result<()> {
    let config = match rules::parse(&definition.kubeconfig, definition.source).await {
        Ok(config) => config,
        Err(reason) => {
            sheet.failed("kubeconfig", reason);
            return Ok(());
        }
    };
    sheet.ok("kubeconfig", kubeconfig::read(&definition.kubeconfig).server);
    match rules::namespaces(&definition.kubeconfig) {
        Ok(Namespaces::All) => {}
        Ok(only) => sheet.note("namespaces", format!("volumes of this host are made in {only} alone")),
        Err(reason) => {
            sheet.failed("namespaces", reason);
            return Ok(());
        }
    }
    token("token", definition, &flags.name, sheet);
    let client = match connect::open(&flags.name, config, dial) {
        Ok(client) => client,
        Err(reason) => {
            sheet.failed("credentials", reason);
            return Ok(());
        }
    };
    if identity(host, &flags.name, &client, sheet).await? {
        account(flags, host, definition, &client, sheet).await?;
        pods(flags, host, definition, dial, sheet).await?;
        classes(host, &client, sheet).await;
        snapshots(&client, sheet).await;
    }
    Ok(())
}

fn token(line: &str, definition: &MemberDefinition, name: &str, sheet: &mut Sheet) {
    let Some(token) = kubeconfig::read(&definition.kubeconfig).token else { return };
    let left = until(token.ends, now());
    let renew = format!("{} renews it", typed(name, ""));
    match token.due() {
        _ if token.ends <= now() => sheet.failed(line, format!("{left}: {renew}")),
        _ if token.is_late(now()) => {
            sheet.note(line, format!("ends in {left}, and driver and agent have not renewed it: {renew}"));
        }
        Some(due) if definition.secret.is_some() && due > now() => {
            sheet.ok(line, format!("ends in {left}, and is renewed in {}", until(due, now())));
        }
        _ => sheet.ok(line, format!("ends in {left}")),
    }
}

/// Whether it answers, knows the credentials, and is who it always was.
async fn identity(host: &Host, name: &str, client: &Client, sheet: &mut Sheet) -> anyhow::Result<bool> {
    let identity = match host::identity(client).await {
        Ok(identity) => identity,
        Err(kube::Error::Api(status)) => {
            sheet.ok("address", "it answers");
            sheet.failed("credentials", member::refusal(&kube::Error::Api(status)));
            return Ok(false);
        }
        Err(error) => {
            sheet.failed("address", format!("{} (asked from here; the host asks from its pods)", with_causes(&error)));
            return Ok(false);
        }
    };
    sheet.ok("address", "it answers");
    sheet.ok("credentials", "they are good");
    match pins::compare(&host::pins::pins(host).await?, name, &identity) {
        Some(pins::Pin::Held) => sheet.ok("identity", identity),
        None => sheet.note("identity", format!("{identity}; no controller has connected to it yet")),
        Some(pin) => {
            sheet.failed("identity", member::quarantined(&pin, &identity));
            return Ok(false);
        }
    }
    Ok(true)
}

async fn account(
    flags: &Check,
    host: &Host,
    definition: &MemberDefinition,
    client: &Client,
    sheet: &mut Sheet,
) -> anyhow::Result<()> {
    let whose = Whose::of(definition, ACCOUNT, host);
    let of_any = Token::of(&definition.kubeconfig).is_some_and(|token| token.account() == Some((NAMESPACE, ACCOUNT)));
    if of_any {
        let add = format!("{} gives this host one of its own", typed(&flags.name, ""));
        sheet.note("account", format!("it may write objects of all hosts there: {add}"));
    }
    let usual = whose.needed(Uses::default(), definition)?;
    granted("rights", &whose.remedy(&flags.name, "", "member.yaml"), client, &usual, sheet).await;
    let attach = Uses { attach: true, ..Uses::default() };
    let moves = Uses { moves: true, ..Uses::default() };
    for (wanted, line, flag, file, uses) in [
        (flags.attach, "rights for real nodes", " --attach", "member-attach.yaml", attach),
        (flags.moves, "rights for moves", " --moves", "member-mover.yaml", moves),
    ] {
        if wanted {
            let mut rights = whose.needed(uses, definition)?;
            rights.retain(|right| !usual.contains(right));
            granted(line, &whose.remedy(&flags.name, flag, file), client, &rights, sheet).await;
        }
    }
    if flags.attach {
        sheet.note("machines, secrets", "not checked: rights on them are bound in the namespaces where they are");
    }
    Ok(())
}

/// The account that runs pods there, where it is not the driver's own.
async fn pods(
    flags: &Check,
    host: &Host,
    driver: &MemberDefinition,
    dial: &Dial,
    sheet: &mut Sheet,
) -> anyhow::Result<()> {
    let named = connect::members_as(host, &flags.members, Account::VirtualNode).await?;
    let own = named.get(&flags.name).filter(|own| own.kubeconfig != driver.kubeconfig);
    let Some(own) = own else {
        let add = typed(&flags.name, " --pods");
        sheet.note("pods", format!("the agent has no account of its own here to run pods: {add} makes one"));
        return Ok(());
    };
    token("token for pods", own, &flags.name, sheet);
    let client = match rules::parse(&own.kubeconfig, own.source).await {
        Ok(config) => connect::open(&flags.name, config, dial),
        Err(reason) => Err(reason),
    };
    let agents = connect::agents(host, &flags.members.host);
    match client {
        Err(reason) => sheet.failed("pods", reason),
        Ok(client) => {
            if let Some(reason) = stranger(&agents, &flags.name, &client).await? {
                sheet.failed("pods", reason);
                return Ok(());
            }
            let whose = Whose::of(own, PODS_ACCOUNT, host);
            let (rights, remedy) =
                (whose.needed(Uses::ALL, own)?, whose.remedy(&flags.name, "", "member-virtual-node.yaml"));
            granted("pods", &remedy, &client, &rights, sheet).await;
            volume_stats(flags, host, &client, sheet).await;
        }
    }
    Ok(())
}

/// Who tells how full volumes are there, asked as the agent asks him. All else goes on without.
async fn volume_stats(flags: &Check, host: &Host, client: &Client, sheet: &mut Sheet) {
    let line = "volume stats";
    match told(&flags.name, host, client).await {
        Ok((reader, told)) if told.unread.is_empty() => {
            sheet.ok(line, format!("volumes that pod {reader} tells of: {}", told.volumes.len()));
        }
        Ok((reader, told)) => {
            let unread = told.unread.join("; ");
            sheet.failed(
                line,
                format!("volumes that pod {reader} tells of: {}, but not all: {unread}", told.volumes.len()),
            );
        }
        Err(reason) if flags.volume_stats => sheet.failed(line, reason),
        Err(reason) => sheet.note(line, reason),
    }
}

async fn told(name: &str, host: &Host, client: &Client) -> Result<(String, ReaderAnswer), String> {
    let pods = Api::<Pod>::namespaced(client.clone(), stats::NAMESPACE);
    let running = ListParams::default().fields("status.phase=Running");
    let running = pods.list_metadata(&running).await.map_err(|error| with_causes(&error))?;
    // One that is being deleted may be on a node that is dead.
    let staying = running.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let readers = stats::readers_of(staying.map(ResourceExt::name_any).collect(), &host.id);
    if readers.is_empty() {
        return Err(format!(
            "no pod there reports how full volumes are, so virtual nodes have no kubelet_volume_stats_… of them: `member add {name} \
             --member-kubeconfig FILE --volume-stats --image IMAGE` makes that pod"
        ));
    }
    stats::ask_each(client, &readers, PATIENCE).await
}

/// Why it is not the cluster that the agent has always known.
async fn stranger(agents: &Host, name: &str, client: &Client) -> anyhow::Result<Option<String>> {
    let identity = match host::identity(client).await {
        Ok(identity) => identity,
        Err(error) => return Ok(Some(member::refusal(&error))),
    };
    Ok(match pins::compare(&host::pins::pins(agents).await?, name, &identity) {
        None | Some(pins::Pin::Held) => None,
        Some(pin) => Some(member::quarantined(&pin, &identity)),
    })
}

async fn granted(line: &str, remedy: &str, client: &Client, rights: &[Right], sheet: &mut Sheet) {
    match rights::ask(client, rights).await {
        Err(error) => sheet.failed(line, error.to_string()),
        Ok(answers) => match missing(&answers) {
            None => sheet.ok(line, format!("all {} rights", answers.len())),
            Some(missing) => {
                sheet.failed(line, format!("missing: {missing}; {remedy}"));
                sheet.more = format!("{}\n{}", sheet.more, rights::table(&answers));
            }
        },
    }
}

async fn classes(host: &Host, client: &Client, sheet: &mut Sheet) {
    let classes = match Api::<StorageClass>::all(client.clone()).list(&ListParams::default()).await {
        Ok(classes) => classes,
        Err(error) => return sheet.failed("storage classes", with_causes(&error)),
    };
    let rows = Rows::new(host.id.clone());
    classes.iter().for_each(|class| rows.put_class(class));
    match rows.class_names() {
        none if none.is_empty() => {
            sheet.failed("storage classes", "this host may use none, so it can make no volumes here");
        }
        names => sheet.ok("storage classes", names.join(", ")),
    }
    match rows.default_class() {
        Some(default) => sheet.ok("default class", default),
        None => sheet.note("default class", "there is none: classes of the host must set leafStorageClass"),
    }
}

async fn snapshots(client: &Client, sheet: &mut Sheet) {
    for (what, group, kind) in [
        ("snapshots", "snapshot.storage.k8s.io", "VolumeSnapshot"),
        ("group snapshots", "groupsnapshot.storage.k8s.io", "VolumeGroupSnapshot"),
    ] {
        match client.list_api_group_resources(&format!("{group}/v1")).await {
            Ok(served) => match lacking(&served, kind) {
                None => sheet.ok(what, format!("{group}/v1")),
                Some(kind) => sheet.failed(what, format!("{group}/v1 is served without {kind}: install its CRD")),
            },
            Err(kube::Error::Api(status)) if status.code == 404 => {
                sheet.note(what, format!("{group}/v1 is not served: the driver refuses {what} here"));
            }
            Err(error) => sheet.failed(what, with_causes(&error)),
        }
    }
}

/// People there may have removed one CRD of three.
fn lacking(served: &APIResourceList, kind: &str) -> Option<String> {
    let mut kinds = ["", "Content", "Class"].into_iter().map(|part| format!("{kind}{part}"));
    kinds.find(|kind| served.resources.iter().all(|one| one.kind != *kind))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;

    use super::*;

    #[test]
    fn kind_that_an_api_group_is_served_without_is_named() {
        let served = |kinds: &[&str]| {
            let resource = |kind: &&str| APIResource { kind: (*kind).to_owned(), ..APIResource::default() };
            APIResourceList { resources: kinds.iter().map(resource).collect(), ..APIResourceList::default() }
        };
        let all = ["VolumeSnapshot", "VolumeSnapshotClass", "VolumeSnapshotContent"];
        assert_eq!(lacking(&served(&all), "VolumeSnapshot"), None);
        for kind in all {
            let others: Vec<&str> = all.into_iter().filter(|other| *other != kind).collect();
            assert_eq!(lacking(&served(&others), "VolumeSnapshot").as_deref(), Some(kind));
        }
    }
}
