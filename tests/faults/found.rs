//! What schedules of faults have found, each told again in the fewest steps.

use std::{sync::Arc, time::Duration};

use simulate::{
    Cluster,
    faults::{
        Action, Asked, Verb,
        rules::{self, Rule},
    },
};
use tokio::time::sleep;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE},
    caller::{Caller, Ending, Script},
    fixture::{self, Planted},
    invariants::{Story, violations},
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
/// As a proxy, or an API server that does not know the path, says it: no object is named.
const NOT_FOUND: Action = Action::Answer { code: 404, reason: "NotFound" };

async fn bench() -> Arc<Bench> {
    Bench::serving(2, &fixture::steady(STEP)).await
}

/// The claim is deleted, and nothing is left or wrong.
async fn ends_well(bench: &Bench, mut caller: Caller, ending: Ending) {
    caller.delete_claim();
    caller.reclaim().await;
    let story = Story { caller, ending, deleted: true };
    let wrong = violations(bench, &[story], &Planted::default());
    assert!(wrong.is_empty(), "{}\n{wrong:#?}", bench.guard.trace().join("\n"));
}

fn is(asked: &Asked, verb: Verb, resource: &str) -> bool {
    asked.verb == verb && asked.resource == resource
}

/// The choice is made while one member is still being listed, and listed while the record of members is read.
#[test]
fn volume_without_a_claim_is_not_made_twice_while_members_are_listed() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script { told: false, leaf_class: fixture::LATER, ..Script::new("data") });
        let making = tokio::spawn({
            let mut caller = caller.clone();
            async move { caller.provision().await }
        });
        sleep(STEP / 2).await;
        making.abort();
        let leaf = |member: &Cluster| {
            !bench.leaf_objects(caller.volume()).join(" ").contains(&format!(" in {} ", member.name()))
        };
        let holder = 1 + bench.members.iter().position(|member| !leaf(member)).unwrap();
        bench.guard.set_fate(move |_, at, asked| match at {
            0 if is(asked, Verb::Get, "configmaps") => Action::Delay(Duration::from_secs(2)),
            _ if at == holder && is(asked, Verb::Get, "namespaces") => Action::Delay(Duration::from_secs(3)),
            _ => Action::Pass,
        });
        bench.start();
        bench.serves().await;
        sleep(Duration::from_millis(4500)).await;
        let ending = caller.provision().await;
        bench.guard.heal();
        ends_well(&bench, caller, ending).await;
    });
}

#[test]
fn what_the_host_does_not_find_by_name_may_still_be_there() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script { leaf_class: fixture::LATER, ..Script::new("data") });
        let unnamed = |_: u64, at: usize, asked: &Asked| {
            let is_asked = |verb| is(asked, verb, "persistentvolumeclaims");
            if at == 0 && (is_asked(Verb::Get) || is_asked(Verb::Patch)) { NOT_FOUND } else { Action::Pass }
        };
        let (ending, ()) = tokio::join!(caller.provision(), async {
            sleep(STEP / 2).await;
            bench.start();
            bench.guard.set_fate(unnamed);
            sleep(Duration::from_secs(30)).await;
            bench.guard.heal();
        });
        ends_well(&bench, caller, ending).await;
    });
}

#[test]
fn member_that_left_is_not_taken_for_one_that_never_was() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        let ending = caller.provision().await;
        let member = bench.member_of(caller.handle().unwrap()).unwrap().name().to_owned();
        bench.host.delete("secrets", DRIVER_NAMESPACE, &member).unwrap();
        bench.guard.set_fate(
            |_, at, asked| {
                if at == 0 && is(asked, Verb::Get, "configmaps") { NOT_FOUND } else { Action::Pass }
            },
        );
        let ((), ()) = tokio::join!(ends_well(&bench, caller, ending), async {
            sleep(Duration::from_secs(30)).await;
            bench.host.create("secrets", fixture::kubeconfig(&member)).unwrap();
            bench.guard.heal();
        });
    });
}

#[test]
fn leaf_that_a_proxy_does_not_find_is_still_removed() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        let ending = caller.provision().await;
        bench.guard.set_fate(|_, _, asked| if asked.verb == Verb::Delete { NOT_FOUND } else { Action::Pass });
        let ((), ()) = tokio::join!(ends_well(&bench, caller, ending), async {
            sleep(Duration::from_secs(10)).await;
            bench.guard.heal();
        });
    });
}

/// A conflict over a pod that is still the one meant proves nothing.
#[test]
fn consumer_whose_removal_meets_a_conflict_is_still_removed() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 2, &fixture::steady(Duration::from_mins(1))).await;
        bench.start();
        bench.serves().await;
        let conflict = Action::Answer { code: 409, reason: "Conflict" };
        let verb = Some(Verb::Delete);
        let once = Rule { verb, resource: "pods".to_owned(), times: 1, ..Rule::always(conflict) };
        let decide = rules::plan(vec![once]);
        bench.guard.set_fate(move |_, _, asked| decide(asked));
        let mut caller = Caller::new(&bench, Script { leaf_class: fixture::LATER, ..Script::new("data") });
        let user = caller.clone();
        let (ending, ()) = tokio::join!(caller.provision(), async {
            sleep(STEP).await;
            user.delete_claim();
        });
        ends_well(&bench, caller, ending).await;
    });
}
