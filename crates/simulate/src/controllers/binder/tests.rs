use serde_json::{Value, json};

use super::*;
use crate::testing::{claim, class, pass, volume};

fn cluster() -> Cluster {
    let cluster = Cluster::new("a", 1);
    cluster.create(CLASSES, class("now", "made.by", "Immediate")).unwrap();
    cluster.create(CLASSES, class("later", "made.by", "WaitForFirstConsumer")).unwrap();
    cluster
}

fn phases(cluster: &Cluster, claim: &str, volume: &str) -> (String, String) {
    let phase = |object: &Value| text(object, "/status/phase").to_owned();
    (phase(&cluster.claim(claim)), phase(&cluster.volume(volume)))
}

/// A volume as a provisioner makes it for a claim.
fn provisioned(cluster: &Cluster, claim: &str) {
    let mut made = volume("made", "now", "1Gi");
    made["metadata"]["annotations"] = json!({PROVISIONED_BY: "made.by"});
    made["spec"]["claimRef"] = claim::reference(&cluster.claim(claim));
    made["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    cluster.create(VOLUMES, made).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_bound_to_the_volume_that_was_made_for_it() {
    let cluster = cluster();
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    pass(&cluster, 1).await;
    let waiting = cluster.claim("data");
    assert!(PROVISIONER.iter().all(|key| annotation(&waiting, key) == "made.by"));
    assert_eq!(
        (text(&waiting, "/status/phase"), cluster.reasons()),
        ("Pending", vec!["ExternalProvisioning".to_owned()])
    );

    provisioned(&cluster, "data");
    pass(&cluster, 1).await;
    assert_eq!(phases(&cluster, "data", "made"), ("Bound".into(), "Bound".into()));
    let (claim, made) = (cluster.claim("data"), cluster.volume("made"));
    assert_eq!((annotation(&claim, BIND_COMPLETED), annotation(&claim, BOUND_BY_CONTROLLER)), ("yes", "yes"));
    assert_eq!(annotation(&made, BOUND_BY_CONTROLLER), "", "the provisioner chose the claim");
    assert_eq!(claim["status"]["capacity"]["storage"], "1Gi");
    assert_eq!(claim["status"]["accessModes"], json!(["ReadWriteOnce"]));
}

#[tokio::test(start_paused = true)]
async fn a_class_that_waits_asks_for_a_volume_only_once_a_node_is_chosen() {
    let cluster = cluster();
    cluster.create(CLAIMS, claim("data", "later")).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(annotation(&cluster.claim("data"), PROVISIONER[1]), "");
    assert_eq!(cluster.reasons(), ["WaitForFirstConsumer"]);
    cluster.change(CLAIMS, "default", "data", |claim| annotate(claim, SELECTED_NODE, "n1")).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(annotation(&cluster.claim("data"), PROVISIONER[1]), "made.by");
}

#[tokio::test(start_paused = true)]
async fn a_claim_takes_the_smallest_free_volume_that_is_large_enough() {
    let cluster = cluster();
    for (name, class, size) in
        [("large", "hand", "9Gi"), ("small", "hand", "2Gi"), ("tiny", "hand", "1Mi"), ("odd", "", "1Gi")]
    {
        cluster.create(VOLUMES, volume(name, class, size)).unwrap();
    }
    cluster.create(CLASSES, class("hand", "kubernetes.io/no-provisioner", "Immediate")).unwrap();
    cluster.create(CLAIMS, claim("data", "hand")).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(phases(&cluster, "data", "small"), ("Bound".into(), "Bound".into()));
    assert_eq!(annotation(&cluster.volume("small"), BOUND_BY_CONTROLLER), "yes");
    assert_eq!(phases(&cluster, "data", "large").1, "Available");
    assert_eq!(cluster.claim("data")["status"]["capacity"]["storage"], "2Gi");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_comes_later_is_taken_by_the_claim_that_waits_for_it() {
    let cluster = cluster();
    cluster.create(CLAIMS, claim("data", "hand")).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(cluster.reasons(), ["ProvisioningFailed"], "there is no such class");
    cluster.create(VOLUMES, volume("pv", "hand", "1Gi")).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(phases(&cluster, "data", "pv"), ("Bound".into(), "Bound".into()));
}

#[tokio::test(start_paused = true)]
async fn what_names_the_other_is_bound_from_either_side() {
    let cluster = cluster();
    let mut named = claim("by-claim", "later");
    named["spec"]["volumeName"] = json!("one");
    cluster.create(CLAIMS, named).unwrap();
    cluster.create(CLAIMS, claim("by-volume", "later")).unwrap();
    cluster.create(VOLUMES, volume("one", "later", "1Gi")).unwrap();
    let mut two = volume("two", "later", "1Gi");
    two["spec"]["claimRef"] = json!({"namespace": "default", "name": "by-volume"});
    cluster.create(VOLUMES, two).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(phases(&cluster, "by-claim", "one"), ("Bound".into(), "Bound".into()));
    assert_eq!(phases(&cluster, "by-volume", "two"), ("Bound".into(), "Bound".into()));
    assert_eq!(text(&cluster.volume("two"), "/spec/claimRef/uid"), uid(&cluster.claim("by-volume")));
    assert_eq!(annotation(&cluster.claim("by-claim"), BOUND_BY_CONTROLLER), "", "a person chose the volume");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_does_not_fit_is_not_bound() {
    let cluster = cluster();
    let mut named = claim("data", "later");
    named["spec"]["volumeName"] = json!("small");
    cluster.create(CLAIMS, named).unwrap();
    cluster.create(VOLUMES, volume("small", "later", "1Mi")).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(phases(&cluster, "data", "small"), ("Pending".into(), "Available".into()));
    assert_eq!(cluster.reasons(), ["VolumeMismatch"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_released_by_the_end_of_its_claim_and_not_taken_by_the_next_of_that_name() {
    let cluster = cluster();
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    provisioned(&cluster, "data");
    pass(&cluster, 1).await;
    cluster.delete(CLAIMS, "default", "data").unwrap();
    pass(&cluster, 1).await;
    assert!(cluster.get(CLAIMS, "default", "data").is_none());
    assert_eq!(text(&cluster.volume("made"), "/status/phase"), "Released");
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(phases(&cluster, "data", "made"), ("Pending".into(), "Released".into()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_volume_vanished_or_belongs_to_another_is_lost() {
    let cluster = cluster();
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    provisioned(&cluster, "data");
    pass(&cluster, 1).await;
    let mut thief = claim("thief", "now");
    thief["spec"]["volumeName"] = json!("made");
    thief["metadata"]["annotations"] = json!({BIND_COMPLETED: "yes"});
    cluster.create(CLAIMS, thief).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(phases(&cluster, "thief", "made"), ("Lost".into(), "Bound".into()));
    cluster.change(VOLUMES, "", "made", |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
    cluster.delete(VOLUMES, "", "made").unwrap();
    pass(&cluster, 1).await;
    assert_eq!(text(&cluster.claim("data"), "/status/phase"), "Lost");
    assert!(cluster.reasons().contains(&"ClaimLost".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn claim_that_names_its_volume_hears_of_it_when_it_is_changed_itself_or_after_a_while() {
    for is_changed in [true, false] {
        let cluster = cluster();
        // All the while: one that is restarted looks at everything.
        let running = tokio::spawn(crate::controllers::run(cluster.clone()));
        let time = |seconds| tokio::time::sleep(std::time::Duration::from_secs(seconds));
        cluster.create(CLAIMS, claim("data", "now")).unwrap();
        provisioned(&cluster, "data");
        time(1).await;
        let mut again = Value::clone(&cluster.volume("made"));
        again["metadata"] = json!({"name": "made"});
        cluster.change(VOLUMES, "", "made", |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
        cluster.delete(VOLUMES, "", "made").unwrap();
        time(1).await;
        cluster.create(VOLUMES, again).unwrap();
        time(1).await;
        assert_eq!(phases(&cluster, "data", "made"), ("Lost".into(), "Bound".into()), "as in a real cluster");
        if is_changed {
            cluster.change(CLAIMS, "default", "data", |claim| claim["metadata"]["labels"] = json!({"a": "b"})).unwrap();
        }
        time(if is_changed { 1 } else { 13 }).await;
        assert_eq!(phases(&cluster, "data", "made"), ("Bound".into(), "Bound".into()), "changed: {is_changed}");
        running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_volumes_for_one_claim_the_other_is_given_up() {
    let cluster = cluster();
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    provisioned(&cluster, "data");
    pass(&cluster, 1).await;
    let reference = claim::reference(&cluster.claim("data"));
    let mut by_hand = volume("by-hand", "now", "1Gi");
    by_hand["spec"]["claimRef"] = reference.clone();
    cluster.create(VOLUMES, by_hand).unwrap();
    let mut twin = volume("twin", "now", "1Gi");
    twin["metadata"]["annotations"] = json!({PROVISIONED_BY: "made.by"});
    twin["spec"]["claimRef"] = reference;
    twin["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    cluster.create(VOLUMES, twin).unwrap();
    pass(&cluster, 1).await;
    assert_eq!(phases(&cluster, "data", "by-hand"), ("Bound".into(), "Available".into()));
    assert_eq!(text(&cluster.volume("by-hand"), "/spec/claimRef/uid"), "");
    assert_eq!(text(&cluster.volume("twin"), "/status/phase"), "Released");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_where_nothing_is_to_be_done() {
    let cluster = cluster();
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    provisioned(&cluster, "data");
    pass(&cluster, 1).await;
    let before = cluster.versions().seen();
    pass(&cluster, 60).await;
    assert_eq!(cluster.versions().seen(), before);
}
