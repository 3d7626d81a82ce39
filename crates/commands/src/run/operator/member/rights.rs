//! Asks a cluster, as an account, what that account may do there.

use std::time::Duration;

use anyhow::anyhow;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::{Api, Client, api::PostParams};

use cluster::with_causes;
use operator::rights::{Right, missing};

/// Questions under way at once.
const AT_ONCE: usize = 8;
/// Rights that were just granted are there a moment later.
const GRANTED: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);

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
