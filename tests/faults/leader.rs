//! Two replicas: one does the work in the background, and the other takes over when it dies, freezes or loses the lease.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP},
    caller::{Caller, Change, Ending, Script},
    fixture::{self, Planted},
    guard::LEASES,
    invariants::{NOT_AT_WORK, Story, violations},
    people::delete_leaf_claim,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const VOLUMES: &str = "persistentvolumes";
/// More than two pages of them.
const MANY: usize = 1200;
/// From the leader's last word to the next leader.
const TAKEN_OVER: Duration = Duration::from_secs(20);
const HEALED: Duration = Duration::from_mins(2);
/// The leader has said two seconds ago at most that it lives, or the other one has heard it two seconds later.
const LEADS: Duration = Duration::from_millis(12_200);
/// From then on: who leads looks at all that is there.
const MARKED: Duration = Duration::from_secs(2);

async fn bench() -> Arc<Bench> {
    let bench = Bench::new(1, 1, &fixture::steady(STEP)).await;
    bench.start();
    bench.serves().await;
    sleep(Duration::from_secs(3)).await;
    bench.start_second("second");
    sleep(Duration::from_secs(10)).await;
    bench
}

fn holder(bench: &Bench) -> String {
    let lease = bench.host.get(LEASES, DRIVER_NAMESPACE, "kosmos-csi-leader").unwrap();
    text(&lease, "/spec/holderIdentity").to_owned()
}

async fn healed(bench: &Bench, caller: &Caller) {
    let wrong = || {
        let story = Story { caller: caller.clone(), ending: Ending::Provisioned, deleted: false };
        let mut wrong = violations(bench, &[story], &Planted::default());
        // Of two replicas the other one may be at work.
        wrong.retain(|wrong| wrong != NOT_AT_WORK);
        wrong
    };
    let began = Instant::now();
    while !wrong().is_empty() && began.elapsed() < HEALED {
        sleep(STEP).await;
    }
    assert!(wrong().is_empty(), "{}\n{:#?}", bench.guard.trace().join("\n"), wrong());
}

/// Counts lists of the host's volumes; of one process, where that is named. The first few are refused.
fn lists(bench: &Bench, client: Option<&str>, refused: u64) -> Arc<AtomicU64> {
    let (lists, client) = (Arc::<AtomicU64>::default(), client.map(str::to_owned));
    let count = Arc::clone(&lists);
    bench.guard.set_fate(move |_, at, asked| {
        let is_meant = client.as_ref().is_none_or(|client| asked.client == *client);
        let is_list = at == 0 && asked.verb == Verb::List && asked.resource == VOLUMES;
        if is_list && is_meant && count.fetch_add(1, Ordering::Relaxed) < refused {
            return Action::Answer { code: 503, reason: "ServiceUnavailable" };
        }
        Action::Pass
    });
    lists
}

#[test]
fn volumes_of_the_host_are_listed_in_one_piece_and_in_pages_where_that_has_failed() {
    for (refused, expected) in [(0, 1), (1, 1 + 3)] {
        virtual_time::run(1, async {
            let bench = Bench::new(1, 1, &fixture::steady(STEP)).await;
            for number in 0..MANY {
                bench.host.create(VOLUMES, fixture::volume(&format!("pv-{number}"), &json!({}))).unwrap();
            }
            let lists = lists(&bench, None, refused);
            bench.start();
            bench.serves().await;
            sleep(TAKEN_OVER).await;
            assert_eq!(lists.load(Ordering::Relaxed), expected, "{refused} refused");
        });
    }
}

#[test]
fn volumes_of_a_host_that_has_forgotten_where_each_watch_begins_are_not_listed_in_circles() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 1, &fixture::steady(STEP)).await;
        let lists = Arc::<AtomicU64>::default();
        let count = Arc::clone(&lists);
        bench.guard.set_fate(move |_, at, asked| match (at, asked.verb, asked.resource.as_str()) {
            (0, Verb::Watch, VOLUMES) => Action::Answer { code: 410, reason: "Expired" },
            (0, Verb::List, VOLUMES) => {
                count.fetch_add(1, Ordering::Relaxed);
                Action::Pass
            }
            _ => Action::Pass,
        });
        bench.start();
        bench.serves().await;
        sleep(Duration::from_mins(5)).await;
        let lists = lists.load(Ordering::Relaxed);
        assert!((20..=80).contains(&lists), "{lists} in five minutes");
    });
}

#[test]
fn replica_that_takes_over_has_followed_the_hosts_volumes_and_lists_none() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let (first, lists) = (holder(&bench), lists(&bench, Some("second"), 0));
        bench.kill();
        sleep(TAKEN_OVER).await;
        assert_ne!(holder(&bench), first);
        assert_eq!(lists.load(Ordering::Relaxed), 0, "{}", bench.guard.trace().join("\n"));
        delete_leaf_claim(&bench, "data");
        healed(&bench, &caller).await;
    });
}

/// How long it took.
async fn until(so: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < HEALED, "it does not come");
        sleep(STEP).await;
    }
    began.elapsed()
}

fn is_marked(bench: &Bench) -> bool {
    let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
    leaf["metadata"]["annotations"]["kosmos.csi.io/had-pv"].is_string()
}

/// Nobody waits for the mark of a volume that has just come; here its leader has died since.
#[test]
fn volume_that_was_made_when_the_leader_died_is_marked_as_soon_as_another_one_leads() {
    for seed in 1..=20 {
        virtual_time::run(seed, async {
            let bench = bench().await;
            sleep(STEP * 2 * u32::try_from(seed).unwrap()).await;
            assert_eq!(Caller::new(&bench, Script::new("data")).provision().await, Ending::Provisioned);
            let first = holder(&bench);
            bench.kill();
            assert!(!is_marked(&bench), "there was no time for that");
            let leads = until(|| holder(&bench) != first).await;
            assert!(leads <= LEADS, "seed {seed}: another one leads after {leads:?}");
            let marked = until(|| is_marked(&bench)).await;
            assert!(marked <= MARKED, "seed {seed}: {marked:?}\n{}", bench.guard.trace().join("\n"));
        });
    }
}

/// Its request was carried out, and it does not hear of that for as long as it waits for an answer.
#[test]
fn replica_that_has_taken_the_lease_and_was_not_told_does_not_wait_for_itself() {
    virtual_time::run(1, async {
        let bench = bench().await;
        assert_eq!(Caller::new(&bench, Script::new("data")).provision().await, Ending::Provisioned);
        let count = AtomicU64::new(0);
        bench.guard.set_fate(move |_, at, asked| {
            let takes_it = at == 0 && asked.client == "second" && asked.verb == Verb::Patch && asked.resource == LEASES;
            let is_first = || count.fetch_add(1, Ordering::Relaxed) == 0;
            if takes_it && is_first() { Action::ApplyThenHang } else { Action::Pass }
        });
        bench.kill();
        let (answer, pause) = (Duration::from_secs(4), Duration::from_secs(2));
        let marked = until(|| is_marked(&bench)).await;
        assert!(marked <= LEADS + answer + pause + MARKED, "{marked:?}\n{}", bench.guard.trace().join("\n"));
    });
}

/// Its watch says nothing, as one whose connection is dead.
#[test]
fn replica_that_takes_over_learns_what_its_watch_has_not_told() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(STEP)).await;
        sleep(Duration::from_secs(3)).await;
        let silenced = AtomicU64::new(0);
        bench.guard.set_fate(move |_, at, asked| {
            let is_watch = at == 0 && asked.verb == Verb::Watch && asked.resource == VOLUMES;
            let is_first = || silenced.fetch_add(1, Ordering::Relaxed) == 0;
            if is_watch && asked.client == "second" && is_first() { Action::Silence(0) } else { Action::Pass }
        });
        bench.start_second("second");
        sleep(Duration::from_secs(10)).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        bench.kill();
        sleep(TAKEN_OVER).await;
        delete_leaf_claim(&bench, "data");
        healed(&bench, &caller).await;
    });
}

/// Its watches lie in the future of the host of now, and hear nothing.
#[test]
fn leader_whose_host_was_restored_from_a_backup_reads_all_again() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let backup = bench.host.backup();
        assert_eq!(Caller::new(&bench, Script::new("data")).provision().await, Ending::Provisioned);
        sleep(Duration::from_secs(20)).await;
        bench.host.restore_from(&backup);
        let before = bench.guard.trace().len();
        sleep(TAKEN_OVER + Duration::from_secs(10)).await;
        let trace = bench.guard.trace();
        let is_read = trace[before..].iter().any(|line| line.contains("List persistentvolumes / in host"));
        assert!(is_read, "{}", trace.join("\n"));
    });
}

#[test]
fn lease_is_kept_while_its_holder_lives_and_taken_when_it_is_dead() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let first = holder(&bench);
        sleep(Duration::from_mins(5)).await;
        assert_eq!(holder(&bench), first, "nobody takes it from one who lives");
        bench.kill();
        sleep(TAKEN_OVER).await;
        assert_ne!(holder(&bench), first);
    });
}

/// As where its connection has died, before or after it was carried out.
#[test]
fn leader_one_of_whose_renewals_gets_no_answer_goes_on() {
    for lost in [Action::Hang, Action::ApplyThenHang] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let (first, leader, renewals) = (holder(&bench), bench.driver_name().unwrap(), AtomicU64::new(0));
            let fate = lost.clone();
            bench.guard.set_fate(move |_, at, asked| {
                let is_renewal = at == 0 && asked.verb == Verb::Patch && asked.resource == LEASES;
                let is_lost = is_renewal && asked.client == leader && renewals.fetch_add(1, Ordering::Relaxed) == 0;
                if is_lost { fate.clone() } else { Action::Pass }
            });
            sleep(Duration::from_mins(1)).await;
            assert_eq!(holder(&bench), first, "after {lost:?}: {}", bench.guard.trace().join("\n"));
        });
    }
}

#[test]
fn leader_that_is_cut_off_stops_and_the_other_one_heals() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let (first, leader) = (holder(&bench), bench.driver_name().unwrap());
        // The host does not hear it any more; its member does.
        let cut_off = leader.clone();
        bench.guard.set_fate(
            move |_, at, asked| {
                if at == 0 && asked.client == cut_off { Action::Hang } else { Action::Pass }
            },
        );
        sleep(TAKEN_OVER).await;
        assert_ne!(holder(&bench), first);
        let before = bench.guard.sent_by(&leader);
        sleep(Duration::from_mins(1)).await;
        delete_leaf_claim(&bench, "data");
        healed(&bench, &caller).await;
        let to_members = bench.guard.sent_by(&leader) - before;
        assert_eq!(to_members, 0, "who has lost the lease works on");
    });
}

/// Each believes that it leads, and both heal the same leaf at the same time.
#[test]
fn two_leaders_at_once_do_no_harm() {
    for seed in 0..20 {
        virtual_time::run(seed, async {
            let bench = bench().await;
            let mut caller = Caller::new(&bench, Script::new("data"));
            assert_eq!(caller.provision().await, Ending::Provisioned);
            let leader = bench.driver_name().unwrap();
            let began = Instant::now();
            // What the leader sends to the member is as slow as can be, so that its last steps come when another one leads.
            bench.guard.set_fate(move |number, at, asked| match at {
                0 if asked.client == leader && began.elapsed() > Duration::from_secs(2) => Action::Hang,
                _ if asked.client == leader => Action::Delay(Duration::from_millis(3000 + number * 131 % 900)),
                _ => Action::Delay(Duration::from_millis(number * 37 % 300)),
            });
            sleep(Duration::from_millis(seed * 500)).await;
            delete_leaf_claim(&bench, "data");
            sleep(Duration::from_secs(30)).await;
            bench.guard.heal();
            healed(&bench, &caller).await;
            caller.delete_claim();
            caller.reclaim().await;
            sleep(HEALED).await;
            let story = Story { caller, ending: Ending::Provisioned, deleted: true };
            let wrong = violations(&bench, &[story], &Planted::default());
            assert!(wrong.is_empty(), "seed {seed}: {}\n{wrong:#?}", bench.guard.trace().join("\n"));
        });
    }
}

/// The one that serves never leads, and its watch of the leaf volumes says nothing.
#[test]
fn claim_that_another_replica_recreates_is_on_no_node_that_was_unpublished_meanwhile() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 1, &fixture::steady(STEP)).await;
        bench.guard.set_fate(|_, at, asked| match (asked.verb, asked.resource.as_str()) {
            (_, LEASES) if asked.client == "driver-1" => Action::Hang,
            (Verb::Watch, "persistentvolumes") if at > 0 && asked.client == "driver-1" => Action::Silence(0),
            (Verb::Create, "persistentvolumeclaims") if at > 0 && asked.client != "driver-1" => {
                Action::Delay(STEP * 20)
            }
            _ => Action::Pass,
        });
        bench.start();
        bench.serves().await;
        bench.start_second("second");
        sleep(TAKEN_OVER).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        caller.change(Change::Publish).await;
        let leaf = || bench.members[0].get("persistentvolumeclaims", SHOP, "data");
        delete_leaf_claim(&bench, "data");
        while leaf().is_some() {
            sleep(STEP).await;
        }
        while let Err(status) = caller.unpublish().await {
            assert_eq!(status.code(), Code::Aborted, "{status:?}");
        }
        healed(&bench, &caller).await;
        let published = leaf().unwrap()["metadata"]["annotations"].get("kosmos.csi.io/published").cloned();
        assert!(published.is_none_or(|nodes| nodes == "{}"), "{}", bench.guard.trace().join("\n"));
    });
}
