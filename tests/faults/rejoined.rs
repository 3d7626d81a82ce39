//! Members of a host whose etcd is restored from a backup: those that its Secrets name then, in each replica, whether it leads or
//! waits beside the one that does.

use std::{sync::Arc, time::Duration};

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use simulate::Backup;
use tokio::time::sleep;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP},
    caller::{Caller, Ending, Script},
    fixture,
    reclaim::until,
    virtual_time,
};

/// Until a replica has read a Secret that has changed, and has asked the member who it is.
const HEARD: Duration = Duration::from_secs(10);

/// A driver that leads, and perhaps another replica beside it: what the last one says of itself is read.
async fn started(bench: &Bench, beside: bool) {
    bench.start();
    bench.serves().await;
    sleep(Duration::from_secs(3)).await;
    if beside {
        bench.start_second("second");
    }
    until(bench, HEARD, "it knows its members", || is_up(bench, "m0")).await;
}

async fn of_two(beside: bool) -> Arc<Bench> {
    let bench = Bench::new(1, 2, &fixture::steady(Duration::from_millis(100))).await;
    started(&bench, beside).await;
    until(&bench, HEARD, "it knows the other one", || is_up(&bench, "m1")).await;
    bench
}

fn is_up(bench: &Bench, member: &str) -> bool {
    bench.metrics().contains(&format!("kosmos_csi_member_up{{member=\"{member}\"}} 1"))
}

fn is_known(bench: &Bench, member: &str) -> bool {
    bench.metrics().contains(&format!("kosmos_csi_member_up{{member=\"{member}\"}}"))
}

/// A while later, in which other people have work done: what was seen last lies far in the future of what is restored.
async fn restore(bench: &Bench, backup: &Backup) {
    for number in 0..50 {
        let name = format!("since-{number}");
        bench.host.create("configmaps", json!({"metadata": {"namespace": SHOP, "name": name}})).unwrap();
    }
    sleep(Duration::from_secs(20)).await;
    bench.guard.note(|| "the host is restored from a backup".to_owned());
    bench.host.restore_from(backup);
}

#[test]
fn member_that_was_added_since_the_backup_has_left_and_what_it_has_stays() {
    for beside in [false, true] {
        virtual_time::run(1, async {
            let bench = Bench::new(1, 2, &fixture::steady(Duration::from_millis(100))).await;
            bench.host.delete("secrets", DRIVER_NAMESPACE, "m1").unwrap();
            started(&bench, beside).await;
            let backup = bench.host.backup();
            bench.host.create("secrets", fixture::kubeconfig("m1")).unwrap();
            until(&bench, HEARD, "it joins", || is_up(&bench, "m1")).await;
            let mut caller = Caller::new(&bench, Script { places: vec![1], ..Script::new("data") });
            assert_eq!(caller.provision().await, Ending::Provisioned);
            restore(&bench, &backup).await;
            until(&bench, HEARD, "it has left", || !is_known(&bench, "m1")).await;
            assert!(is_up(&bench, "m0"), "the other one stays");
            sleep(Duration::from_mins(30)).await;
            let leaf = bench.members[1].get("persistentvolumeclaims", SHOP, "data").unwrap();
            assert!(leaf["metadata"].get("deletionTimestamp").is_none(), "{leaf}");
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

#[test]
fn member_that_was_removed_since_the_backup_is_one_again() {
    for beside in [false, true] {
        virtual_time::run(1, async {
            let bench = of_two(beside).await;
            let backup = bench.host.backup();
            bench.host.delete("secrets", DRIVER_NAMESPACE, "m1").unwrap();
            until(&bench, HEARD, "it has left", || !is_known(&bench, "m1")).await;
            restore(&bench, &backup).await;
            until(&bench, HEARD, "it is back", || is_up(&bench, "m1")).await;
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// It leads to another cluster: the member is in quarantine.
#[test]
fn kubeconfig_that_was_changed_since_the_backup_counts_no_more() {
    let elsewhere = |secret: &mut Value| {
        let kubeconfig = ByteString(fixture::kubeconfig_text("https://m1").into_bytes());
        secret["data"] = json!({"kubeconfig": kubeconfig});
    };
    for beside in [false, true] {
        virtual_time::run(1, async {
            let bench = of_two(beside).await;
            let backup = bench.host.backup();
            bench.host.change("secrets", DRIVER_NAMESPACE, "m0", elsewhere).unwrap();
            until(&bench, HEARD, "it is in quarantine", || !is_up(&bench, "m0")).await;
            restore(&bench, &backup).await;
            assert!(!is_up(&bench, "m0"), "the watch of before has told it");
            until(&bench, HEARD, "it is as it was", || is_up(&bench, "m0")).await;
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}
