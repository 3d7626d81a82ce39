//! `member add`: looks at everything first, and writes only when nothing stands in the way. The Secret comes last, when the
//! account has proved that it is enough.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt, path::Path};

use anyhow::{Context, anyhow, bail};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
};
use kube::{Api, Client, Config, ResourceExt, api::PostParams};
use serde_json::Value;

use super::{rights, secret};
use crate::{
    args::operator::Add,
    cluster::{Dial, with_causes},
    host::{self, Host, pins},
    member::{
        self,
        kubeconfig::{self as rules, Trust},
    },
    operator::{
        kubeconfig::{self, Reach, until},
        objects::{self, ACCOUNT, NAMESPACE, Step, title},
        rights::{Right, by_subject, missing},
        table::Table,
    },
    run::{
        Misuse,
        operator::{
            Report,
            connect::{self, Admin, now},
            objects::{Done, apply, steps},
            print::patiently,
        },
    },
};

pub(in crate::run::operator) async fn add(flags: &Add, dial: &Dial) -> anyhow::Result<Report> {
    let admin = connect::admin(&flags.member, dial).await?;
    let reach = reach(flags, &admin).await?;
    let target = target(flags, &admin, dial).await?;
    let objects = objects::of_member(flags.attach).map_err(anyhow::Error::msg)?;
    let steps = patiently("looking at what is there", steps(&admin.client, &objects)).await?;
    let mut table = Table::new(&["OBJECT", "CLUSTER", "RESULT"]);
    if flags.dry_run {
        plan(flags, &objects, &steps, &target, &mut table);
        return Ok(Report::well(format!("{table}\nNothing was written: this is a dry run.\n")));
    }
    for (object, step) in objects.iter().zip(steps) {
        let Done { title, result } = apply(&admin.client, object, step).await?;
        table.row([title.as_str(), &flags.name, result]);
    }
    let (token, ends) = token(flags, &admin.client).await?;
    let text = kubeconfig::text(&flags.name, &reach, &token);
    let account = as_account(flags, &admin, &reach, &text, dial)?;
    let rights = objects_rights(&objects);
    let asking = rights::ask_until_granted(&account, &rights);
    let answers = patiently("checking every right of the account", asking).await?;
    if let Some(missing) = missing(&answers) {
        let told = rights_table(&answers);
        let member = &flags.name;
        let why = format!(
            "The account {NAMESPACE}/{ACCOUNT} of {member} still lacks: {missing}. Nothing was written to the host: \
             who or what takes these rights away there?"
        );
        return Ok(Report::new(format!("{table}\n{told}\n{why}\n"), false));
    }
    let reached = reaches(flags, &admin, &text, dial).await?;
    hand_over(flags, &target, &text, &mut table).await?;
    Ok(Report::well(closing(flags, &table, ends, &answers, reached)))
}

/// Where the kubeconfig goes.
enum Target {
    File,
    Host { host: Box<Host>, secret: Option<Box<Secret>> },
}

/// Everything in the host, or of the new file, that could stand in the way.
async fn target(flags: &Add, admin: &Admin, dial: &Dial) -> anyhow::Result<Target> {
    if let Some(path) = &flags.kubeconfig_only {
        if path.exists() {
            return Err(
                Misuse(format!("--kubeconfig-only {} is there already: name a new file", path.display())).into()
            );
        }
        return Ok(Target::File);
    }
    let host = connect::host(&flags.host, dial).await?;
    let name = &flags.name;
    if host.id.0 == admin.identity {
        bail!("--member-kubeconfig leads to the host itself ({}): a host is no member of its own", admin.identity);
    }
    match pins::compare(&host.pins().await?, name, &admin.identity) {
        None | Some(pins::Pin::Held) => {}
        Some(pin) => bail!("member {name}: {}", member::quarantined(&pin, &admin.identity)),
    }
    let secret = secret::target(&host, name).await?.map(Box::new);
    Ok(Target::Host { host: Box::new(host), secret })
}

/// How the host is to reach the member: judged by the rules that the controller has for a Secret.
async fn reach(flags: &Add, admin: &Admin) -> anyhow::Result<Reach> {
    let entry = &admin.entry;
    let server = flags.server.as_ref().or(entry.server.as_ref()).cloned().unwrap_or_default();
    if flags.server.is_none() && kubeconfig::is_loopback(&server) {
        let file = flags.member.member_kubeconfig.display();
        return Err(Misuse(format!(
            "clusters[].cluster.server of {file} is {server}, which means another machine to each who uses it: give \
             the address by which the host's pods reach the member, --server https://ADDRESS:PORT"
        ))
        .into());
    }
    let authority = match (&entry.certificate_authority_data, &entry.certificate_authority) {
        (Some(data), _) => Some(data.clone()),
        (None, Some(path)) => Some(embedded(path)?),
        (None, None) => None,
    };
    let insecure = entry.insecure_skip_tls_verify == Some(true);
    let reach = Reach { server, authority, server_name: entry.tls_server_name.clone(), insecure };
    let judged = rules::parse(&kubeconfig::text(&flags.name, &reach, "none"), Trust::Object).await;
    judged.map_err(|reason| {
        let file = flags.member.member_kubeconfig.display();
        Misuse(format!("--member-kubeconfig {file}: {reason} (--server https://ADDRESS:PORT says another address)"))
    })?;
    Ok(reach)
}

fn embedded(path: &str) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("certificate-authority {path}"))?;
    match serde_json::to_value(ByteString(bytes))? {
        Value::String(text) => Ok(text),
        _ => bail!("certificate-authority {path} cannot be embedded"),
    }
}

fn plan(flags: &Add, objects: &[Value], steps: &[Step], target: &Target, table: &mut Table) {
    for (object, step) in objects.iter().zip(steps) {
        let result = match step {
            Step::Make => "would be made",
            Step::Update => "would be updated",
            Step::Leave | Step::Refuse => "unchanged",
        };
        table.row([title(object).as_str(), &flags.name, result]);
    }
    match target {
        Target::File => {}
        Target::Host { host, secret } => {
            let name = secret.as_ref().map_or_else(|| flags.name.clone(), |secret| secret.name_any());
            let result = if secret.is_some() { "would be renewed" } else { "would be made" };
            table.row([format!("Secret {}/{name}", host.namespace).as_str(), "(host)", result]);
        }
    }
}

/// A token of the account, and when it ends.
async fn token(flags: &Add, client: &Client) -> anyhow::Result<(String, i64)> {
    let seconds = i64::try_from(flags.token_lifetime.as_secs()).unwrap_or(i64::MAX);
    let spec = TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    let asked = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
    let asked = asked.map_err(|error| anyhow!("ask for a token of {NAMESPACE}/{ACCOUNT}: {}", with_causes(&error)))?;
    let status = asked.status.context("the member granted no token")?;
    Ok((status.token, status.expiration_timestamp.0.as_second()))
}

/// The account, by the way that the administrator has come: the host's own way may not be open from here.
fn as_account(flags: &Add, admin: &Admin, reach: &Reach, text: &str, dial: &Dial) -> anyhow::Result<Client> {
    let mut config: Config = admin.config.clone();
    let token = serde_json::from_str::<Value>(text)?.pointer("/users/0/user/token").cloned().unwrap_or_default();
    config.auth_info = serde_json::from_value(serde_json::json!({"token": token}))?;
    tracing::debug!(member = flags.name, server = reach.server, "asks as the account");
    connect::open(&flags.name, config, dial).map_err(anyhow::Error::msg)
}

/// Whether the member answers here as the host will ask it; an error where somebody else answers.
async fn reaches(flags: &Add, admin: &Admin, text: &str, dial: &Dial) -> anyhow::Result<Result<(), String>> {
    let config = rules::parse(text, Trust::Object).await.map_err(anyhow::Error::msg)?;
    let client = connect::open(&flags.name, config, dial).map_err(anyhow::Error::msg)?;
    match patiently("asking the member as the host will", host::identity(&client)).await {
        Ok(identity) if identity == admin.identity => Ok(Ok(())),
        Ok(identity) => bail!(
            "--server leads to another cluster ({identity}) than --member-kubeconfig ({}): nothing was written to the host",
            admin.identity
        ),
        Err(error) if flags.server.is_some() => Ok(Err(member::refusal(&error))),
        Err(error) => bail!("member {} does not answer its own kubeconfig: {}", flags.name, member::refusal(&error)),
    }
}

async fn hand_over(flags: &Add, target: &Target, text: &str, table: &mut Table) -> anyhow::Result<()> {
    match target {
        Target::File => {
            let path = flags.kubeconfig_only.as_deref().context("no file")?;
            write_file(path, text).with_context(|| format!("--kubeconfig-only {}", path.display()))?;
            table.row([format!("file {}", path.display()).as_str(), "", "made"]);
        }
        Target::Host { host, secret } => {
            let result = secret::write(host, &flags.name, secret.as_deref(), text).await?;
            let name = secret.as_ref().map_or_else(|| flags.name.clone(), |secret| secret.name_any());
            table.row([format!("Secret {}/{name}", host.namespace).as_str(), "(host)", result]);
        }
    }
    Ok(())
}

/// Nobody else may read it, from the first byte on.
fn write_file(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn objects_rights(objects: &[Value]) -> Vec<Right> {
    crate::operator::rights::of(objects)
}

pub(super) fn rights_table(answers: &[(Right, bool)]) -> Table {
    let mut table = Table::new(&["RIGHT ON", "OK", "MISSING"]);
    for subject in by_subject(answers) {
        table.row([subject.subject, subject.granted.join(","), subject.missing.join(",")]);
    }
    table
}

fn closing(flags: &Add, table: &Table, ends: i64, answers: &[(Right, bool)], reached: Result<(), String>) -> String {
    let name = &flags.name;
    let server = flags.server.as_deref().unwrap_or_default();
    let reached = match reached {
        Ok(()) => String::new(),
        Err(why) => format!("{server} does not answer from here ({why}); the host's pods must reach it.\n"),
    };
    let next = match &flags.kubeconfig_only {
        Some(path) => format!("The host was not touched: {} is for its administrator.", path.display()),
        None => format!("The controller connects to it now. See how it does: kosmos-csi member check {name}"),
    };
    let ends = until(ends, now());
    let rights = rights_table(answers);
    format!("{table}\n{rights}\nThe token ends in {ends}; `member add {name}` renews it.\n{reached}{next}\n")
}
