//! The replica that works in the background is killed, and another one does its work: a volume that was made just then is marked in its
//! member.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::time::{sleep, timeout};

use super::{
    provisioner::Host,
    question::{Plan, Question},
    replica::{Replica, pair},
    report::Row,
    sheet::Sheet,
    world::World,
};

const LEADS: &str = "another one leads after (s)";
const MARKED: &str = "a volume made meanwhile is marked after (s)";
const WHO: &str = "standby";
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_mins(2);
/// Until a replica has done all that its start brings with it.
const SETTLED: Duration = Duration::from_secs(20);

pub async fn measure(world: &World, rounds: usize, part: &str, sheet: &mut Sheet) -> Result<()> {
    let host = Host::new(&world.place.host()).await?;
    let [mut leader, mut standby] = pair(world).await?;
    for round in 0..rounds {
        let claims = host.claims(&format!("late-{round}"), 1, &leader.subject.driver).await?;
        let claim = claims.first().context("a claim was made")?;
        let (dead, driver, held) = (leader.role, leader.subject.driver.clone(), world.leader());
        let killed = Instant::now();
        // As SIGKILL.
        drop(leader);
        let (volume, _) = standby.subject.create(claim).await?;
        host.volume(claim, &driver, &volume).await?;
        let leads = until("another replica leads", killed, || world.leader() != held).await?;
        let marked = until("the volume is marked", killed, || world.is_marked(&volume.volume_id)).await?;
        println!("  another one leads after {leads:.1} s, and has marked a volume after {marked:.1} s");
        sheet.add(part, WHO, &[(LEADS, leads), (MARKED, marked)]);
        sheet.write()?;
        host.release(&claims).await?;
        standby.subject.delete(&volume.volume_id).await?;
        host.remove(&claims).await?;
        leader = standby;
        (standby, _) = Replica::start(world, dead, world.names.len(), Vec::new()).await?;
        sleep(SETTLED).await;
    }
    leader.subject.stop().await?;
    standby.subject.stop().await
}

/// How many seconds after the kill.
async fn until(what: &str, killed: Instant, is_so: impl Fn() -> bool) -> Result<f64> {
    let seen = async {
        while !is_so() {
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, seen).await.with_context(|| format!("wait until {what}"))?;
    Ok(killed.elapsed().as_secs_f64())
}

pub fn goals(sheet: &Sheet, plan: &Plan, count: usize) -> Vec<Row> {
    let part = Question::Takeover.part(count, plan.volumes);
    let seen = |figure: &str| sheet.most(&part, WHO, figure);
    let goal = |figure: &'static str| Some(Row::at_most(figure.to_owned(), Some(15.0), seen(figure)?));
    [LEADS, MARKED].into_iter().filter_map(goal).collect()
}
