//! Whether this cluster may be the host of a backup. A host is one host to its members: what it has made as another one would be
//! nobody's.

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, ResourceExt, api::ListParams};

use super::super::{
    connect,
    look::{driver_and_lease, host_claims, waits},
    member::{counted, volumes_by_member},
};
use crate::args::operator::AdoptHost;
use cluster::with_causes;
use domain::volume::{VolumeHash, VolumeId};
use host::{Host, volume::HostVolume};
use member::{
    source::{MemberDefinition, MemberDefinitions},
    token::Token,
};
use operator::{
    backup::Backup,
    objects::{ACCOUNT, own_name, word},
};

/// As whom a member knows this cluster, by its kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownAs {
    /// As the host of the backup.
    Hosts,
    Another,
    /// It may be any host's: what the former cluster may do there does not end with it.
    Anybody,
}

impl KnownAs {
    pub(super) fn of(definition: &MemberDefinition, host: &str) -> Self {
        let token = Token::of(&definition.kubeconfig);
        match token.as_ref().and_then(Token::account).map(|(_, name)| name) {
            Some(name) if name == own_name(ACCOUNT, host) => Self::Hosts,
            Some(name) if name.starts_with(&own_name(ACCOUNT, "")) => Self::Another,
            _ => Self::Anybody,
        }
    }
}

/// An error where it may not; nothing is written before.
pub(super) async fn may_be(flags: &AdoptHost, host: &Host, backup: &Backup) -> anyhow::Result<()> {
    if let Some((name, _)) = backup.members.iter().find(|(_, identity)| **identity == *host.cluster) {
        bail!(
            "this cluster is member {name} of the backup's host: type this with the kubeconfig of the new host. Nothing was written"
        );
    }
    let (has_driver, _) = driver_and_lease(host).await.map_err(|error| anyhow!("{}", with_causes(&error)))?;
    if !has_driver {
        bail!("this cluster has no CSIDriver kosmos.csi.io: install the chart first. Nothing was written");
    }
    if host.id.0 == backup.host {
        return Ok(());
    }
    if host.id.0 != *host.cluster {
        bail!("this cluster has taken over the volumes of host {}: it cannot be host {} as well", host.id, backup.host);
    }
    nobody_joined(flags, &connect::members(host, &flags.members).await?, backup)?;
    nothing_is_own(host, backup).await?;
    nothing_waits(host).await
}

fn nobody_joined(flags: &AdoptHost, named: &MemberDefinitions, backup: &Backup) -> anyhow::Result<()> {
    let known = |is_meant: fn(KnownAs) -> bool| {
        let those = named.iter().filter(|(_, definition)| is_meant(KnownAs::of(definition, &backup.host)));
        those.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let as_another = known(|account| account == KnownAs::Another);
    // Nobody but the former cluster was given one of the host of the backup until now.
    let shared = known(|account| account != KnownAs::Another);
    if !as_another.is_empty() {
        bail!(
            "{as_another}: members that know this cluster as another host, and what it has there would be left behind. Remove them first: \
             kosmos-csi member remove NAME --member-kubeconfig FILE. Nothing was written"
        );
    }
    if !shared.is_empty() && !flags.former_cluster_is_off {
        bail!(
            "{shared}: members that this cluster reaches by accounts which the former cluster may have too. Nothing there keeps the two apart, and two clusters \
             that write on the same leaves destroy their data: delete the members' Secrets until `member add` makes new ones. If the former cluster is \
             off and has those accounts no more, give --former-cluster-is-off. Nothing was written"
        );
    }
    Ok(())
}

async fn nothing_is_own(host: &Host, backup: &Backup) -> anyhow::Result<()> {
    let own = not_of(host, backup).await?;
    if own.is_empty() {
        return Ok(());
    }
    bail!(
        "this cluster has {} already, and would lose them once it is host {}: use a cluster without volumes of this driver, or delete their claims \
         if nobody needs their data. Nothing was written",
        counted(&own),
        backup.host
    )
}

/// Volumes that are in no backup and that the former host has not made, as far as handles tell.
pub(super) async fn not_of(host: &Host, backup: &Backup) -> anyhow::Result<Vec<HostVolume>> {
    let kept = backup.volumes.iter().map(|kept| &kept.volume);
    let kept: BTreeSet<(&str, &str)> =
        kept.map(|volume| (word(volume, "/metadata/name"), word(volume, "/spec/csi/volumeHandle"))).collect();
    let former = domain::volume::HostId(backup.host.clone());
    let is_formers = |volume: &HostVolume| {
        kept.contains(&(&*volume.name, &*volume.handle))
            || VolumeId::parse(&volume.handle).is_some_and(|id| id.names(VolumeHash::new(&former, &volume.name)))
    };
    let all = volumes_by_member(host).await?.into_values().flatten();
    Ok(all.filter(|volume| !is_formers(volume)).collect())
}

/// For each of them a leaf may have been begun, under the claim's name, and nobody would take that back.
async fn nothing_waits(host: &Host) -> anyhow::Result<()> {
    let classes = Api::<StorageClass>::all(host.client.clone()).list(&ListParams::default()).await;
    let classes =
        classes.map_err(|error| anyhow!("the host's StorageClasses cannot be listed: {}", with_causes(&error)))?.items;
    let claims = host_claims(host).await?;
    let waiting: Vec<String> = claims
        .iter()
        .filter(|claim| waits(claim, &classes))
        .map(|claim| format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any()))
        .collect();
    match waiting.as_slice() {
        [] => Ok(()),
        [first, ..] => bail!(
            "{} claims of this driver's classes wait for volumes here (such as {first}): delete them first. Stop what recreates claims by itself, \
             and start it again afterwards. Nothing was written",
            waiting.len()
        ),
    }
}
