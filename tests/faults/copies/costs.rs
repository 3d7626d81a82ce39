//! What each call about snapshots and groups asks of a member, counted. One request more fails the test.

use std::sync::{Arc, Mutex};

use csi::v1::{self, controller_server::Controller as _, volume_content_source};
use simulate::faults::{Action, Verb};
use tonic::Code;

use super::{STEP, Stage};
use crate::{
    bench::{lock, with_deadline},
    snapshotter::{KEPT, Kind, USUAL},
    virtual_time,
};

/// What is asked of members, but for watches.
struct Spent(Arc<Mutex<Vec<String>>>);

impl Spent {
    fn by(stage: &Stage) -> Self {
        let spent: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&spent);
        stage.bench.guard.set_fate(move |_, at, asked| {
            if at > 0 && asked.verb != Verb::Watch {
                let kind = asked.resource.split('.').next().unwrap_or_default();
                lock(&seen).push(format!("{:?} {kind}", asked.verb));
            }
            Action::Pass
        });
        Self(spent)
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0))
    }
}

#[test]
fn snapshots_cost_what_the_budget_says() {
    for (class, extra) in [(USUAL, &[][..]), (KEPT, &["List volumesnapshotcontents", "Patch volumesnapshotcontents"])] {
        virtual_time::run(1, async {
            let stage = Stage::new(class, STEP).await;
            let spent = Spent::by(&stage);
            // The first one begins the watch.
            stage.made(Kind::Snapshot).await.remove().await;
            spent.take();
            let mut made = stage.made(Kind::Snapshot).await;
            assert_eq!(spent.take(), ["Create volumesnapshots", "Patch volumesnapshotcontents"]);
            let id = made.handle().unwrap().to_owned();
            // Where no watch stands, one question tells that there is nothing to watch: in the other member.
            for (snapshot_id, asked) in [(id.as_str(), &[][..]), ("", &["List volumesnapshots"])] {
                let request = v1::ListSnapshotsRequest { snapshot_id: snapshot_id.to_owned(), ..Default::default() };
                let found =
                    stage.bench.call(|driver| async move { driver.list_snapshots(with_deadline(request)).await });
                assert_eq!(found.await.unwrap().entries.len(), 1);
                assert_eq!(spent.take(), asked);
            }
            let request = v1::GetSnapshotRequest { snapshot_id: id, ..Default::default() };
            let again = request.clone();
            stage.bench.call(|driver| async move { driver.get_snapshot(with_deadline(request)).await }).await.unwrap();
            assert_eq!(spent.take(), [""; 0]);
            made.remove().await;
            let read = "Get volumesnapshotcontents";
            assert_eq!(spent.take(), [&[read][..], extra, &["Delete volumesnapshots", read]].concat());
            let gone = stage.bench.call(|driver| async move { driver.get_snapshot(with_deadline(again)).await }).await;
            assert_eq!(gone.map(drop).unwrap_err().code(), Code::NotFound);
            assert_eq!(spent.take(), ["Get volumesnapshots"]);
        });
    }
}

#[test]
fn groups_cost_what_the_budget_says() {
    /// So many volumes are in it.
    const N: usize = 2;
    // What is kept may be of one that was cut before as well.
    for (class, extra, looks) in [(USUAL, 0, 0), (KEPT, N + 1, 3)] {
        virtual_time::run(1, async {
            let stage = Stage::new(class, STEP).await;
            let spent = Spent::by(&stage);
            stage.made(Kind::Group).await.remove().await;
            let costs = |what: &str, cost: usize| {
                let spent = spent.take();
                assert_eq!(spent.len(), cost, "{what}: {spent:#?}");
            };
            spent.take();
            let mut made = stage.made(Kind::Group).await;
            costs("CreateVolumeGroupSnapshot", 3 * N + 8 + extra);
            made.look().await;
            costs("GetVolumeGroupSnapshot", 3);
            made.remove().await;
            costs("DeleteVolumeGroupSnapshot", 2 * N + 8 + extra + looks);
        });
    }
}

/// Which tells whether it is what was given out.
#[test]
fn volume_of_a_snapshot_costs_one_look_at_its_content_in_a_process_that_has_not_marked_that() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let snapshot_id = stage.made(Kind::Snapshot).await.handle().unwrap().to_owned();
        let spent = Spent::by(&stage);
        let looks = async || {
            let source = volume_content_source::SnapshotSource { snapshot_id: snapshot_id.clone() };
            stage.copy(volume_content_source::Type::Snapshot(source)).await;
            spent.take().iter().filter(|asked| *asked == "Get volumesnapshotcontents").count()
        };
        assert_eq!(looks().await, 0);
        stage.bench.start();
        stage.bench.serves().await;
        assert_eq!([looks().await, looks().await], [1, 0]);
    });
}
