//! What stands before a member's API servers hands requests to another cluster, which takes the same credentials. Nobody has seen the member
//! silent, so nobody has asked again who answers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use simulate::faults::{Action, Asked, Verb};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Ending, Script},
    fixture,
    late::creates,
    reclaim::{SETTLED, events},
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const CLAIMS: &str = "persistentvolumeclaims";
/// Until what came to a member by mistake, and nobody asks for, is withdrawn.
const WITHDRAWN: Duration = Duration::from_mins(20);
/// An origin that is not known is taken for the member's own after two minutes.
const BETWEEN: Duration = Duration::from_secs(45);

/// Where requests to the first member may be led to the second one.
async fn bench() -> Arc<Bench> {
    let bench = Bench::serving(2, &fixture::steady(STEP)).await;
    bench.members[0].faults().lead_to(&bench.members[1]);
    bench
}

fn script(claim: &str) -> Script {
    Script { places: vec![0], ..Script::new(claim) }
}

async fn provisioned(bench: &Arc<Bench>, claim: &str) -> Caller {
    let mut caller = Caller::new(bench, script(claim));
    let ending = timeout(SETTLED, caller.provision()).await;
    assert_eq!(ending.ok(), Some(Ending::Provisioned), "{}", bench.guard.trace().join("\n"));
    caller
}

/// All requests to the first member are; tells which writes were.
fn lead_elsewhere(bench: &Bench) -> Arc<Mutex<Vec<String>>> {
    let writes = Arc::<Mutex<Vec<String>>>::default();
    let told = Arc::clone(&writes);
    bench.guard.set_fate(move |_, at, asked| {
        if at != 1 {
            return Action::Pass;
        }
        if asked.verb.writes() {
            lock(&writes).push(asked.to_string());
        }
        Action::Elsewhere
    });
    told
}

/// These requests to the first member are taken under another FlowSchema than all others; tells how often it was asked who it is.
fn take_under_another(bench: &Bench, is_meant: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Arc<AtomicUsize> {
    let questions = Arc::<AtomicUsize>::default();
    let told = Arc::clone(&questions);
    bench.guard.set_fate(move |_, at, asked| {
        if at == 1 && asked.verb == Verb::Get && asked.name == "kube-system" {
            questions.fetch_add(1, Ordering::Relaxed);
        }
        if at == 1 && is_meant(asked) { Action::Under(1) } else { Action::Pass }
    });
    told
}

fn is_where_it_belongs(bench: &Bench, caller: &Caller) {
    let handle = caller.handle().unwrap();
    assert!(handle.starts_with("m0/"), "{handle}");
    assert!(bench.members[0].get(CLAIMS, SHOP, caller.claim()).is_some(), "{handle}");
}

async fn nothing_is_left_elsewhere(bench: &Bench) {
    sleep(WITHDRAWN).await;
    for kind in [CLAIMS, "persistentvolumes", "pods"] {
        let left = bench.members[1].list(kind);
        assert!(left.is_empty(), "{left:?}\n{}", bench.guard.trace().join("\n"));
    }
}

#[test]
fn volume_is_not_given_out_by_the_word_of_another_cluster_and_is_made_in_its_member_once_that_answers() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let writes = lead_elsewhere(&bench);
        let mut caller = Caller::new(&bench, script("data"));
        let refused = caller.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert!(refused.message().contains("another cluster"), "{refused}");
        for _ in 0..30 {
            sleep(Duration::from_secs(1)).await;
            assert!(caller.create().await.is_err());
        }
        assert!(lock(&writes).len() <= 1, "{:?}", lock(&writes));
        bench.guard.heal();
        let ending = timeout(SETTLED, caller.provision()).await;
        assert_eq!(ending.ok(), Some(Ending::Provisioned), "{}", bench.guard.trace().join("\n"));
        is_where_it_belongs(&bench, &caller);
        nothing_is_left_elsewhere(&bench).await;
    });
}

#[test]
fn volume_is_neither_lost_nor_removed_by_the_word_of_another_cluster() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, "data").await;
        let kept = provisioned(&bench, "kept").await;
        caller.delete_claim();
        sleep(Duration::from_secs(2)).await;
        lead_elsewhere(&bench);
        let handle = caller.handle().unwrap().to_owned();
        for _ in 0..30 {
            let refused = caller.delete(&handle).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unavailable, "{refused}");
            sleep(Duration::from_secs(5)).await;
        }
        is_where_it_belongs(&bench, &caller);
        assert!(!events(&bench).contains("LeafLost"), "{}", events(&bench));
        bench.guard.heal();
        sleep(SETTLED).await;
        timeout(SETTLED, caller.reclaim()).await.unwrap();
        assert!(bench.members[0].get(CLAIMS, SHOP, "data").is_none());
        is_where_it_belongs(&bench, &kept);
    });
}

#[test]
fn volumes_come_about_where_they_belong_though_every_second_request_is_led_elsewhere_for_a_while() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let (sent, lasts) = (AtomicUsize::default(), Duration::from_mins(3));
        bench.guard.set_fate(move |_, at, _| {
            let is_led = at == 1 && sent.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            if is_led { Action::Elsewhere } else { Action::Pass }
        });
        let callers = (0..3).map(|number| {
            let mut caller = Caller::new(&bench, script(&format!("data-{number}")));
            async move {
                let ending = timeout(WITHDRAWN, caller.provision()).await;
                (ending.ok(), caller)
            }
        });
        let ends = async {
            sleep(lasts).await;
            bench.guard.heal();
        };
        let (provisioned, ()) = tokio::join!(join_all(callers), ends);
        for (ending, caller) in provisioned {
            assert_eq!(ending, Some(Ending::Provisioned), "{}", bench.guard.trace().join("\n"));
            is_where_it_belongs(&bench, &caller);
        }
        nothing_is_left_elsewhere(&bench).await;
    });
}

#[test]
fn member_whose_flow_schema_is_a_new_one_is_asked_once_who_it_is_and_goes_on() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let questions = take_under_another(&bench, |_| false);
        provisioned(&bench, "before").await;
        assert_eq!(questions.load(Ordering::Relaxed), 0, "nothing is asked for where all is well");
        let questions = take_under_another(&bench, |_| true);
        for claim in ["data", "more"] {
            let caller = provisioned(&bench, claim).await;
            is_where_it_belongs(&bench, &caller);
        }
        assert_eq!(questions.load(Ordering::Relaxed), 1, "{}", bench.guard.trace().join("\n"));
    });
}

/// The member never says who it is under that one.
#[test]
fn member_that_has_a_flow_schema_for_some_requests_alone_is_known_by_that_as_well_after_a_while() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let questions = take_under_another(&bench, |asked| creates(asked, CLAIMS));
        for number in 0..6 {
            let caller = provisioned(&bench, &format!("data-{number}")).await;
            is_where_it_belongs(&bench, &caller);
            sleep(BETWEEN).await;
        }
        let asked = questions.load(Ordering::Relaxed);
        assert!(asked > 0, "it was believed at once");
        provisioned(&bench, "known").await;
        assert_eq!(questions.load(Ordering::Relaxed), asked);
        assert_eq!(bench.members[0].list(CLAIMS).len(), 7);
    });
}
