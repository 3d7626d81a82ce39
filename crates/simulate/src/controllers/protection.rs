//! Claims in use by pods and volumes that are bound are kept by a finalizer until they are neither.

use serde_json::Value;

use crate::{
    Cluster, What,
    object::{drop_finalizer, has_finalizer, is_terminating, name, namespace, text},
    store::Key,
    users::{self, Users},
};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const PODS: &str = "pods";
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

pub(super) async fn run(cluster: Cluster) {
    let mut changes = crate::follow::follow(&cluster, &[PODS, CLAIMS, VOLUMES]);
    let mut users = Users::default();
    loop {
        let change = changes.next().await;
        let gone = change.what == What::Deleted;
        match change.resource.as_str() {
            VOLUMES => release_volume(&cluster, &change.object),
            CLAIMS => release_claim(&cluster, &users, &key(&change.object)),
            _ => {
                users.put(&change.object, gone);
                for claim in users::keys_of(&change.object).iter().filter(|_| gone) {
                    release_claim(&cluster, &users, claim);
                }
            }
        }
    }
}

fn key(object: &Value) -> Key {
    (namespace(object).to_owned(), name(object).to_owned())
}

fn release_claim(cluster: &Cluster, users: &Users, key: &Key) {
    let Some(claim) = cluster.get(CLAIMS, &key.0, &key.1) else {
        return;
    };
    if is_terminating(&claim) && has_finalizer(&claim, CLAIM_FINALIZER) && users.of(key).next().is_none() {
        // Gone meanwhile is as good.
        drop(cluster.change(CLAIMS, &key.0, &key.1, |claim| drop_finalizer(claim, CLAIM_FINALIZER)));
    }
}

fn release_volume(cluster: &Cluster, volume: &Value) {
    let Some(volume) = cluster.get(VOLUMES, "", name(volume)) else {
        return;
    };
    let bound = text(&volume, "/status/phase") == "Bound";
    if is_terminating(&volume) && has_finalizer(&volume, VOLUME_FINALIZER) && !bound {
        drop(cluster.change(VOLUMES, "", name(&volume), |volume| drop_finalizer(volume, VOLUME_FINALIZER)));
    }
}
