//! Members as an operator handles them.

pub(super) mod account;
pub(super) mod add;
mod belongings;
mod bindings;
pub(super) mod check;
mod copies;
pub(super) mod cordon;
pub(super) mod forget;
mod left;
pub(super) mod list;
mod open;
mod others;
pub(super) mod remove;
pub(super) mod rights;
mod scope;
pub(super) mod secret;
mod take_over;

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, api::ListParams};

use domain::volume::VolumeId;
use host::{Host, volume::HostVolume};

/// The host's volumes of this driver by member; all of them are read.
pub(super) async fn volumes_by_member(host: &Host) -> anyhow::Result<BTreeMap<String, Vec<HostVolume>>> {
    let all = Api::<PersistentVolume>::all(host.client.clone()).list(&ListParams::default()).await;
    let all = all.context("the host's volumes cannot be listed")?;
    let mut by_member: BTreeMap<String, Vec<HostVolume>> = BTreeMap::new();
    for volume in all.iter().filter_map(HostVolume::new) {
        if let Some(id) = VolumeId::parse(&volume.handle) {
            by_member.entry(id.member).or_default().push(volume);
        }
    }
    Ok(by_member)
}

/// How many there are, and the first of them.
pub(super) fn counted(volumes: &[HostVolume]) -> String {
    let names: Vec<String> = volumes.iter().map(|volume| volume.name.to_string()).collect();
    counted_as("volumes", &names)
}

/// The same of any kind.
fn counted_as(kinds: &str, names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if names.len() > SHOWN { ", …" } else { "" };
    let count = match (names.len(), kinds.split_once("s ")) {
        (1, None) => format!("one {}", kinds.trim_end_matches('s')),
        (1, Some((kind, rest))) => format!("one {kind} {rest}"),
        (count, _) => format!("{count} {kinds}"),
    };
    format!("{count} of the host ({shown}{more})")
}
