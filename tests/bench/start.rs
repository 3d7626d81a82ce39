//! How the driver starts among many members that it has met before: with all of the machine, on half a processor, also where one in ten of
//! them is dead, and with few open files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::id,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit};
use tokio::time::sleep;

use super::{
    clusters::wait_blocking,
    measure::Figures,
    process::processor_time,
    question::{Plan, Question},
    replica::{FILES, Replica, SERVE_AFTER, SETTLED},
    report::Row,
    sheet::Sheet,
    world::World,
};

/// Of so many members one is dead.
const DEAD: usize = 10;
const ALIVE: &str = "all alive";
const SOME_DEAD: &str = "one in ten dead";
const MANY_VOLUMES: u32 = 100_000;
const OF_ITS_OWN: &str = "processor seconds of its own until all is read";
const LATER: &str = "of the time with all alive (%)";
const UNANSWERED: &str = "most requests without an answer, of one member that is alive";
/// As many nodes give to a process, unless it asks for more.
const FEW_FILES: u64 = 1024;
const CGROUPS: &str = "/sys/fs/cgroup";
/// In microseconds.
const PERIOD: u32 = 100_000;
const PATIENCE: Duration = Duration::from_secs(5);

/// In turns, with all of them alive and with some dead.
pub async fn on_half_a_processor(world: &World, rounds: usize, part: &str, sheet: &mut Sheet) -> Result<()> {
    let (all, half) = (world.names.len(), HalfProcessor::new()?);
    meet(world).await?;
    for _ in 0..rounds {
        let alive = again(world, 0, half.command()).await?;
        let some_dead = if all < DEAD { None } else { Some(again(world, all / DEAD, half.command()).await?) };
        sheet.add(part, ALIVE, &alive);
        if let Some(mut some_dead) = some_dead {
            // What comes first is how long it took.
            some_dead.push((LATER, some_dead[0].1 / alive[0].1 * 100.0));
            sheet.add(part, SOME_DEAD, &some_dead);
        }
        sheet.write()?;
    }
    world.let_die(0)
}

/// The process may ask for more.
pub async fn with_few_files(world: &World, rounds: usize, part: &str, sheet: &mut Sheet) -> Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    meet(world).await?;
    let most = most.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
    for _ in 0..rounds {
        let figures = again(world, 0, vec!["prlimit".to_owned(), format!("--nofile={FEW_FILES}:{most}")]).await?;
        sheet.add(part, ALIVE, &figures);
        sheet.write()?;
    }
    Ok(())
}

/// With as much of the machine as it wants, until it has read all, which is more than it needs to serve.
pub async fn freely(world: &World, rounds: usize, part: &str, sheet: &mut Sheet) -> Result<()> {
    meet(world).await?;
    for _ in 0..rounds {
        let (replica, mut figures) = Replica::start(world, "again", world.names.len(), Vec::new()).await?;
        world.leads().await?;
        sleep(SETTLED).await;
        figures.push((OF_ITS_OWN, processor_time(replica.subject.id())?.as_secs_f64()));
        figures.extend(replica.size()?);
        replica.subject.stop().await?;
        sheet.add(part, ALIVE, &figures);
        sheet.write()?;
    }
    Ok(())
}

/// Who they are is on record then.
async fn meet(world: &World) -> Result<()> {
    let (met, _) = Replica::start(world, "met", world.names.len(), Vec::new()).await?;
    met.subject.stop().await
}

/// Until all that are alive serve.
async fn again(world: &World, dead: usize, by: Vec<String>) -> Result<Figures> {
    world.let_die(dead)?;
    let alive = &world.names[..world.names.len() - dead];
    let (replica, mut figures) = Replica::start(world, "again", alive.len(), by).await?;
    figures.extend(replica.size()?);
    figures.push((UNANSWERED, replica.metrics.unanswered(alive).await?));
    replica.subject.stop().await?;
    Ok(figures)
}

pub fn goals(sheet: &Sheet, plan: &Plan, count: usize) -> Vec<Row> {
    let (half, files) = (Question::Start.part(count, plan.volumes), Question::Files.part(count, plan.volumes));
    let mut rows = Vec::new();
    let seen = sheet.most(&half, ALIVE, SERVE_AFTER);
    rows.extend(seen.map(|seen| Row::at_most(format!("half a processor, {SERVE_AFTER}"), Some(60.0), seen)));
    let seen = sheet.middle(&half, SOME_DEAD, LATER);
    rows.extend(seen.map(|seen| Row::at_most(format!("{SOME_DEAD}, {LATER}"), Some(105.0), seen)));
    for who in [ALIVE, SOME_DEAD] {
        let seen = sheet.most(&half, who, UNANSWERED);
        rows.extend(seen.map(|seen| Row::at_most(format!("{who}, {UNANSWERED}"), Some(1.0), seen)));
    }
    let seen = sheet.middle(&files, ALIVE, FILES);
    rows.extend(seen.map(|seen| Row::at_least(format!("begun with {FEW_FILES}, {FILES}"), Some(1025.0), seen)));
    rows
}

/// One member alone with so many volumes, whose host has them all.
pub fn of_its_own(sheet: &Sheet, plan: &Plan, count: usize) -> Option<Row> {
    let seen = sheet.most(&Question::Ready.part(count, plan.volumes), ALIVE, OF_ITS_OWN)?;
    (count == 1 && plan.volumes >= MANY_VOLUMES).then(|| Row::at_most(OF_ITS_OWN.to_owned(), Some(3.0), seen))
}

/// A control group whose processes have half of a processor together. It goes when this does.
struct HalfProcessor(PathBuf);

impl HalfProcessor {
    fn new() -> Result<Self> {
        let (root, name) = (Path::new(CGROUPS), format!("kosmos-bench-{}", id()));
        let quota = PERIOD / 2;
        if root.join("cgroup.controllers").exists() {
            write(&root.join("cgroup.subtree_control"), "+cpu")?;
            let group = Self::make(root.join(name))?;
            write(&group.0.join("cpu.max"), &format!("{quota} {PERIOD}"))?;
            return Ok(group);
        }
        let hierarchies = ["cpu", "cpu,cpuacct"].map(|hierarchy| root.join(hierarchy));
        let hierarchy = hierarchies.into_iter().find(|hierarchy| hierarchy.join("cpu.shares").exists());
        let hierarchy = hierarchy.context("no control group bounds processor time here (cgroups of the processor)")?;
        let group = Self::make(hierarchy.join(name))?;
        write(&group.0.join("cpu.cfs_period_us"), &PERIOD.to_string())?;
        write(&group.0.join("cpu.cfs_quota_us"), &quota.to_string())?;
        Ok(group)
    }

    fn make(group: PathBuf) -> Result<Self> {
        fs::create_dir(&group).with_context(|| format!("make {}: this needs root", group.display()))?;
        Ok(Self(group))
    }

    /// What joins it, and then becomes what follows.
    fn command(&self) -> Vec<String> {
        let join = format!("echo $$ > '{}/cgroup.procs' && exec \"$@\"", self.0.display());
        ["sh", "-c", &join, "sh"].map(str::to_owned).to_vec()
    }
}

impl Drop for HalfProcessor {
    fn drop(&mut self) {
        // It is in use for a moment after its last process.
        let gone = wait_blocking("the control group is removed", PATIENCE, || Ok(fs::remove_dir(&self.0).map(Some)?));
        if let Err(error) = gone {
            eprintln!("{} is left: {error:#}", self.0.display());
        }
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("write {text} to {}", file.display()))
}
