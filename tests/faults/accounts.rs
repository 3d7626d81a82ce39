//! A namespace that the driver has just made takes no pods before the member has given it its account.

use std::time::Duration;

use csi::v1::{CapacityRange, CreateVolumeRequest};
use simulate::faults::Verb;
use tokio::time::Instant;
use tonic::Code;

use crate::{ask::capability, bench::Bench, fixture, virtual_time};

const STEP: Duration = Duration::from_millis(100);
const NAMESPACE: &str = "just-made";

fn request() -> CreateVolumeRequest {
    let parameters = [("leafStorageClass", fixture::LATER), ("leafNamespace", NAMESPACE)];
    CreateVolumeRequest {
        name: "pvc-1".to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        volume_capabilities: vec![capability()],
        parameters: parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..CreateVolumeRequest::default()
    }
}

/// What one CreateVolume comes to where the account comes so late: its code, how often the pod was asked for, how long it took.
fn created(accounts_after: Duration) -> (Code, usize, Duration) {
    virtual_time::run(1, async {
        let bench = Bench::busy(1, &fixture::steady(STEP), accounts_after).await;
        bench.start();
        bench.serves().await;
        bench.members[0].faults().record(true);
        let begun = Instant::now();
        let answer = bench.create(request()).await;
        let took = begun.elapsed();
        let asked = bench.members[0].faults().log();
        let pods = asked.iter().filter(|asked| asked.verb == Verb::Create && asked.resource == "pods").count();
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        (answer.map_or_else(|status| status.code(), |_| Code::Ok), pods, took)
    })
}

#[test]
fn account_that_is_there_is_not_waited_for() {
    let (code, pods, took) = created(Duration::ZERO);
    assert_eq!((code, pods), (Code::Ok, 1));
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn account_that_comes_late_is_waited_for_in_the_same_call() {
    let late = Duration::from_secs(2);
    let (code, pods, took) = created(late);
    assert_eq!(code, Code::Ok);
    assert!((2..=5).contains(&pods), "{pods} requests");
    assert!(took < 2 * late, "{took:?}");
}

#[test]
fn account_that_never_comes_keeps_nobody_waiting() {
    let (code, pods, took) = created(Duration::from_hours(1));
    assert_eq!(code, Code::Aborted);
    assert_eq!(pods, 5);
    assert!(took < Duration::from_secs(5), "{took:?}");
}
