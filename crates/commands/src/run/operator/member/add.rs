//! `member add`: looks at everything first, and writes only when nothing stands in the way. The Secret comes last, when the
//! accounts have proved that they are enough.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::{
    account::{self, Account},
    bindings, copies, open, rights,
    scope::Scope,
    secret, take_over,
};
use crate::{
    args::operator::Add,
    run::{
        Misuse,
        operator::{
            Report,
            connect::{self, Admin, now},
            files::create_new,
            objects::{Done, apply, remove, steps, without_unserved},
            print::{not_all, patiently},
        },
    },
};
use cluster::Dial;
use host::{
    Host,
    pins::{self, Pin},
};
use member::kubeconfig::{self as rules, KubeconfigSource};
use operator::{
    kubeconfig::{self, Reach, until},
    narrow::narrowed,
    objects::{NAMESPACE, ObjectStep, title, tokens},
    reader,
    rights::missing,
    table::Table,
};

/// What is told where the member has no admission policies.
const UNHELD: &str = "This cluster has no ValidatingAdmissionPolicies (Kubernetes 1.30): whoever has these tokens may write every claim and \
    volume there, and make any pod. Guard them accordingly, or upgrade the cluster and type this again.\n";

pub(in crate::run::operator) async fn add(flags: &Add, dial: &Dial) -> anyhow::Result<Report> {
    let admin = connect::admin(&flags.member, dial).await?;
    let (target, scope) = target(flags, &admin, dial).await?;
    let reach = reach(flags, &admin, &scope).await?;
    open::named(&admin.client, "--namespace", &flags.namespace).await?;
    bindings::nothing_is_outside(&admin.client, target.host(), &reach.namespaces).await?;
    let mut objects = wanted(flags, &scope, target.host())?;
    let tokens = tokens(target.host(), target.record().map(|host| &*host.cluster));
    take_over::may_be_given(flags, &admin.client, target.record(), &tokens).await?;
    objects.push(tokens);
    let (objects, unserved) = without_unserved(&admin.client, objects).await?;
    let mut steps = patiently("looking at what is there", steps(&admin.client, &objects)).await?;
    let former = bindings::former(flags, &admin.client, target.host(), &objects).await?;
    let opened = open::named(&admin.client, "--pods-in", &flags.pods_in).await?;
    let mut table = Table::new(&["OBJECT", "CLUSTER", "RESULT"]);
    for object in &unserved {
        table.row([title(object).as_str(), &flags.name, "left out: the cluster has no such kind"]);
    }
    if flags.dry_run {
        if flags.take_over {
            table.row(["all tokens of this host", &flags.name, "would end, and new ones would be made"]);
        }
        plan(flags, &objects, &steps, &target, &mut table);
        for binding in &former {
            table.row([title(binding).as_str(), &flags.name, "would be removed"]);
        }
        open::open(&admin.client, &opened, &flags.name, true, &mut table).await?;
        return Ok(Report::well(format!("{table}\n{}Nothing was written: this is a dry run.\n", scope.told())));
    }
    if flags.take_over {
        let ended = take_over::end(&admin.client, target.record(), &flags.name, &mut table).await;
        ended.with_context(|| not_all(&table))?;
        steps = self::steps(&admin.client, &objects).await.with_context(|| not_all(&table))?;
    }
    let made = make(&admin.client, &flags.name, &objects, steps, &former, &opened, &mut table).await;
    made.with_context(|| not_all(&table))?;
    let accounts = account::all(flags, &admin, &reach, &objects, dial).await.with_context(|| not_all(&table))?;
    for Account { name, rights, .. } in &accounts {
        let Some(missing) = missing(rights) else { continue };
        let told = rights::table(rights);
        let why = format!(
            "The account {NAMESPACE}/{name} of {} still lacks: {missing}. Nothing was written to the host. Find out who or what \
             takes these rights away there, and type this again",
            flags.name
        );
        return Ok(Report::new(format!("{table}\n{told}\n{why}\n"), false));
    }
    let reached = reaches(flags, &admin, &reach, &accounts[0].kubeconfig, dial).await;
    let reached = reached.with_context(|| not_all(&table))?;
    let handed = hand_over(flags, &admin.identity, &target, &accounts, &mut table).await;
    handed.with_context(|| not_all(&table))?;
    let unheld = if unserved.is_empty() { "" } else { UNHELD };
    Ok(Report::well(closing(flags, &table, &accounts, &of_address(&admin, &reach, reached)) + &scope.told() + unheld))
}

/// All of it in the member, as it was looked at.
async fn make(
    client: &Client,
    member: &str,
    objects: &[Value],
    steps: Vec<ObjectStep>,
    former: &[Value],
    opened: &[Namespace],
    table: &mut Table,
) -> anyhow::Result<()> {
    for (object, step) in objects.iter().zip(steps) {
        let Done { title, result } = apply(client, object, step).await?;
        table.row([title.as_str(), member, result]);
    }
    for binding in former {
        let Done { title, result } = remove(client, binding).await?;
        table.row([title.as_str(), member, result]);
    }
    open::open(client, opened, member, false, table).await
}

/// What the member is to have of ours.
fn wanted(flags: &Add, scope: &Scope, host: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let objects = scope.uses.of(host).map_err(anyhow::Error::msg)?;
    let mut objects = narrowed(objects, &scope.namespaces);
    reader::adapt(&mut objects, flags.image.as_deref(), flags.kubelet_insecure_tls);
    Ok(objects)
}

/// Where the kubeconfigs go: into files, or into the Secrets of the host.
enum Target {
    Files,
    Host(Vec<Place>),
}

impl Target {
    /// Who the tokens are for, where that is known.
    fn host(&self) -> Option<&str> {
        self.record().map(|host| host.id.0.as_str())
    }

    /// The host as the driver has it.
    fn record(&self) -> Option<&Host> {
        match self {
            Self::Files => None,
            Self::Host(places) => places.first().map(|place| &place.host),
        }
    }
}

/// The Secret of one account, in the order of the accounts.
struct Place {
    host: Host,
    secret: Option<Secret>,
}

impl Place {
    async fn new(host: Host, name: &str, identity: &str) -> anyhow::Result<Self> {
        secret::needs_namespace(&host).await?;
        match pins::compare(&host::pins::pins(&host).await?, name, identity) {
            None | Some(Pin::Held) => {}
            Some(pin) => bail!("member {name}: {}", member::quarantined(&pin, identity)),
        }
        let secret = secret::target(&host, name).await?;
        Ok(Self { host, secret })
    }

    /// The record comes first: else whoever answered the first look of the controller or the agent would be the member.
    async fn write(&self, flags: &Add, identity: &str, kubeconfig: &str) -> anyhow::Result<&'static str> {
        match host::pins::pin(&self.host, &flags.name, identity).await? {
            Pin::Held => secret::write(&self.host, &flags.name, self.secret.as_ref(), kubeconfig).await,
            pin => bail!("member {}: {}", flags.name, member::quarantined(&pin, identity)),
        }
    }

    fn title(&self, member: &str) -> String {
        let name = self.secret.as_ref().map_or_else(|| member.to_owned(), ResourceExt::name_any);
        format!("Secret {}/{name}", self.host.namespace)
    }
}

/// Everything in the host, or of the new file, that could stand in the way.
async fn target(flags: &Add, admin: &Admin, dial: &Dial) -> anyhow::Result<(Target, Scope)> {
    if let Some(path) = &flags.kubeconfig_only {
        let scope = Scope::said(flags)?;
        let also = scope.uses.pods.then(|| beside(path));
        if let Some(taken) = [path].into_iter().chain(&also).find(|path| path.exists()) {
            return Err(Misuse(format!(
                "--kubeconfig-only {}: {} is there already: name a new file",
                path.display(),
                taken.display()
            ))
            .into());
        }
        return Ok((Target::Files, scope));
    }
    let host = connect::host(&flags.host, dial).await?;
    let name = &flags.name;
    if *host.cluster == *admin.identity {
        bail!("--member-kubeconfig leads to the host itself ({}): a host is no member of its own", admin.identity);
    }
    let agents = connect::agents(&host, &flags.host);
    let driver = Place::new(host, name, &admin.identity).await?;
    // One that is in the host already is not kept from being renewed.
    if driver.secret.is_none()
        && let Some((node, of)) = copies::namesake(&driver.host, name).await?
    {
        bail!(
            "Node {node} stands for a node of member {of}, and a node of member {name} could get the same name: give this member another \
             name"
        );
    }
    let scope = Scope::of(flags, admin, &driver.host, &agents, driver.secret.as_ref()).await?;
    let mut places = vec![driver];
    if scope.uses.pods {
        places.push(Place::new(agents, name, &admin.identity).await?);
    }
    Ok((Target::Host(places), scope))
}

/// How the host is to reach the member: judged by the rules that the controller has for a Secret. Where the administrator comes another way,
/// such as by a tunnel, the host's own stays as it is, for another address has another authority: also where --server says it once more.
async fn reach(flags: &Add, admin: &Admin, scope: &Scope) -> anyhow::Result<Reach> {
    let is_meant = |before: &&Reach| flags.server.as_ref().is_none_or(|said| is_same(said, &before.server));
    let before = scope.reach.as_ref().filter(is_meant).filter(|before| is_another(admin, before));
    let (reach, whose) = match before {
        Some(before) => (before.clone(), "the kubeconfig that the host has of it".to_owned()),
        None => (said(flags, admin)?, format!("--member-kubeconfig {}", flags.member.member_kubeconfig.display())),
    };
    let reach = Reach { namespaces: scope.namespaces.clone(), ..reach };
    let judged = rules::parse(&kubeconfig::text(&flags.name, &reach, "none"), KubeconfigSource::Object).await;
    judged
        .map_err(|reason| Misuse(format!("{whose}: {reason} (--server https://ADDRESS:PORT gives another address)")))?;
    Ok(reach)
}

/// By the administrator's own file, but for an address that he says besides.
fn said(flags: &Add, admin: &Admin) -> anyhow::Result<Reach> {
    let entry = &admin.entry;
    // The password is the administrator's, and no affair of the host's.
    let server = kubeconfig::without_user(flags.server.as_ref().or(entry.server.as_ref()).map_or("", String::as_str));
    if flags.server.is_none() && kubeconfig::is_loopback(&server) {
        let file = flags.member.member_kubeconfig.display();
        return Err(Misuse(format!(
            "clusters[].cluster.server of {file} is {server}, which is another machine for the host's pods: give the address by \
             which they reach the member, --server https://ADDRESS:PORT"
        ))
        .into());
    }
    let authority = match (&entry.certificate_authority_data, &entry.certificate_authority) {
        (Some(data), _) => Some(data.clone()),
        (None, Some(path)) => Some(embedded(path)?),
        (None, None) => None,
    };
    let insecure = entry.insecure_skip_tls_verify == Some(true);
    Ok(Reach { server, authority, server_name: entry.tls_server_name.clone(), insecure, ..Reach::default() })
}

fn embedded(path: &str) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("certificate-authority {path}"))?;
    match serde_json::to_value(ByteString(bytes))? {
        Value::String(text) => Ok(text),
        _ => bail!("certificate-authority {path} cannot be embedded"),
    }
}

fn plan(flags: &Add, objects: &[Value], steps: &[ObjectStep], target: &Target, table: &mut Table) {
    for (object, step) in objects.iter().zip(steps) {
        let result = match step {
            ObjectStep::Make => "would be made",
            ObjectStep::Update => "would be updated",
            ObjectStep::Leave | ObjectStep::Refuse => "unchanged",
        };
        table.row([title(object).as_str(), &flags.name, result]);
    }
    let Target::Host(places) = target else { return };
    for place in places {
        let result = if place.secret.is_some() { "would be renewed" } else { "would be made" };
        table.row([place.title(&flags.name).as_str(), "(host)", result]);
    }
}

/// Whether the member answers here as the host will ask it; an error where somebody else answers.
async fn reaches(
    flags: &Add,
    admin: &Admin,
    reach: &Reach,
    text: &str,
    dial: &Dial,
) -> anyhow::Result<Result<(), String>> {
    let config = rules::parse(text, KubeconfigSource::Object).await.map_err(anyhow::Error::msg)?;
    let client = connect::open(&flags.name, config, dial).map_err(anyhow::Error::msg)?;
    match patiently("asking the member with the new kubeconfig", host::identity(&client)).await {
        Ok(identity) if identity == admin.identity => Ok(Ok(())),
        Ok(identity) => bail!(
            "{} leads to another cluster ({identity}) than --member-kubeconfig ({}): nothing was written to the host",
            if flags.server.is_some() {
                "--server"
            } else {
                "the member's address that the host already has (--server gives another)"
            },
            admin.identity
        ),
        Err(error) if flags.server.is_some() || is_another(admin, reach) => Ok(Err(member::refusal(&error))),
        Err(error) => bail!(
            "member {} does not answer at the address in its new kubeconfig: {}",
            flags.name,
            member::refusal(&error)
        ),
    }
}

/// Not the one by which the administrator reaches it.
fn is_another(admin: &Admin, reach: &Reach) -> bool {
    admin.entry.server.as_ref().is_none_or(|server| !is_same(server, &reach.server))
}

fn is_same(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(kubeconfig::without_user);
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// What is said of an address that was said, or of one that was known before.
fn of_address(admin: &Admin, reach: &Reach, reached: Result<(), String>) -> String {
    let server = kubeconfig::without_user(&reach.server);
    match reached {
        Err(why) => {
            format!(
                "{server} does not answer from here ({why}); make sure that the host's pods reach it. --server gives another address.\n"
            )
        }
        Ok(()) if is_another(admin, reach) => {
            format!("The host reaches it by {server}, until --server gives another address.\n")
        }
        Ok(()) => String::new(),
    }
}

async fn hand_over(
    flags: &Add,
    identity: &str,
    target: &Target,
    accounts: &[Account],
    table: &mut Table,
) -> anyhow::Result<()> {
    match target {
        Target::Files => {
            let path = flags.kubeconfig_only.as_deref().context("no file")?;
            for account in accounts {
                let path = if account.for_pods { &beside(path) } else { path };
                let written = create_new(path).and_then(|mut file| file.write_all(account.kubeconfig.as_bytes()));
                written.with_context(|| format!("write {}", path.display()))?;
                table.row([format!("file {}", path.display()).as_str(), "", "made"]);
            }
        }
        Target::Host(places) => {
            for (place, account) in places.iter().zip(accounts) {
                let result = place.write(flags, identity, &account.kubeconfig).await?;
                table.row([place.title(&flags.name).as_str(), "(host)", result]);
            }
        }
    }
    Ok(())
}

/// Where the account for pods is looked for in a folder of members.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("virtual-node.kubeconfig")
}

fn closing(flags: &Add, table: &Table, accounts: &[Account], reached: &str) -> String {
    let name = &flags.name;
    let next = match &flags.kubeconfig_only {
        Some(path) => format!("Nothing was written to the host: give {} to its administrator.", path.display()),
        None => {
            format!("The controller connects to the member now. To see how that goes: kosmos-csi member check {name}")
        }
    };
    let ends = until(accounts.iter().map(|account| account.ends).min().unwrap_or_default(), now());
    let rights: Vec<_> = accounts.iter().flat_map(|account| account.rights.iter().cloned()).collect();
    let rights = rights::table(&rights);
    let by_hand = if flags.attach { bindings::by_hand(&accounts[0].name) } else { String::new() };
    let tokens = if accounts.len() == 1 { "The token ends" } else { "The tokens end" };
    let renewed = match &flags.kubeconfig_only {
        Some(_) => format!("`member add {name} --kubeconfig-only FILE` makes new ones, in a new file"),
        None => "driver and agent renew their tokens after half of that time".to_owned(),
    };
    format!("{table}\n{rights}\n{tokens} in {ends}; {renewed}.\n{by_hand}{reached}{next}\n")
}
