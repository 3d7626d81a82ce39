//! What administrators of the host do: with policies, also while a removal waits, with the class, with members.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use super::member::Held;
use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP},
    caller::{claim_again, set_policy},
    sidecar::Class,
};

/// Between two looks at a removal, and at what becomes of it.
const LOOK: Duration = Duration::from_millis(500);
const AT_ONCE: Duration = Duration::from_millis(5);
/// The replica that leads believes a watch of the host's volumes for ten seconds that has died unnoticed, and its Lease for six.
const HEARD: Duration = Duration::from_secs(30);

/// An administrator finds that a volume is worth more than its class says, perhaps after having thought otherwise, and then
/// perhaps deletes its claim.
pub async fn retain_later(bench: Arc<Bench>, wavers: Option<Duration>, deletes: bool) {
    let is_used = |volume: &Arc<Value>| {
        let claim = text(volume, "/spec/claimRef/name");
        let claim = bench.host.get("persistentvolumeclaims", SHOP, claim);
        let stays = claim.is_some_and(|claim| claim.pointer("/metadata/deletionTimestamp").is_none());
        stays && text(volume, "/status/phase") == "Bound" && !is_deleted(volume)
    };
    let mut volumes = bench.host.list("persistentvolumes").into_iter();
    let Some(volume) = volumes.find(|volume| is_used(volume) && policy(volume) == "Delete") else { return };
    let name = text(&volume, "/metadata/name");
    set_policy(&bench, name, "Retain");
    let changes = wavers.map(|pause| ["Delete", "Retain"].map(|policy| (pause, policy)));
    for (pause, policy) in changes.into_iter().flatten() {
        sleep(pause).await;
        // Deleted meanwhile, it is others' business.
        if bench.host.get("persistentvolumes", "", name).is_some_and(|volume| is_used(&volume)) {
            set_policy(&bench, name, policy);
        }
    }
    let volume = bench.host.get("persistentvolumes", "", name).filter(is_used);
    if let Some(volume) = volume.filter(|volume| deletes && policy(volume) == "Retain") {
        let claim = text(&volume, "/spec/claimRef/name");
        bench.guard.note(|| format!("an administrator deletes claim {claim}"));
        let _ = bench.host.delete("persistentvolumeclaims", SHOP, claim);
    }
}

/// Somebody deletes one in three of the host's volumes that are in use, as with a selector that was meant for others. Each stays for as long
/// as its claim does, and is removed with that. What becomes of one with `Retain` then, nobody is left to say.
pub(super) fn delete_volumes(bench: &Bench, chance: &mut Rng) {
    for volume in bench.host.list("persistentvolumes") {
        let is_meant = text(&volume, "/status/phase") == "Bound" && policy(&volume) == "Delete" && !is_deleted(&volume);
        if is_meant && chance.u8(..3) == 0 {
            let name = text(&volume, "/metadata/name");
            bench.guard.note(|| format!("an administrator deletes {name}, which is in use"));
            let _ = bench.host.delete("persistentvolumes", "", name);
        }
    }
}

fn is_deleted(volume: &Value) -> bool {
    volume.pointer("/metadata/deletionTimestamp").is_some()
}

/// Nobody has it, and its data is kept.
fn is_free(volume: &Value) -> bool {
    text(volume, "/status/phase") == "Released" && policy(volume) == "Retain"
}

/// Somebody takes a volume that was released.
pub fn use_again(bench: &Bench) {
    let volumes = bench.host.list("persistentvolumes");
    if let Some(volume) = volumes.iter().find(|volume| is_free(volume)) {
        let claim = format!("again-{}", text(volume, "/metadata/resourceVersion"));
        claim_again(bench, text(volume, "/metadata/name"), SHOP, &claim);
    }
}

/// Somebody wants a volume back whose removal has begun and waits, some time later, perhaps for a claim of his own. Whoever holds
/// the leaf claim is done as soon as its data is said to be kept, or when all is over.
pub(super) async fn call_off(bench: Arc<Bench>, held: Held, after: Duration, used_again: bool, soon: bool) {
    let volume = held.volume.as_str();
    let is_released = || {
        let volume = bench.host.get("persistentvolumes", "", volume);
        let is_to_go = |volume: &Value| text(volume, "/status/phase") == "Released" && policy(volume) == "Delete";
        volume.is_some_and(|volume| is_to_go(&volume) && !is_deleted(&volume))
    };
    while !is_released() {
        sleep(LOOK).await;
    }
    sleep(after).await;
    if !is_released() {
        return;
    }
    set_policy(&bench, volume, "Retain");
    while soon && !held.is_kept() {
        sleep(AT_ONCE).await;
    }
    if soon {
        bench.guard.note(|| format!("leaf claim of {volume} is let go"));
        held.let_go();
    }
    if used_again {
        sleep(after).await;
        // Others may have been quicker.
        if bench.host.get("persistentvolumes", "", volume).is_some_and(|volume| is_free(&volume)) {
            claim_again(&bench, volume, SHOP, &format!("back-{volume}"));
        }
    }
}

/// Of the volumes that the provisioner has seen to be removed, long before it calls, every other one is wanted back, perhaps for another claim.
pub(super) fn want_back_before_the_call(bench: &Bench, chance: &mut Rng) {
    for volume in bench.sidecar.stands_still(HEARD) {
        let is_to_go = |volume: &Value| text(volume, "/status/phase") == "Released" && policy(volume) == "Delete";
        // Nobody keeps the data of a leaf that people of the member have deleted while the host is to remove it too.
        let is_whole = |volume: &Value| {
            let leaf = bench.leaf_behind(text(volume, "/spec/csi/volumeHandle"));
            leaf.is_ok_and(|leaf| text(&leaf, "/status/phase") == "Bound" && !is_deleted(&leaf))
        };
        let seen = bench.host.get("persistentvolumes", "", &volume);
        let may_be_had = seen.is_some_and(|seen| is_to_go(&seen) && !is_deleted(&seen) && is_whole(&seen));
        if !may_be_had || chance.bool() {
            continue;
        }
        set_policy(bench, &volume, "Retain");
        if chance.bool() {
            claim_again(bench, &volume, SHOP, &format!("wanted-{volume}"));
        }
    }
}

/// The class is removed, or recreated, with a slip or for other leaves, and the other way round.
pub(super) fn change_class(bench: &Bench, drawn: u8) {
    let becomes = match (bench.sidecar.class(), drawn) {
        (Class::AsItWas, 0) => Class::WithASlip,
        (Class::AsItWas, 1) => Class::Gone,
        (Class::AsItWas, _) => Class::OfOtherLeaves,
        _ => Class::AsItWas,
    };
    bench.guard.note(|| format!("the class is {becomes:?}"));
    bench.sidecar.set_class(becomes);
}

pub(super) fn cordon(bench: &Bench, member: usize, closed: bool) {
    let name = bench.members[member].name();
    bench.guard.note(|| format!("{name} is closed: {closed}"));
    let annotate = |secret: &mut Value| {
        secret["metadata"]["annotations"]["kosmos.csi.io/cordon"] = json!(closed.to_string());
    };
    bench.host.change("secrets", DRIVER_NAMESPACE, name, annotate).unwrap();
}

fn policy(volume: &Value) -> &str {
    text(volume, "/spec/persistentVolumeReclaimPolicy")
}
