//! What the account of a host needs in a member, and what the member says that it may do there.

use std::time::Duration;

use anyhow::anyhow;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::{Api, Client, api::PostParams};

use cluster::with_causes;
use host::Host;
use member::{kubeconfig as rules, source::MemberDefinition, token::Token};
use operator::{
    narrow::narrowed,
    objects::{NAMESPACE, Uses, own_name},
    rights::{Right, by_subject, missing, of},
    table::Table,
};

/// Questions under way at once.
const AT_ONCE: usize = 8;
/// Rights that were just granted are there a moment later.
const GRANTED: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);

/// Whose account a kubeconfig has.
pub(super) struct Whose {
    account: String,
    /// Where it is this host's own.
    host: Option<String>,
}

impl Whose {
    pub(super) fn of(definition: &MemberDefinition, account: &str, host: &Host) -> Self {
        let own = own_name(account, &host.id.0);
        let token = Token::of(&definition.kubeconfig);
        if token.is_some_and(|token| token.account() == Some((NAMESPACE, &own))) {
            return Self { account: own, host: Some(host.id.0.clone()) };
        }
        Self { account: account.to_owned(), host: None }
    }

    pub(super) fn needed(&self, uses: Uses, definition: &MemberDefinition) -> anyhow::Result<Vec<Right>> {
        let objects = uses.of(self.host.as_deref()).map_err(anyhow::Error::msg)?;
        let namespaces = rules::namespaces(&definition.kubeconfig).map_err(anyhow::Error::msg)?;
        Ok(of(&narrowed(objects, &namespaces), &self.account))
    }

    /// The files have no account of one host.
    pub(super) fn remedy(&self, name: &str, flag: &str, file: &str) -> String {
        if self.host.is_some() {
            return format!("{} gives them", typed(name, flag));
        }
        let add = typed(name, flag);
        format!("give its account these rights, as deploy/{file} does, or give this host accounts of its own: {add}")
    }
}

/// What an administrator of the member types.
pub(super) fn typed(name: &str, flag: &str) -> String {
    format!("`member add {name} --member-kubeconfig FILE{flag}`")
}

pub(super) async fn ask(client: &Client, rights: &[Right]) -> anyhow::Result<Vec<(Right, bool)>> {
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let answers = stream::iter(rights).map(async |right| {
        let question = serde_json::from_value(right.question())?;
        let answer = reviews.create(&PostParams::default(), &question).await;
        let answer = answer.map_err(|error| anyhow!("ask for a right: {}", with_causes(&error)))?;
        anyhow::Ok((right.clone(), answer.status.is_some_and(|status| status.allowed)))
    });
    answers.buffered(AT_ONCE).try_collect().await
}

/// Asks until nothing is missing, for as long as rights take to be there.
pub(super) async fn ask_until_granted(client: &Client, rights: &[Right]) -> anyhow::Result<Vec<(Right, bool)>> {
    let deadline = tokio::time::Instant::now() + GRANTED;
    loop {
        let answers = ask(client, rights).await;
        let complete = answers.as_ref().is_ok_and(|answers| missing(answers).is_none());
        if complete || tokio::time::Instant::now() >= deadline {
            return answers;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub(super) fn table(answers: &[(Right, bool)]) -> Table {
    let mut table = Table::new(&["RIGHT ON", "OK", "MISSING"]);
    for subject in by_subject(answers) {
        table.row([subject.subject, subject.granted.join(","), subject.missing.join(",")]);
    }
    table
}
