//! `get volumes`: which data is where, by what the host says.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{Api, Client, Resource, ResourceExt, core::NamespaceResourceScope};

use super::{
    Report,
    connect::{self, now},
    look::{age, waits},
    pods,
    print::{listed, patiently, progress},
    volume,
    whole::whole,
};
use crate::args::operator::GetVolumes;
use cluster::{Dial, with_causes};
use domain::volume::DRIVER;
use host::{claim::chosen_member, moves};
use operator::volumes::{ListedVolume, Provisioned, VolumeFilter, listing};

pub(super) async fn volumes(flags: &GetVolumes, dial: &Dial) -> anyhow::Result<Report> {
    let client = connect::user(&flags.access, dial).await?;
    let looking = look(&client, flags.namespace.as_deref(), Pods::Wanted);
    let seen = patiently("listing the host's volumes, claims and pods", looking).await?;
    let filter = VolumeFilter {
        namespace: flags.namespace.as_deref(),
        member: flags.member.as_deref(),
        state: flags.state.as_deref(),
    };
    let listing = listing(seen, &filter);
    Ok(Report::well(listed(&listing, flags.output, "There are no such volumes.")))
}

/// What stands beside a volume: of its claim, by namespace and name.
struct Beside {
    pods: BTreeMap<(String, String), Vec<String>>,
    moves: BTreeMap<(String, String), (String, String)>,
}

/// Whether those that use a volume are of interest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pods {
    Wanted,
    NotWanted,
}

/// Volumes are of no namespace, so all are listed; the rest of one alone, where only that is wanted.
pub(super) async fn look(client: &Client, namespace: Option<&str>, pods: Pods) -> anyhow::Result<Vec<ListedVolume>> {
    let unread =
        |what: &'static str| move |reason: String| anyhow::anyhow!("the host's {what} cannot be listed: {reason}");
    let volumes = whole::<PersistentVolume>(Api::all(client.clone())).await.map_err(unread("volumes"))?;
    let claims = whole::<PersistentVolumeClaim>(within(client, namespace)).await.map_err(unread("claims"))?;
    let classes = whole::<StorageClass>(Api::all(client.clone())).await.map_err(unread("classes"))?;
    let pods = match pods {
        Pods::NotWanted => Ok(Vec::new()),
        Pods::Wanted => whole(pods::within(client, namespace)).await,
    };
    let pods = pods.and_then(|pods| {
        let read: kube::Result<Vec<Pod>> = pods.into_iter().map(pods::seen).collect();
        read.map_err(|error| with_causes(&error))
    });
    let pods = pods.unwrap_or_else(|reason| {
        progress(&format!(
            "this command does not show which pods use a volume, as it cannot list the host's pods: {reason}"
        ));
        Vec::new()
    });
    let beside = Beside { pods: users(&pods), moves: moves_under_way(client, namespace).await? };
    let provisioned = volumes.iter().filter_map(|volume| provisioned(volume, &beside));
    let waiting = claims.iter().filter(|claim| waits(claim, &classes)).map(|claim| waiting(claim, &beside));
    Ok(provisioned.chain(waiting).collect())
}

fn within<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// The pods that name a claim and have not ended, by it.
fn users(pods: &[Pod]) -> BTreeMap<(String, String), Vec<String>> {
    let mut users: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !host::pod::has_ended(pod)) {
        let namespace = pod.namespace().unwrap_or_default();
        for claim in host::pod::claims_of(pod) {
            users.entry((namespace.clone(), claim)).or_default().push(pod.name_any());
        }
    }
    users
}

async fn moves_under_way(
    client: &Client,
    namespace: Option<&str>,
) -> anyhow::Result<BTreeMap<(String, String), (String, String)>> {
    let under_way = volume::under_way(client, namespace).await?.into_iter().map(|of| {
        let claim = moves::claim_of(&of);
        let phase = volume::phase_in_words(&of);
        ((claim.namespace, claim.name), (of.spec.to.member, phase))
    });
    Ok(under_way.collect())
}

fn provisioned(volume: &PersistentVolume, beside: &Beside) -> Option<ListedVolume> {
    let spec = volume.spec.clone().unwrap_or_default();
    let csi = spec.csi.filter(|csi| csi.driver == DRIVER)?;
    let phase = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let claim = spec.claim_ref.map(|claim| (claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default()));
    // A claim of the same name may be there by now, and has pods of its own.
    let has_it = claim.clone().filter(|_| phase == "Bound");
    Some(ListedVolume {
        volume: Some(Provisioned {
            name: volume.name_any(),
            handle: csi.volume_handle,
            phase,
            reclaim_policy: spec.persistent_volume_reclaim_policy.unwrap_or_default(),
        }),
        chosen_member: None,
        size: spec.capacity.and_then(|size| Some(size.get("storage")?.0.clone())).unwrap_or_default(),
        class: spec.storage_class_name.unwrap_or_default(),
        access_modes: spec.access_modes.unwrap_or_default(),
        age: age(&volume.metadata, now()),
        is_leaving: volume.metadata.deletion_timestamp.is_some(),
        moves: has_it.as_ref().and_then(|claim| beside.moves.get(claim).cloned()),
        pods: has_it.and_then(|claim| beside.pods.get(&claim).cloned()).unwrap_or_default(),
        claim,
    })
}

fn waiting(claim: &PersistentVolumeClaim, beside: &Beside) -> ListedVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let named = (claim.namespace().unwrap_or_default(), claim.name_any());
    let requests = spec.resources.and_then(|resources| resources.requests);
    ListedVolume {
        volume: None,
        chosen_member: chosen_member(claim).map(str::to_owned),
        size: requests.and_then(|size| Some(size.get("storage")?.0.clone())).unwrap_or_default(),
        class: spec.storage_class_name.unwrap_or_default(),
        access_modes: spec.access_modes.unwrap_or_default(),
        age: age(&claim.metadata, now()),
        is_leaving: claim.metadata.deletion_timestamp.is_some(),
        moves: None,
        pods: beside.pods.get(&named).cloned().unwrap_or_default(),
        claim: Some(named),
    }
}
