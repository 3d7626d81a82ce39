//! Faults on real clusters, one after the other, while users go on: by request, where driver, sidecars or agent reach one through a proxy
//! (`clusters/between`) that breaks what passes, and of the machines. Once a fault is over, all that users have asked for comes about, and
//! what was promised has held.
//!
//! One that is drawn belongs to `make test`; `make faults-real` has all of them, in parts, each in an order that its seed draws. What was
//! seen makes `docs/game-day.md` (`game_day.rs`).

mod acts;
mod clock;
mod credentials;
mod disk;
mod fault;
mod game_day;
mod guests;
mod history;
mod kept;
mod limits;
mod load;
mod machines;
mod matrix;
mod memory;
mod more;
mod parts;
mod pods;
mod promises;
mod real_node;
mod report;
mod requests;
mod rolling;
mod row;
mod said;
mod sum;
mod travels;
mod used;
mod versions;
mod way;
mod words;
mod world;
mod writer;

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use tokio::time::sleep;

use self::{
    fault::{Fault, How},
    kept::LINES,
    limits::{Limits, rounds},
    load::Load,
    parts::PARTS,
    promises::Promises,
    report::Report,
    requests::{ANSWERS, FORGOTTEN, STREAMS, WAYS},
    row::{
        COMES_ABOUT, NO_GROWTH, NO_LOOP, NOBODY_ELSES, NOTHING_LEFT, NOTHING_LOST, NOTHING_TWICE, OTHERS, RUNS_ON, Row,
        Verdict, WHO_WAITS,
    },
    said::said,
    way::Way,
    world::{SINCE, Scene, Users, World},
};
use crate::{
    clusters::{Cluster, between::Count, wait_for},
    pool::on_fleet,
    rig::{MEMBERS, Rig},
};

/// The member that faults concern, and one whose answers may come in its place.
const MEMBER: &str = MEMBERS[0];
const OTHER: &str = MEMBERS[1];
/// Sidecars say why something waits when their call has ended, half a minute after it began at the latest.
const WORD: Duration = Duration::from_mins(1);
/// Until a fault has taken place as often as it is to: what it is about may be a pod that has to begin first.
const TAKES_PLACE: Duration = Duration::from_mins(2);
/// Of what `make test` plays.
const DRAWN: usize = 1;
/// In which most that users ask for is under way, in milliseconds.
const MOMENTS: u64 = 3000;

#[test]
fn drawn_faults_on_the_way_to_a_member_cost_its_users_nothing_but_time() {
    played("faults-by-request", (Scene::Through(Way::ToMember), Users::Few), &drawn());
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn answers_that_are_lost_or_of_somebody_on_the_way_cost_nothing_but_time() {
    part("faults-of-answers");
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn bodies_and_watches_that_break_cost_nothing_but_time() {
    part("faults-of-streams");
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn ways_that_lead_elsewhere_or_are_slow_cost_nothing_but_time() {
    part("faults-of-ways");
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn certificates_and_tokens_that_are_replaced_cost_nothing_but_time() {
    part("faults-of-credentials");
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn movers_and_their_lines_that_are_not_answered_or_cut_cost_nothing_but_time() {
    part("faults-of-moves");
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn faults_between_driver_sidecars_and_host_cost_nothing_but_time() {
    part("faults-to-the-host");
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn faults_between_agent_and_member_cost_nothing_but_time() {
    part("faults-of-the-agent");
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn links_of_which_one_direction_is_cut_cost_nothing_but_time() {
    part("faults-of-links");
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn processes_of_the_host_that_stand_still_or_die_cost_nothing_but_time() {
    part("faults-of-the-host");
}

#[test]
#[ignore = "takes an hour: make faults-real"]
fn processes_and_links_of_a_member_that_stand_still_or_die_cost_nothing_but_time() {
    part("faults-of-a-member");
}

#[test]
#[ignore = "takes minutes, and builds an older Kubernetes: make faults-real"]
fn host_that_is_a_minor_version_behind_its_members_costs_nothing_but_time() {
    part("faults-of-an-older-host");
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn processes_of_ours_that_stand_still_or_die_cost_nothing_but_time() {
    part("faults-of-ours");
}

#[test]
#[ignore = "takes minutes, and builds a version before: make faults-real"]
fn driver_and_agent_that_are_rolled_back_and_upgraded_cost_nothing_but_time() {
    part("faults-of-upgrades");
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn clocks_of_ours_that_are_set_cost_nothing() {
    part("faults-of-clocks");
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn processes_of_a_real_node_that_stand_still_or_die_cost_nothing_but_time() {
    part("faults-of-a-node");
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn real_node_without_power_costs_nothing_but_time() {
    part("faults-of-a-nodes-power");
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn node_of_a_member_without_power_costs_nothing_but_time() {
    part("faults-of-power");
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn disks_of_a_member_that_are_full_cost_nothing_but_time() {
    part("faults-of-disks");
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn cluster_that_goes_back_to_a_backup_says_what_it_has_lost_and_loses_no_more() {
    part("faults-of-backups");
}

fn part(name: &str) {
    let part = PARTS.iter().find(|part| part.name == name).unwrap();
    played(part.name, (part.scene, Users::All), part.faults);
}

/// Clusters come up only where something is to be played.
fn played(name: &str, beside: (Scene, Users), faults: &[Fault]) {
    let (report, limits) = (Report::begin(name, seed(), rounds()).unwrap(), Limits::given());
    let mut left = report.left(&in_order(faults, rounds()));
    left.retain(|(fault, _)| limits.allow(fault));
    if left.is_empty() {
        return report.verdict(faults).unwrap();
    }
    on_fleet(name, |rig| play(rig, beside, faults, report, left));
}

/// As the seed draws it, whatever of them is left, each with the moment at which it comes if it meets users in the middle of what they do.
fn in_order(faults: &[Fault], rounds: usize) -> Vec<(Fault, Duration)> {
    let (mut draws, mut all) = (fastrand::Rng::with_seed(seed()), Vec::new());
    for _ in 0..rounds {
        let mut round = faults.to_vec();
        draws.shuffle(&mut round);
        all.extend(round.into_iter().map(|fault| (fault, Duration::from_millis(draws.u64(..MOMENTS)))));
    }
    all
}

/// Of the order of tests.
fn seed() -> u64 {
    std::env::var("KOSMOS_CSI_ORDER").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default()
}

/// From all that are over soon.
fn drawn() -> Vec<Fault> {
    let quick = ANSWERS.into_iter().chain(STREAMS).chain(WAYS).filter(|fault| fault.takes < FORGOTTEN);
    fastrand::Rng::with_seed(seed()).choose_multiple(quick, DRAWN)
}

/// A fault after which something is not well ends the part: what comes on these clusters would say nothing.
async fn play(
    rig: &Rig,
    (scene, users): (Scene, Users),
    faults: &[Fault],
    mut report: Report,
    left: Vec<(Fault, Duration)>,
) -> Result<()> {
    let world = Box::pin(World::prepare(rig, report.name(), scene, users)).await;
    let (world, limits) = (world.context("prepare what is there before any fault")?, Limits::given());
    for (number, (fault, moment)) in (1..).zip(left) {
        if !limits.allow(&fault) {
            continue;
        }
        eprintln!("{}: {} begins", report.name(), fault.name);
        let began = Instant::now();
        let row = tokio::select! {
            row = Box::pin(row(&world, number, fault, moment)) => row,
            never = world.listens() => match never {},
        };
        let row = row.unwrap_or_else(|error| Row::failed(&fault, error, began.elapsed().as_secs_f64()));
        let is_well = row.is_well();
        report.add(row)?;
        if !is_well {
            report.keep_logs(&rig.fleet, fault.name)?;
            break;
        }
        // What has come back by itself need not be all: the next fault is to find all at work.
        if let Err(error) = try_join_all(rig.fleet.clusters().map(Cluster::resume)).await {
            let why = format!("{}: not so: the clusters are at work again: {error:#}", fault.name);
            return report.verdict(faults).context(why);
        }
    }
    report.verdict(faults)?;
    world.end().await
}

/// One fault from its beginning until nothing of it is left. One that meets users in the middle of what they do comes at this moment.
async fn row(world: &World<'_>, number: usize, fault: Fault, moment: Duration) -> Result<Row> {
    let (load, promises, since) = (Load::new(number, world.users), Promises::begin(world).await?, Timestamp::now());
    let old = load.before(world).await?;
    let begun = if fault.how.comes_amid() { None } else { Some(Box::pin(world.begin(fault.how)).await?) };
    let is_over = Cell::new(false);
    let meanwhile = async {
        let played = if let Some(played) = begun {
            played
        } else {
            sleep(moment).await;
            Box::pin(world.begin(fault.how)).await?
        };
        let seen = Box::pin(goes_on(world, (&load, old.as_str()), &promises, fault, &played)).await;
        is_over.set(true);
        seen
    };
    let (meanwhile, (), ()) = tokio::try_join!(meanwhile, load.during(world), load.goes_on(world, &is_over))?;
    let over = meanwhile.over;
    let within = world.users.patience(fault.within);
    let converged = Box::pin(load.converges(world, &old, within)).await;
    let recovered_after = converged.is_ok().then(|| over.elapsed().as_secs_f64());
    // Where the host is still away, nobody can read it.
    let said = said(world, &load, since).await.unwrap_or_default();
    let twice = meanwhile.twice.and(promises.nothing_is_there_twice(fault.how).await);
    let copied = if converged.is_ok() { has_all(world, (&load, &promises), fault.how, within).await } else { Ok(()) };
    let left = match load.clear(world).await {
        Ok(()) => promises.nothing_is_left(fault.how, within).await,
        Err(error) => Err(error.context("remove what is there")),
    };
    let clean_after = left.is_ok().then(|| over.elapsed().as_secs_f64());
    let kept = promises.nothing_is_lost(number).await;
    let load = load.done(*kept.as_ref().unwrap_or(&0));
    let mut verdicts = vec![
        Verdict::new(COMES_ABOUT, converged),
        Verdict::new(NOTHING_LOST, kept.and(copied)),
        Verdict::new(NOTHING_LEFT, left),
        Verdict::new(NOTHING_TWICE, twice),
        Verdict::new(NOBODY_ELSES, promises.nobody_elses_is_touched(fault.how).await),
        Verdict::new(NO_LOOP, promises.nobody_asks_in_a_loop().await),
        Verdict::new(NO_GROWTH, promises.nothing_grows().await),
    ];
    if let Some((told, served)) = meanwhile.of_members {
        verdicts.extend([Verdict::new(WHO_WAITS, told), Verdict::new(OTHERS, served)]);
    }
    verdicts.extend(meanwhile.runs_on.map(|runs_on| Verdict::new(RUNS_ON, runs_on)));
    let (memory, seconds, times) = (promises.memory().await.unwrap_or_default(), promises.seconds(), meanwhile.times);
    Ok(Row { said, times, recovered_after, clean_after, verdicts, load, memory, seconds, ..Row::of(&fault) })
}

/// Copies have what was copied, and a claim that waits again in a restored host gets what it had.
async fn has_all(
    world: &World<'_>,
    (load, promises): (&Load, &Promises<'_, '_>),
    how: How,
    within: Duration,
) -> Result<()> {
    load.copies_have_all(promises).await?;
    if !matches!(how, How::HostRestored) {
        return Ok(());
    }
    pods::runs(&world.host, SINCE, within).await?;
    promises.has_lines(SINCE, SINCE, LINES).await
}

/// What was seen while a fault went on.
struct Meanwhile {
    times: usize,
    twice: Result<()>,
    /// Whether who waits was told, and who uses the other member served.
    of_members: Option<(Result<()>, Result<()>)>,
    /// Whether a pod of the member has written on, where that is whole.
    runs_on: Option<Result<()>>,
    over: Instant,
}

async fn goes_on(
    world: &World<'_>,
    (load, old): (&Load, &str),
    promises: &Promises<'_, '_>,
    fault: Fault,
    played: &[Count],
) -> Result<Meanwhile> {
    let began = Instant::now();
    let times = || played.iter().map(Count::get).sum::<usize>();
    let told = async {
        let says_why = wait_for("each claim that waits says why", WORD, || async {
            load.says_why(world, old).await?;
            Ok(Some(()))
        });
        says_why.await?;
        world.lost_is_told().await
    };
    let of_members = if fault.is_members { Some(tokio::join!(told, load.other_is_served(world))) } else { None };
    let what = format!("it takes place {} times", fault.times);
    wait_for(&what, TAKES_PLACE, || async { Ok((times() >= fault.times).then_some(())) }).await?;
    sleep(fault.lasts.saturating_sub(began.elapsed())).await;
    let twice = if fault.how.leaves_servers() { promises.nothing_is_there_twice(fault.how).await } else { Ok(()) };
    let runs_on = if fault.how.leaves_members() { Some(world.is_written_to().await) } else { None };
    let over = Box::pin(world.end_of(fault.how)).await?;
    Ok(Meanwhile { times: times(), twice, of_members, runs_on, over })
}
