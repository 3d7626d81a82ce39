//! One member of ten answers nothing. Users of the nine others must not notice, and users of the dead one must be told at
//! once. Both states are measured in turn in one run, on the bench's own clock: what is compared is waiting, not the
//! machine's speed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use csi::v1::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, Topology, TopologyRequirement, VolumeCapability,
    controller_server::Controller as _,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use serde_json::json;
use simulate::{faults::Action, text};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tonic::{Code, Request, Status};

use crate::{
    bench::{Bench, PATIENCE, SHOP, lock},
    fixture, virtual_time,
};

const MEMBERS: usize = 10;
const DEAD: usize = 9;
const CALLERS: usize = 1;
const STEP: Duration = Duration::from_millis(50);
const ROUND: Duration = Duration::from_secs(3);
/// A silent member is known to be dead after its first request has run out of time.
const NOTICED: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_millis(50);

/// What one round has shown.
#[derive(Debug, Default)]
struct Measured {
    /// Of calls for the nine.
    took: Vec<Duration>,
    volumes: usize,
    /// Of calls for the tenth.
    refused: Vec<Duration>,
}

impl Measured {
    fn p99(&mut self) -> Duration {
        self.took.sort();
        self.took[self.took.len() * 99 / 100]
    }
}

#[test]
fn dead_member_slows_no_other_down_and_its_own_callers_are_told_at_once() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, MEMBERS, &fixture::steady(STEP)).await;
        bench.start();
        bench.serves().await;
        sleep(NOTICED).await;
        for round in 0..2 {
            let mut well = measure(&bench, &format!("well-{round}"), DEAD).await;
            bench.guard.set_fate(|_, cluster, _| if cluster == DEAD + 1 { Action::Hang } else { Action::Pass });
            let _ = call(&bench, DEAD, &format!("first-{round}")).await;
            sleep(NOTICED).await;
            let mut ill = measure(&bench, &format!("ill-{round}"), MEMBERS).await;
            compare(&mut well, &mut ill);
            bench.guard.heal();
            sleep(NOTICED).await;
        }
    });
}

fn compare(well: &mut Measured, ill: &mut Measured) {
    let (before, after) = (well.p99(), ill.p99());
    assert!(well.volumes > 200, "too few to tell anything: {}", well.volumes);
    assert!(ill.volumes * 100 >= well.volumes * 97, "volumes fell from {} to {}", well.volumes, ill.volumes);
    assert!(after * 10 <= before * 11, "p99 rose from {before:?} to {after:?}");
    let slowest = ill.refused.iter().max().expect("the dead member was asked for");
    assert!(*slowest <= AT_ONCE, "a call for the dead member took {slowest:?}");
    assert!(ill.refused.len() > 20, "only {} calls for the dead member", ill.refused.len());
}

/// Callers for the first `members` make and remove volumes for a while.
async fn measure(bench: &Arc<Bench>, name: &str, members: usize) -> Measured {
    let measured = Arc::new(Mutex::new(Measured::default()));
    let ends = Instant::now() + ROUND;
    let mut callers = JoinSet::new();
    for (member, caller) in (0..members).flat_map(|member| (0..CALLERS).map(move |caller| (member, caller))) {
        let (bench, measured, name) = (Arc::clone(bench), Arc::clone(&measured), format!("{name}-{member}-{caller}"));
        callers.spawn(async move {
            for number in 0.. {
                if Instant::now() >= ends {
                    break;
                }
                one(&bench, &measured, member, &format!("{name}-{number}")).await;
            }
        });
    }
    callers.join_all().await;
    Arc::into_inner(measured).and_then(|measured| measured.into_inner().ok()).expect("all callers have ended")
}

async fn one(bench: &Bench, measured: &Mutex<Measured>, member: usize, claim: &str) {
    let begun = Instant::now();
    let answer = call(bench, member, claim).await;
    let took = begun.elapsed();
    if member == DEAD {
        let status = answer.expect_err("a dead member makes nothing");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        lock(measured).refused.push(took);
        sleep(2 * STEP).await;
        return;
    }
    let handle = answer.expect("a member that is well makes volumes");
    lock(measured).took.push(took);
    let begun = Instant::now();
    let request = DeleteVolumeRequest { volume_id: handle, ..DeleteVolumeRequest::default() };
    bench.call(|driver| async move { driver.delete_volume(Request::new(request)).await }).await.unwrap();
    let mut measured = lock(measured);
    measured.took.push(begun.elapsed());
    measured.volumes += 1;
}

/// Makes a claim and a volume for it; its handle.
async fn call(bench: &Bench, member: usize, claim: &str) -> Result<String, Status> {
    let object = json!({
        "metadata": {"name": claim, "namespace": SHOP},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "kosmos",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let made = bench.host.create("persistentvolumeclaims", object).unwrap();
    let name = format!("pvc-{}", text(&made, "/metadata/uid"));
    let segments = HashMap::from([("topology.kosmos.csi.io/member".to_owned(), format!("m{member}"))]);
    let place = vec![Topology { segments }];
    let parameters = [
        ("leafStorageClass", fixture::NOW),
        ("csi.storage.k8s.io/pvc/namespace", SHOP),
        ("csi.storage.k8s.io/pvc/name", claim),
    ];
    let mut request = Request::new(CreateVolumeRequest {
        name,
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        volume_capabilities: vec![VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
            access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
        }],
        parameters: parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        accessibility_requirements: Some(TopologyRequirement { requisite: place.clone(), preferred: place }),
        ..CreateVolumeRequest::default()
    });
    request.set_timeout(PATIENCE);
    let answer = bench.call(|driver| async move { driver.create_volume(request).await }).await?;
    Ok(answer.volume.expect("an answer holds a volume").volume_id)
}
