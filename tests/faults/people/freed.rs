//! What people in members do with leaf volumes that no claim has: they take the claimRef off, as many a guide tells, so that whatever
//! claim waits there gets them, or take them for a claim of their own; and put back what was there when they are asked to.

use std::{convert::Infallible, sync::Arc, time::Duration};

use serde_json::{Value, json};
use simulate::{Cluster, text};
use tokio::time::sleep;

use crate::{
    bench::{Bench, SHOP, lock},
    fixture,
};

/// Between two looks at what can be put back.
const LOOK: Duration = Duration::from_mins(1);
/// On the volume: the claimRef that it had.
const WAS: &str = "example.com/claim-ref";

/// The host lets it go, and keeps its data.
fn is_let_go(bench: &Bench, volume: &Value) -> bool {
    let is_ours = lock(&bench.guard.history).volume_of(volume).is_some();
    let is_kept = text(volume, "/spec/persistentVolumeReclaimPolicy") == "Retain";
    is_ours && is_kept && text(volume, "/status/phase") == "Released" && was(volume).is_none()
}

fn was(volume: &Value) -> Option<Value> {
    serde_json::from_str(volume["metadata"]["annotations"][WAS].as_str()?).ok()
}

/// `taken`: it is for a claim of their own.
pub(super) async fn make_free(bench: Arc<Bench>, member: usize, taken: bool, after: Duration) {
    let cluster = &bench.members[member];
    let Some(volume) = cluster.list("persistentvolumes").into_iter().find(|volume| is_let_go(&bench, volume)) else {
        return;
    };
    let name = text(&volume, "/metadata/name");
    bench.guard.note(|| format!("somebody makes {name} in m{member} free, for a claim of his own: {taken}"));
    let free = |volume: &mut Value| {
        volume["metadata"]["annotations"][WAS] = json!(volume["spec"]["claimRef"].to_string());
        volume["spec"]["claimRef"] = Value::Null;
    };
    let _ = cluster.change("persistentvolumes", "", name, free);
    if taken {
        take(&bench, cluster, &volume);
    }
    sleep(after).await;
    put_back(&bench, cluster, name);
}

fn take(bench: &Bench, cluster: &Cluster, volume: &Value) {
    let claim = fixture::claim_for(volume, &taker(text(volume, "/metadata/name")));
    if let Ok(made) = cluster.create("persistentvolumeclaims", claim) {
        lock(&bench.guard.history).plant(&made);
    }
}

fn taker(volume: &str) -> String {
    format!("takes-{volume}")
}

/// Unless a leaf claim is bound to it: its user is told, and has to delete that first.
fn put_back(bench: &Bench, cluster: &Cluster, name: &str) {
    let Some(volume) = cluster.get("persistentvolumes", "", name) else { return };
    let Some(was) = was(&volume) else { return };
    let theirs = cluster.get("persistentvolumeclaims", SHOP, &taker(name));
    let has = text(&volume, "/spec/claimRef/uid");
    let is_theirs = theirs.as_ref().is_some_and(|claim| text(claim, "/metadata/uid") == has);
    let of_claim = |field: &str| text(&volume, &format!("/spec/claimRef/{field}"));
    let holder = cluster.get("persistentvolumeclaims", of_claim("namespace"), of_claim("name"));
    let is_held = holder.is_some_and(|holder| text(&holder, "/metadata/uid") == has);
    if theirs.is_some_and(|claim| text(&claim, "/status/phase") == "Bound") && !is_theirs {
        bench.guard.report(format!("I3: volume {name} was taken from a claim of somebody's in {}", cluster.name()));
    }
    let _ = cluster.delete("persistentvolumeclaims", SHOP, &taker(name));
    if is_held && !is_theirs {
        return;
    }
    bench.guard.note(|| format!("somebody puts back what {name} in {} was bound to", cluster.name()));
    let put = |volume: &mut Value| {
        volume["spec"]["claimRef"] = was;
        volume["metadata"]["annotations"].as_object_mut().expect("it has some").remove(WAS);
    };
    let _ = cluster.change("persistentvolumes", "", name, put);
}

/// All of them, once somebody has asked. A volume that a leaf claim has is for later: that claim goes first.
pub async fn put_all_back(bench: Arc<Bench>) -> Infallible {
    loop {
        for cluster in &bench.members {
            for volume in cluster.list("persistentvolumes") {
                put_back(&bench, cluster, text(&volume, "/metadata/name"));
            }
        }
        sleep(LOOK).await;
    }
}
