//! Two volumes of the host with one handle, as people make them: what one gives up the other may want.

use std::{sync::Arc, time::Duration};

use cluster::Recent;
use host::volumes::{HostVolumes, keep};
use serde_json::{Value, json};
use simulate::{
    Cluster,
    faults::{Action, Verb},
    text,
};
use tokio::{sync::watch, task::JoinSet, time::sleep};
use tonic::Code;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP, lock},
    caller::{Caller, Script, claim_again},
    fixture,
    people::delete_leaf_claim,
    reclaim::{CLAIM, SETTLED, bench, events, leaf, phase, policy, provisioned, retained, until},
    replaced::connected,
    virtual_time,
};

const VOLUMES: &str = "persistentvolumes";
const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
pub const TWIN: &str = "twin";

/// An administrator makes another volume of it, for another claim.
fn make_twin(bench: &Bench, of: &Caller) {
    make_twin_called(bench, of, of.handle().unwrap());
}

pub fn make_twin_called(bench: &Bench, of: &Caller, handle: &str) {
    make_twin_of(bench, Value::clone(&bench.host.get(VOLUMES, "", of.volume()).unwrap()), handle);
}

fn make_twin_of(bench: &Bench, mut twin: Value, handle: &str) {
    twin["metadata"] = json!({"name": TWIN});
    twin.as_object_mut().unwrap().remove("status");
    twin["spec"].as_object_mut().unwrap().remove("claimRef");
    twin["spec"]["csi"]["volumeHandle"] = json!(handle);
    bench.host.create(VOLUMES, twin).unwrap();
    claim_again(bench, TWIN, SHOP, TWIN);
}

async fn has_twin(bench: &Bench, caller: &Caller) {
    make_twin(bench, caller);
    until(bench, SETTLED, "its data is kept", || policy(bench, caller) == "Retain").await;
}

pub async fn release(bench: &Bench, caller: &Caller) {
    caller.delete_claim();
    let released = || phase(bench.host.get(VOLUMES, "", caller.volume())) == "Released";
    until(bench, SETTLED, "the host's volume is released", released).await;
}

async fn removal_waits_for_the_twin(bench: &Bench, caller: &Caller) {
    release(bench, caller).await;
    let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    assert!(refused.message().contains("PersistentVolume twin"), "{refused}");
}

#[test]
fn data_stays_for_the_other_volume_of_one_handle_and_is_its_own_once_it_is_the_only_one() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        has_twin(&bench, &caller).await;
        let told = || events(&bench).matches("LeafShared: ").count() == 2;
        until(&bench, SETTLED, "both say so", told).await;
        for name in [caller.volume(), TWIN] {
            assert!(events(&bench).contains(name), "{name}: {}", events(&bench));
        }
        removal_waits_for_the_twin(&bench, &caller).await;
        caller.set_policy("Retain");
        lock(&bench.guard.history).let_go(caller.volume());
        bench.host.delete(VOLUMES, "", caller.volume()).unwrap();
        until(&bench, SETTLED, "it is the other one's", || phase(leaf(&bench, TWIN)) == "Bound").await;
        assert_eq!(text(&leaf(&bench, TWIN).unwrap(), "/spec/volumeName"), caller.leaf_volume().unwrap());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// It stays until its claim has gone, and may be made `Retain` until then.
#[test]
fn data_stays_for_the_other_volume_of_one_handle_also_where_somebody_has_deleted_that_before_its_claim() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        has_twin(&bench, &caller).await;
        let is_bound = || phase(bench.host.get(VOLUMES, "", TWIN)) == "Bound";
        until(&bench, SETTLED, "the other one has its claim", is_bound).await;
        bench.host.delete(VOLUMES, "", TWIN).unwrap();
        release(&bench, &caller).await;
        let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert!(refused.message().contains("PersistentVolume twin"), "{refused}");
        assert!(is_bound(), "its claim is there still");
        let claim = leaf(&bench, CLAIM).unwrap();
        assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Each of both is deleted by whoever believes that the other one's data is kept.
#[test]
fn data_that_the_member_lets_nobody_keep_is_not_called_kept_and_both_volumes_say_why() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        bench.guard.set_fate(|_, at, asked| {
            let keeps = at == 1 && asked.verb == Verb::Patch && asked.resource == VOLUMES;
            if keeps { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        make_twin(&bench, &caller);
        let say = |words: &str| events(&bench).matches(words).count() >= 2;
        until(&bench, SETTLED, "both say why", || say("LeafStuck: ")).await;
        until(&bench, SETTLED, "both say that it is not kept", || say("not kept in the member yet")).await;
        assert!(!events(&bench).contains("its data is kept"), "{}", events(&bench));
        bench.guard.heal();
        until(&bench, SETTLED, "it is kept", || policy(&bench, &caller) == "Retain").await;
        until(&bench, SETTLED, "both say that", || say("its data is kept")).await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Who asks the driver to remove does not reach the replica that does the work in the background.
pub async fn led_by_another() -> Arc<Bench> {
    let bench = Bench::new(1, 1, &fixture::steady(Duration::from_millis(100))).await;
    bench.start_second("second");
    sleep(Duration::from_secs(5)).await;
    bench.start();
    bench.serves().await;
    sleep(Duration::from_secs(1)).await;
    bench
}

/// Who asks for a removal has looked at one of both, and is believed for a moment where nothing says that the data is kept.
#[test]
fn removal_for_one_volume_waits_for_the_other_one_also_where_the_member_lets_nobody_keep_the_data() {
    for is_leader in [true, false] {
        virtual_time::run(1, async {
            let bench = if is_leader { bench().await } else { led_by_another().await };
            let caller = provisioned(&bench, Script::new(CLAIM)).await;
            bench.guard.set_fate(|_, at, asked| {
                let keeps = at == 1 && asked.verb == Verb::Patch && asked.resource == VOLUMES;
                if keeps { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
            });
            make_twin(&bench, &caller);
            let say = || events(&bench).matches("not kept in the member yet").count() >= 2;
            until(&bench, SETTLED, "both say that it is not kept", say).await;
            removal_waits_for_the_twin(&bench, &caller).await;
            let claim = leaf(&bench, CLAIM).unwrap();
            assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{is_leader}: {claim}");
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// A Secret that gives the first member a second name.
pub fn alias() -> Value {
    let mut alias = fixture::kubeconfig("m0");
    for path in ["/metadata/name", "/metadata/labels/kosmos.csi.io~1member"] {
        *alias.pointer_mut(path).unwrap() = json!("alias");
    }
    alias
}

pub async fn has_alias(bench: &Bench) {
    bench.host.create("secrets", alias()).unwrap();
    sleep(Duration::from_secs(5)).await;
}

#[test]
fn leaf_is_not_let_go_from_under_a_volume_that_calls_its_member_otherwise() {
    virtual_time::run(1, async {
        let bench = bench().await;
        has_alias(&bench).await;
        let caller = provisioned(&bench, retained()).await;
        make_twin_called(&bench, &caller, &caller.handle().unwrap().replacen("m0/", "alias/", 1));
        let is_bound = || phase(bench.host.get(VOLUMES, "", TWIN)) == "Bound";
        until(&bench, SETTLED, "the other one has its claim", is_bound).await;
        let before = text(&leaf(&bench, CLAIM).unwrap(), "/metadata/uid").to_owned();
        let is_as_it_was = || {
            let claim = leaf(&bench, CLAIM);
            claim.is_some_and(|claim| {
                text(&claim, "/metadata/uid") == before && claim["metadata"]["deletionTimestamp"].is_null()
            })
        };
        release(&bench, &caller).await;
        sleep(SETTLED).await;
        assert!(is_as_it_was(), "{}", bench.guard.trace().join("\n"));
        lock(&bench.guard.history).let_go(caller.volume());
        bench.host.delete(VOLUMES, "", caller.volume()).unwrap();
        sleep(SETTLED).await;
        assert!(is_as_it_was(), "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Its handle says another name of the member, as a person has written it.
#[test]
fn removal_for_one_volume_waits_for_the_other_one_also_where_that_calls_its_member_otherwise() {
    for is_leader in [true, false] {
        virtual_time::run(1, async {
            let bench = if is_leader { bench().await } else { led_by_another().await };
            has_alias(&bench).await;
            let caller = provisioned(&bench, Script::new(CLAIM)).await;
            let handle = caller.handle().unwrap().replacen("m0/", "alias/", 1);
            make_twin_called(&bench, &caller, &handle);
            let is_bound = || phase(bench.host.get(VOLUMES, "", TWIN)) == "Bound";
            until(&bench, SETTLED, "the other one has its claim", is_bound).await;
            removal_waits_for_the_twin(&bench, &caller).await;
            let claim = leaf(&bench, CLAIM).unwrap();
            assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{is_leader}: {claim}");
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// By another way to it, which leads nowhere now; or somebody has taken that away.
#[test]
fn removal_for_one_volume_waits_for_the_other_one_also_where_nobody_can_tell_now_which_member_that_means() {
    let cases = [true, false].into_iter().flat_map(|is_leader| [true, false].map(|has_left| (is_leader, has_left)));
    for (is_leader, has_left) in cases {
        virtual_time::run(1, async {
            let bench = if is_leader { bench().await } else { led_by_another().await };
            has_alias(&bench).await;
            let caller = provisioned(&bench, Script::new(CLAIM)).await;
            make_twin_called(&bench, &caller, &caller.handle().unwrap().replacen("m0/", "alias/", 1));
            let is_bound = || phase(bench.host.get(VOLUMES, "", TWIN)) == "Bound";
            until(&bench, SETTLED, "the other one has its claim", is_bound).await;
            if has_left {
                bench.host.delete("secrets", DRIVER_NAMESPACE, "alias").unwrap();
            } else {
                let garble = |secret: &mut Value| secret["data"]["kubeconfig"] = json!("bm90aGluZw==");
                bench.host.change("secrets", DRIVER_NAMESPACE, "alias", garble).unwrap();
            }
            sleep(Duration::from_secs(5)).await;
            removal_waits_for_the_twin(&bench, &caller).await;
            let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
            assert!(refused.message().contains("(alias does not answer, or has left, and may be"), "{refused}");
            let claim = leaf(&bench, CLAIM).unwrap();
            assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{is_leader}, {has_left}: {claim}");
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// So it goes with each watch of the host's volumes, from the beginning.
async fn whose_watch_of_the_host(fate: Action) -> Arc<Bench> {
    let bench = Bench::new(1, 1, &fixture::steady(Duration::from_millis(100))).await;
    bench.guard.set_fate(move |_, at, asked| {
        let is_watch = at == 0 && asked.verb == Verb::Watch && asked.resource == VOLUMES;
        if is_watch { fate.clone() } else { Action::Pass }
    });
    bench.start();
    bench.serves().await;
    bench
}

/// After so many events; nothing tells of it for minutes.
async fn whose_watch_of_the_host_dies(told: u64) -> Arc<Bench> {
    let bench = whose_watch_of_the_host(Action::Silence(told)).await;
    sleep(Duration::from_secs(1)).await;
    bench
}

async fn whose_watch_of_the_host_is_behind() -> Arc<Bench> {
    whose_watch_of_the_host(Action::Lag(Duration::from_secs(8))).await
}

/// One whose connection is dead tells nothing for minutes: of neither volume, of one, or not that this one is to go.
#[test]
fn removal_for_one_volume_waits_for_the_other_one_also_where_the_leaders_watch_has_died() {
    for told in 0..4 {
        virtual_time::run(1, async {
            let bench = whose_watch_of_the_host_dies(told).await;
            let caller = provisioned(&bench, Script::new(CLAIM)).await;
            make_twin(&bench, &caller);
            let is_bound = || phase(bench.host.get(VOLUMES, "", TWIN)) == "Bound";
            until(&bench, SETTLED, "the other one has its claim", is_bound).await;
            removal_waits_for_the_twin(&bench, &caller).await;
            let claim = leaf(&bench, CLAIM).unwrap();
            assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{told}: {claim}");
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// It goes on telling, of a while ago: that the one is to go, and not yet that there is the other one.
#[test]
fn removal_for_one_volume_waits_for_the_other_one_also_where_the_leaders_watch_is_behind() {
    virtual_time::run(1, async {
        let bench = whose_watch_of_the_host_is_behind().await;
        sleep(Duration::from_secs(1)).await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        release(&bench, &caller).await;
        sleep(Duration::from_secs(6)).await;
        make_twin(&bench, &caller);
        let is_bound = || phase(bench.host.get(VOLUMES, "", TWIN)) == "Bound";
        until(&bench, SETTLED, "the other one has its claim", is_bound).await;
        sleep(Duration::from_secs(3)).await;
        let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert!(refused.message().contains("PersistentVolume twin"), "{refused}");
        let claim = leaf(&bench, CLAIM).unwrap();
        assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// It tells that the one is gone before it tells of the other one.
#[test]
fn leaf_is_not_let_go_from_under_a_volume_that_calls_its_member_otherwise_also_where_the_leaders_watch_is_behind() {
    virtual_time::run(1, async {
        let bench = whose_watch_of_the_host_is_behind().await;
        has_alias(&bench).await;
        let caller = provisioned(&bench, retained()).await;
        sleep(Duration::from_secs(10)).await;
        let was = Value::clone(&bench.host.get(VOLUMES, "", caller.volume()).unwrap());
        release(&bench, &caller).await;
        lock(&bench.guard.history).let_go(caller.volume());
        bench.host.delete(VOLUMES, "", caller.volume()).unwrap();
        sleep(Duration::from_secs(5)).await;
        make_twin_of(&bench, was, &caller.handle().unwrap().replacen("m0/", "alias/", 1));
        let is_bound = || phase(bench.host.get(VOLUMES, "", TWIN)) == "Bound";
        until(&bench, SETTLED, "the other one has its claim", is_bound).await;
        sleep(SETTLED).await;
        let claim = leaf(&bench, CLAIM);
        let stays = claim.is_some_and(|claim| claim["metadata"]["deletionTimestamp"].is_null());
        assert!(stays, "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Then the versions of a Lease say nothing of those of volumes.
#[test]
fn watch_is_not_taken_for_one_that_is_behind_where_the_host_keeps_its_leases_in_an_etcd_of_their_own() {
    virtual_time::run(1, async {
        let (cluster, mut inside) = (Cluster::new("host", 1), JoinSet::new());
        let (host, volumes) = (connected(&cluster, "first").await.unwrap(), Arc::<HostVolumes>::default());
        let mut lease = Recent::default();
        lease.note("1000000");
        let (restored, leads, recent) = (watch::channel(()).1, watch::channel(true).1, watch::channel(lease).1);
        let followed = Arc::clone(&volumes);
        inside.spawn(async move { keep(&host, &followed, restored, leads, &recent).await });
        sleep(Duration::from_secs(5)).await;
        assert!(!volumes.heard_lately(), "nothing has happened");
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "another.example.org", "volumeHandle": "another"}});
        cluster.create(VOLUMES, json!({"metadata": {"name": "another"}, "spec": spec})).unwrap();
        sleep(Duration::from_secs(1)).await;
        assert!(volumes.heard_lately());
    });
}

/// It has told that the one is to go, and dies before there is the other one. What was asked for first, the member has refused.
#[test]
fn removal_that_is_asked_for_again_waits_for_a_volume_that_was_made_since_the_leaders_watch_has_died() {
    for told in 0..6 {
        virtual_time::run(1, async {
            let bench = Bench::new(1, 1, &fixture::steady(Duration::from_millis(100))).await;
            bench.guard.set_fate(move |_, at, asked| match (at, asked.verb, asked.resource.as_str()) {
                (0, Verb::Watch, VOLUMES) => Action::Silence(told),
                (1, Verb::Delete, "persistentvolumeclaims") => Action::Answer { code: 403, reason: "Forbidden" },
                _ => Action::Pass,
            });
            bench.start();
            bench.serves().await;
            sleep(Duration::from_secs(1)).await;
            let caller = provisioned(&bench, Script::new(CLAIM)).await;
            release(&bench, &caller).await;
            caller.delete(caller.handle().unwrap()).await.unwrap_err();
            sleep(Duration::from_secs(30)).await;
            make_twin(&bench, &caller);
            let is_bound = || phase(bench.host.get(VOLUMES, "", TWIN)) == "Bound";
            until(&bench, SETTLED, "the other one has its claim", is_bound).await;
            bench.guard.heal();
            let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Aborted, "{told}: {refused}");
            assert!(refused.message().contains("PersistentVolume twin"), "{told}: {refused}");
            let claim = leaf(&bench, CLAIM).unwrap();
            assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{told}: {claim}");
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// Who asks for its removal is believed for two seconds, and no longer where it takes longer to be told of others.
#[test]
fn volume_that_is_retained_while_others_of_its_handle_are_looked_for_is_not_removed() {
    virtual_time::run(1, async {
        let bench = led_by_another().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        release(&bench, &caller).await;
        bench.guard.set_fate(|_, at, asked| match (at, asked.verb, asked.resource.as_str()) {
            (0, Verb::List, VOLUMES) => Action::Delay(Duration::from_secs(3)),
            (1, Verb::Patch, VOLUMES) if asked.client == "second" => Action::Answer { code: 403, reason: "Forbidden" },
            _ => Action::Pass,
        });
        let changes_his_mind = async {
            sleep(Duration::from_secs(1)).await;
            caller.set_policy("Retain");
        };
        let (refused, ()) = tokio::join!(caller.delete(caller.handle().unwrap()), changes_his_mind);
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert!(refused.message().contains("is retained or in use again"), "{refused}");
        let claim = leaf(&bench, CLAIM).unwrap();
        assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn data_is_kept_for_both_volumes_also_where_somebody_has_taken_our_finalizer_off_its_leaf_claim() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        let lets_go = |claim: &mut Value| claim["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, lets_go).unwrap();
        has_twin(&bench, &caller).await;
    });
}

#[test]
fn both_volumes_of_one_handle_say_that_their_leaf_is_gone() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        let unhold = |object: &mut Value| object["metadata"]["finalizers"] = json!([]);
        let uid = text(&leaf(&bench, CLAIM).unwrap(), "/metadata/uid").to_owned();
        lock(&bench.guard.history).deleted_by_people(&uid);
        bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, unhold).unwrap();
        bench.members[0].delete("persistentvolumeclaims", SHOP, CLAIM).unwrap();
        let is_gone = || leaf(&bench, CLAIM).is_none() && policy(&bench, &caller).is_empty();
        until(&bench, SETTLED, "the member removes it", is_gone).await;
        make_twin(&bench, &caller);
        let say = || events(&bench).matches("LeafLost: ").count() >= 2;
        until(&bench, Duration::from_mins(15), "both say so", say).await;
    });
}

/// Nobody can tell for which of both it would be recreated.
#[test]
fn leaf_that_somebody_deletes_keeps_its_data_and_waits_until_its_handle_leads_to_one_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        has_twin(&bench, &caller).await;
        let uid = delete_leaf_claim(&bench, CLAIM);
        sleep(SETTLED).await;
        assert_eq!(text(&leaf(&bench, CLAIM).unwrap(), "/metadata/uid"), uid, "our finalizer holds it");
        bench.host.delete("persistentvolumeclaims", SHOP, TWIN).unwrap();
        let unhold = |volume: &mut Value| volume["metadata"]["finalizers"] = json!([]);
        bench.host.change(VOLUMES, "", TWIN, unhold).unwrap();
        bench.host.delete(VOLUMES, "", TWIN).unwrap();
        let is_recreated = || phase(leaf(&bench, CLAIM)) == "Bound" && events(&bench).contains("LeafHealed: ");
        until(&bench, SETTLED, "it is recreated", is_recreated).await;
        assert_eq!(text(&leaf(&bench, CLAIM).unwrap(), "/spec/volumeName"), caller.leaf_volume().unwrap());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Kubernetes makes one for all volumes with one handle, by the name of the first.
fn attach(bench: &Bench, caller: &Caller) {
    let attachment = json!({
        "metadata": {"name": "csi-0", "annotations": {"csi.alpha.kubernetes.io/node-id": caller.node()}},
        "spec": {
            "attacher": "kosmos.csi.io", "nodeName": "kosmos-m0",
            "source": {"persistentVolumeName": caller.volume()},
        },
    });
    bench.host.create(ATTACHMENTS, attachment).unwrap();
}

#[test]
fn attachment_of_a_volume_whose_claim_has_gone_stays_while_another_one_with_its_handle_is_wanted() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        make_twin(&bench, &caller);
        attach(&bench, &caller);
        release(&bench, &caller).await;
        sleep(Duration::from_mins(15)).await;
        let is_there = || bench.host.get(ATTACHMENTS, "", "csi-0").is_some();
        assert!(is_there(), "{}", bench.guard.trace().join("\n"));
        bench.host.delete("persistentvolumeclaims", SHOP, TWIN).unwrap();
        until(&bench, Duration::from_mins(30), "nobody wants it any more, and it goes", || !is_there()).await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// By which that is not known for minutes.
#[test]
fn attachment_stays_also_where_the_leaders_watch_had_died_when_the_other_volume_was_made() {
    for told in 0..6 {
        virtual_time::run(1, async {
            let bench = whose_watch_of_the_host_dies(told).await;
            let caller = provisioned(&bench, Script::new(CLAIM)).await;
            attach(&bench, &caller);
            release(&bench, &caller).await;
            make_twin(&bench, &caller);
            let is_bound = || phase(bench.host.get(VOLUMES, "", TWIN)) == "Bound";
            until(&bench, SETTLED, "the other one has its claim", is_bound).await;
            sleep(Duration::from_mins(4)).await;
            assert!(bench.host.get(ATTACHMENTS, "", "csi-0").is_some(), "{told}: {}", bench.guard.trace().join("\n"));
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}
