//! What moves have kept in the members they moved from: listed, and one of these given up with its data.

use std::{collections::BTreeMap, iter};

use anyhow::{Context, anyhow, bail};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;

use super::Report;
use crate::{
    args::operator::{Discard, Place},
    run::operator::{
        connect::{self, Known, now},
        look::age,
        print::patiently,
    },
};
use cluster::Dial;
use domain::{
    error::Error,
    volume::{VolumeHash, VolumeId},
};
use host::Host;
use leaf::{
    moving::kept,
    ownership::{MOVED, MOVED_TO},
};
use operator::{kubeconfig::span, table::Table};

pub(super) async fn discard(flags: &Discard, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.members.host, dial).await?;
    match &flags.which {
        Some(Place { within, name: Some(name) }) => Box::pin(give_up(flags, &host, within, name, dial)).await,
        _ => patiently("looking into the members", list(flags, &host, dial)).await,
    }
}

async fn list(flags: &Discard, host: &Host, dial: &Dial) -> anyhow::Result<Report> {
    let (named, pins) = (connect::members(host, &flags.members).await?, host::pins::pins(host).await?);
    let mut table = Table::new(&["VOLUME", "SIZE", "STATE", "MOVED TO", "AGE"]);
    let mut unseen = Vec::new();
    for (member, definition) in &named {
        let kept = match connect::known(host, member, definition, &pins, dial).await {
            Ok(known) => kept::list(&known.leaf).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        match kept {
            Ok(kept) => kept.iter().for_each(|volume| table.row(row(member, volume))),
            Err(why) => unseen.push(format!("This command cannot list what member {member} keeps: {why}.\n")),
        }
    }
    let found =
        if table.is_empty() { "No member keeps a volume that was moved.\n".to_owned() } else { table.to_string() };
    Ok(Report::new(format!("{found}{}", unseen.concat()), unseen.is_empty()))
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
    let definition = named
        .get(member)
        .with_context(|| format!("no member is called {member}: `kosmos-csi get members` lists all members"))?;
    let pins = host::pins::pins(host).await?;
    let known = connect::known(host, member, definition, &pins, dial).await;
    let known = known.map_err(|why| anyhow!("member {member}: {why}"))?;
    let Some(volume) = kept::read(&known.leaf, name).await? else { bail!("member {member} has no volume {name}") };
    if !kept::is_given_up(&known.leaf, &volume) {
        let refused = |why: String| Ok(Report::new(format!("Nothing is discarded: {why}.\n"), false));
        if let Some(why) = led_to(host, &known, &pins, &volume).await? {
            return refused(why);
        }
        match kept::give_up(&known.leaf, &volume).await {
            Err(Error::Refused(why)) => return refused(why),
            given_up => given_up?,
        }
    }
    Ok(Report::well(format!(
        "Volume {name} of member {member} has the policy Delete now: the member's provisioner removes it with its data.\n"
    )))
}

/// Which volume of the host leads to it again, and not to another leaf volume, as one that has moved away and back.
async fn led_to(
    host: &Host,
    known: &Known,
    pins: &BTreeMap<String, String>,
    volume: &PersistentVolume,
) -> anyhow::Result<Option<String>> {
    let Some(hash) = volume.labels().get(MOVED).and_then(|of| VolumeHash::parse(of)) else { return Ok(None) };
    let name = volume.name_any();
    // A name that is not on record may be a second one of this member.
    let is_here = |id: &VolumeId| id.names(hash) && pins.get(&id.member).is_none_or(|pin| *pin == known.identity);
    let leading = host::volume::all_leading(host, is_here).await?;
    let is_it = |leaf: host::volume::GivenOutDigest| !leaf.is_another(iter::empty::<&str>(), Some(&name));
    let leading = leading.into_iter().find(|one| one.leaf.is_none_or(is_it));
    let to = volume.annotations().get(MOVED_TO).map(String::as_str).unwrap_or_default();
    Ok(leading.map(|leading| {
        format!(
            "volume {} of the host leads to it (handle {}), as after a restore of the host from a backup of before the move. First have the host's \
             volume lead to where the move has brought the data, which is handle {to}",
            leading.name, leading.handle
        )
    }))
}
