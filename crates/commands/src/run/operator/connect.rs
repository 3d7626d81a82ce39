//! The ways to the clusters that a command speaks to.

use std::path::Path;

use anyhow::Context;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client, Config,
    config::{Cluster as Entry, KubeConfigOptions, Kubeconfig},
};

use super::print::patiently;
use crate::{
    args::operator::{HostAccess, MemberAccess, MembersAccess, UserAccess},
    run::{Misuse, kubeconfig::refusal},
};
use cluster::{Answers, Dial, metrics::Metrics, with_causes};
use domain::error::Error;
use host::{Host, pins};
use leaf::MemberClient;
use member::{
    kubeconfig, registry,
    source::{Account, MemberDefinition, MemberDefinitions, clusters, directory, secrets},
};
use operator::kubeconfig::without_user;

/// The host, which has said who it is.
pub(super) async fn host(access: &HostAccess, dial: &Dial) -> anyhow::Result<Host> {
    let (client, way) = line(&access.user, dial).await?;
    let connecting = Host::connect(client, access.members_namespace.clone());
    let connected = patiently("waiting for the host to answer", connecting).await;
    Ok(connected.map_err(|error| match error {
        Error::HostUnreachable(why) => Error::HostUnreachable(format!("{way}: {why}")),
        other => other,
    })?)
}

/// The host, for whoever has any right in it.
pub(super) async fn user(access: &UserAccess, dial: &Dial) -> anyhow::Result<Client> {
    Ok(line(access, dial).await?.0)
}

/// The same, and by which kubeconfig it is asked, and where.
async fn line(access: &UserAccess, dial: &Dial) -> Result<(Client, String), Misuse> {
    let (config, by) = match &access.kubeconfig {
        Some(path) => {
            let (config, _) = file(path, access.context.as_deref(), "--kubeconfig").await?;
            (config, format!("--kubeconfig {}", path.display()))
        }
        None => own(access.context.as_deref()).await?,
    };
    let way = format!("{by}: {}", without_user(&config.cluster_url.to_string()).trim_end_matches('/'));
    let client = open("(host)", config, dial).map_err(|reason| Misuse(format!("--kubeconfig: {reason}")))?;
    Ok((client, way))
}

/// The host as the agent of virtual nodes has it: with its own Secrets and its own record.
pub(super) fn agents(host: &Host, access: &HostAccess) -> Host {
    let mut agents = host.clone();
    agents.namespace.clone_from(&access.pods_namespace);
    agents
}

/// A member by its administrator's kubeconfig.
pub(super) struct Admin {
    pub(super) client: Client,
    /// The cluster as that kubeconfig has it.
    pub(super) entry: Entry,
    pub(super) config: Config,
    /// Who it says it is.
    pub(super) identity: String,
}

pub(super) async fn admin(access: &MemberAccess, dial: &Dial) -> anyhow::Result<Admin> {
    let (config, entry) =
        file(&access.member_kubeconfig, access.member_context.as_deref(), "--member-kubeconfig").await?;
    let client =
        open("(member)", config.clone(), dial).map_err(|reason| Misuse(format!("--member-kubeconfig: {reason}")))?;
    let identity = patiently("waiting for the member to answer", host::identity(&client)).await;
    let identity = identity.map_err(|error| {
        let server = without_user(entry.server.as_deref().unwrap_or_default());
        anyhow::anyhow!(
            "--member-kubeconfig {}: {server}: {}",
            access.member_kubeconfig.display(),
            member::refusal(&error)
        )
    })?;
    Ok(Admin { client, entry, config, identity })
}

async fn file(path: &Path, context: Option<&str>, flag: &str) -> Result<(Config, Entry), Misuse> {
    let misuse = |reason: String| Misuse(format!("{flag} {}: {reason}", path.display()));
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| misuse(refusal(&error)))?;
    let entry = entry(&kubeconfig, context).unwrap_or_default();
    let proxied = entry.proxy_url.is_some();
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.map_err(|error| misuse(refusal(&error)))?;
    if !proxied {
        config.proxy_url = None; // never one from the environment
    }
    Ok((config, entry))
}

/// The cluster of a context.
fn entry(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Entry> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == name)?.context.as_ref()?;
    kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.clone()
}

/// The kubeconfig that kubectl would use, or a pod's own account; and which it is.
async fn own(context: Option<&str>) -> Result<(Config, String), Misuse> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let found = match Config::from_kubeconfig(&options).await {
        Ok(config) => Ok((config, usual())),
        Err(error) if context.is_none() => {
            Config::incluster().map(|config| (config, "this pod's account".to_owned())).map_err(|_| error)
        }
        Err(error) => Err(error),
    };
    let unusable = |error| format!("no --kubeconfig is given, and the usual one cannot be used: {}", refusal(&error));
    found.map_err(|error| Misuse(unusable(error)))
}

/// Where kubectl looks.
fn usual() -> String {
    match std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        Some(paths) => format!("KUBECONFIG {}", paths.to_string_lossy()),
        None => "~/.kube/config".to_owned(),
    }
}

pub(super) fn open(cluster: &str, config: Config, dial: &Dial) -> Result<Client, String> {
    let line = cluster::connect(cluster, config, Answers::OfAPerson, dial, &Metrics::new());
    line.map(|line| line.probe).map_err(|error| format!("the kubeconfig cannot be used: {}", with_causes(&error)))
}

/// All members that are named, in the folder, in Secrets and by Kosmos `Cluster` objects; of two, the one that the
/// controller takes.
pub(super) async fn members(host: &Host, access: &MembersAccess) -> anyhow::Result<MemberDefinitions> {
    members_as(host, access, Account::Driver).await
}

/// The same with the credentials of one account.
pub(super) async fn members_as(
    host: &Host,
    access: &MembersAccess,
    account: Account,
) -> anyhow::Result<MemberDefinitions> {
    let mut sources = Vec::new();
    if let Some(folder) = &access.members_dir {
        let read = directory::read(folder, account);
        let read = read.map_err(|error| Misuse(format!("--members-dir {}: {error}", folder.display())))?;
        sources.push(Some(read));
    }
    let namespace = match account {
        Account::Driver => &host.namespace,
        Account::VirtualNode => &access.host.pods_namespace,
    };
    let secrets = secrets::read(host.client.clone(), namespace).await;
    let secrets = secrets.with_context(|| format!("the members' Secrets in {namespace} cannot be listed"))?;
    sources.push(Some(secrets));
    let clusters = clusters::read(host.client.clone()).await;
    sources.push(Some(clusters.context("the host's Kosmos Cluster objects cannot be listed")?));
    Ok(registry::merge(&sources))
}

/// A member that has said who it is, and is who it always was.
pub(super) struct Known {
    pub(super) leaf: MemberClient,
    pub(super) identity: String,
}

/// Why a member cannot be used under a name.
pub(super) struct Unmet {
    pub(super) why: String,
    /// The member that has the cluster under another name, where that is why: what says this one means that one.
    pub(super) alias_of: Option<String>,
}

impl From<String> for Unmet {
    fn from(why: String) -> Self {
        Self { why, alias_of: None }
    }
}

/// Asks a member who it is, by its own kubeconfig, and holds that against the record.
pub(super) async fn known(
    host: &Host,
    name: &str,
    definition: &MemberDefinition,
    pins: &std::collections::BTreeMap<String, String>,
    dial: &Dial,
) -> Result<Known, String> {
    meet(host, name, definition, pins, dial).await.map_err(|unmet| unmet.why)
}

/// The same for who wants to know of a second name as well.
pub(super) async fn meet(
    host: &Host,
    name: &str,
    definition: &MemberDefinition,
    pins: &std::collections::BTreeMap<String, String>,
    dial: &Dial,
) -> Result<Known, Unmet> {
    let config = kubeconfig::parse(&definition.kubeconfig, definition.source).await?;
    let namespaces = kubeconfig::namespaces(&definition.kubeconfig)?;
    let client = open(name, config, dial)?;
    let identity = host::identity(&client).await.map_err(|error| member::refusal(&error))?;
    match pins::compare(pins, name, &identity) {
        Some(pins::Pin::Held) => {
            Ok(Known { leaf: MemberClient::new(name, host.id.clone(), client).with_rights_in(namespaces), identity })
        }
        Some(pin) => {
            let why = member::quarantined(&pin, &identity);
            let alias_of = if let pins::Pin::SameAs { name } = pin { Some(name) } else { None };
            Err(Unmet { why, alias_of })
        }
        None => {
            Err(format!("no controller has connected to it yet, so the host does not know which cluster {name} is")
                .into())
        }
    }
}

/// The same for who takes much of what it says: no more than a controller takes.
pub(super) async fn bounded(
    host: &Host,
    name: &str,
    definition: &MemberDefinition,
    dial: &Dial,
) -> Result<MemberClient, String> {
    let config = kubeconfig::parse(&definition.kubeconfig, definition.source).await?;
    let namespaces = kubeconfig::namespaces(&definition.kubeconfig)?;
    let line = cluster::connect(name, config, Answers::Bounded, dial, &Metrics::new());
    let line = line.map_err(|error| format!("the kubeconfig cannot be used: {}", with_causes(&error)))?;
    Ok(MemberClient::new(name, host.id.clone(), line.client).with_rights_in(namespaces))
}

/// Now, in seconds.
pub(super) fn now() -> i64 {
    Timestamp::now().as_second()
}
