//! Faults on real clusters, one after the other, while users go on: by request, where driver, sidecars or agent reach one through a proxy
//! (`clusters/between`) that breaks what passes, and of the machines. Once a fault is over, all that users have asked for comes about, and
//! what was promised has held.
//!
//! One that is drawn belongs to `make test`; `make faults-real` has all of them, in parts, each in an order that its seed draws.

mod acts;
mod disk;
mod fault;
mod kept;
mod load;
mod machines;
mod matrix;
mod pods;
mod promises;
mod real_node;
mod report;
mod requests;
mod row;
mod used;
mod way;
mod world;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use tokio::time::sleep;

use self::{
    fault::Fault,
    load::Load,
    machines::{OF_BACKUP, OF_DISK, OF_HOST, OF_LINK, OF_MEMBER, OF_NODE, OF_OURS},
    promises::Promises,
    report::Report,
    requests::{ANSWERS, FORGOTTEN, OF_AGENT, STREAMS, TO_HOST, WAYS},
    row::{
        COMES_ABOUT, NO_GROWTH, NO_LOOP, NOBODY_ELSES, NOTHING_LEFT, NOTHING_LOST, NOTHING_TWICE, OTHERS, Row, Verdict,
        WHO_WAITS,
    },
    way::Way,
    world::{Scene, World},
};
use crate::{
    clusters::{Cluster, between::Count, wait_for},
    pool::on_fleet,
    rig::{MEMBERS, PATIENCE, Rig},
};

/// The member that faults concern, and one whose answers may come in its place.
const MEMBER: &str = MEMBERS[0];
const OTHER: &str = MEMBERS[1];
/// A provisioner says why a claim waits when its call has ended, half a minute after it began at the latest.
const WORD: Duration = Duration::from_secs(45);
/// Of what `make test` plays.
const DRAWN: usize = 1;
/// In which most that users ask for is under way, in milliseconds.
const MOMENTS: u64 = 3000;

#[test]
fn drawn_faults_on_the_way_to_a_member_cost_its_users_nothing_but_time() {
    part("faults-by-request", Scene::Through(Way::ToMember), &drawn());
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn answers_that_are_lost_or_of_somebody_on_the_way_cost_nothing_but_time() {
    part("faults-of-answers", Scene::Through(Way::ToMember), &ANSWERS);
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn bodies_and_watches_that_break_cost_nothing_but_time() {
    part("faults-of-streams", Scene::Through(Way::ToMember), &STREAMS);
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn ways_that_lead_elsewhere_or_are_slow_cost_nothing_but_time() {
    part("faults-of-ways", Scene::Through(Way::ToMember), &WAYS);
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn faults_between_driver_sidecars_and_host_cost_nothing_but_time() {
    part("faults-to-the-host", Scene::Through(Way::ToHost), &TO_HOST);
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn faults_between_agent_and_member_cost_nothing_but_time() {
    part("faults-of-the-agent", Scene::Through(Way::OfAgent), &OF_AGENT);
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn links_of_which_one_direction_is_cut_cost_nothing_but_time() {
    part("faults-of-links", Scene::Through(Way::ToMember), &OF_LINK);
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn processes_of_the_host_that_stand_still_or_die_cost_nothing_but_time() {
    part("faults-of-the-host", Scene::Agent, &OF_HOST);
}

#[test]
#[ignore = "takes an hour: make faults-real"]
fn processes_and_links_of_a_member_that_stand_still_or_die_cost_nothing_but_time() {
    part("faults-of-a-member", Scene::Agent, &OF_MEMBER);
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn processes_of_ours_that_stand_still_or_die_cost_nothing_but_time() {
    part("faults-of-ours", Scene::Agent, &OF_OURS);
}

#[test]
#[ignore = "takes half an hour: make faults-real"]
fn processes_of_a_real_node_that_stand_still_or_die_cost_nothing_but_time() {
    part("faults-of-a-node", Scene::RealNode, &OF_NODE);
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn disks_of_a_member_that_are_full_cost_nothing_but_time() {
    part("faults-of-disks", Scene::SmallDisks, &OF_DISK);
}

#[test]
#[ignore = "takes minutes: make faults-real"]
fn member_that_goes_back_to_a_backup_says_what_it_has_lost() {
    part("faults-of-backups", Scene::Agent, &OF_BACKUP);
}

/// The name is also that of the namespace.
fn part(name: &str, scene: Scene, faults: &[Fault]) {
    on_fleet(name, async |rig| play(rig, name, scene, faults).await);
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

/// What comes after a fault from which something does not recover says nothing.
async fn play(rig: &Rig, name: &str, scene: Scene, faults: &[Fault]) -> Result<()> {
    let mut report = Report::begin(name, seed())?;
    let mut left: Vec<&Fault> = faults.iter().filter(|fault| !report.has(fault.name)).collect();
    if left.is_empty() {
        return Ok(());
    }
    let mut draws = fastrand::Rng::with_seed(seed());
    draws.shuffle(&mut left);
    let world = Box::pin(World::prepare(rig, name, scene)).await.context("prepare what is there before any fault")?;
    for (number, fault) in (1..).zip(left) {
        let moment = Duration::from_millis(draws.u64(..MOMENTS));
        let row = Box::pin(row(&world, number, *fault, moment)).await.context(fault.name)?;
        let recovers = row.recovered_after.is_some();
        report.add(row)?;
        if !recovers {
            break;
        }
        // What has come back by itself need not be all: the next fault is to find all at work.
        try_join_all(rig.fleet.clusters().map(Cluster::resume)).await?;
    }
    report.verdict()?;
    world.end().await
}

/// One fault from its beginning until nothing of it is left. One that meets users in the middle of what they do comes at this moment.
async fn row(world: &World<'_>, number: usize, fault: Fault, moment: Duration) -> Result<Row> {
    let (load, promises) = (Load::new(number), Promises::begin(world).await?);
    let old = load.before(world).await?;
    let begun = if fault.how.comes_amid() { None } else { Some(Box::pin(world.begin(fault.how)).await?) };
    let meanwhile = async {
        let played = if let Some(played) = begun {
            played
        } else {
            sleep(moment).await;
            Box::pin(world.begin(fault.how)).await?
        };
        Box::pin(goes_on(world, &load, &promises, fault, &played)).await
    };
    let (meanwhile, asked) = tokio::join!(meanwhile, load.during(world));
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

async fn goes_on(
    world: &World<'_>,
    load: &Load,
    promises: &Promises<'_, '_>,
    fault: Fault,
    played: &[Count],
) -> Result<Meanwhile> {
    let began = Instant::now();
    let times = || played.iter().map(Count::get).sum::<usize>();
    let told = async {
        let says_why = wait_for("each claim that waits says why", WORD, || async {
            load.says_why(world).await?;
            Ok(Some(()))
        });
        says_why.await?;
        world.lost_is_told().await
    };
    let of_members = if fault.is_members { Some(tokio::join!(told, load.other_is_served(world))) } else { None };
    let what = format!("it takes place {} times", fault.times);
    wait_for(&what, PATIENCE, || async { Ok((times() >= fault.times).then_some(())) }).await?;
    sleep(fault.lasts.saturating_sub(began.elapsed())).await;
    let twice = if fault.how.leaves_servers() { promises.nothing_is_there_twice().await } else { Ok(()) };
    let over = Box::pin(world.end_of(fault.how)).await?;
    Ok(Meanwhile { times: times(), twice, of_members, over })
}

#[test]
fn faults_are_told_apart_by_their_names() {
    let of_requests = ANSWERS.iter().chain(&STREAMS).chain(&WAYS).chain(&TO_HOST).chain(&OF_AGENT);
    let of_machines = OF_HOST.iter().chain(&OF_MEMBER).chain(&OF_OURS).chain(&OF_NODE).chain(&OF_LINK);
    let all = of_requests.chain(of_machines).chain(&OF_DISK).chain(&OF_BACKUP).map(|fault| fault.name);
    let mut names = BTreeSet::new();
    for name in all {
        assert!(names.insert(name), "two faults are called {name}");
    }
}
