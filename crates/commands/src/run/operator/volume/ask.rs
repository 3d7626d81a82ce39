//! A move is asked for, approved, and called off.

use std::time::Duration;

use anyhow::{anyhow, bail};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use super::{
    Report, find,
    follow::{Goal, follow},
    moves_in, refusal,
};
use crate::{
    args::operator::{ClaimName, MoveVolume, OneMove},
    run::{Misuse, operator::connect},
};
use cluster::Dial;
use domain::volume::moving::Phase;
use host::moves::{self, Cutover, VolumeMove};
use operator::import::yaml;

pub(super) async fn move_volume(flags: &MoveVolume, dial: &Dial) -> anyhow::Result<Report> {
    // Where all is said, a dry run asks nobody.
    let client = match (&flags.claim.namespace, &flags.within.namespace) {
        (None, None) => Some(connect::user(&flags.access, dial).await?),
        _ => None,
    };
    let usual = client.as_ref().map(Client::default_namespace).unwrap_or_default();
    let claim = flags.claim.within(&flags.within, usual).map_err(Misuse)?;
    let wanted = wanted(flags, &claim);
    if flags.dry_run {
        return Ok(Report::well(yaml(&[wanted]).map_err(anyhow::Error::msg)?));
    }
    let client = match client {
        Some(client) => client,
        None => connect::user(&flags.access, dial).await?,
    };
    let wanted: VolumeMove = serde_json::from_value(wanted)?;
    let name = moves::name(&wanted);
    let made = moves_in(&client, &claim.namespace).create(&PostParams::default(), &wanted).await;
    let made = made.map_err(|error| match &error {
        kube::Error::Api(status) if status.reason == "AlreadyExists" => anyhow!(
            "{name} is there already: `kosmos-csi volume status {}/{}` shows it. To move the claim again, give another --name, or \
             delete that object",
            claim.namespace,
            wanted.name_any()
        ),
        error => refusal(&format!("create {name}"), error),
    })?;
    goes_on(&client, &made, Goal::Moved, flags.no_wait, "is made").await
}

fn wanted(flags: &MoveVolume, claim: &ClaimName) -> Value {
    let name = flags.name.clone().unwrap_or_else(|| format!("{}-to-{}", claim.name, flags.to));
    let mut wanted = json!({
        "apiVersion": moves::resource().api_version,
        "kind": moves::KIND,
        "metadata": {"name": name, "namespace": claim.namespace},
        "spec": {
            "claimName": claim.name,
            "to": {"member": flags.to},
            "cutover": if flags.manual { Cutover::Manual } else { Cutover::Automatic },
        },
    });
    if let Some(time) = flags.delete_source_after {
        wanted["spec"]["deleteSourceAfter"] = json!(in_spec(time));
    }
    wanted
}

/// As the kind has times.
fn in_spec(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (hours, 0, 0) => format!("{hours}h"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

pub(super) async fn approve(flags: &OneMove, dial: &Dial) -> anyhow::Result<Report> {
    let client = connect::user(&flags.access, dial).await?;
    let which = flags.which.within(&flags.within, client.default_namespace()).map_err(Misuse)?;
    let of = find(&client, &which).await?;
    let name = moves::name(&of);
    if moves::phase_of(&of).is_some_and(|phase| phase >= Phase::Switching) || of.metadata.deletion_timestamp.is_some() {
        bail!("{name} cannot be approved: {}", status_in_words(&of));
    }
    let change = json!({"metadata": {"uid": of.metadata.uid}, "spec": {"approved": true}});
    let moves = moves_in(&client, &which.namespace);
    let approved = moves.patch(&of.name_any(), &PatchParams::default(), &Patch::Merge(change)).await;
    let approved = approved.map_err(|error| refusal(&format!("approve {name}"), &error))?;
    goes_on(&client, &approved, Goal::Moved, flags.no_wait, "is approved").await
}

pub(super) async fn cancel(flags: &OneMove, dial: &Dial) -> anyhow::Result<Report> {
    let client = connect::user(&flags.access, dial).await?;
    let which = flags.which.within(&flags.within, client.default_namespace()).map_err(Misuse)?;
    let of = find(&client, &which).await?;
    let name = moves::name(&of);
    match moves::phase_of(&of) {
        Some(Phase::Switching | Phase::Finishing | Phase::Succeeded) => {
            bail!("{name} cannot be called off any more: {}", status_in_words(&of));
        }
        Some(Phase::Cancelled | Phase::Refused) => {
            bail!("{name} need not be called off: {}", status_in_words(&of));
        }
        _ => {}
    }
    let pinned = Preconditions { uid: of.uid(), resource_version: None };
    let how = DeleteParams { preconditions: Some(pinned), ..DeleteParams::default() };
    let deleted = moves_in(&client, &which.namespace).delete(&of.name_any(), &how).await;
    deleted.map_err(|error| refusal(&format!("delete {name}"), &error))?;
    goes_on(&client, &of, Goal::CalledOff, flags.no_wait, "is called off").await
}

fn status_in_words(of: &VolumeMove) -> String {
    let to = &of.spec.to.member;
    match moves::phase_of(of) {
        Some(Phase::Switching | Phase::Finishing) => format!("the host's volume already leads to member {to}"),
        Some(Phase::Succeeded) => format!("the volume is in member {to}. Another move brings it back"),
        Some(Phase::Refused) => "it was refused, and nothing was done".to_owned(),
        _ => "it is called off".to_owned(),
    }
}

async fn goes_on(client: &Client, of: &VolumeMove, goal: Goal, no_wait: bool, what: &str) -> anyhow::Result<Report> {
    if !no_wait {
        return Box::pin(follow(client, of, goal)).await;
    }
    let place = format!("{}/{}", of.namespace().unwrap_or_default(), of.name_any());
    Ok(Report::well(format!("{} {what}. `kosmos-csi volume status {place}` shows how it goes on.\n", moves::name(of))))
}
