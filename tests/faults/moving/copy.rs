//! The second leaf of a volume that is moved, in another member.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::{BY, CLAIM, CLAIMS, LENT, MOVE, Mover, PLACE, REMOVED, SETTLED, VOLUMES, YARD, keep, note};
use crate::{
    ask::{Target, ask},
    bench::SHOP,
    fixture, virtual_time,
};

/// A second leaf of the volume, in the yard of the other member, as the move makes it.
fn make_copy(mover: &Mover) -> (String, (&'static str, &'static str)) {
    let (from, to) = (&mover.bench.members[0], &mover.bench.members[1]);
    let source = from.get(CLAIMS, SHOP, CLAIM).unwrap();
    let handle = mover.caller.handle().unwrap().replacen(from.name(), to.name(), 1);
    let mut copy = json!({
        "metadata": {
            "name": LENT.1, "namespace": YARD, "labels": source["metadata"]["labels"],
            "finalizers": ["kosmos.csi.io/protect"], "annotations": source["metadata"]["annotations"],
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": fixture::NOW, "resources": source["spec"]["resources"]},
    });
    let notes = copy["metadata"]["annotations"].as_object_mut().unwrap();
    notes.retain(|key, _| {
        ["name", "claim", "claim-uid", "request"].iter().any(|one| *key == format!("kosmos.csi.io/{one}"))
    });
    notes.insert(MOVE.to_owned(), json!(format!("{BY}/copy")));
    notes.insert("kosmos.csi.io/handle".to_owned(), json!(handle));
    let _ = to.create("namespaces", json!({"metadata": {"name": YARD}}));
    to.create(CLAIMS, copy).unwrap();
    (handle, LENT)
}

#[test]
fn copy_is_no_leaf_until_the_host_leads_to_it_and_then_it_is_one_like_any_other() {
    virtual_time::run(1, async {
        let mut mover = Mover::new().await;
        let to = mover.bench.members[1].clone();
        let (handle, yard) = make_copy(&mover);
        let is_listed = async |mover: &Mover| {
            let (code, _) =
                ask(&mover.bench, "ControllerGetVolume", &Target { volume: handle.clone(), ..mover.target() }).await;
            code == Code::Ok
        };
        // Longer than it takes for one to be forgotten.
        sleep(Duration::from_hours(1)).await;
        let there = to.get(CLAIMS, yard.0, yard.1).expect("nobody withdraws it");
        assert_eq!(text(&there, "/status/phase"), "Bound");
        assert!(!is_listed(&mover).await);
        // A provisioner that has forgotten what it did gets the handle that it got.
        let again = mover.caller.create().await.unwrap();
        assert_eq!(Some(again.volume_id.as_str()), mover.caller.handle());
        let volume = text(&there, "/spec/volumeName").to_owned();
        let take = |volume: &mut Value| {
            volume["metadata"]["labels"] = there["metadata"]["labels"].clone();
            volume["metadata"]["annotations"][PLACE] = json!(format!("{}/{}", yard.0, yard.1));
            volume["metadata"]["annotations"]["kosmos.csi.io/handle"] = json!(handle);
            keep(volume);
        };
        to.change(VOLUMES, "", &volume, take).unwrap();
        sleep(Duration::from_hours(1)).await;
        assert!(to.get(CLAIMS, yard.0, yard.1).is_some() && to.get(CLAIMS, SHOP, CLAIM).is_none());
        to.change(VOLUMES, "", &volume, |volume| note(volume, PLACE, Some("shop/data"))).unwrap();
        sleep(SETTLED).await;
        let home = to.get(CLAIMS, SHOP, CLAIM).unwrap_or_else(|| panic!("{}", mover.trace()));
        assert!(to.get(CLAIMS, yard.0, yard.1).is_none() && text(&home, "/status/phase") == "Bound", "{home}");
        assert_eq!(text(&home, "/metadata/annotations/kosmos.csi.io~1handle"), "", "it is where its handle says");
        assert!(!is_listed(&mover).await);
        // The host leads to it, and the move lets go of both.
        let lead = |found: &mut Value| {
            found["spec"]["csi"]["volumeHandle"] = json!(handle);
            found["spec"]["csi"]["volumeAttributes"]["leafClaimUID"] = home["metadata"]["uid"].clone();
            found["spec"]["csi"]["volumeAttributes"]["leafVolume"] = json!(volume);
        };
        mover.bench.host.change(VOLUMES, "", mover.caller.volume(), lead).unwrap();
        mover.caller.stands_for(&handle);
        to.change(VOLUMES, "", &volume, |volume| note(volume, PLACE, None)).unwrap();
        to.change(CLAIMS, SHOP, CLAIM, |claim| note(claim, MOVE, None)).unwrap();
        sleep(SETTLED).await;
        assert!(is_listed(&mover).await);
        let now = to.get(VOLUMES, "", &volume).unwrap();
        assert_eq!(text(&now, "/spec/persistentVolumeReclaimPolicy"), "Delete", "it follows the host");
        mover.caller.delete_claim();
        assert!(timeout(REMOVED, mover.caller.reclaim()).await.is_ok(), "{}", mover.trace());
        assert!(to.get(VOLUMES, "", &volume).is_none() && to.get(CLAIMS, SHOP, CLAIM).is_none());
    });
}
