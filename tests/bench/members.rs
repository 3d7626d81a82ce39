//! The driver with few members and with many, all simulated, each behind TLS at an address of its own: what it takes when nothing
//! happens, as the replica that leads and as one that stands by; what a volume takes; and how it starts, also where one member in ten is
//! dead.

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use domain::volume::MEMBER_KEY;
use tokio::time::sleep;

use super::{
    NAMESPACE, PATIENCE,
    clusters::wait_for,
    conditions,
    measure::{Figures, PROCESSOR, RATE, closed_loop},
    metrics::Metrics,
    process::{memory, open_files, processor_time},
    provisioner::Host,
    sheet::Sheet,
    subject::{Subject, Terms},
    world::World,
};

/// After the start, before nothing happens.
const SETTLED: Duration = Duration::from_secs(20);
/// A watch is begun again within it.
const IDLE: Duration = Duration::from_mins(5);
const CALLERS: usize = 16;
const VOLUMES: usize = 1000;
/// Of so many members one is dead.
const DEAD: usize = 10;

const UNLIKE_LIFE: [&str; 4] = [
    "All API servers are simulated, in the bench's own process, which shares the processors with the driver: their TLS handshakes are part \
     of how long a start takes.",
    "Objects have no managedFields, and nothing else is in the clusters.",
    "The members' storage binds at once.",
    "A dead member takes connections and says nothing.",
];

/// What was seen is told also where something fails.
pub async fn measure(counts: &[usize], json: &Path) -> Result<()> {
    let mut sheet = Sheet::default();
    let done = Box::pin(all(counts, &mut sheet)).await;
    let head = conditions::conditions(&UNLIKE_LIFE);
    conditions::print(&head);
    sheet.print();
    sheet.write(json, &head)?;
    done
}

async fn all(counts: &[usize], sheet: &mut Sheet) -> Result<()> {
    for count in counts {
        println!("{count} members");
        let world = World::new(*count).await?;
        both_roles(&world, sheet).await?;
        starts(&world, sheet).await?;
    }
    Ok(())
}

/// A replica at work.
struct Replica {
    role: &'static str,
    subject: Subject,
    metrics: Metrics,
}

impl Replica {
    /// Until so many members serve; and how that was.
    async fn start(world: &World, role: &'static str, serving: usize) -> Result<(Self, Figures)> {
        let metrics = Metrics::at_a_free_port()?;
        let place = |name: &String| HashMap::from([(MEMBER_KEY.to_owned(), name.clone())]);
        let topology = world.names.iter().map(place).collect();
        let terms = Terms::own()?.of_replica(role, format!("--admin-address={}", metrics.address), topology);
        let begun = Instant::now();
        let subject = Subject::start(&terms, &world.place).await?;
        wait_for(&format!("{serving} members serve"), PATIENCE, || async {
            let now = metrics.serving().await?;
            ensure!(now >= serving, "{now} do");
            Ok(Some(()))
        })
        .await?;
        let took = begun.elapsed().as_secs_f64();
        println!("  {role}: {serving} members serve after {took:.1} s");
        let spent = processor_time(subject.id())?.as_secs_f64();
        let figures = vec![("members that are alive serve after (s)", took), ("processor seconds until then", spent)];
        Ok((Self { role, subject, metrics }, figures))
    }

    fn size(&self) -> Result<Figures> {
        let (now, most) = memory(self.subject.id())?;
        let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let files = open_files(self.subject.id())? as f64;
        Ok(vec![("memory (MB)", megabytes(now)), ("memory at most (MB)", megabytes(most)), ("open files", files)])
    }

    /// What it has used, and asked of members and of the host.
    async fn so_far(&self) -> Result<[f64; 3]> {
        let [members, host] = self.metrics.requests().await?;
        Ok([processor_time(self.subject.id())?.as_secs_f64(), members, host])
    }
}

async fn both_roles(world: &World, sheet: &mut Sheet) -> Result<()> {
    let part = format!("{} members", world.names.len());
    let (leader, figures) = Replica::start(world, "leader", world.names.len()).await?;
    sheet.add(&part, leader.role, &figures);
    wait_for("it leads", PATIENCE, || async { Ok(world.has_leader().then_some(())) }).await?;
    let (standby, figures) = Replica::start(world, "standby", world.names.len()).await?;
    sheet.add(&part, standby.role, &figures);
    println!("  nothing happens for {} minutes", IDLE.as_secs() / 60);
    sleep(SETTLED).await;
    let before = [leader.so_far().await?, standby.so_far().await?];
    sleep(IDLE).await;
    for (replica, before) in [&leader, &standby].into_iter().zip(before) {
        let now = replica.so_far().await?;
        let [used, members, host] = std::array::from_fn(|at| (now[at] - before[at]) / IDLE.as_secs_f64());
        sheet.add(&part, replica.role, &replica.size()?);
        sheet.add(
            &part,
            replica.role,
            &[
                ("idle: of a processor (%)", used * 100.0),
                ("idle: requests to members a second", members),
                ("idle: requests to the host a second", host),
            ],
        );
    }
    sheet.add(&part, leader.role, &volumes(world, &leader).await?);
    leader.subject.stop().await?;
    standby.subject.stop().await
}

/// Over all members in turn.
async fn volumes(world: &World, leader: &Replica) -> Result<Figures> {
    let (host, subject) = (Host::new(&world.place.host()).await?, &leader.subject);
    let claims = host.claims("volume", VOLUMES, &subject.driver).await?;
    let before = processor_time(subject.id())?;
    let made = closed_loop(CALLERS, VOLUMES, |number| {
        let claim = &claims[number];
        async move { Ok((claim, subject.create(claim).await?.0)) }
    });
    let made = made.await?;
    let used = processor_time(subject.id())?.saturating_sub(before).as_secs_f64();
    println!("  {VOLUMES} volumes in {NAMESPACE}, {:.0} a second", made.rate());
    for (claim, volume) in &made.calls {
        host.volume(claim, &subject.driver, volume).await?;
    }
    host.release(&claims).await?;
    let before = processor_time(subject.id())?;
    closed_loop(CALLERS, VOLUMES, |number| subject.delete(&made.calls[number].1.volume_id)).await?;
    let deleting = processor_time(subject.id())?.saturating_sub(before).as_secs_f64();
    host.remove(&claims).await?;
    let per_thousand = 1000.0 / VOLUMES as f64;
    Ok(vec![
        (RATE, made.rate()),
        (PROCESSOR, used * per_thousand),
        ("processor seconds per 1000 deleted", deleting * per_thousand),
    ])
}

/// Again, now that it has met all members before: with all of them alive, and with some dead.
async fn starts(world: &World, sheet: &mut Sheet) -> Result<()> {
    let (all, part) = (world.names.len(), format!("{} members, started again", world.names.len()));
    let some_dead = Some(("one in ten dead", all / DEAD)).filter(|(_, dead)| *dead > 0);
    for (what, dead) in [("all alive", 0)].into_iter().chain(some_dead) {
        world.let_die(dead)?;
        let (again, figures) = Replica::start(world, "again", all - dead).await?;
        sheet.add(&part, what, &figures);
        sheet.add(&part, what, &again.size()?);
        again.subject.stop().await?;
    }
    Ok(())
}
