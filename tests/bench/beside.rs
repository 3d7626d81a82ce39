//! Whether those who want volumes of other members wait longer where one is dead, is slow, or floods, while some want volumes of that one all
//! the time. Each trouble is a member's of its own: who has said too much is not listened to for a while.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use csi::v1::Volume;
use futures::future::try_join_all;
use simulate::{Cluster, faults::Action};
use tokio::{select, time::sleep};

use super::{
    measure::{Figures, closed_loop, percentile},
    provisioner::{Host, HostClaim},
    question::{Plan, Question},
    replica::{CALLERS, Replica, VOLUMES},
    report::Row,
    sheet::Sheet,
    subject::Subject,
    world::World,
};

const LAST: &str = "others answered after, p99 (ms)";
const OF_WELL: &str = "p99, of that with all well (%)";
/// Of the member in trouble: each of them asks again once it has an answer, and half a second has passed.
const ASKERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// An answer may take twice as long.
const SLOW: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Dead,
    Slow,
    Flood,
}

impl Trouble {
    const ALL: [Self; 4] = [Self::None, Self::Dead, Self::Slow, Self::Flood];

    /// As the head of a column.
    fn name(self) -> &'static str {
        match self {
            Self::None => "all-well",
            Self::Dead => "one-dead",
            Self::Slow => "one-slow",
            Self::Flood => "one-floods",
        }
    }

    fn begin(self, world: &World, member: &Cluster) {
        match self {
            Self::None => {}
            Self::Dead => member.faults().set(|_| Action::Hang),
            Self::Slow => member.faults().set(|_| Action::Delay(SLOW)),
            Self::Flood => world.let_flood(Some(member.name())),
        }
    }

    fn end(world: &World, member: &Cluster) {
        member.faults().clear();
        world.let_flood(None);
    }
}

pub async fn measure(world: &World, rounds: usize, part: &str, sheet: &mut Sheet) -> Result<()> {
    let spare = (rounds + 1) * Trouble::ALL.len();
    ensure!(world.names.len() > spare, "each trouble is of a member of its own: more than {spare} members are needed");
    let (mut replica, _) = Replica::start(world, "beside", world.names.len(), Vec::new()).await?;
    world.leads().await?;
    // As the scheduler has chosen it.
    replica.subject.named = 1;
    let well = world.names.len() - spare;
    // The first round opens connections, and is not counted.
    for round in 0..=rounds {
        let mut seen = Vec::new();
        for (turn, trouble) in Trouble::ALL.into_iter().cycle().skip(round).take(Trouble::ALL.len()).enumerate() {
            let at = well + round * Trouble::ALL.len() + turn;
            seen.push((trouble, take_turn(world, &replica, trouble, well, at).await?));
        }
        seen.sort_by_key(|(trouble, _)| Trouble::ALL.iter().position(|one| one == trouble));
        // What comes first is the last of a hundred, and who comes first is well.
        let of_well = seen[0].1[0].1;
        for (trouble, mut figures) in seen.into_iter().filter(|_| round > 0) {
            if trouble != Trouble::None {
                figures.push((OF_WELL, figures[0].1 / of_well * 100.0));
            }
            sheet.add(part, trouble.name(), &figures);
        }
        sheet.write()?;
    }
    replica.subject.stop().await
}

/// The first so many members are well, and the one at this place is not.
async fn take_turn(world: &World, replica: &Replica, trouble: Trouble, well: usize, at: usize) -> Result<Figures> {
    let (host, subject, member) = (Host::new(&world.place.host()).await?, &replica.subject, &world.members[at]);
    let tag = format!("{}-{at}", trouble.name());
    let mut claims = host.claims(&tag, VOLUMES, &subject.driver).await?;
    for claim in &mut claims {
        claim.number %= well;
    }
    let mut theirs = host.claims(&format!("{tag}-there"), ASKERS, &subject.driver).await?;
    for claim in &mut theirs {
        claim.number = at;
    }
    trouble.begin(world, member);
    let others = closed_loop(CALLERS, claims.len(), |number| create(subject, &claims[number]));
    let made = select! {
        others = others => others,
        asked = try_join_all(theirs.iter().map(|claim| keep_asking(subject, claim))) => {
            bail!("nobody asks any more of {}: {asked:?}", member.name())
        }
    };
    Trouble::end(world, member);
    let (made, times): (Vec<_>, Vec<Duration>) = made?.calls.into_iter().unzip();
    let milliseconds = |percent: usize| percentile(times.clone(), percent).as_secs_f64() * 1000.0;
    let figures = vec![
        (LAST, milliseconds(99)),
        ("others answered after, p50 (ms)", milliseconds(50)),
        ("… the last one (ms)", milliseconds(100)),
    ];
    println!("  {tag}: p99 {:.1} ms", figures[0].1);
    replica.let_go(&host, &made).await?;
    Ok(figures)
}

async fn create<'a>(subject: &Subject, claim: &'a HostClaim) -> Result<((&'a HostClaim, Volume), Duration)> {
    let begun = Instant::now();
    let (volume, _) = subject.create(claim).await?;
    Ok(((claim, volume), begun.elapsed()))
}

/// What comes of it is nobody's concern. It is ended by who began it.
async fn keep_asking(subject: &Subject, claim: &HostClaim) -> Result<()> {
    loop {
        drop(subject.create(claim).await);
        sleep(PAUSE).await;
    }
}

pub fn goals(sheet: &Sheet, plan: &Plan, count: usize) -> Vec<Row> {
    let part = Question::Beside.part(count, plan.volumes);
    let row = |trouble: Trouble| {
        let seen = sheet.middle(&part, trouble.name(), OF_WELL)?;
        Some(Row::at_most(format!("{}, {OF_WELL}", trouble.name()), Some(110.0), seen))
    };
    Trouble::ALL.into_iter().filter_map(row).collect()
}
