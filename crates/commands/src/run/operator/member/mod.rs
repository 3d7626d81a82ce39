//! Members as an operator handles them.

pub(super) mod account;
pub(super) mod add;
mod bindings;
pub(super) mod check;
pub(super) mod cordon;
pub(super) mod forget;
pub(super) mod list;
mod open;
pub(super) mod remove;
pub(super) mod rights;
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
    const SHOWN: usize = 5;
    let names: Vec<&str> = volumes.iter().take(SHOWN).map(|volume| &*volume.name).collect();
    let more = if volumes.len() > SHOWN { ", …" } else { "" };
    let count = if volumes.len() == 1 { "one volume".to_owned() } else { format!("{} volumes", volumes.len()) };
    format!("{count} of the host ({}{more})", names.join(", "))
}
