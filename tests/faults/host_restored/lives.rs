//! Claims of a host that goes back, with their users and sidecars. Each tells how far it is, so that what its sidecars know goes back with
//! the host; what they were at ends there, or goes on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use simulate::Backup;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    plan::{Day, Plan, Shot},
    restore,
};
use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Change, Ending},
    schedules::photos::discard,
    snapshotter::{Kind, Snapshotter, Wish},
};

/// A pod that finds no node for so long is given another one.
const CHOOSES_AGAIN: Duration = Duration::from_mins(15);
/// In which claims are made whose namesakes the host has forgotten.
const SOON: u64 = 2 * 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Provisioning,
    Living,
    Ended,
}

/// A volume of the host, or one to be.
#[derive(Clone)]
struct Known {
    caller: Caller,
    plan: Plan,
    stage: Stage,
    /// As far as the host knows.
    is_on_a_node: bool,
    /// The number of its task.
    life: usize,
}

#[derive(Clone)]
struct Photo {
    snapshot: Snapshotter,
    shot: Shot,
}

/// The host at one moment, and what sidecars and users know with it.
pub struct Knowledge {
    host: Backup,
    known: BTreeMap<String, Known>,
    photos: BTreeMap<String, Photo>,
}

pub struct Lives {
    bench: Arc<Bench>,
    /// By the name of the host's volume.
    known: Mutex<BTreeMap<String, Known>>,
    photos: Mutex<BTreeMap<String, Photo>>,
    tasks: Mutex<Vec<Option<JoinHandle<()>>>>,
    /// Those of them that are about snapshots.
    photographers: Mutex<Vec<usize>>,
}

impl Lives {
    pub fn new(bench: &Arc<Bench>) -> Arc<Self> {
        Arc::new(Self {
            bench: Arc::clone(bench),
            known: Mutex::default(),
            photos: Mutex::default(),
            tasks: Mutex::default(),
            photographers: Mutex::default(),
        })
    }

    /// A user makes the claim after a while, unless it is there.
    pub fn begin(self: &Arc<Self>, after: Duration, plan: Plan) {
        self.spawn(move |lives, life| async move {
            sleep(after).await;
            for _ in 0..if plan.comes_again { 2 } else { 1 } {
                if lives.bench.host.get("persistentvolumeclaims", SHOP, &plan.script.claim).is_some() {
                    return;
                }
                let caller = Caller::new(&lives.bench, plan.script.clone());
                lives.live(life, caller, &plan).await;
            }
        });
    }

    pub fn backup(&self) -> Knowledge {
        self.bench.guard.note(|| "a backup is made of the host".to_owned());
        let (known, photos) = (lock(&self.known).clone(), lock(&self.photos).clone());
        Knowledge { host: self.bench.host.backup(), known, photos }
    }

    /// The host is as it was then, and so is what sidecars know; but some that were at work go on.
    pub fn go_back(self: &Arc<Self>, then: Knowledge, chance: &mut Rng, day: Day) {
        restore(&self.bench, &then.host);
        let now = std::mem::take(&mut *lock(&self.known));
        lock(&self.photos).clear();
        for photographer in std::mem::take(&mut *lock(&self.photographers)) {
            self.stop(photographer);
        }
        let mut gone_on = BTreeSet::new();
        for (volume, known) in &now {
            let is_at_work = known.stage == Stage::Provisioning && !self.is_in_host(volume);
            if is_at_work && day.sidecars_go_on && chance.bool() {
                lock(&self.known).insert(volume.clone(), known.clone());
                gone_on.insert(volume.clone());
            } else if known.stage != Stage::Ended {
                self.stop(known.life);
            }
        }
        for (volume, known) in then.known {
            if !gone_on.contains(&volume) {
                self.begin_again(known, chance, day.is_calm);
            }
        }
        for Photo { mut snapshot, shot } in then.photos.into_values() {
            if snapshot.learn_again() {
                self.keep(snapshot, shot);
            }
        }
        self.make_again(now.values(), chance);
    }

    /// Sidecars find what is there, and know nothing else.
    fn begin_again(self: &Arc<Self>, known: Known, chance: &mut Rng, is_calm: bool) {
        let mut caller = known.caller;
        if !caller.claim_is_there() && !self.is_in_host(caller.volume()) {
            return;
        }
        caller.learn_again();
        let plan = known.plan.afterwards(chance, caller.is_attached(), is_calm);
        self.spawn(move |lives, life| async move { lives.live(life, caller, &plan).await });
    }

    /// Some whose claims the host has forgotten make them again, under names that may be taken in the members.
    fn make_again<'a>(self: &Arc<Self>, forgotten: impl Iterator<Item = &'a Known>, chance: &mut Rng) {
        for known in forgotten {
            let script = &known.plan.script;
            let is_there = self.bench.host.get("persistentvolumeclaims", SHOP, &script.claim).is_some();
            if !is_there && script.source.is_none() && chance.u8(..3) == 0 {
                let after = Duration::from_millis(chance.u64(..SOON));
                self.begin(after, known.plan.afterwards(chance, false, false));
            }
        }
    }

    async fn live(self: &Arc<Self>, life: usize, mut caller: Caller, plan: &Plan) {
        let user = caller.clone();
        let ends = async {
            if let Some(after) = plan.deleted_after {
                sleep(after).await;
                user.delete_claim();
            }
        };
        tokio::join!(self.work(life, &mut caller, plan), ends);
        if caller.claim_was_deleted() {
            caller.reclaim().await;
            self.note(life, &caller, plan, Stage::Ended);
        }
    }

    async fn work(self: &Arc<Self>, life: usize, caller: &mut Caller, plan: &Plan) {
        self.note(life, caller, plan, Stage::Provisioning);
        let ending = self.provision(caller, plan).await;
        self.note(life, caller, plan, Stage::Living);
        let is_of_use = ending == Ending::Provisioned && self.is_in_host(caller.volume());
        if !is_of_use || caller.claim_was_deleted() {
            return;
        }
        if let (Some(shot), Some(handle)) = (plan.shot, caller.handle()) {
            self.photograph(caller.volume(), handle, shot);
        }
        if let (true, Some(handle)) = (plan.is_copied, caller.handle()) {
            self.begin(Duration::ZERO, plan.of_copy(handle));
        }
        for change in plan.changes {
            sleep(plan.pace).await;
            // Without a pod, nothing binds a deferred leaf, and what is not bound cannot be changed.
            if caller.is_deferred() && !matches!(change, Change::Publish | Change::Unpublish) {
                continue;
            }
            if *change == Change::Publish {
                self.will_be_on_a_node(caller.volume());
            }
            caller.change(*change).await;
            self.note(life, caller, plan, Stage::Living);
        }
    }

    async fn provision(&self, caller: &mut Caller, plan: &Plan) -> Ending {
        if let Some(places) = &plan.at_first {
            caller.goes_to(places.clone());
            if let Ok(ending) = timeout(CHOOSES_AGAIN, caller.provision()).await {
                return ending;
            }
            caller.goes_to(plan.script.places.clone());
        }
        caller.provision().await
    }

    fn photograph(self: &Arc<Self>, volume: &str, handle: &str, shot: Shot) {
        let wish = Wish { name: format!("{}-{volume}", shot.name), ..Wish::photo(Kind::Snapshot, handle, shot.class) };
        let photographer = self.spawn(move |lives, _| async move {
            sleep(shot.after).await;
            let snapshot = Snapshotter::new(&lives.bench, wish);
            lives.take(snapshot, shot).await;
        });
        lock(&self.photographers).push(photographer);
    }

    fn keep(self: &Arc<Self>, snapshot: Snapshotter, shot: Shot) {
        let photographer = self.spawn(move |lives, _| async move { lives.take(snapshot, shot).await });
        lock(&self.photographers).push(photographer);
    }

    async fn take(&self, mut snapshot: Snapshotter, shot: Shot) {
        self.note_photo(&snapshot, shot);
        let user = discard(snapshot.clone(), shot.deleted_after);
        let work = async {
            if snapshot.handle().is_none() && snapshot.make().await {
                snapshot.look().await;
            }
            self.note_photo(&snapshot, shot);
        };
        tokio::join!(work, user);
        if snapshot.is_discarded() && snapshot.handle().is_some() {
            snapshot.remove().await;
        }
    }

    fn spawn<F>(self: &Arc<Self>, life: impl FnOnce(Arc<Self>, usize) -> F) -> usize
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = lock(&self.tasks);
        let number = tasks.len();
        tasks.push(Some(tokio::spawn(life(Arc::clone(self), number))));
        number
    }

    fn stop(&self, life: usize) {
        if let Some(Some(task)) = lock(&self.tasks).get(life) {
            task.abort();
        }
    }

    /// Until all of them have come to their ends.
    pub async fn ended(&self) {
        while let Some(task) = self.next_task() {
            if let Err(error) = task.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    fn next_task(&self) -> Option<JoinHandle<()>> {
        lock(&self.tasks).iter_mut().find_map(Option::take)
    }

    fn note(&self, life: usize, caller: &Caller, plan: &Plan, stage: Stage) {
        let (caller, plan, is_on_a_node) = (caller.clone(), plan.clone(), caller.is_attached());
        lock(&self.known).insert(caller.volume().to_owned(), Known { caller, plan, stage, is_on_a_node, life });
    }

    fn note_photo(&self, snapshot: &Snapshotter, shot: Shot) {
        let photo = Photo { snapshot: snapshot.clone(), shot };
        lock(&self.photos).insert(snapshot.name().to_owned(), photo);
    }

    fn will_be_on_a_node(&self, volume: &str) {
        if let Some(known) = lock(&self.known).get_mut(volume) {
            known.is_on_a_node = true;
        }
    }

    pub fn is_on_a_node(&self, volume: &str) -> bool {
        lock(&self.known).get(volume).is_some_and(|known| known.is_on_a_node)
    }

    fn is_in_host(&self, volume: &str) -> bool {
        self.bench.host.get("persistentvolumes", "", volume).is_some()
    }

    /// Who cares for a volume of the host.
    pub fn caller(&self, volume: &str) -> Option<Caller> {
        lock(&self.known).get(volume).map(|known| known.caller.clone())
    }

    pub fn snapshots(&self) -> Vec<Snapshotter> {
        lock(&self.photos).values().map(|photo| photo.snapshot.clone()).collect()
    }
}
