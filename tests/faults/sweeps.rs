//! The driver is killed at every request to a member while it takes back what came late or was forgotten, or goes by what is in a
//! backup. The next one has to begin again, and knows nothing of it.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use simulate::faults::Action;
use tokio::time::{Instant, sleep};

use crate::{
    attach::{attachments::attached, double::ATTACHMENTS, late::comes_late},
    bench::{Bench, SHOP},
    caller::{Caller, Script},
    crash::{Point, is_asked_of_a_member, points},
    extent::drawn,
    fixture,
    forgotten::abandoned_by,
    invariants::snapshots,
    late::{LATE, creates, delay_next},
    late_snapshots::{volume, was_asked_for},
    reclaim::{self, CLAIM, policy, provisioned, released, retained},
    rolled_back::roll_back,
    snapshotter::{GROUPS, Kind, SNAPSHOTS},
    virtual_time,
};

/// Just before the driver is sure that nobody asks any more.
const NEARLY: Duration = Duration::from_mins(13);
/// It has been sure, and has looked.
const SURE: Duration = Duration::from_mins(40);
const SLOW: Duration = Duration::from_mins(2);
/// Each plays for an hour and more. All of them where the environment asks for it.
const SOME_POINTS: usize = 48;

#[derive(Clone, Copy, Debug)]
enum Tale {
    ForgottenLeaf(&'static str),
    LateLeaf,
    LateSnapshot,
    LateGroup,
    LateAttachment,
    RestoredMember,
}

/// What a tale has come to so far, with all that must live on.
struct Stage {
    bench: Arc<Bench>,
    caller: Caller,
    _alive: Box<dyn Any + Send>,
}

impl Tale {
    const ALL: [Self; 7] = [
        Self::ForgottenLeaf(fixture::LATER),
        Self::ForgottenLeaf(fixture::KEPT),
        Self::LateLeaf,
        Self::LateSnapshot,
        Self::LateGroup,
        Self::LateAttachment,
        Self::RestoredMember,
    ];

    async fn begin(self) -> Stage {
        let stage = |(bench, caller)| Stage { bench, caller, _alive: Box::new(()) };
        match self {
            Self::ForgottenLeaf(class) => {
                let (bench, caller) = abandoned_by(class, SLOW).await;
                caller.delete_claim();
                bench.start();
                bench.serves().await;
                sleep(NEARLY).await;
                stage((bench, caller))
            }
            Self::LateLeaf => {
                let bench = reclaim::bench().await;
                delay_next(&bench, |asked| creates(asked, "persistentvolumeclaims"));
                let mut caller = provisioned(&bench, retained()).await;
                released(&bench, &mut caller).await;
                stage((bench, caller))
            }
            Self::LateSnapshot | Self::LateGroup => {
                let (bench, caller) = volume().await;
                if matches!(self, Self::LateGroup) {
                    was_asked_for(&bench, &caller, Kind::Group, |asked| creates(asked, GROUPS)).await;
                } else {
                    was_asked_for(&bench, &caller, Kind::Snapshot, |asked| creates(asked, SNAPSHOTS)).await;
                }
                sleep(NEARLY).await;
                stage((bench, caller))
            }
            Self::LateAttachment => {
                let (bench, caller, attacher) = attached().await;
                comes_late(&bench, &caller).await;
                sleep(NEARLY).await;
                Stage { bench, caller, _alive: Box::new(attacher) }
            }
            Self::RestoredMember => {
                let bench = reclaim::bench().await;
                let caller = provisioned(&bench, Script::new(CLAIM)).await;
                let backup = bench.members[0].backup();
                caller.set_policy("Retain");
                sleep(SLOW).await;
                roll_back(&bench, &backup);
                stage((bench, caller))
            }
        }
    }

    fn is_as_it_should_be(self, stage: &Stage) -> bool {
        let (bench, member) = (&stage.bench, &stage.bench.members[0]);
        let volumes = bench.storages[0].volumes().len();
        match self {
            Self::ForgottenLeaf(_) => bench.leaf_objects(stage.caller.volume()).is_empty() && volumes == 0,
            Self::LateLeaf => member.get("persistentvolumeclaims", SHOP, CLAIM).is_none() && volumes == 1,
            Self::LateSnapshot => member.list(SNAPSHOTS).is_empty(),
            Self::LateGroup => member.list(GROUPS).is_empty(),
            Self::LateAttachment => member.list(ATTACHMENTS).is_empty() && volumes == 1,
            Self::RestoredMember => policy(bench, &stage.caller) == "Retain" && volumes == 1,
        }
    }

    fn wrong(self, stage: &Stage) -> Vec<String> {
        let mut wrong = stage.bench.guard.wrong();
        wrong.extend(snapshots(&stage.bench));
        if !self.is_as_it_should_be(stage) {
            wrong.push(format!("there are {:?}", stage.bench.leaf_objects(stage.caller.volume())));
        }
        if !wrong.is_empty() {
            wrong.insert(0, stage.bench.guard.trace().join("\n"));
        }
        wrong
    }
}

/// How many requests there were, and what is wrong in the end.
fn killed_at(tale: Tale, point: Option<Point>) -> (u64, Vec<String>) {
    virtual_time::run(1, async {
        let stage = tale.begin().await;
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        stage.bench.guard.set_fate(move |_, at, asked| {
            count.fetch_add(is_asked_of_a_member(at, asked).into(), Ordering::Relaxed);
            Action::Pass
        });
        let killer = point.map(|point| tokio::spawn(point.strike_in_member(Arc::clone(&stage.bench))));
        sleep(LATE).await;
        let ends = Instant::now() + SURE * 2;
        while !tale.is_as_it_should_be(&stage) && Instant::now() < ends {
            sleep(LATE).await;
        }
        killer.iter().for_each(tokio::task::JoinHandle::abort);
        stage.bench.guard.heal();
        sleep(LATE).await;
        (sent.load(Ordering::Relaxed), tale.wrong(&stage))
    })
}

#[test]
fn nothing_is_left_or_lost_wherever_the_driver_is_killed_while_it_takes_back_what_came_late() {
    let runs = Tale::ALL.into_iter().flat_map(|tale| {
        let (requests, wrong) = killed_at(tale, None);
        assert!(wrong.is_empty() && requests >= 4, "{tale:?}: {requests} requests, {}", wrong.join("\n"));
        points(requests).map(move |point| (tale, point)).collect::<Vec<_>>()
    });
    let runs = drawn(runs, SOME_POINTS);
    let count = runs.len();
    let bad = virtual_time::each(virtual_time::THREADS, runs, |(tale, point)| {
        let (_, wrong) = killed_at(tale, Some(point));
        (!wrong.is_empty()).then(|| format!("{tale:?} {point:?}: {}", wrong.join("\n")))
    });
    assert!(bad.is_empty(), "{} of {count}, such as {}", bad.len(), bad[0]);
}
