//! Faults by request on real clusters: driver, sidecars or agent reach one through a proxy (`clusters/between`) that breaks what passes, one
//! fault after the other, while users go on. Once a fault is over, all that they have asked for comes about, and what was promised has held.
//!
//! One that is drawn belongs to `make test`; `make faults-real` has all of them, in parts, each in an order that its seed draws.

mod fault;
mod load;
mod matrix;
mod pods;
mod promises;
mod report;
mod row;
mod used;
mod way;
mod world;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::time::sleep;

use self::{
    fault::{ANSWERS, FORGOTTEN, Fault, OF_AGENT, STREAMS, TO_HOST, WAYS},
    load::Load,
    promises::Promises,
    report::Report,
    row::{
        COMES_ABOUT, NO_GROWTH, NO_LOOP, NOBODY_ELSES, NOTHING_LEFT, NOTHING_LOST, NOTHING_TWICE, OTHERS, Row, Verdict,
        WHO_WAITS,
    },
    way::Way,
    world::World,
};
use crate::{
    clusters::{between::Count, wait_for},
    pool::on_fleet,
    rig::{MEMBERS, PATIENCE, Rig},
};

/// The member behind the proxy, and one whose answers come in its place.
const MEMBER: &str = MEMBERS[0];
const OTHER: &str = MEMBERS[1];
/// A provisioner says why a claim waits when its call has ended, half a minute after it began at the latest.
const WORD: Duration = Duration::from_secs(45);
/// Of what `make test` plays.
const DRAWN: usize = 1;

#[test]
fn drawn_faults_on_the_way_to_a_member_cost_its_users_nothing_but_time() {
    on_fleet("faults-by-request", async |rig| play(rig, "faults-by-request", Way::ToMember, &drawn()).await);
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn answers_that_are_lost_or_of_somebody_on_the_way_cost_nothing_but_time() {
    on_fleet("faults-of-answers", async |rig| play(rig, "faults-of-answers", Way::ToMember, &ANSWERS).await);
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn bodies_and_watches_that_break_cost_nothing_but_time() {
    on_fleet("faults-of-streams", async |rig| play(rig, "faults-of-streams", Way::ToMember, &STREAMS).await);
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn ways_that_lead_elsewhere_or_are_slow_cost_nothing_but_time() {
    on_fleet("faults-of-ways", async |rig| play(rig, "faults-of-ways", Way::ToMember, &WAYS).await);
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn faults_between_driver_sidecars_and_host_cost_nothing_but_time() {
    on_fleet("faults-to-the-host", async |rig| play(rig, "faults-to-the-host", Way::ToHost, &TO_HOST).await);
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn faults_between_agent_and_member_cost_nothing_but_time() {
    on_fleet("faults-of-the-agent", async |rig| play(rig, "faults-of-the-agent", Way::OfAgent, &OF_AGENT).await);
}

/// Of the order of tests.
fn seed() -> u64 {
    std::env::var("KOSMOS_CSI_ORDER").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default()
}

/// From all that are over soon.
fn drawn() -> Vec<Fault> {
    let quick = ANSWERS.into_iter().chain(STREAMS).chain(WAYS).filter(|fault| fault.within < FORGOTTEN);
    fastrand::Rng::with_seed(seed()).choose_multiple(quick, DRAWN)
}

/// The name is also that of the namespace. What comes after a fault from which something does not recover says nothing.
async fn play(rig: &Rig, name: &str, way: Way, faults: &[Fault]) -> Result<()> {
    let mut report = Report::begin(name, seed())?;
    let mut left: Vec<&Fault> = faults.iter().filter(|fault| !report.has(fault.name)).collect();
    if left.is_empty() {
        return Ok(());
    }
    fastrand::Rng::with_seed(seed()).shuffle(&mut left);
    let world = Box::pin(World::prepare(rig, name, way)).await.context("prepare what is there before any fault")?;
    for (number, fault) in (1..).zip(left) {
        let row = Box::pin(row(&world, number, *fault)).await.context(fault.name)?;
        let recovers = row.recovered_after.is_some();
        report.add(row)?;
        if !recovers {
            break;
        }
    }
    report.verdict()?;
    world.end().await
}

/// One fault from its beginning until nothing of it is left.
async fn row(world: &World<'_>, number: usize, fault: Fault) -> Result<Row> {
    let (load, promises) = (Load::new(number), Promises::begin(world).await?);
    let old = load.before(world).await?;
    let (meanwhile, asked) = tokio::join!(goes_on(world, &load, &promises, fault), load.during(world));
    let (meanwhile, ()) = (meanwhile?, asked?);
    let over = meanwhile.over;
    let converged = Box::pin(load.converges(world, &old, fault.within)).await;
    let recovered_after = converged.is_ok().then(|| over.elapsed().as_secs_f64());
    let twice = meanwhile.twice.and(promises.nothing_is_there_twice().await);
    load.clear(world).await?;
    let left = promises.nothing_is_left(fault.within).await;
    let clean_after = left.is_ok().then(|| over.elapsed().as_secs_f64());
    let mut verdicts = vec![
        Verdict::new(COMES_ABOUT, converged),
        Verdict::new(NOTHING_LOST, promises.nothing_is_lost(number).await),
        Verdict::new(NOTHING_LEFT, left),
        Verdict::new(NOTHING_TWICE, twice),
        Verdict::new(NOBODY_ELSES, promises.nobody_elses_is_touched().await),
        Verdict::new(NO_LOOP, promises.nobody_asks_in_a_loop().await),
        Verdict::new(NO_GROWTH, promises.driver_does_not_grow().await),
    ];
    if let Some((told, served)) = meanwhile.of_members {
        verdicts.extend([Verdict::new(WHO_WAITS, told), Verdict::new(OTHERS, served)]);
    }
    let (fault, seen) = (fault.name.to_owned(), fault.seen.to_owned());
    Ok(Row { fault, seen, times: meanwhile.times, recovered_after, clean_after, verdicts })
}

/// What was seen while a fault went on.
struct Meanwhile {
    times: usize,
    twice: Result<()>,
    /// Whether who waits was told, and who uses the other member served.
    of_members: Option<(Result<()>, Result<()>)>,
    over: Instant,
}

async fn goes_on(world: &World<'_>, load: &Load, promises: &Promises<'_, '_>, fault: Fault) -> Result<Meanwhile> {
    let began = Instant::now();
    let played = world.between.play(&[fault.rule]);
    let times = || played.iter().map(Count::get).sum::<usize>();
    let told = wait_for("each claim that waits says why", WORD, || async {
        load.says_why(world).await?;
        Ok(Some(()))
    });
    let of_members = if fault.is_members { Some(tokio::join!(told, load.other_is_served(world))) } else { None };
    let what = format!("it takes place {} times", fault.times);
    wait_for(&what, PATIENCE, || async { Ok((times() >= fault.times).then_some(())) }).await?;
    sleep(fault.lasts.saturating_sub(began.elapsed())).await;
    let twice = promises.nothing_is_there_twice().await;
    world.between.play(&[]);
    world.between.held_are_delivered().await;
    // Whoever has ended is begun anew, as by a kubelet.
    world.rig.driver.ensure(&world.rig.fleet).await?;
    Ok(Meanwhile { times: times(), twice, of_members, over: Instant::now() })
}
