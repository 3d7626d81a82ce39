//! Real clusters for all tests of this binary: several fleets side by side, and whose turn it is on which. A test says what
//! it needs (`queue::Need`), and not how it is run. The harness gives every test a thread at once; here it waits for its turn.
//!
//! Which test goes next is decided in `queue`, without a clock. The order is drawn by a seed, and what is known to take
//! long goes first.

mod failure;
mod queue;
mod times;

use std::{
    future::Future,
    sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
pub use queue::Need;
use queue::{Id, Place, Queue};
use tokio::{
    runtime::Runtime,
    sync::{OnceCell, watch},
    time::{sleep, sleep_until},
};

use crate::{
    clusters::{AuditEntry, Cluster, Fleet, Spec, wait_for},
    install::release::Release,
    rig::Rig,
};

/// Fleets with the driver as processes. Two cores carry as many, or one less and the release in containers, or two less, the release and
/// another fleet.
pub const FLEETS: usize = 4;
/// The harness starts all threads within milliseconds: nobody is chosen before those are there.
const GATHERING: Duration = Duration::from_millis(500);
/// A thread that ends a test begins its next one sooner.
const NO_MORE: Duration = Duration::from_secs(3);

/// Reading what was asked of a few clusters takes less.
const RELEASE_END: Duration = Duration::from_mins(1);

static RIGS: [OnceCell<Rig>; FLEETS] = [const { OnceCell::const_new() }; FLEETS];
static RELEASE: OnceCell<Release> = OnceCell::const_new();
/// What the members of the release were asked, kept as its fleet ends.
static RELEASE_AUDIT: OnceLock<Vec<AuditEntry>> = OnceLock::new();
static BARE: OnceCell<Fleet> = OnceCell::const_new();
static POOL: LazyLock<Pool> = LazyLock::new(Pool::new);

struct Pool {
    queue: Mutex<Queue>,
    changed: watch::Sender<()>,
    begin: Instant,
}

impl Pool {
    fn new() -> Self {
        let queue = Queue::new(times::seed(), times::LONG);
        Self { queue: Mutex::new(queue), changed: watch::Sender::new(()), begin: Instant::now() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn place(&self, id: Id) -> Place {
        let mut changed = self.changed.subscribe();
        sleep_until((self.begin + GATHERING).into()).await;
        loop {
            let place = {
                let mut queue = self.queue();
                queue.next().filter(|(next, _)| *next == id).map(|(id, place)| {
                    queue.begin(id, place);
                    place
                })
            };
            if let Some(place) = place {
                self.changed.send_replace(());
                return place;
            }
            let _ = changed.changed().await;
        }
    }
}

/// A test's time on its place, which is free for the next one when this is dropped.
pub struct Turn {
    id: Id,
    place: Place,
    name: String,
    asked: Instant,
    began: Instant,
}

impl Turn {
    pub async fn take(name: &str, need: Need) -> Self {
        let asked = Instant::now();
        let id = POOL.queue().add(name, need);
        POOL.changed.send_replace(());
        let mut place = POOL.place(id).await;
        while need == Need::Last && !no_more_come().await {
            POOL.queue().take_back(id);
            place = POOL.place(id).await;
        }
        Self { id, place, name: name.to_owned(), asked, began: Instant::now() }
    }
}

/// Whether nobody has come while the last ones were about to begin.
async fn no_more_come() -> bool {
    let came = POOL.queue().came();
    sleep(NO_MORE).await;
    POOL.queue().came() == came
}

impl Drop for Turn {
    fn drop(&mut self) {
        let done = {
            let mut queue = POOL.queue();
            queue.end(self.id, self.place);
            queue.is_done_with(self.place)
        };
        POOL.changed.send_replace(());
        if done {
            self.place.end();
        }
        let waited = self.began.duration_since(self.asked);
        times::write(&self.name, &self.place.to_string(), waited, self.began.elapsed(), !std::thread::panicking());
    }
}

impl Place {
    /// Gives its processors and its memory back. It takes seconds, which nobody waits for.
    fn end(self) {
        let fleet = match self {
            Self::Release => RELEASE.get().map(|release| &release.fleet),
            Self::Bare => BARE.get(),
            Self::Fleet(_) | Self::Own | Self::Nowhere => None,
        };
        let Some(fleet) = fleet else { return };
        std::thread::spawn(move || {
            if self == Self::Release {
                let asked = fleet.members().iter().map(Cluster::audit_as_written).collect::<Result<Vec<_>>>();
                let _ = RELEASE_AUDIT.set(asked.unwrap().concat());
            }
            if let Err(error) = fleet.end() {
                eprintln!("end a fleet that no test wants any more: {error:#}");
            }
        });
    }
}

/// One runtime for all tests, as what belongs to a fleet outlives them.
fn run(test: impl AsyncFnOnce()) {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap()).block_on(test());
}

async fn on_rig<F>(name: &str, need: Need, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    let turn = Turn::take(name, need).await;
    let Place::Fleet(number) = turn.place else { panic!("{name} got no fleet") };
    let rig = RIGS[number].get_or_init(async || Rig::start().await.unwrap()).await;
    let _logs = rig.fleet.test(name);
    if let Err(error) = rig.prepare_for(need).await {
        failure::tell(name, &rig.fleet, &error.context("put the fleet in order before the test"));
    }
    if let Err(error) = test(rig).await {
        failure::tell(name, &rig.fleet, &error);
    }
}

/// Runs a test that wants a fleet for itself, and may leave it in disorder.
pub fn on_fleet<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    run(async || on_rig(name, Need::Alone, test).await);
}

/// Likewise, while nothing else happens on the machine: for promises of a second or two.
pub fn in_quiet<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    run(async || on_rig(name, Need::Quiet, test).await);
}

/// Runs a test that disturbs no other one: what it makes has its own names, and all that it finds there stays as it is.
pub fn beside_others<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    run(async || on_rig(name, Need::Shared, test).await);
}

/// Likewise, with the host's real node, which one test has at a time.
pub fn on_node<F>(name: &str, test: impl FnOnce(&'static Rig) -> F)
where
    F: Future<Output = Result<()>>,
{
    run(async || on_rig(name, Need::Node, test).await);
}

/// Runs a test on the release in containers, after those with smaller numbers.
pub fn on_release<F>(name: &str, chapter: u8, test: impl FnOnce(&'static Release) -> F)
where
    F: Future<Output = Result<()>>,
{
    run(async || {
        let _turn = Turn::take(name, Need::Release(chapter)).await;
        let release = RELEASE.get_or_init(async || Release::prepare().await.unwrap()).await;
        let _logs = release.fleet.test(name);
        if let Err(error) = test(release).await {
            failure::tell(name, &release.fleet, &error);
        }
    });
}

/// The fleet without the driver, for tests that do it no harm: `Need::Bare`.
pub async fn bare() -> &'static Fleet {
    BARE.get_or_init(async || Fleet::start(Spec { members: 1, nodes: true }).await.unwrap()).await
}

async fn release_audit() -> Vec<AuditEntry> {
    let kept = wait_for("what the release's members were asked is kept", RELEASE_END, || async {
        Ok(RELEASE_AUDIT.get().cloned())
    });
    kept.await.unwrap()
}

/// Runs a test once all others have ended, with all fleets that they had, and what the members of the release were asked: they are
/// gone by then.
pub fn after_all<F>(name: &str, test: impl FnOnce(Vec<&'static Rig>, Vec<AuditEntry>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run(async || {
        let _turn = Turn::take(name, Need::Last).await;
        let rigs: Vec<&Rig> = RIGS.iter().filter_map(OnceCell::get).collect();
        let kept = if RELEASE.initialized() { release_audit().await } else { Vec::new() };
        if let Err(error) = test(rigs, kept).await {
            panic!("{error:#}");
        }
    });
}
