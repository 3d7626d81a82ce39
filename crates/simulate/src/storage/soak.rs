//! Many things at once, drawn by chance: nothing is left behind, and the same seed does the same again.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::{
    chance::Chance,
    object::{name, text},
    store::version_of,
    testing::{CLAIMS, PODS, VOLUMES, add_snapshots, claim, copy_of, live, pod, snapshot},
};

const KINDS: [&str; 5] = [PODS, CLAIMS, VOLUMES, names::SNAPSHOTS, names::CONTENTS];

fn settings() -> Settings {
    let work = || Work { takes: Duration::ZERO..=Duration::from_secs(8), fails_per_mille: 200 };
    let times = || Duration::ZERO..=Duration::from_secs(5);
    Settings {
        capacity: Some(8 << 30),
        provisioning: work(),
        deleting: work(),
        resizing: work(),
        snapshotting: work(),
        pods: Pods { starts: times(), stops: times(), ..Pods::default() },
        ..Settings::default()
    }
}

/// One thing that a user does. What is refused is refused.
fn act(cluster: &Cluster, chance: &Chance) {
    let number = chance.below(12);
    let (data, web) = (format!("data-{number}"), format!("web-{number}"));
    let class = if number.is_multiple_of(2) { "now" } else { "openebs-hostpath" };
    let photo = format!("photo-{number}");
    match chance.below(9) {
        0 | 1 => drop(cluster.create(CLAIMS, claim(&data, class))),
        2 => drop(cluster.create(PODS, pod(&web, &[&data]))),
        3 => drop(cluster.delete(CLAIMS, "default", &data)),
        4 => drop(cluster.delete(PODS, "default", &web)),
        5 => drop(cluster.create(names::SNAPSHOTS, snapshot(&photo, &data, "delete"))),
        6 => drop(cluster.delete(names::SNAPSHOTS, "default", &photo)),
        7 => drop(cluster.create(CLAIMS, copy_of(&data, "VolumeSnapshot", &photo))),
        _ => {
            let more = |claim: &mut Value| claim["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
            drop(cluster.change(CLAIMS, "default", &data, more));
        }
    }
}

/// What is there in the end, as versions tell it.
async fn end_of(seed: u64) -> Vec<(String, String, u64)> {
    let cluster = Cluster::new("a", seed);
    add_snapshots(&cluster);
    let storage = Storage::new(cluster.clone(), settings());
    let chance = Chance::about(seed, "users");
    let users = async {
        for _ in 0..400 {
            act(&cluster, &chance);
            tokio::time::sleep(Duration::from_millis(chance.below(2000))).await;
        }
    };
    tokio::select! { biased; () = users => (), () = live(&cluster, &storage, 36000) => () }
    for resource in [PODS, CLAIMS, names::SNAPSHOTS] {
        for object in cluster.list(resource) {
            cluster.delete(resource, "default", name(&object)).unwrap();
        }
    }
    live(&cluster, &storage, 36000).await;
    for resource in KINDS {
        assert_eq!(cluster.list(resource), Vec::<Arc<Value>>::new(), "seed {seed}");
    }
    assert_eq!((storage.volumes(), storage.snapshots()), (vec![], vec![]), "seed {seed}");
    let told = |(resource, object): (String, Arc<Value>)| {
        let of = format!("{resource} {}", name(&object));
        (of, text(&object, "/metadata/uid").to_owned(), version_of(&object))
    };
    cluster.objects().into_iter().map(told).collect()
}

#[tokio::test(start_paused = true)]
async fn whatever_is_done_in_whatever_order_nothing_is_left_behind() {
    for seed in 0..8 {
        end_of(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_seed_has_one_course() {
    let (one, other) = (end_of(7).await, end_of(7).await);
    let parted = one.iter().zip(&other).find(|(one, other)| one != other);
    assert!(one.len() == other.len() && parted.is_none(), "{parted:?}");
}
