//! What moves have kept in the members they moved from: listed, and one of these given up with its data.

use anyhow::{Context, anyhow, bail};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::Report;
use crate::{
    args::operator::{Discard, Place},
    run::operator::{
        connect::{self, Known, now},
        look::age,
        print::patiently,
    },
};
use cluster::{Dial, with_causes};
use domain::volume::DRIVER;
use host::Host;
use leaf::ownership::{HOST, MANAGED_BY, MOVED, MOVED_TO, PROVISIONED_BY, VOLUME};
use operator::{kubeconfig::span, table::Table};

pub(super) async fn discard(flags: &Discard, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.members.host, dial).await?;
    match &flags.which {
        Some(Place { within, name: Some(name) }) => Box::pin(give_up(flags, &host, within, name, dial)).await,
        _ => patiently("looking into the members", list(flags, &host, dial)).await,
    }
}

fn volumes(known: &Known) -> Api<PersistentVolume> {
    Api::all(known.leaf.client.clone())
}

async fn list(flags: &Discard, host: &Host, dial: &Dial) -> anyhow::Result<Report> {
    let (named, pins) = (connect::members(host, &flags.members).await?, host::pins::pins(host).await?);
    let mut table = Table::new(&["VOLUME", "SIZE", "STATE", "MOVED TO", "AGE"]);
    let mut unseen = Vec::new();
    for (member, definition) in &named {
        let kept = match connect::known(host, member, definition, &pins, dial).await {
            Ok(known) => kept_in(&known, host).await,
            Err(why) => Err(why),
        };
        match kept {
            Ok(kept) => kept.iter().for_each(|volume| table.row(row(member, volume))),
            Err(why) => unseen.push(format!("Member {member} cannot be looked into: {why}.\n")),
        }
    }
    let found =
        if table.is_empty() { "No member keeps anything that was moved.\n".to_owned() } else { table.to_string() };
    Ok(Report::new(format!("{found}{}", unseen.concat()), unseen.is_empty()))
}

async fn kept_in(known: &Known, host: &Host) -> Result<Vec<PersistentVolume>, String> {
    let kept = ListParams::default().labels(&format!("{MOVED},{HOST}={}", host.id));
    let listed = volumes(known).list(&kept).await;
    Ok(listed.map_err(|error| format!("its volumes cannot be listed: {}", with_causes(&error)))?.items)
}

fn row(member: &str, volume: &PersistentVolume) -> [String; 5] {
    let size =
        volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage").cloned()).unwrap_or_default();
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.clone());
    let phase = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let state = match policy.as_deref() {
        Some("Delete") => "the member removes it".to_owned(),
        _ => phase,
    };
    let to = volume.annotations().get(MOVED_TO).cloned().unwrap_or_default();
    [format!("{member}/{}", volume.name_any()), size.0, state, to, span(age(&volume.metadata, now()))]
}

async fn give_up(flags: &Discard, host: &Host, member: &str, name: &str, dial: &Dial) -> anyhow::Result<Report> {
    let named = connect::members(host, &flags.members).await?;
    let definition = named.get(member).with_context(|| format!("nobody names member {member}"))?;
    let known = connect::known(host, member, definition, &host::pins::pins(host).await?, dial).await;
    let known = known.map_err(|why| anyhow!("member {member}: {why}"))?;
    let found = cluster::read(volumes(&known).get(name).await, name);
    let found = found.map_err(|error| anyhow!("get volume {name} in member {member}: {}", with_causes(&error)))?;
    let Some(volume) = found else { bail!("member {member} has no volume {name}") };
    if let Some(why) = refusal(host, &known, &volume).await? {
        return Ok(Report::new(format!("{member}/{name} is not discarded: {why}.\n"), false));
    }
    // The driver's account may label it, and change no more of it than that while it is not labelled.
    let labelled = change(&known, &volume, json!({"metadata": {"labels": {MANAGED_BY: DRIVER}}})).await?;
    change(&known, &labelled, json!({"metadata": {}, "spec": {"persistentVolumeReclaimPolicy": "Delete"}})).await?;
    Ok(Report::well(format!(
        "Volume {name} of member {member} has the policy Delete now: the member's provisioner removes it with its data.\n"
    )))
}

/// Over the version that was read.
async fn change(known: &Known, volume: &PersistentVolume, mut change: Value) -> anyhow::Result<PersistentVolume> {
    change["metadata"]["uid"] = json!(volume.uid());
    change["metadata"]["resourceVersion"] = json!(volume.resource_version());
    let (name, member) = (volume.name_any(), &known.leaf.member);
    let changed = volumes(known).patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
    changed.map_err(|error| anyhow!("change volume {name} in member {member}: {}", with_causes(&error)))
}

/// All that must hold, read just now.
async fn refusal(host: &Host, known: &Known, volume: &PersistentVolume) -> anyhow::Result<Option<String>> {
    let label = |key: &str| volume.labels().get(key).map(String::as_str);
    if label(MOVED).is_none() {
        return Ok(Some(format!("no move has kept it (label {MOVED})")));
    }
    if label(HOST) != Some(&*host.id.0) {
        return Ok(Some("it was kept for another host".to_owned()));
    }
    if label(VOLUME).is_some() {
        return Ok(Some(format!("it is the leaf of a volume (label {VOLUME})")));
    }
    if !volume.annotations().contains_key(PROVISIONED_BY) {
        return Ok(Some("people made it in the member, so no provisioner would remove it: remove it there".to_owned()));
    }
    if volume.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Released") {
        return Ok(Some("it is not Released: somebody in the member uses it, or waits for it".to_owned()));
    }
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
    let (namespace, name) = (claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
    let claims = Api::<PersistentVolumeClaim>::namespaced(known.leaf.client.clone(), &namespace);
    let there = cluster::read(claims.get(&name).await, &name);
    let there = there.map_err(|error| anyhow!("get claim {namespace}/{name}: {}", with_causes(&error)))?;
    if there.is_some_and(|there| there.uid() == claim.uid) {
        return Ok(Some(format!("claim {namespace}/{name} in the member has it still")));
    }
    Ok(None)
}
