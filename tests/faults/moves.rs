//! A volume moves to another member: whoever is killed, late, silent or changes his mind, it ends done or undone, its data is where the
//! host leads, and nothing is left. The movers' pods are played: what a volume holds is a word.

mod afterwards;
mod attributes;
mod calls;
mod changed;
mod denied;
mod everything;
mod forgotten;
mod gone;
mod grown;
mod hands;
mod killed;
mod late;
mod lines;
mod lost;
mod nodes;
mod off;
mod permitted;
mod pinned;
mod play;
mod refused;
mod restored;
mod rewound;
mod rounds;
mod slots;
mod sources;
mod theirs;
mod users;
mod written;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    Backup,
    faults::{Action, Asked},
    storage::Settings,
    text,
};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::{
    ask::{Target, ask},
    bench::{Bench, SHOP},
    caller::{Caller, Ending, Script},
    crash::{Point, points},
    extent::drawn,
    fixture,
    guard::LEASES,
    virtual_time,
};
pub use permitted::{is_permitted, says_closed};
use play::{Mood, Play};

const STEP: Duration = Duration::from_millis(100);
const CLAIM: &str = "data";
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const YARD: &str = "kosmos-csi-movers";
const MOVES: &str = "volumemoves.kosmos.csi.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const DEFINITION: &str = include_str!("../../deploy/chart/kosmos-csi/files/volumemoves.yaml");
/// From the wish to the end of a move that nobody disturbs.
const MOVED: Duration = Duration::from_mins(2);
/// However it is disturbed.
const ENDED: Duration = Duration::from_mins(15);
const REMOVED: Duration = Duration::from_mins(10);
/// Of the moments of a move, and of the points at which its driver is killed.
const SOME: usize = 12;
const POINTS: usize = 40;
/// Of a move that nobody disturbs, to all three clusters.
const MOST_REQUESTS: u64 = 244;
/// To the host, and to the member that gets fewer and the one that gets more: one of these two is asked for the pods that have the copy.
const MOST_TO_EACH: [u64; 3] = [86, 76, 83];
const DATA: &str = "what the user has written";

struct Story {
    bench: Arc<Bench>,
    caller: Caller,
    play: Play,
    /// Of the host, while its claim waits for its volume.
    waiting: Backup,
}

impl Story {
    async fn new(script: Script) -> Self {
        Self::in_members(2, &fixture::steady(STEP), script).await
    }

    async fn in_members(members: usize, storage: &Settings, script: Script) -> Self {
        let bench = Bench::new(1, members, storage).await;
        bench.host.create(DEFINITIONS, serde_saphyr::from_str(DEFINITION).unwrap()).unwrap();
        *crate::bench::lock(&bench.mover_image) = Some("mover".to_owned());
        for member in &bench.members {
            member.create("namespaces", json!({"metadata": {"name": YARD}})).unwrap();
        }
        bench.host.create("storageclasses.storage.k8s.io", class(&script)).unwrap();
        bench.start();
        bench.serves().await;
        let mut caller = Caller::new(&bench, script);
        let waiting = bench.host.backup();
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let play = Play::new(&bench);
        play.write(0, caller.leaf_volume().unwrap(), DATA);
        sleep(Duration::from_secs(10)).await;
        Self { bench, caller, play, waiting }
    }

    fn asks(&self, to: usize, spec: &Value) {
        self.asks_as("to", to, spec);
    }

    fn asks_as(&self, name: &str, to: usize, spec: &Value) {
        let mut spec = spec.clone();
        spec["claimName"] = json!(CLAIM);
        spec["to"] = json!({"member": self.bench.members[to].name()});
        let wanted = json!({"metadata": {"name": name, "namespace": SHOP}, "spec": spec});
        self.bench.host.create(MOVES, wanted).unwrap();
    }

    fn phase(&self) -> String {
        let of = self.bench.host.get(MOVES, SHOP, "to");
        of.map(|of| text(&of, "/status/phase").to_owned()).unwrap_or_default()
    }

    fn is_over(&self) -> bool {
        match self.bench.host.get(MOVES, SHOP, "to") {
            Some(of) => ["Succeeded", "Cancelled", "Refused"].contains(&text(&of, "/status/phase")),
            None => true,
        }
    }

    fn status(&self) -> String {
        self.bench.host.get(MOVES, SHOP, "to").map(|of| of["status"].to_string()).unwrap_or_default()
    }

    async fn comes_to(&self, phase: &str) {
        let end = Instant::now() + MOVED;
        while self.phase() != phase {
            assert!(Instant::now() < end, "{phase} is not reached: {}\n{}", self.status(), self.trace());
            sleep(STEP).await;
        }
    }

    fn trace(&self) -> String {
        self.bench.guard.trace().join("\n")
    }

    fn host_volume(&self) -> Arc<Value> {
        self.bench.host.get(VOLUMES, "", self.caller.volume()).unwrap()
    }

    /// What the pods of the host's claim find.
    fn found(&self) -> Result<(usize, String), String> {
        let claim = self.bench.host.get(CLAIMS, SHOP, CLAIM).ok_or("the claim is gone")?;
        if text(&claim, "/status/phase") != "Bound" {
            return Err(format!("the claim is {}", claim["status"]));
        }
        let handle = text(&self.host_volume(), "/spec/csi/volumeHandle").to_owned();
        let leaf = self.bench.leaf_behind(&handle)?;
        let at = self.bench.members.iter().position(|member| handle.starts_with(&format!("{}/", member.name())));
        let at = at.ok_or("the handle names no member")?;
        if text(&leaf, "/metadata/namespace") != SHOP || text(&leaf, "/status/phase") != "Bound" {
            return Err(format!("the leaf is {leaf}"));
        }
        Ok((at, self.play.read(at, text(&leaf, "/spec/volumeName"))))
    }

    /// What a move leaves behind it, whatever became of it.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for member in &self.bench.members {
            for kind in ["pods", "secrets", CLAIMS] {
                let there = member.list(kind).into_iter().filter(|one| text(one, "/metadata/namespace") == YARD);
                left.extend(there.map(|one| format!("{} of {}: {one}", kind, member.name())));
            }
            for kind in [CLAIMS, VOLUMES] {
                let marked = member.list(kind).into_iter().filter(|one| {
                    let notes = &one["metadata"]["annotations"];
                    !notes["kosmos.csi.io/move"].is_null() || !notes["kosmos.csi.io/place"].is_null()
                });
                left.extend(marked.map(|one| format!("a mark in {}: {one}", member.name())));
            }
        }
        left
    }

    /// Sources that are kept in a member, and what they hold.
    fn kept(&self, at: usize) -> Vec<String> {
        let member = &self.bench.members[at];
        let kept =
            member.list(VOLUMES).into_iter().filter(|one| !one["metadata"]["labels"]["kosmos.csi.io/moved"].is_null());
        kept.filter(|one| text(one, "/spec/persistentVolumeReclaimPolicy") == "Retain")
            .map(|one| self.play.read(at, text(&one, "/metadata/name")))
            .collect()
    }
}

/// It goes with its move, and not with its volume.
pub fn is_copy(object: &Value) -> bool {
    let note = |key: &str| text(object, &format!("/metadata/annotations/kosmos.csi.io~1{key}")).to_owned();
    let is_in_the_yard =
        ["/metadata/namespace", "/spec/claimRef/namespace"].iter().any(|path| text(object, path) == YARD);
    is_in_the_yard || note("move").ends_with("/copy") || !note("place").is_empty()
}

/// As the caller's requests have it.
fn class(script: &Script) -> Value {
    let mut parameters: serde_json::Map<String, Value> =
        script.parameters.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    parameters.insert("leafStorageClass".to_owned(), json!(script.leaf_class));
    json!({"metadata": {"name": "kosmos"}, "provisioner": "kosmos.csi.io", "parameters": parameters})
}

/// What is wrong at the end, whatever became of the move: it is done or undone, and nothing of it is left.
async fn at_the_end(story: &Story, may_succeed: &[bool]) -> Vec<String> {
    let end = Instant::now() + ENDED;
    while !(story.is_over() && story.left().is_empty()) && Instant::now() < end {
        sleep(STEP).await;
    }
    sleep(Duration::from_secs(10)).await;
    let phase = story.phase();
    let mut wrong = story.bench.guard.wrong();
    let succeeded = story.found().is_ok_and(|(at, _)| at == 1);
    let data = (usize::from(succeeded), DATA.to_owned());
    if story.found() != Ok(data) {
        wrong.push(format!("{phase}: found {:?}", story.found()));
    }
    if !may_succeed.contains(&succeeded) || (phase == "Succeeded") != succeeded && !phase.is_empty() {
        wrong.push(format!("it has come to {phase}"));
    }
    let kept: Vec<&str> = if succeeded { vec![DATA] } else { vec![] };
    if story.kept(0) != kept || !story.kept(1).is_empty() {
        wrong.push(format!("kept {:?} {:?}", story.kept(0), story.kept(1)));
    }
    wrong.extend(story.left());
    if !wrong.is_empty() {
        wrong.insert(0, format!("{}\n{}", story.status(), story.trace()));
    }
    wrong
}

#[test]
fn volume_moves_with_its_claims_name_and_uid_and_the_source_is_kept() {
    virtual_time::run(1, async {
        let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let uid = text(&story.bench.host.get(CLAIMS, SHOP, CLAIM).unwrap(), "/metadata/uid").to_owned();
        assert_eq!(story.found(), Ok((0, DATA.to_owned())));
        story.asks(1, &json!({}));
        story.comes_to("Succeeded").await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(story.found(), Ok((1, DATA.to_owned())), "{}\n{}", story.status(), story.trace());
        assert_eq!(text(&story.bench.host.get(CLAIMS, SHOP, CLAIM).unwrap(), "/metadata/uid"), uid);
        assert_eq!(story.kept(0), [DATA]);
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
        // It is a volume like any other.
        let handle = text(&story.host_volume(), "/spec/csi/volumeHandle").to_owned();
        story.caller.stands_for(&handle);
        story.caller.delete_claim();
        assert!(timeout(REMOVED, story.caller.reclaim()).await.is_ok(), "{}", story.trace());
        sleep(MOVED).await;
        assert_eq!(story.kept(0), [DATA]);
        assert!(story.bench.members[1].list(VOLUMES).is_empty());
    });
}

/// Requests take a while, so that what is done meanwhile meets every state.
fn is_slow(story: &Story) {
    story.bench.guard.set_fate(|number, _, _| Action::Delay(Duration::from_millis(number * 37 % 300)));
}

/// What is wrong where somebody does something at a moment of a move.
fn disturbed(moment: u64, may_succeed: &[bool], what: &impl AsyncFn(&mut Story)) -> Option<String> {
    let wrong = virtual_time::run(moment, async {
        let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        is_slow(&story);
        story.asks(1, &json!({}));
        sleep(Duration::from_millis(moment * 250)).await;
        what(&mut story).await;
        at_the_end(&story, may_succeed).await
    });
    (!wrong.is_empty()).then(|| format!("moment {moment}: {}", wrong.join("\n")))
}

/// Longer than a move takes.
const MOMENTS: std::ops::Range<u64> = 0..120;

fn none_is_wrong(bad: &[String]) {
    assert!(bad.is_empty(), "{} are wrong, such as {}", bad.len(), bad[0]);
}

#[test]
fn move_that_is_called_off_at_any_moment_is_done_or_undone() {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
        disturbed(moment, &[true, false], &async |story: &mut Story| {
            let _ = story.bench.host.delete(MOVES, SHOP, "to");
        })
    }));
}

#[test]
fn member_that_is_silent_for_a_while_at_any_moment_is_waited_for() {
    for at in [1, 2] {
        none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
            disturbed(moment, &[true], &async |story: &mut Story| {
                story.bench.guard.set_fate(move |_, of, _| if of == at { Action::Hang } else { Action::Pass });
                sleep(Duration::from_mins(2)).await;
                story.bench.guard.heal();
            })
        }));
    }
}

/// Up to fifty seconds. Which ones, the moment says.
fn some_writes_are_late(story: &Story, moment: u64) {
    story.bench.guard.set_fate(move |number, _, asked| {
        let is_late = asked.verb.writes() && number % 7 == moment % 7;
        if is_late { Action::Late(Duration::from_secs(number % 50)) } else { Action::Pass }
    });
}

#[test]
fn writes_that_are_carried_out_late_undo_nothing() {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
        disturbed(moment, &[true, false], &async |story: &mut Story| {
            some_writes_are_late(story, moment);
            sleep(Duration::from_secs(30)).await;
            if moment % 2 == 0 {
                let _ = story.bench.host.delete(MOVES, SHOP, "to");
            }
            sleep(Duration::from_mins(1)).await;
            story.bench.guard.heal();
        })
    }));
}

#[test]
fn claim_that_is_deleted_at_any_moment_takes_its_volume_along_and_leaves_no_copy() {
    let bad = virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
        let wrong = virtual_time::run(moment, async {
            let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            is_slow(&story);
            story.asks(1, &json!({}));
            sleep(Duration::from_millis(moment * 250)).await;
            story.caller.delete_claim();
            let end = Instant::now() + ENDED;
            let (host, name) = (story.bench.host.clone(), story.caller.volume().to_owned());
            let volume = || host.get(VOLUMES, "", &name);
            // For a moment of the switch there is none, and then another one.
            while (volume().is_some() || !story.is_over()) && Instant::now() < end {
                let Some(volume) = volume() else {
                    sleep(STEP).await;
                    continue;
                };
                story.caller.stands_for(text(&volume, "/spec/csi/volumeHandle"));
                let _ = timeout(Duration::from_secs(30), story.caller.reclaim()).await;
            }
            while !story.left().is_empty() && Instant::now() < end {
                sleep(STEP).await;
            }
            sleep(Duration::from_mins(1)).await;
            let mut wrong = story.left();
            let kept = story.kept(0).len();
            let volumes = [0, 1].map(|at| story.bench.members[at].list(VOLUMES).len());
            if volumes != [kept, 0] || volume().is_some() {
                wrong.push(format!("{volumes:?} volumes are left, {kept} kept"));
            }
            if !wrong.is_empty() {
                wrong.insert(0, format!("{}\n{}", story.status(), story.trace()));
            }
            wrong
        });
        (!wrong.is_empty()).then(|| format!("moment {moment}: {}", wrong.join("\n")))
    });
    none_is_wrong(&bad);
}

/// How many requests a move takes, and what is wrong, where the driver is killed at a point.
fn killed_at(point: Option<Point>) -> (u64, Vec<String>) {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let sent = story.bench.guard.sent();
        let killer = point.map(|point| tokio::spawn(point.strike(Arc::clone(&story.bench))));
        story.asks(1, &json!({}));
        let wrong = at_the_end(&story, &[true]).await;
        let requests = story.bench.guard.sent() - sent;
        story.bench.guard.heal();
        killer.iter().for_each(tokio::task::JoinHandle::abort);
        (requests, wrong)
    })
}

#[test]
fn volume_moves_wherever_the_driver_is_killed() {
    let (requests, wrong) = killed_at(None);
    assert!(wrong.is_empty() && requests >= 100, "{requests} {}", wrong.join("\n"));
    let bad = virtual_time::each(virtual_time::THREADS, drawn(points(requests), POINTS), |point| {
        let (_, wrong) = killed_at(Some(point));
        (!wrong.is_empty()).then(|| format!("{point:?}: {}", wrong.join("\n")))
    });
    assert!(bad.is_empty(), "{} of {}, such as {}", bad.len(), requests * 3, bad[0]);
}

#[test]
fn move_that_nobody_disturbs_asks_no_cluster_for_more_than_its_part() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let sent = Arc::new([0; 3].map(AtomicU64::new));
        let counted = Arc::clone(&sent);
        story.bench.guard.set_fate(move |_, at, asked| {
            // Whoever leads renews its Lease, whether anything moves or not.
            counted[at].fetch_add(u64::from(asked.resource != LEASES), Ordering::Relaxed);
            Action::Pass
        });
        story.asks(1, &json!({}));
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
        let mut sent = [0, 1, 2].map(|at: usize| sent[at].load(Ordering::Relaxed));
        sent[1..].sort_unstable();
        println!("figure: requests of a move that nobody disturbs: {sent:?} to the host and the members");
        let is_within = sent.iter().zip(MOST_TO_EACH).all(|(sent, most)| *sent <= most);
        assert!(is_within && sent.iter().sum::<u64>() <= MOST_REQUESTS, "{sent:?}");
    });
}

#[test]
fn moved_volume_is_attached_as_its_class_says_of_the_member_that_it_is_in_now() {
    const SOURCE: &[(&str, &str)] = &[("attachMode.m0", "volume-attachment")];
    const DESTINATION: &[(&str, &str)] = &[("attachMode.m1", "volume-attachment")];
    for (parameters, expected) in [(SOURCE, ""), (DESTINATION, "volume-attachment")] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], parameters, ..Script::new(CLAIM) }).await;
            let mode = |story: &Story| text(&story.host_volume(), "/spec/csi/volumeAttributes/attachMode").to_owned();
            assert_ne!(mode(&story), expected);
            story.asks(1, &json!({}));
            story.comes_to("Succeeded").await;
            assert_eq!(mode(&story), expected, "{}", story.trace());
        });
    }
}

/// By force; and that could not be done later, as an admission policy holds it then.
#[test]
fn finalizer_that_somebody_took_off_is_back_before_the_volume_is_replaced() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        let change = |of: &mut Value| {
            of["metadata"]["finalizers"] = json!([]);
            of["spec"]["approved"] = json!(true);
        };
        story.bench.host.change(MOVES, SHOP, "to", change).unwrap();
        while story.phase() != "Switching" {
            sleep(STEP / 10).await;
        }
        let of = story.bench.host.get(MOVES, SHOP, "to").unwrap();
        assert_eq!(of["metadata"]["finalizers"], json!(["kosmos.csi.io/move"]));
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// The pod waits for nothing else: not for the mark to go, nor for the move to end.
#[test]
fn copy_is_given_to_a_node_as_soon_as_the_host_leads_to_it_and_not_before() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        let volume = text(&story.bench.host.get(MOVES, SHOP, "to").unwrap(), "/status/to/handle").to_owned();
        let target = Target { member: "m1".to_owned(), volume: volume.clone(), ..Target::default() };
        let (code, why) = ask(&story.bench, "ControllerPublishVolume", &target).await;
        assert_eq!(code, Code::Aborted, "{why}");
        story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["approved"] = json!(true)).unwrap();
        let leads = |story: &Story| {
            let found = story.bench.host.get(VOLUMES, "", story.caller.volume());
            found.is_some_and(|found| text(&found, "/spec/csi/volumeHandle") == volume)
        };
        while !leads(&story) {
            sleep(STEP / 10).await;
        }
        // The move goes no further.
        let is_move = |asked: &Asked| asked.resource == MOVES && asked.verb.writes();
        story.bench.guard.set_fate(move |_, _, asked| if is_move(asked) { Action::Hang } else { Action::Pass });
        sleep(STEP).await;
        let (code, why) = ask(&story.bench, "ControllerPublishVolume", &target).await;
        assert_eq!(code, Code::Ok, "{why}\n{}", story.trace());
        let copy = story.bench.members[1].get(CLAIMS, SHOP, CLAIM).unwrap();
        assert!(text(&copy, "/metadata/annotations/kosmos.csi.io~1move").ends_with("/copy"), "{copy}");
        story.bench.guard.heal();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

#[test]
fn volume_goes_there_and_back_and_each_source_is_kept() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let uid = text(&story.bench.host.get(CLAIMS, SHOP, CLAIM).unwrap(), "/metadata/uid").to_owned();
        rounds::goes_through(&story, [1, 0, 1, 0, 1].into_iter()).await;
        assert_eq!(text(&story.bench.host.get(CLAIMS, SHOP, CLAIM).unwrap(), "/metadata/uid"), uid);
        assert_eq!((story.kept(0).len(), story.kept(1).len()), (3, 2));
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
        story.caller.delete_claim();
    });
}

#[test]
fn movers_that_fail_die_or_lie_are_begun_again_and_nothing_is_switched_to_what_they_left() {
    for mood in [Mood::Fail, Mood::Die, Mood::Lie, Mood::Miscount] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            story.play.is(mood);
            story.asks(1, &json!({}));
            sleep(Duration::from_mins(3)).await;
            assert_eq!(story.phase(), "Copying", "{mood:?}: {}", story.trace());
            let told = story.bench.host.list("events").into_iter().map(|event| text(&event, "/message").to_owned());
            let told: Vec<String> = told.collect();
            assert!(
                mood != Mood::Fail || told.iter().any(|told| told.contains("NoSpace: the volume is full")),
                "{told:?}"
            );
            let stalled = |story: &Story| {
                let of = story.bench.host.get(MOVES, SHOP, "to").unwrap();
                ["reason", "status"].map(|key| of["status"]["conditions"][0][key].as_str().unwrap().to_owned())
            };
            assert_eq!(stalled(&story), ["MoverFailed", "True"], "{mood:?}: {}", story.status());
            story.play.is(Mood::Well);
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "{mood:?}");
            assert_eq!(stalled(&story), ["Progressing", "False"], "{mood:?}: {}", story.status());
        });
    }
}

/// As one that a later version of the driver has led on, before that was taken back.
#[test]
fn move_that_nobody_understands_keeps_none_from_beginning_but_those_of_its_claim() {
    for (claim, expected) in [("log", "Succeeded"), (CLAIM, "Refused")] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let later = json!({"metadata": {"name": "later", "namespace": SHOP, "finalizers": ["kosmos.csi.io/move"]},
                "spec": {"claimName": claim, "to": {"member": "m1"}}});
            story.bench.host.create(MOVES, later).unwrap();
            story.bench.host.change(MOVES, SHOP, "later", |of| of["status"] = json!({"phase": "Unheard"})).unwrap();
            story.asks(1, &json!({}));
            story.comes_to(expected).await;
            let names = story.status().contains("is being moved by VolumeMove shop/later");
            assert_eq!(names, expected == "Refused", "{}", story.status());
            assert_eq!(story.bench.guard.wrong(), [""; 0]);
        });
    }
}

#[test]
fn of_two_moves_of_one_claim_one_is_refused_and_names_the_other() {
    for at_once in [true, false] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            story.asks(1, &if at_once { json!({}) } else { json!({"cutover": "Manual"}) });
            if !at_once {
                story.comes_to("Ready").await;
            }
            let spec = json!({"claimName": CLAIM, "to": {"member": "m1"}});
            let other = json!({"metadata": {"name": "too", "namespace": SHOP}, "spec": spec});
            story.bench.host.create(MOVES, other).unwrap();
            sleep(MOVED).await;
            let all = ["to", "too"].map(|name| story.bench.host.get(MOVES, SHOP, name).unwrap());
            let mut phases = all.each_ref().map(|of| text(of, "/status/phase").to_owned());
            phases.sort_by_key(|phase| phase != "Refused");
            let said = all.iter().map(|of| of["status"]["conditions"][0]["message"].to_string()).collect::<String>();
            assert!(
                phases[0] == "Refused" && said.contains("is being moved by VolumeMove shop/to"),
                "{phases:?} {said}"
            );
            assert_eq!(phases[1], if at_once { "Succeeded" } else { "Ready" }, "{said}");
            assert_eq!(story.bench.guard.wrong(), [""; 0]);
        });
    }
}
