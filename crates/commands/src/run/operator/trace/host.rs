//! What the host has.

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::{StorageClass, VolumeAttachment},
};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    super::{pods, volume as moves_of},
    Chain, get, warn,
};
use crate::args::operator::ClaimName;
use ::host::{Host, moves};
use cluster::with_causes;
use domain::volume::DRIVER;

pub(super) async fn class(host: &Host, claim: &PersistentVolumeClaim, chain: &mut Chain) {
    let name = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default();
    if name.is_empty() {
        return;
    }
    match get(&Api::<StorageClass>::all(host.client.clone()), &name).await {
        Ok(Some(class)) if class.provisioner == DRIVER => {
            let parameters = class.parameters.unwrap_or_default();
            let parameters: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let mode = class.volume_binding_mode.unwrap_or_default();
            chain.add("host class", name, format!("{mode} {}", parameters.join(" ")).trim());
        }
        Ok(Some(class)) => {
            chain.missing("host class", name, format!("is of {}, not of this driver", class.provisioner));
        }
        Ok(None) => chain.missing("host class", name, "is not there"),
        Err(why) => chain.missing("host class", name, why),
    }
}

/// Whose a claim is, where it is not ours: by its volume, or else by its class.
pub(super) async fn other_driver(host: &Host, of: &ClaimName) -> Option<String> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(host.client.clone(), &of.namespace);
    let spec = get(&claims, &of.name).await.ok()??.spec?;
    let driver = match spec.volume_name.filter(|name| !name.is_empty()) {
        Some(volume) => {
            let volume = get(&Api::<PersistentVolume>::all(host.client.clone()), &volume).await.ok()??;
            volume.spec?.csi.map_or_else(|| "no CSI driver".to_owned(), |csi| csi.driver)
        }
        None => get(&Api::<StorageClass>::all(host.client.clone()), &spec.storage_class_name?).await.ok()??.provisioner,
    };
    (driver != DRIVER).then_some(driver)
}

pub(super) async fn pods(host: &Host, claim: &PersistentVolumeClaim, chain: &mut Chain) {
    let namespace = claim.namespace().unwrap_or_default();
    let pods = match pods::list(&host.client, Some(&namespace), &ListParams::default()).await {
        Ok(pods) => pods,
        Err(error) => return chain.add("host pods", "", format!("cannot be read: {}", with_causes(&error))),
    };
    for pod in pods.iter().filter(|pod| ::host::pod::claims_of(pod).contains(&claim.name_any())) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let node = node.map_or_else(|| "without a node".to_owned(), |node| format!("on node {node}"));
        chain.add("host pod", format!("{namespace}/{}", pod.name_any()), format!("{phase}, {node}"));
        warn(&host.client, &namespace, &pod.uid().unwrap_or_default(), "host pod", chain).await;
    }
}

/// Moves of its volume.
pub(super) async fn moved(host: &Host, claim: &ClaimName, chain: &mut Chain) {
    let moves = match moves_of::list_known(&host.client, Some(&claim.namespace)).await {
        Ok(moves) => moves.unwrap_or_default(),
        Err(error) => return chain.add("moves", "", format!("cannot be read: {error}")),
    };
    for of in moves.iter().filter(|of| of.spec.claim_name == claim.name) {
        let phase = moves_of::phase_in_words(of);
        let state = format!("to member {}: {phase}", of.spec.to.member);
        let shown = format!("{}/{}", claim.namespace, of.name_any());
        match moves::stall(of) {
            Some(stall) => chain.missing("move", shown, format!("{state}, stalled: {}", stall.message)),
            None => chain.add("move", shown, state),
        }
    }
}

pub(super) async fn volume(host: &Host, claim: &PersistentVolumeClaim, chain: &mut Chain) -> Option<PersistentVolume> {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
    if name.is_empty() {
        chain.missing("host volume", "", "none yet");
        return None;
    }
    match get(&Api::<PersistentVolume>::all(host.client.clone()), &name).await {
        Ok(Some(volume)) => {
            tell_volume(host, &volume, chain).await;
            Some(volume)
        }
        Ok(None) => {
            chain.missing("host volume", name, "is not there");
            None
        }
        Err(why) => {
            chain.missing("host volume", name, why);
            None
        }
    }
}

pub(super) async fn tell_volume(host: &Host, volume: &PersistentVolume, chain: &mut Chain) {
    chain.add("host volume", volume.name_any(), volume_state(volume));
    warn(&host.client, "default", &volume.uid().unwrap_or_default(), "host volume", chain).await;
}

pub(super) fn volume_state(volume: &PersistentVolume) -> String {
    let spec = volume.spec.clone().unwrap_or_default();
    let phase = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let policy = spec.persistent_volume_reclaim_policy.unwrap_or_default();
    let size = spec.capacity.and_then(|capacity| capacity.get("storage").cloned()).unwrap_or_default().0;
    let source = spec.csi.map(|csi| format!(", {} {}", csi.driver, csi.volume_handle)).unwrap_or_default();
    let going = if volume.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" };
    format!("{phase}, {size}, {policy}{source}{going}")
}

pub(super) async fn attachments(host: &Host, volume: &PersistentVolume, chain: &mut Chain) {
    let all = Api::<VolumeAttachment>::all(host.client.clone()).list(&ListParams::default()).await;
    let all = match all {
        Ok(all) => all.items,
        Err(error) => return chain.add("attachments", "", format!("cannot be read: {}", with_causes(&error))),
    };
    let name = volume.name_any();
    for one in all.iter().filter(|one| one.spec.source.persistent_volume_name.as_deref() == Some(name.as_str())) {
        let status = one.status.as_ref();
        let error =
            status.and_then(|status| status.attach_error.as_ref().or(status.detach_error.as_ref())?.message.clone());
        let attached = status.is_some_and(|status| status.attached);
        let state =
            error.unwrap_or_else(|| if attached { "attached".to_owned() } else { "not attached yet".to_owned() });
        chain.add("attachment", &one.spec.node_name, state);
    }
}
