//! The driver is killed at every request it sends, before it arrives, after it was carried out, and after its answer has
//! come, and started again. How many there are is counted in a run without faults, so a request that is new is covered by
//! itself.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use simulate::faults::{Action, Asked, Verb};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use crate::{
    attach,
    bench::{Bench, SHOP},
    caller::{Caller, Change, Script},
    extent::{ALL, drawn, is_thorough},
    fixture::{self, Planted},
    invariants::{Story, violations},
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
/// Between the driver's end and its next start.
const AWAY: Duration = Duration::from_millis(1500);
const SETTLED: Duration = Duration::from_mins(1);
const SOME_PAIRS: usize = 100;

/// What is under way while the driver dies.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Case {
    name: &'static str,
    script: Script,
    /// Created first, so that its deletion is what is under way.
    deletion: bool,
    /// Created first, with what must come before, so that this change is what is under way.
    change: Option<Change>,
    /// The members lack the claim's namespace.
    namespace_missing: bool,
    /// The member that comes first has no room.
    full: bool,
    /// The user deletes the claim while the driver is dead.
    claim_goes: bool,
}

/// A request, counted from the operation's beginning or the last restart.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    request: u64,
    when: When,
}

#[derive(Clone, Copy, Debug)]
enum When {
    /// It never arrives.
    Before,
    /// It is carried out, and its answer never comes.
    Applied,
    /// Its answer comes, and nothing that is sent after it arrives.
    Answered,
}

impl When {
    /// What becomes of the request itself, or of one that comes later.
    fn fate(self, later: bool) -> Action {
        match self {
            Self::Applied if !later => Action::ApplyThenHang,
            Self::Answered if !later => Action::Pass,
            _ => Action::Hang,
        }
    }
}

/// What a run has shown.
struct Shown {
    /// Requests from the operation's beginning, or from the last restart, to its end.
    requests: u64,
    wrong: Vec<String>,
    trace: Vec<String>,
}

/// Classes that have their volumes attached in the member, by the names of their two cases.
#[expect(clippy::type_complexity, reason = "a table")]
const ATTACHED: [(&str, &str, &[(&str, &str)]); 4] = [
    ("publish with an attachment", "unpublish with an attachment", &[("attachMode", "volume-attachment")]),
    ("publish as a disk", "unpublish of a disk", &[("attachMode", "virtual-machine"), ("leafNamespace", SHOP)]),
    (
        "publish by plugging",
        "unpublish by unplugging",
        &[("attachMode", "virtual-machine"), ("leafNamespace", SHOP), ("leafNamespace.m1", "kubevirt")],
    ),
    (
        "publish by writing into the machine",
        "unpublish by writing into the machine",
        &[("attachMode", "virtual-machine"), ("leafNamespace", SHOP), ("leafNamespace.m1", "kubevirt-written")],
    ),
];

fn cases() -> Vec<Case> {
    let create = |name, script| Case {
        name,
        script,
        deletion: false,
        change: None,
        namespace_missing: false,
        full: false,
        claim_goes: false,
    };
    let data = || Script::new("data");
    let later = Script { leaf_class: fixture::LATER, places: vec![1, 0], node_selected: true, ..data() };
    let untold = Script { told: false, ..data() };
    let kept = Script { leaf_class: fixture::KEPT, ..data() };
    let withdrawn = Script { deleted_after: Some(STEP / 2), ..data() };
    let cases = [
        create("create in an immediate class", data()),
        create("create in a class that waits for a pod", later.clone()),
        Case { namespace_missing: true, ..create("create where the namespace is missing", data()) },
        create("create without a host claim", untold.clone()),
        create("create with a node", Script { on_node: true, ..later.clone() }),
        create("create for nobody", Script { binding: Some("deferred"), ..later.clone() }),
        Case { full: true, ..create("create where there is no room", later.clone()) },
        Case { full: true, ..create("create where there is no room at once", Script { places: vec![1, 0], ..data() }) },
        Case { full: true, ..create("create where a node has no room", Script { on_node: true, ..later.clone() }) },
        create("create for a claim that goes meanwhile", withdrawn.clone()),
        create(
            "create for a claim that goes before a pod has come",
            Script { deleted_after: Some(STEP / 2), ..later.clone() },
        ),
    ];
    let going = cases.iter().filter(|case| case.script.told).map(|case| Case { claim_goes: true, ..case.clone() });
    let delete = |name, script| Case { deletion: true, ..create(name, script) };
    let deletions = [
        delete("delete", data()),
        delete("delete where nobody came", Script { binding: Some("deferred"), ..later.clone() }),
        delete("delete where a pod was needed", later),
        delete("delete without a host claim", untold),
        delete("delete where the leaf class retains", kept),
    ];
    let change = |name, change| Case { change: Some(change), ..create(name, data()) };
    let before: &[Change] = &[Change::Publish];
    let published = Script { changes: before, ..data() };
    let attached = ATTACHED.iter().flat_map(|(publish, unpublish, parameters)| {
        let script = Script { places: vec![0], parameters, ..data() };
        let undo = Script { changes: before, ..script.clone() };
        [
            Case { change: Some(Change::Publish), ..create(publish, script) },
            Case { change: Some(Change::Unpublish), ..create(unpublish, undo) },
        ]
    });
    let changes = [
        change("expand", Change::Expand),
        change("modify", Change::Modify),
        change("publish", Change::Publish),
        Case { change: Some(Change::Unpublish), ..create("unpublish", published) },
    ];
    cases.iter().cloned().chain(going).chain(deletions).chain(changes).chain(attached).collect()
}

/// Plays a case with the driver killed at each of the points in turn.
fn play(case: &Case, points: &[Point]) -> Shown {
    virtual_time::run(1, async { play_on(Bench::new(1, 2, &fixture::tight(STEP)).await, case, points).await })
}

/// The same with the real process, which is killed once; what was wrong.
pub fn play_outside(case: &Case, point: Point) -> Option<String> {
    let points = [point];
    let played = async { play_on(Bench::outside(1, 2, &fixture::tight(STEP)).await, case, &points).await };
    complaint(case, &points, &virtual_time::run_in_real_time(played))
}

impl Case {
    /// All it asks for can be asked of a process.
    pub fn is_for_a_process(&self) -> bool {
        self.change.is_none()
    }
}

async fn play_on(bench: Arc<Bench>, case: &Case, points: &[Point]) -> Shown {
    if case.namespace_missing {
        bench.members.iter().for_each(|member| member.delete("namespaces", "", SHOP).unwrap());
        sleep(STEP).await;
    }
    if case.full {
        fixture::fill(&bench, case.script.places[0]);
        sleep(STEP * 2).await;
    }
    if case.script.attaches() {
        attach::prepare(&bench, case.script.parameters);
    }
    let planted = Planted::everywhere(&bench);
    bench.start();
    bench.serves().await;
    sleep(STEP).await;
    let mut caller = Caller::new(&bench, case.script.clone());
    if case.deletion || case.change.is_some() {
        caller.provision().await;
        caller.live().await;
        sleep(STEP).await;
    }
    let (goes, owner) = (case.claim_goes, caller.clone());
    let user = move || {
        if goes {
            owner.delete_claim();
        }
    };
    let killer = tokio::spawn(kill(Arc::clone(&bench), points.to_vec(), user));
    let sent = bench.guard.sent();
    let story = operate(&bench, case, caller).await;
    let requests = bench.guard.sent() - sent.max(bench.sent_before_start());
    bench.guard.heal();
    killer.abort();
    finish(&bench, story, &planted, requests).await
}

/// The operation itself, with the user's part in it.
async fn operate(bench: &Bench, case: &Case, mut caller: Caller) -> Story {
    let before = caller.clone();
    let user = async {
        if case.deletion {
            before.delete_claim();
        } else {
            before.delete_claim_in_time().await;
        }
    };
    let (ending, ()) = tokio::join!(caller.provision(), user);
    if let Some(change) = case.change {
        caller.change(change).await;
    }
    let deleted = caller.claim_was_deleted();
    if deleted {
        caller.reclaim().await;
    }
    bench.guard.note(|| format!("the operation has ended: {ending:?}, deleted: {deleted}"));
    Story { caller, ending, deleted }
}

/// Looks at what there is, removes the rest, and looks again.
async fn finish(bench: &Bench, mut story: Story, planted: &Planted, requests: u64) -> Shown {
    if !bench.is_up() {
        bench.start();
    }
    let mut wrong = settle(bench, &story, planted).await;
    if !story.deleted && wrong.is_empty() {
        story.caller.delete_claim();
        story.caller.reclaim().await;
        story.deleted = true;
        wrong = settle(bench, &story, planted).await;
    }
    Shown { requests, wrong, trace: bench.guard.trace() }
}

/// What is wrong after everybody had time.
async fn settle(bench: &Bench, story: &Story, planted: &Planted) -> Vec<String> {
    let wrong = || {
        let mut wrong = violations(bench, std::slice::from_ref(story), planted);
        if story.deleted && !attach::nothing_is_attached(bench, story.caller.leaf_volume().unwrap_or_default()) {
            wrong.push("I5: the volume is removed, and something is attached for it".to_owned());
        }
        wrong
    };
    if !bench.is_outside() {
        sleep(SETTLED).await;
        return wrong();
    }
    let began = Instant::now();
    while !wrong().is_empty() && began.elapsed() < SETTLED {
        sleep(STEP).await;
    }
    wrong()
}

/// Kills the driver at each of the points, and starts it again. Something else may happen meanwhile.
pub async fn kill(bench: Arc<Bench>, points: Vec<Point>, meanwhile: impl Fn()) {
    for point in points {
        if !point.reached(&bench).await {
            return;
        }
        meanwhile();
        sleep(AWAY).await;
        bench.start();
    }
}

impl Point {
    /// Kills the driver there, and starts it again.
    pub async fn strike(self, bench: Arc<Bench>) {
        if self.reached(&bench).await {
            sleep(AWAY).await;
            bench.start();
        }
    }

    /// The same, where nothing but what is asked of members is counted.
    pub async fn strike_in_member(self, bench: Arc<Bench>) {
        if self.reached_of(&bench, is_asked_of_a_member).await {
            sleep(AWAY).await;
            bench.start();
        }
    }

    /// The same, where nothing but writes is counted.
    pub async fn strike_at_a_write(self, bench: Arc<Bench>) {
        if self.reached_of(&bench, is_a_write).await {
            sleep(AWAY).await;
            bench.start();
        }
    }

    /// The driver has come there, and was killed.
    async fn reached(self, bench: &Bench) -> bool {
        self.reached_of(bench, |_, _| true).await
    }

    async fn reached_of(self, bench: &Bench, counts: fn(usize, &Asked) -> bool) -> bool {
        let (tell, mut told) = mpsc::unbounded_channel();
        let sent = AtomicU64::new(0);
        bench.guard.set_fate(move |_, at, asked| {
            let number = sent.fetch_add(counts(at, asked).into(), Ordering::Relaxed) + 1;
            if number < self.request || number == self.request && !counts(at, asked) {
                return Action::Pass;
            }
            let _ = tell.send(());
            self.when.fate(number > self.request)
        });
        if told.recv().await.is_none() {
            return false;
        }
        bench.guard.note(|| format!("the driver is killed: {self:?}"));
        bench.kill();
        bench.guard.heal();
        true
    }
}

/// Watches are begun again at any moment.
pub fn is_asked_of_a_member(at: usize, asked: &Asked) -> bool {
    at > 0 && asked.verb != Verb::Watch
}

/// What is told to people is none, nor who leads.
pub fn is_a_write(_: usize, asked: &Asked) -> bool {
    asked.verb.writes() && !["events", "leases.coordination.k8s.io"].contains(&asked.resource.as_str())
}

/// Right after each of so many writes: what is there then is all that the next one goes on from, whether the answer has come or not.
pub fn after_writes(writes: u64) -> impl Iterator<Item = Point> {
    (1..=writes).map(|request| Point { request, when: When::Applied })
}

/// Before each of so many requests, reads as well: whoever was waited for may have gone on since the last write.
pub fn before_requests(requests: u64) -> impl Iterator<Item = Point> {
    (1..=requests).map(|request| Point { request, when: When::Before })
}

pub fn points(requests: u64) -> impl Iterator<Item = Point> {
    let whens = [When::Before, When::Applied, When::Answered];
    (1..=requests).flat_map(move |request| whens.map(|when| Point { request, when }))
}

fn complaint(case: &Case, points: &[Point], shown: &Shown) -> Option<String> {
    (!shown.wrong.is_empty()).then(|| {
        format!("{case:?} killed at {points:?}:\n{}\n  {}\n", shown.trace.join("\n"), shown.wrong.join("\n  "))
    })
}

/// Every point of every case. How many there are is counted once.
pub fn single_points() -> Vec<(Case, Point)> {
    static POINTS: OnceLock<Vec<(Case, Point)>> = OnceLock::new();
    let of_case = |case: Case| {
        let shown = play(&case, &[]);
        if let Some(wrong) = complaint(&case, &[], &shown) {
            panic!("{} without any fault: {wrong}", case.name);
        }
        points(shown.requests).map(move |point| (case.clone(), point)).collect::<Vec<_>>()
    };
    POINTS.get_or_init(|| cases().into_iter().flat_map(of_case).collect()).clone()
}

fn none_is_wrong(runs: Vec<(Case, Vec<Point>)>) {
    let count = runs.len();
    let wrong = virtual_time::each(virtual_time::THREADS, runs, |(case, points)| {
        complaint(&case, &points, &play(&case, &points))
    });
    assert!(wrong.is_empty(), "{} of {count} runs, such as: {}", wrong.len(), wrong[0]);
}

#[test]
fn nothing_is_lost_or_left_wherever_the_driver_is_killed() {
    let points = drawn(single_points(), ALL);
    none_is_wrong(points.into_iter().map(|(case, point)| (case, vec![point])).collect());
}

/// The second one may also strike while the driver starts. All pairs where the environment asks for them; else some, each with
/// another first point.
#[test]
fn nothing_is_lost_or_left_wherever_the_driver_is_killed_twice() {
    let mut chance = Rng::with_seed(1);
    let firsts =
        drawn(single_points(), SOME_PAIRS).into_iter().map(|(case, first)| (case, first, chance.fork())).collect();
    let pairs = virtual_time::each(virtual_time::THREADS, firsts, |(case, first, mut chance)| {
        let after = play(&case, &[first]).requests;
        let seconds: Vec<Point> = points(after).collect();
        let seconds = if is_thorough() { seconds } else { chance.choice(seconds).into_iter().collect() };
        Some(seconds.into_iter().map(|second| (case.clone(), vec![first, second])).collect::<Vec<_>>())
    });
    none_is_wrong(pairs.into_iter().flatten().collect());
}
