//! Which member is which cluster, by the record in the host: looked up for many at once, and never by what it said before.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use domain::error::{Error, Result};
use futures::future::join_all;
use host::{
    Host,
    pins::{Pin, Pinning, adopt},
};
use serde_json::{Value, json};
use simulate::{Cluster, faults::Action};
use tokio::time::sleep;
use tower::ServiceExt;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE},
    fixture,
    reclaim::until,
    virtual_time,
};

const MAP: &str = "kosmos-csi-members";
const HERE: &str = "5d1c8c1e-0000-4000-8000-000000000001";
const ELSEWHERE: &str = "5d1c8c1e-0000-4000-8000-000000000002";
const FORMER_HOST: &str = "5d1c8c1e-0000-4000-8000-000000000003";
/// From an answer of the host to who asked.
const SLOW: Duration = Duration::from_millis(100);
const MANY: usize = 50;

fn host() -> Cluster {
    let host = Cluster::new("host", 1);
    host.create("namespaces", json!({"metadata": {"name": DRIVER_NAMESPACE}})).unwrap();
    host
}

/// An answer of the host comes so much later, and tells what was there when it was given.
async fn replica(host: &Cluster, name: &str, hears_after: Duration) -> Arc<Pinning> {
    let service = host.service(name).then(move |answered| async move {
        sleep(hears_after).await;
        answered
    });
    let client = kube::Client::new(service, "default");
    Arc::new(Pinning::new(Host::connect(client, DRIVER_NAMESPACE.to_owned()).await.unwrap()))
}

fn name(number: usize) -> String {
    format!("m{number}")
}

/// Of which one replica hears.
fn cluster(number: usize, replica: usize) -> String {
    format!("5d1c8c1e-0000-4000-8000-{replica:04}{number:08}")
}

async fn pin_many(pinning: &Pinning, replica: usize) -> Vec<Result<Pin>> {
    join_all((0..MANY).map(async |number| pinning.pin(&name(number), &cluster(number, replica)).await)).await
}

fn record(host: &Cluster) -> Value {
    host.get("configmaps", DRIVER_NAMESPACE, MAP).unwrap()["data"].clone()
}

/// Reads and writes of the record since it was begun to count.
fn asked(host: &Cluster) -> (usize, usize) {
    let log = host.faults().log();
    let of_it: Vec<_> = log.iter().filter(|asked| asked.resource == "configmaps" && asked.name == MAP).collect();
    let writes = of_it.iter().filter(|asked| asked.verb.writes()).count();
    (of_it.len() - writes, writes)
}

#[test]
fn what_was_read_before_a_member_said_who_it_is_does_not_count_for_it() {
    virtual_time::run(1, async {
        let host = host();
        let pinning = replica(&host, "driver", SLOW).await;
        assert_eq!(pinning.pin("m", HERE).await, Ok(Pin::Held));
        // The record has been read for the first one, which has not heard of it, and says something else since.
        let later = async {
            sleep(SLOW / 2).await;
            host.change("configmaps", DRIVER_NAMESPACE, MAP, |map| map["data"]["m"] = json!(ELSEWHERE)).unwrap();
            tokio::join!(pinning.pin("m", HERE), pinning.pin("m", ELSEWHERE), pinning.pin("n", HERE))
        };
        let (first, (same, other, under_another_name)) = tokio::join!(pinning.pin("m", HERE), later);
        assert_eq!(first, Ok(Pin::Held));
        assert_eq!(same, Ok(Pin::Moved { pinned: ELSEWHERE.to_owned() }));
        assert_eq!(other, Ok(Pin::Held));
        assert_eq!(under_another_name, Ok(Pin::Held), "nobody has that cluster any more");
    });
}

#[test]
fn members_that_say_at_once_who_they_are_cost_the_host_two_reads_and_two_writes() {
    virtual_time::run(1, async {
        let host = host();
        let pinning = replica(&host, "driver", SLOW).await;
        host.faults().record(true);
        assert!(pin_many(&pinning, 1).await.iter().all(|pin| *pin == Ok(Pin::Held)));
        assert_eq!(asked(&host), (2, 2), "the first one is not kept waiting, and the others go together");
        assert!(pin_many(&pinning, 1).await.iter().all(|pin| *pin == Ok(Pin::Held)));
        assert_eq!(asked(&host), (4, 2), "nothing is new");
        let wanted: serde_json::Map<_, _> = (0..MANY).map(|at| (name(at), json!(cluster(at, 1)))).collect();
        assert_eq!(record(&host), Value::Object(wanted));
    });
}

#[test]
fn members_that_come_one_after_the_other_have_the_record_read_a_few_times_in_a_second() {
    virtual_time::run(1, async {
        let host = host();
        let pinning = replica(&host, "driver", Duration::from_millis(1)).await;
        pin_many(&pinning, 1).await;
        host.faults().record(true);
        let (all, between) = (400_u32, Duration::from_millis(5));
        let one_by_one = (0..all).map(|at| {
            let (pinning, number) = (Arc::clone(&pinning), at as usize % MANY);
            async move {
                sleep(between * at).await;
                pinning.pin(&name(number), &cluster(number, 1)).await
            }
        });
        assert!(join_all(one_by_one).await.iter().all(|pin| *pin == Ok(Pin::Held)));
        let (reads, writes) = asked(&host);
        assert!((10..=24).contains(&reads), "{reads} in two seconds");
        assert_eq!(writes, 0);
    });
}

#[test]
fn of_two_replicas_that_pin_names_to_different_clusters_at_once_one_is_told_of_the_other() {
    virtual_time::run(1, async {
        let host = host();
        let (one, other) = (replica(&host, "one", SLOW).await, replica(&host, "other", SLOW).await);
        for pinning in [&one, &other] {
            assert_eq!(pinning.pin("known", HERE).await, Ok(Pin::Held));
        }
        host.faults().record(true);
        let known = [Box::pin(one.pin("known", HERE)), Box::pin(other.pin("known", HERE))];
        // While that is looked up for each, all others gather.
        let (_, first, second) =
            tokio::join!(join_all(known), Box::pin(pin_many(&one, 1)), Box::pin(pin_many(&other, 2)));
        assert_eq!(asked(&host).1, 2, "each had read the record before the other one wrote");
        let record = record(&host);
        for (number, pins) in first.into_iter().zip(second).enumerate() {
            let pinned = record[name(number)].as_str().unwrap().to_owned();
            let told = Ok(Pin::Moved { pinned: pinned.clone() });
            let wanted = if pinned == cluster(number, 1) { (Ok(Pin::Held), told) } else { (told, Ok(Pin::Held)) };
            assert_eq!(pins, wanted, "{number}");
        }
    });
}

#[test]
fn record_that_cannot_be_written_keeps_out_only_members_that_are_new() {
    virtual_time::run(1, async {
        let host = host();
        let pinning = replica(&host, "driver", SLOW).await;
        pin_many(&pinning, 1).await;
        host.faults().set(|asked| {
            if asked.verb.writes() { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        let pins = join_all(
            [("m0", cluster(0, 1)), ("m1", cluster(1, 1)), ("new", HERE.to_owned()), ("m2", cluster(2, 1))]
                .map(async |(name, identity)| pinning.pin(name, &identity).await),
        );
        let pins = pins.await;
        assert!(matches!(pins[2], Err(Error::HostUnreachable(_))), "{pins:?}");
        assert!([0, 1, 3].iter().all(|at| pins[*at] == Ok(Pin::Held)), "{pins:?}");
        assert!(record(&host).get("new").is_none());
    });
}

#[test]
fn members_that_cannot_be_recorded_together_are_told_the_same_each_time_and_of_no_other() {
    virtual_time::run(1, async {
        let host = host();
        let pinning = replica(&host, "driver", SLOW).await;
        assert_eq!(pinning.pin("known", HERE).await, Ok(Pin::Held));
        host.faults().set(|asked| {
            if asked.verb.writes() { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        let told: BTreeSet<String> =
            pin_many(&pinning, 1).await.into_iter().map(|pin| pin.unwrap_err().to_string()).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!((0..MANY).all(|at| !told.iter().any(|told| told.contains(&name(at)))), "{told:?}");
    });
}

#[test]
fn member_that_leaves_while_it_asks_for_others_leaves_none_of_them_without_an_answer() {
    virtual_time::run(1, async {
        let host = host();
        let pinning = replica(&host, "driver", SLOW).await;
        let ask = |name: &'static str, identity: String| {
            let pinning = Arc::clone(&pinning);
            tokio::spawn(async move { pinning.pin(name, &identity).await })
        };
        let first = ask("first", cluster(0, 1));
        tokio::task::yield_now().await;
        let (leaves, stays) = (ask("leaves", cluster(1, 1)), ask("stays", cluster(2, 1)));
        // A read and a write for the first one, and half of a read for the others.
        sleep(SLOW * 5 / 2).await;
        assert!(first.is_finished() && !leaves.is_finished());
        leaves.abort();
        assert_eq!(stays.await.unwrap(), Ok(Pin::Held));
        assert_eq!(record(&host), json!({"first": cluster(0, 1), "stays": cluster(2, 1)}));
    });
}

/// Somebody has deleted it, and no backup of the host is needed for what a driver that runs knows.
#[test]
fn record_that_is_made_again_says_whose_volumes_the_host_has_taken_over() {
    virtual_time::run(1, async {
        let host = host();
        let connected = async || {
            let client = kube::Client::new(host.service("driver"), "default");
            Host::connect(client, DRIVER_NAMESPACE.to_owned()).await.unwrap()
        };
        adopt(&connected().await, FORMER_HOST).await.unwrap();
        let driver = connected().await;
        assert_eq!(driver.id.0, FORMER_HOST);
        host.delete("configmaps", DRIVER_NAMESPACE, MAP).unwrap();
        assert_eq!(Pinning::new(driver).pin("m", HERE).await, Ok(Pin::Held));
        assert_eq!(connected().await.id.0, FORMER_HOST, "the next driver is the same host to its members");
    });
}

/// The record is one object for all, and has room for so much.
#[test]
fn cluster_that_says_something_long_as_its_uid_is_no_member_and_is_not_recorded() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 3, &fixture::steady(SLOW)).await;
        let long = |namespace: &mut Value| namespace["metadata"]["uid"] = json!("f".repeat(1 << 20));
        bench.members[1].change("namespaces", "", "kube-system", long).unwrap();
        bench.start();
        let is = |member: &str, state: &str| {
            let line = format!("kosmos_csi_member_state{{member=\"{member}\",state=\"{state}\"}} 1");
            bench.metrics().contains(&line)
        };
        let all = || is("m0", "ok") && is("m1", "unreachable") && is("m2", "ok");
        until(&bench, Duration::from_secs(10), "two are members", all).await;
        let known: Vec<_> = record(&bench.host).as_object().unwrap().keys().cloned().collect();
        assert_eq!(known, ["m0", "m2"]);
    });
}
