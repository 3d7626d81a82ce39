//! Who keeps what, and who goes with whom: a leaf volume follows the policy of the host's, a leaf claim is let go with the host's,
//! and what was let go is used again. `docs/reclaim.md` has the table of it, and each of its cells is played.

use std::{sync::Arc, time::Duration};

use csi::v1::{self, controller_server::Controller as _};
use serde_json::{Value, json};
use simulate::{faults::Action, text};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock, with_deadline},
    caller::{Caller, Change, Ending, Script},
    crash::{Point, points},
    extent::{ALL, drawn},
    fixture::{self, Planted},
    invariants::{Story, violations},
    people::delete_leaf_claim,
    reclaim_table::{Cell, cells},
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
/// From a change in the host to the same in a member.
const PROMPT: Duration = Duration::from_secs(1);
pub const SETTLED: Duration = Duration::from_secs(90);
pub const CLAIM: &str = "data";

pub async fn bench() -> Arc<Bench> {
    Bench::serving(1, &fixture::steady(STEP)).await
}

pub async fn provisioned(bench: &Arc<Bench>, script: Script) -> Caller {
    let mut caller = Caller::new(bench, script);
    assert_eq!(caller.provision().await, Ending::Provisioned);
    sleep(Duration::from_secs(5)).await;
    caller
}

pub fn retained() -> Script {
    Script { retain: true, ..Script::new(CLAIM) }
}

pub fn leaf(bench: &Bench, name: &str) -> Option<Arc<Value>> {
    bench.members[0].get("persistentvolumeclaims", SHOP, name)
}

pub fn leaf_volume(bench: &Bench, caller: &Caller) -> Option<Arc<Value>> {
    bench.members[0].get("persistentvolumes", "", caller.leaf_volume().unwrap())
}

pub fn policy(bench: &Bench, caller: &Caller) -> String {
    leaf_volume(bench, caller)
        .map(|volume| text(&volume, "/spec/persistentVolumeReclaimPolicy").to_owned())
        .unwrap_or_default()
}

pub fn phase(object: Option<Arc<Value>>) -> String {
    object.map(|object| text(&object, "/status/phase").to_owned()).unwrap_or_default()
}

pub fn events(bench: &Bench) -> String {
    let ours = |event: &Arc<Value>| text(event, "/source/component") == "kosmos.csi.io";
    let told = |event: Arc<Value>| format!("{}: {}\n", text(&event, "/reason"), text(&event, "/message"));
    bench.host.list("events").into_iter().filter(ours).map(told).collect()
}

/// How long it took, or the driver's trace where it did not come.
pub async fn until(bench: &Bench, within: Duration, what: &str, mut so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < within, "not within {within:?}: {what}\n{}", bench.guard.trace().join("\n"));
        sleep(STEP / 10).await;
    }
    began.elapsed()
}

pub fn wrong(bench: &Bench, caller: &Caller, deleted: bool) -> Vec<String> {
    let story = Story { caller: caller.clone(), ending: Ending::Provisioned, deleted };
    violations(bench, &[story], &Planted::default())
}

fn all_is_well(bench: &Bench, caller: &Caller, deleted: bool) {
    let wrong = wrong(bench, caller, deleted);
    assert!(wrong.is_empty(), "{}\n{wrong:#?}", bench.guard.trace().join("\n"));
}

pub async fn released(bench: &Bench, caller: &mut Caller) {
    caller.delete_claim();
    timeout(SETTLED, caller.reclaim()).await.unwrap();
    until(bench, PROMPT * 2, "the leaf claim is let go", || leaf(bench, caller.claim()).is_none()).await;
}

/// The administrator does not want the data any more.
pub async fn ends_well(bench: &Bench, mut caller: Caller) {
    caller.set_policy("Delete");
    caller.delete_claim();
    timeout(SETTLED, caller.reclaim()).await.unwrap();
    sleep(SETTLED).await;
    all_is_well(bench, &caller, true);
    assert!(bench.storages[0].volumes().is_empty(), "{:?}", bench.storages[0].volumes());
}

#[test]
fn leaf_volume_follows_the_policy_of_the_hosts_at_once_and_back() {
    for (leaf_class, before) in [(fixture::NOW, "Delete"), (fixture::KEPT, "Retain")] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let caller = provisioned(&bench, Script { leaf_class, ..Script::new(CLAIM) }).await;
            let marked = |bench: &Bench| {
                leaf_volume(bench, &caller)
                    .is_some_and(|volume| volume["metadata"]["annotations"]["kosmos.csi.io/policy-before"] == before)
            };
            assert_eq!(policy(&bench, &caller), before);
            caller.set_policy("Retain");
            until(&bench, PROMPT, "it is retained", || policy(&bench, &caller) == "Retain" && marked(&bench)).await;
            // Somebody in the member knows better.
            let worse = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
            bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), worse).unwrap();
            until(&bench, PROMPT, "it is retained again", || policy(&bench, &caller) == "Retain").await;
            caller.set_policy("Delete");
            until(&bench, PROMPT, "it is as it was", || policy(&bench, &caller) == before && !marked(&bench)).await;
            ends_well(&bench, caller).await;
        });
    }
}

#[test]
fn volume_that_is_retained_from_the_start_is_so_in_the_member() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, retained());
        assert_eq!(caller.provision().await, Ending::Provisioned);
        until(&bench, PROMPT, "it is retained", || policy(&bench, &caller) == "Retain").await;
        let driver = bench.driver_name().unwrap();
        let sent = bench.guard.sent_by(&driver);
        sleep(Duration::from_mins(4)).await;
        assert!(bench.guard.sent_by(&driver) - sent < 10, "it is at rest: {}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

#[test]
fn released_volume_costs_nothing_and_its_name_is_free() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        released(&bench, &mut caller).await;
        all_is_well(&bench, &caller, true);
        assert_eq!(phase(leaf_volume(&bench, &caller)), "Released");
        assert!(events(&bench).contains("LeafReleased: "), "{}", events(&bench));
        let other = provisioned(&bench, Script::new(CLAIM)).await;
        assert_ne!(other.handle(), caller.handle());
        let driver = bench.driver_name().unwrap();
        let sent = bench.guard.sent_by(&driver);
        sleep(Duration::from_mins(4)).await;
        assert!(bench.guard.sent_by(&driver) - sent < 10, "{}", bench.guard.trace().join("\n"));
        // The other claim has its name now, and is not the one that goes.
        caller.set_policy("Delete");
        timeout(SETTLED, caller.reclaim()).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        assert!(leaf_volume(&bench, &caller).is_none());
        assert_eq!(phase(leaf(&bench, CLAIM)), "Bound");
        all_is_well(&bench, &other, false);
    });
}

#[test]
fn released_volume_is_used_again_by_its_handle_under_any_name() {
    for (name, leaf_class) in [(CLAIM, fixture::NOW), ("again", fixture::NOW), ("again", fixture::LATER)] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut caller = provisioned(&bench, Script { leaf_class, ..retained() }).await;
            // Twice: what was recreated is as good as what was made first.
            for round in 0..2 {
                released(&bench, &mut caller).await;
                sleep(Duration::from_mins(10)).await;
                let name = if round == 0 { name.to_owned() } else { format!("{name}-once-more") };
                caller.claim_again(&name);
                until(&bench, PROMPT * 2, "it is there again", || phase(leaf(&bench, &name)) == "Bound").await;
                sleep(PROMPT * 2).await;
                all_is_well(&bench, &caller, false);
                let claim = leaf(&bench, &name).unwrap();
                assert_eq!(claim["metadata"]["annotations"]["kosmos.csi.io/claim"], format!("{SHOP}/{name}"));
                caller.change(Change::Publish).await;
                assert_eq!(listed(&bench).await, [caller.handle().unwrap()]);
                caller.change(Change::Unpublish).await;
                caller.change(Change::Expand).await;
            }
            assert_eq!(policy(&bench, &caller), "Retain");
            ends_well(&bench, caller).await;
        });
    }
}

pub async fn listed(bench: &Bench) -> Vec<String> {
    let request = with_deadline(v1::ListVolumesRequest::default());
    let listed = bench.call(|driver| async move { driver.list_volumes(request).await }).await.unwrap();
    listed.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect()
}

#[test]
fn leaf_of_a_volume_that_is_used_again_comes_back_after_it_was_deleted() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        released(&bench, &mut caller).await;
        caller.claim_again("again");
        until(&bench, PROMPT * 2, "it is there again", || phase(leaf(&bench, "again")) == "Bound").await;
        sleep(PROMPT * 2).await;
        delete_leaf_claim(&bench, "again");
        sleep(Duration::from_secs(20)).await;
        all_is_well(&bench, &caller, false);
        ends_well(&bench, caller).await;
    });
}

#[test]
fn foreign_claim_of_the_wanted_name_is_not_touched_and_told_of() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        released(&bench, &mut caller).await;
        let mut planted = Planted::default();
        planted.squatter(&bench, 0, "again");
        caller.claim_again("again");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(planted.touched(&bench), Vec::<String>::new());
        assert!(events(&bench).contains("LeafStuck: ") && events(&bench).contains("shop/again"), "{}", events(&bench));
        let refused = caller.publish("virtual/m0").await.unwrap_err();
        assert!(refused.code() == Code::Aborted && refused.message().contains("no leaf claim"), "{refused}");
        bench.members[0].delete("persistentvolumeclaims", SHOP, "again").unwrap();
        until(&bench, SETTLED, "it is there again", || {
            leaf(&bench, "again").is_some_and(|leaf| text(&leaf, "/status/phase") == "Bound")
        })
        .await;
        sleep(PROMPT * 2).await;
        all_is_well(&bench, &caller, false);
    });
}

#[test]
fn volume_that_a_node_has_keeps_its_leaf_claim() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        caller.change(Change::Publish).await;
        caller.delete_claim();
        sleep(Duration::from_secs(20)).await;
        is_let_go_by_its_node(&bench, &mut caller).await;
    });
}

/// And not before.
async fn is_let_go_by_its_node(bench: &Bench, caller: &mut Caller) {
    assert_eq!(phase(leaf(bench, CLAIM)), "Bound");
    caller.change(Change::Unpublish).await;
    until(bench, SETTLED, "it is let go", || leaf(bench, CLAIM).is_none()).await;
    caller.reclaim().await;
    all_is_well(bench, caller, true);
}

/// Its policy is changed and its claim deleted in one moment: nobody sees that it is retained while a claim has it.
#[test]
fn volume_that_a_node_has_when_its_claim_goes_is_retained_at_once() {
    for (leaf_class, before) in [(fixture::NOW, "Delete"), (fixture::KEPT, "Retain")] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut caller = provisioned(&bench, Script { leaf_class, ..Script::new(CLAIM) }).await;
            caller.change(Change::Publish).await;
            caller.set_policy("Retain");
            caller.delete_claim();
            let is_kept = || {
                let volume = leaf_volume(&bench, &caller).unwrap();
                let was = &volume["metadata"]["annotations"]["kosmos.csi.io/policy-before"];
                policy(&bench, &caller) == "Retain" && was == before
            };
            until(&bench, PROMPT, "it is retained", is_kept).await;
            is_let_go_by_its_node(&bench, &mut caller).await;
        });
    }
}

#[test]
fn leaf_claim_is_let_go_also_where_the_hosts_volume_went_while_nobody_watched() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, retained()).await;
        bench.kill();
        caller.delete_claim();
        bench.host.delete("persistentvolumes", "", caller.volume()).unwrap();
        lock(&bench.guard.history).let_go(caller.volume());
        sleep(Duration::from_secs(5)).await;
        assert!(bench.host.get("persistentvolumes", "", caller.volume()).is_none());
        bench.start();
        until(&bench, Duration::from_mins(2), "it is let go", || leaf(&bench, CLAIM).is_none()).await;
        sleep(SETTLED).await;
        assert_eq!(
            (phase(leaf_volume(&bench, &caller)), policy(&bench, &caller)),
            ("Released".into(), "Retain".into())
        );
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// A story of one volume, and the driver killed at one of its requests.
#[derive(Clone, Copy, Debug)]
enum Tale {
    Retained,
    NotRetained,
    Released,
    UsedAgain,
    UsedElsewhere,
    Removed,
}

impl Tale {
    const ALL: [Self; 6] =
        [Self::Retained, Self::NotRetained, Self::Released, Self::UsedAgain, Self::UsedElsewhere, Self::Removed];

    async fn begin(self, bench: &Arc<Bench>, leaf_class: &'static str) -> Caller {
        let retain = !matches!(self, Self::Retained);
        let mut caller = provisioned(bench, Script { leaf_class, retain, ..Script::new(CLAIM) }).await;
        sleep(Duration::from_secs(5)).await;
        if matches!(self, Self::UsedAgain | Self::UsedElsewhere | Self::Removed) {
            released(bench, &mut caller).await;
            sleep(Duration::from_secs(5)).await;
        }
        caller
    }

    async fn happen(self, caller: &mut Caller) {
        match self {
            Self::Retained => caller.set_policy("Retain"),
            Self::NotRetained => caller.set_policy("Delete"),
            Self::Released => caller.delete_claim(),
            Self::UsedAgain => caller.claim_again(CLAIM),
            Self::UsedElsewhere => caller.claim_again("again"),
            Self::Removed => {
                caller.set_policy("Delete");
                caller.reclaim().await;
            }
        }
    }

    fn is_deleted(self) -> bool {
        matches!(self, Self::Released | Self::Removed)
    }

    fn wanted(self, bench: &Bench, caller: &Caller) -> bool {
        let before = if caller.script().leaf_class == fixture::KEPT { "Retain" } else { "Delete" };
        match self {
            Self::Retained => policy(bench, caller) == "Retain",
            Self::NotRetained => policy(bench, caller) == before,
            _ => true,
        }
    }
}

fn killed_at(tale: Tale, leaf_class: &'static str, point: Option<Point>) -> (u64, Vec<String>) {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = tale.begin(&bench, leaf_class).await;
        let sent = bench.guard.sent();
        let killer = point.map(|point| tokio::spawn(point.strike(Arc::clone(&bench))));
        tale.happen(&mut caller).await;
        sleep(Duration::from_secs(8)).await;
        let requests = bench.guard.sent() - sent;
        let began = Instant::now();
        let bad = |caller: &Caller| {
            let mut bad = wrong(&bench, caller, tale.is_deleted());
            bad.extend((!tale.wanted(&bench, caller)).then(|| format!("the policy is {}", policy(&bench, caller))));
            bad
        };
        while !bad(&caller).is_empty() && began.elapsed() < SETTLED {
            sleep(STEP).await;
        }
        let mut found = bad(&caller);
        bench.guard.heal();
        killer.iter().for_each(tokio::task::JoinHandle::abort);
        if found.is_empty() && !matches!(tale, Tale::Removed) {
            caller.set_policy("Delete");
            caller.delete_claim();
            caller.reclaim().await;
            sleep(SETTLED).await;
            found = wrong(&bench, &caller, true);
        }
        if !found.is_empty() {
            found.insert(0, bench.guard.trace().join("\n"));
        }
        (requests, found)
    })
}

#[test]
fn nothing_is_lost_wherever_the_driver_is_killed_while_it_follows_the_host() {
    for leaf_class in [fixture::NOW, fixture::KEPT] {
        for tale in Tale::ALL {
            let (requests, wrong) = killed_at(tale, leaf_class, None);
            assert!(wrong.is_empty() && requests >= 3, "{tale:?} {requests} {wrong:#?}");
            let bad = virtual_time::each(virtual_time::THREADS, drawn(points(requests), ALL), |point| {
                let (_, wrong) = killed_at(tale, leaf_class, Some(point));
                (!wrong.is_empty()).then(|| format!("{tale:?} {point:?}: {}", wrong.join("\n")))
            });
            assert!(bad.is_empty(), "{} of {}, such as {}", bad.len(), requests * 3, bad[0]);
        }
    }
}

/// The administrator changes his mind at every moment of letting go, and of recreating.
#[test]
fn whoever_changes_his_mind_loses_nothing() {
    let cases = (1..61_u64).flat_map(|moment| [true, false].map(|again| (moment, again)));
    let bad = virtual_time::each(virtual_time::THREADS, cases.collect(), |(moment, again)| {
        virtual_time::run(moment, async {
            let bench = bench().await;
            let mut caller = provisioned(&bench, retained()).await;
            if again {
                released(&bench, &mut caller).await;
                caller.claim_again("again");
            } else {
                caller.delete_claim();
            }
            bench.guard.set_fate(|number, _, _| Action::Delay(Duration::from_millis(number * 37 % 300)));
            sleep(Duration::from_millis(moment * 50)).await;
            if again {
                caller.delete_claim();
            } else {
                let is_released = || {
                    let volume = bench.host.get("persistentvolumes", "", caller.volume());
                    volume.is_some_and(|volume| text(&volume, "/status/phase") == "Released")
                };
                until(&bench, SETTLED, "the host's volume is released", is_released).await;
                caller.claim_again("again");
            }
            sleep(SETTLED).await;
            bench.guard.heal();
            let mut bad = wrong(&bench, &caller, again);
            if !again && phase(leaf(&bench, "again")) != "Bound" {
                bad.push("its leaf claim has another name".to_owned());
            }
            caller.set_policy("Delete");
            caller.delete_claim();
            caller.reclaim().await;
            sleep(SETTLED).await;
            bad.extend(wrong(&bench, &caller, true));
            (!bad.is_empty())
                .then(|| format!("{moment} {again}: {}\n{}", bench.guard.trace().join("\n"), bad.join("\n")))
        })
    });
    let which: Vec<&str> = bad.iter().filter_map(|bad| bad.split(':').next()).collect();
    assert!(bad.is_empty(), "{} of 120, {which:?} such as {}", bad.len(), bad[0]);
}

/// How host volume, leaf claim, leaf volume and data end.
async fn seen(cell: &Cell) -> [String; 4] {
    let bench = bench().await;
    let leaf_class = if cell.leaf_class == "Retain" { fixture::KEPT } else { fixture::NOW };
    let mut caller =
        provisioned(&bench, Script { leaf_class, retain: cell.policy == "Retain", ..Script::new(CLAIM) }).await;
    if let Some(policy) = cell.patched.strip_prefix("to ") {
        caller.set_policy(policy);
        sleep(PROMPT * 2).await;
    }
    let before = text(&leaf(&bench, CLAIM).unwrap(), "/metadata/uid").to_owned();
    let member = &bench.members[0];
    match cell.first.as_str() {
        "host claim" => caller.delete_claim(),
        "host volume, then its claim" => {
            bench.host.delete("persistentvolumes", "", caller.volume()).unwrap();
            sleep(Duration::from_secs(10)).await;
            assert_eq!(phase(leaf(&bench, CLAIM)), "Bound", "its claim holds it");
            // Nothing of the host tells of it from now on.
            lock(&bench.guard.history).let_go(caller.volume());
            caller.delete_claim();
        }
        "leaf claim" => {
            lock(&bench.guard.history).deleted_by_people(&before);
            member.delete("persistentvolumeclaims", SHOP, CLAIM).unwrap();
        }
        "leaf volume" => member.delete("persistentvolumes", "", caller.leaf_volume().unwrap()).unwrap(),
        other => panic!("nobody knows how to delete the {other}"),
    }
    if caller.claim_was_deleted() {
        timeout(SETTLED, caller.reclaim()).await.unwrap();
    }
    sleep(Duration::from_secs(80)).await;
    assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    let or_gone = |told: String| if told.is_empty() { "gone".to_owned() } else { told };
    let claim = leaf(&bench, CLAIM)
        .map_or("gone", |claim| if text(&claim, "/metadata/uid") == before { "as it was" } else { "recreated" });
    let volume = leaf_volume(&bench, &caller).map(|volume| {
        let doomed = volume.pointer("/metadata/deletionTimestamp").is_some();
        let how = if doomed { "Terminating" } else { text(&volume, "/status/phase") };
        format!("{how}, {}", policy(&bench, &caller))
    });
    let data = if bench.storages[0].volumes().is_empty() { "gone" } else { "kept" };
    [
        or_gone(phase(bench.host.get("persistentvolumes", "", caller.volume()))),
        claim.to_owned(),
        or_gone(volume.unwrap_or_default()),
        data.to_owned(),
    ]
}

#[test]
fn every_cell_of_the_table_is_as_the_page_says() {
    let wrong = virtual_time::each(virtual_time::THREADS, cells(), |cell| {
        let seen = virtual_time::run(1, seen(&cell));
        (seen != cell.ends).then(|| format!("{cell:?}: seen {seen:?}"))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
