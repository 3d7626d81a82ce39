//! A host whose etcd is restored from a backup in which a claim still waits for its volume: the volume of since is not there, and
//! the leaf that it led to is, with its data.

mod drawn;
mod lives;
mod oracle;
mod person;
mod plan;
mod since;
mod unlisted;

use std::{sync::Arc, time::Duration};

use simulate::Backup;
use tokio::time::{Instant, sleep};

use crate::{
    bench::{Bench, lock},
    caller::{Caller, Ending, Script},
    fixture,
    people::delete_leaf_claim,
    reclaim::{CLAIM, SETTLED, bench, ends_well, leaf, phase, retained, until},
    virtual_time,
};

/// Longer than any look at what the host does not name.
const LOOKED: Duration = Duration::from_mins(3);

/// A volume that was used, and a host that knows of its claim alone.
async fn restored(bench: &Arc<Bench>, script: Script) -> Caller {
    let mut caller = Caller::new(bench, script);
    let backup = bench.host.backup();
    assert_eq!(caller.provision().await, Ending::Provisioned);
    sleep(Duration::from_secs(10)).await;
    restore(bench, &backup);
    caller
}

pub fn restore(bench: &Bench, backup: &Backup) {
    bench.guard.note(|| "the host is restored from a backup".to_owned());
    bench.guard.look();
    bench.host.restore_from(backup);
    lock(&bench.guard.history).host_is_restored();
}

/// The claim gets the volume of before, and not another one.
async fn has_its_data_again(bench: &Bench, caller: &mut Caller, volume: &str) {
    let began = Instant::now();
    while let Err(status) = caller.create().await {
        assert!(began.elapsed() < SETTLED, "{status}\n{}", bench.guard.trace().join("\n"));
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(caller.provision().await, Ending::Provisioned);
    assert_eq!(caller.leaf_volume(), Some(volume));
    assert_eq!(bench.storages[0].volumes().len(), 1, "{:?}", bench.storages[0].volumes());
    assert_eq!(phase(leaf(bench, CLAIM)), "Bound");
}

fn tale(script: Script, deleted: bool) {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = restored(&bench, script).await;
        let volume = caller.leaf_volume().unwrap().to_owned();
        if deleted {
            delete_leaf_claim(&bench, CLAIM);
        }
        sleep(LOOKED).await;
        has_its_data_again(&bench, &mut caller, &volume).await;
        ends_well(&bench, caller).await;
    });
}

#[test]
fn claim_that_waits_again_has_the_volume_of_before() {
    tale(Script::new(CLAIM), false);
    tale(retained(), false);
}

#[test]
fn claim_that_waits_again_has_the_volume_of_before_also_where_its_leaf_was_deleted_in_the_member() {
    tale(Script::new(CLAIM), true);
    tale(retained(), true);
}

/// Nobody has looked at the leaf between its deletion and the call.
#[test]
fn leaf_that_the_host_has_used_is_not_taken_back_by_a_creation() {
    for script in [Script::new(CLAIM), retained()] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut caller = restored(&bench, script).await;
            let volume = caller.leaf_volume().unwrap().to_owned();
            delete_leaf_claim(&bench, CLAIM);
            has_its_data_again(&bench, &mut caller, &volume).await;
            ends_well(&bench, caller).await;
        });
    }
}

/// Its claim had gone, and the leaf claim with it, before the host was restored; its pod may go to another member now.
#[test]
fn volume_that_is_kept_without_its_claim_comes_back_where_it_is() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
        let mut caller = Caller::new(&bench, Script { places: vec![0], ..retained() });
        let backup = bench.host.backup();
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(Duration::from_secs(10)).await;
        let volume = caller.leaf_volume().unwrap().to_owned();
        caller.delete_claim();
        until(&bench, SETTLED, "the leaf claim is let go", || leaf(&bench, CLAIM).is_none()).await;
        restore(&bench, &backup);
        caller.goes_to(vec![1, 0]);
        sleep(LOOKED).await;
        has_its_data_again(&bench, &mut caller, &volume).await;
        assert!(bench.storages[1].volumes().is_empty(), "{:?}", bench.storages[1].volumes());
        ends_well(&bench, caller).await;
    });
}
