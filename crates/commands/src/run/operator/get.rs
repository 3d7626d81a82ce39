//! `get volumes`: which data is where, by what the host says.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{Api, Client, ResourceExt};

use super::{
    Report,
    connect::{self, now},
    look::{age, whole},
    print::{listed, patiently},
    volume,
};
use crate::args::operator::GetVolumes;
use cluster::Dial;
use domain::volume::DRIVER;
use host::{claim::chosen_member, moves};
use operator::volumes::{HostVolume, Provisioned, Wanted, listing};

pub(super) async fn volumes(flags: &GetVolumes, dial: &Dial) -> anyhow::Result<Report> {
    let client = connect::user(&flags.access, dial).await?;
    let seen = patiently("listing the host's volumes, claims and pods", look(&client)).await?;
    let wanted = Wanted {
        namespace: flags.namespace.as_deref(),
        member: flags.member.as_deref(),
        state: flags.state.as_deref(),
    };
    let listing = listing(seen, &wanted);
    Ok(Report::well(listed(&listing, flags.output, "There are no such volumes.")))
}

/// What stands beside a volume: of its claim, by namespace and name.
struct Beside {
    pods: BTreeMap<(String, String), Vec<String>>,
    moves: BTreeMap<(String, String), (String, String)>,
}

pub(super) async fn look(client: &Client) -> anyhow::Result<Vec<HostVolume>> {
    let unread =
        |what: &'static str| move |reason: String| anyhow::anyhow!("the host's {what} cannot be listed: {reason}");
    let volumes = whole(Api::<PersistentVolume>::all(client.clone())).await.map_err(unread("volumes"))?;
    let claims = whole(Api::<PersistentVolumeClaim>::all(client.clone())).await.map_err(unread("claims"))?;
    let classes = whole(Api::<StorageClass>::all(client.clone())).await.map_err(unread("classes"))?;
    let pods = whole(Api::<Pod>::all(client.clone())).await.map_err(unread("pods"))?;
    let beside = Beside { pods: users(&pods), moves: moves_under_way(client).await? };
    let waits = |claim: &&PersistentVolumeClaim| {
        let spec = claim.spec.clone().unwrap_or_default();
        let class = classes.iter().find(|class| Some(class.name_any()) == spec.storage_class_name);
        spec.volume_name.unwrap_or_default().is_empty() && class.is_some_and(|class| class.provisioner == DRIVER)
    };
    let provisioned = volumes.iter().filter_map(|volume| provisioned(volume, &beside));
    Ok(provisioned.chain(claims.iter().filter(waits).map(|claim| waiting(claim, &beside))).collect())
}

/// The pods that have a claim, or are to have it.
fn users(pods: &[Pod]) -> BTreeMap<(String, String), Vec<String>> {
    let mut users: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for pod in pods {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !matches!(phase, Some("Succeeded" | "Failed")) {
            let namespace = pod.namespace().unwrap_or_default();
            for claim in host::pod::claims_of(pod) {
                users.entry((namespace.clone(), claim)).or_default().push(pod.name_any());
            }
        }
    }
    users
}

async fn moves_under_way(client: &Client) -> anyhow::Result<BTreeMap<(String, String), (String, String)>> {
    let all = volume::list_known(client, None).await?.unwrap_or_default();
    let under_way = all.into_iter().filter(|of| !moves::is_over(of)).map(|of| {
        let claim = moves::claim_of(&of);
        let phase = moves::phase_of(&of).map_or_else(|| "New".to_owned(), |phase| format!("{phase:?}"));
        ((claim.namespace, claim.name), (of.spec.to.member, phase))
    });
    Ok(under_way.collect())
}

fn provisioned(volume: &PersistentVolume, beside: &Beside) -> Option<HostVolume> {
    let spec = volume.spec.clone().unwrap_or_default();
    let csi = spec.csi.filter(|csi| csi.driver == DRIVER)?;
    let phase = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let claim = spec.claim_ref.map(|claim| (claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default()));
    // A claim of the same name may be there by now, and has pods of its own.
    let has_it = claim.clone().filter(|_| phase == "Bound");
    Some(HostVolume {
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

fn waiting(claim: &PersistentVolumeClaim, beside: &Beside) -> HostVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let named = (claim.namespace().unwrap_or_default(), claim.name_any());
    let requests = spec.resources.and_then(|resources| resources.requests);
    HostVolume {
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
