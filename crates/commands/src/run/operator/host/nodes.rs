//! Nodes of the former cluster have volumes still, by the records in the members, and nobody in this one would ever take them off.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{ResourceExt, api::ListParams};

use super::{
    super::{connect, look::leaf_claims, member::volumes_by_member, pods},
    free::KnownAs,
};
use crate::args::operator::AdoptHost;
use cluster::Dial;
use domain::volume::{LeafPlace, NodeId, VolumeHash, VolumeId};
use host::{
    Host,
    attachments::{self, WantedAttachments},
    pins,
    pod::{claims_of, has_ended},
    volume::HostVolume,
};
use leaf::{ownership::volume_of, row::ClaimRow};
use member::source::Account;

/// A member may write anything on a record, and each of them is an object here.
const MOST: usize = 100;

/// What the members say.
#[derive(Default)]
pub(super) struct Former {
    pub(super) attached: Vec<Attached>,
    /// Members that do not work with this cluster yet, and why.
    pub(super) unknown: BTreeMap<String, String>,
}

/// A volume that a node of the former cluster has.
pub(super) struct Attached {
    pub(super) volume: String,
    pub(super) node: NodeId,
    member: String,
    leaf: LeafPlace,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody has said that the former cluster is off.
    Has,
    Leaves,
    /// A pod of this cluster has it on a node of that name, or was sent there.
    IsWanted,
    /// A pod in the member has the volume still, or whether one has cannot be seen.
    MayBeUsed,
}

/// Whom the host has volumes of, and whether they can be asked.
pub(super) async fn look(flags: &AdoptHost, host: &Host, dial: &Dial) -> anyhow::Result<Former> {
    let mut former = Former::default();
    let (named, pins) = (connect::members(host, &flags.members).await?, pins::pins(host).await?);
    let wanted = attachments::wanted(host).await?;
    let is_another = *host.cluster != *host.id.0;
    for (member, volumes) in volumes_by_member(host).await? {
        let claims = match named.get(&member).map(|definition| (definition, KnownAs::of(definition, &host.id.0))) {
            None => Err("it has not joined yet".to_owned()),
            Some((_, KnownAs::Another)) => Err("it knows this cluster as another host".to_owned()),
            Some((_, KnownAs::Anybody)) if is_another && !flags.former_cluster_is_off => {
                Err("its account may be any host's, so nothing there tells the former cluster from this one; if that is off, give --former-cluster-is-off".to_owned())
            }
            Some((definition, _)) => match connect::known(host, &member, definition, &pins, dial).await {
                Ok(known) => leaf_claims(&known.leaf).await,
                Err(why) => Err(why),
            },
        };
        match claims {
            Ok(claims) => former.attached.append(&mut of_former(host, &member, &volumes, &claims, &wanted)),
            Err(why) => drop(former.unknown.insert(member, why)),
        }
    }
    Ok(former)
}

/// Those that are on record in the member, and that nothing in this cluster asks for.
fn of_former(
    host: &Host,
    member: &str,
    volumes: &[HostVolume],
    claims: &[PersistentVolumeClaim],
    wanted: &WantedAttachments,
) -> Vec<Attached> {
    let row = |claim: &PersistentVolumeClaim| Some((volume_of(&claim.metadata, &host.id)?, ClaimRow::new(claim)));
    let rows: BTreeMap<VolumeHash, ClaimRow> = claims.iter().filter_map(row).collect();
    let mut former = Vec::new();
    for volume in volumes {
        let Some(id) = VolumeId::parse(&volume.handle) else { continue };
        let on_record = rows.range(id.hashes()).flat_map(|(_, row)| {
            row.life.published.nodes().filter_map(NodeId::parse).map(move |node| (node, &row.place))
        });
        let on_record = on_record.filter(|(node, _)| !wanted.has(&volume.name, node)).take(MOST);
        former.extend(on_record.map(|(node, place)| Attached {
            volume: volume.name.to_string(),
            node,
            member: member.to_owned(),
            leaf: place.clone(),
            state: State::Has,
        }));
    }
    former
}

/// Has them detached, now that the former cluster is off. What stands for a member is not off with it: pods may run on there.
pub(super) async fn detach(flags: &AdoptHost, host: &Host, former: &mut Former, dial: &Dial) -> anyhow::Result<()> {
    let agents = connect::agents(host, &flags.members.host);
    let for_pods = connect::members_as(host, &flags.members, Account::VirtualNode).await?;
    let pins = pins::pins(&agents).await?;
    let mut used: BTreeMap<String, Option<Vec<LeafPlace>>> = BTreeMap::new();
    for attached in &mut former.attached {
        if !attached.node.is_real() {
            if !used.contains_key(&attached.member) {
                let known = match for_pods.get(&attached.member) {
                    Some(definition) => connect::known(&agents, &attached.member, definition, &pins, dial).await.ok(),
                    None => None,
                };
                let mounted = match known {
                    Some(known) => mounted(&known.leaf.client).await,
                    None => None,
                };
                used.insert(attached.member.clone(), mounted);
            }
            if used[&attached.member].as_ref().is_none_or(|mounted| mounted.contains(&attached.leaf)) {
                attached.state = State::MayBeUsed;
                continue;
            }
        }
        // Then this cluster has it detached itself, once no pod wants it there.
        attached.state = if is_wanted(host, attached).await? {
            State::IsWanted
        } else {
            attachments::detach_from_former(host, &attached.volume, &attached.node).await?;
            State::Leaves
        };
    }
    Ok(())
}

/// Whether this cluster wants it on a node of that name. Who attaches what a pod has comes after the pod, so pods are read first.
async fn is_wanted(host: &Host, attached: &Attached) -> anyhow::Result<bool> {
    let claim = host::volume::read(host, &attached.volume).await?.and_then(|live| live.claim);
    let pods = match &claim {
        Some(claim) => pods::list(&host.client, Some(&claim.namespace), &ListParams::default()).await,
        None => Ok(Vec::new()),
    };
    let pods = pods.with_context(|| {
        format!("this command cannot see which pods of this cluster use volume {}", attached.volume)
    })?;
    let wanted = attachments::wanted(host).await?;
    let has_it = |pod: &Pod| claim.as_ref().is_some_and(|claim| claims_of(pod).contains(&claim.name));
    let is_there = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| wanted.is_node(node, &attached.node))
    };
    let is_sent = pods.iter().any(|pod| !has_ended(pod) && has_it(pod) && is_there(pod));
    Ok(is_sent || wanted.has(&attached.volume, &attached.node))
}

/// The claims that pods in a member mount, whoever has made them: clustertree's copies have no labels of ours, and tenants there may use any
/// claim of their namespace. None where that cannot be seen.
async fn mounted(client: &kube::Client) -> Option<Vec<LeafPlace>> {
    let pods = pods::list(client, None, &ListParams::default()).await.ok()?;
    let claims = pods.iter().filter(|pod| !has_ended(pod)).flat_map(|pod| {
        let namespace = pod.namespace().unwrap_or_default();
        claims_of(pod).into_iter().map(move |claim| LeafPlace { namespace: namespace.clone(), claim })
    });
    Some(claims.collect())
}
