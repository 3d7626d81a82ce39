//! What is measured on real API servers: all drivers in turns, at one, a hundred and a thousand callers. What a round has shown is kept
//! at once, so that a run may be ended at any moment.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    Plan, conditions,
    goals::goals,
    measure::{Figures, Load, OF_ACCEPTED, OF_BARE, OF_MARKED, PROCESSOR, RATE, TURN},
    report::print,
    sheet::Sheet,
    sidecar::CLAIMS,
    subject::Terms,
    turn::Stage,
};

const UNLIKE_LIFE: [&str; 12] = [
    "Callers, drivers, two API servers, their etcds and the binder share the processors: among a hundred callers a time is \
     mostly one of waiting for a processor, which is told.",
    "etcd does not wait for the disk (--unsafe-no-fsync), and the API servers write an audit log without bodies.",
    "All are administrators by certificate: no token is checked and no right is looked up. kosmos-csi-account alone comes by the tokens \
     and with the rights of life.",
    "No controller-manager, scheduler, webhook or quota: a binder makes the member's volumes at once and lets claims go, 64 at a time, and \
     claims of the host are made before the clock runs.",
    "The callers play external-provisioner: each asks for the next volume once it has the last, and again after half a second. The host's \
     volume is made beside that, and its binding is one write.",
    "The bare driver that waits for nothing watches nothing either, and calls a volume removed once its removal is asked for.",
    "The driver and the bare one have at most 32 requests under way in a cluster; what another has is its own.",
    "A driver is started for each turn, with no volumes but those of the turn, and nothing else is in the clusters.",
    "What a driver does in the background once it has answered counts only as far as it falls into the turn.",
    "A member that is farther away is so for who connects to it from the host's side: what is sent waits half of the delay each way, in \
     a process of its own; nothing is lost, and the line is not narrow.",
    "Processor time of the servers is all that they used meanwhile, also idle.",
    "Before a run's first round all take a short turn that is not counted. Rounds of several runs may stand together; what is compared is of one \
     round.",
];

/// Of the subjects: after the two bare ones.
const OWN: usize = 2;
/// Those whose rate others are compared with, where they take part.
const BESIDE: [(&str, &str); 3] = [("bare", OF_BARE), ("marked", OF_MARKED), ("bare-accepted", OF_ACCEPTED)];

/// Of callers at once, where the member is far away: more of them say nothing new and take long.
const MOST_FAR_AWAY: usize = 100;
/// And of rounds: the way, which takes most of a time then, is the same in each.
const ROUNDS_FAR_AWAY: usize = 3;
/// In a turn that is not counted.
const WARMING: usize = 100;
/// What a driver's turn takes that was never seen.
const GUESS: Duration = Duration::from_secs(90);
/// To start and to end the clusters.
const AROUND: Duration = Duration::from_mins(1);

/// What was seen is told also where something fails.
pub async fn measure(fleet: &Path, provisioner: &Path, plan: &Plan) -> Result<()> {
    let (head, run) = (conditions::conditions(&UNLIKE_LIFE), conditions::now());
    let mut sheet = Sheet::begin(&plan.json, plan.minutes.is_some(), head, run)?;
    let done = Box::pin(all_rounds(fleet, provisioner, plan, &mut sheet)).await;
    conditions::print(sheet.head());
    sheet.print();
    print(&goals(&sheet, plan.callers.iter().map(|callers| load(*callers, 0))));
    sheet.write()?;
    println!("\nall rounds as JSON: {}", plan.json.display());
    done
}

/// What all take a turn at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Turns(Load),
    /// The driver alone, behind the real external-provisioner.
    Behind,
}

impl Job {
    fn delay(self) -> u16 {
        match self {
            Self::Turns(load) => load.delay,
            Self::Behind => 0,
        }
    }

    fn part(self) -> String {
        match self {
            Self::Turns(load) => load.part(),
            Self::Behind => format!("{CLAIMS} claims through external-provisioner"),
        }
    }

    fn subjects(self, plan: &Plan) -> &[Terms] {
        match self {
            Self::Turns(_) => &plan.subjects,
            Self::Behind => &plan.subjects[OWN..=OWN],
        }
    }

    /// Of how many rounds it is known what all have shown.
    fn rounds(self, plan: &Plan, sheet: &Sheet) -> usize {
        let part = self.part();
        let rounds = self.subjects(plan).iter().map(|terms| sheet.rounds(&part, &terms.name, RATE));
        rounds.min().unwrap_or_default()
    }

    /// Of how many it is to be known.
    fn wanted(self, plan: &Plan) -> usize {
        match self {
            Self::Turns(load) if load.delay > 0 => plan.rounds.min(ROUNDS_FAR_AWAY),
            Self::Turns(_) | Self::Behind => plan.rounds,
        }
    }

    /// How long a round takes, at most, as far as that was seen.
    fn expected(self, plan: &Plan, sheet: &Sheet) -> Duration {
        let part = self.part();
        let turn = |terms: &Terms| sheet.most(&part, &terms.name, TURN).map_or(GUESS, Duration::from_secs_f64);
        self.subjects(plan).iter().map(turn).sum()
    }
}

fn jobs(plan: &Plan) -> Vec<Job> {
    let of = |delay: u16| {
        let callers = plan.callers.iter().filter(move |callers| delay == 0 || **callers <= MOST_FAR_AWAY);
        let turns = callers.map(move |callers| Job::Turns(load(*callers, delay)));
        // What the sidecar takes beside this driver is told without others.
        turns.chain((delay == 0 && plan.files.is_empty()).then_some(Job::Behind))
    };
    plan.delays.iter().flat_map(|delay| of(*delay)).collect()
}

/// First a round of each, then a second one, and so on, of those that fit into the time: who has little of it has something of all.
async fn all_rounds(fleet: &Path, provisioner: &Path, plan: &Plan, sheet: &mut Sheet) -> Result<()> {
    let (jobs, begun, mut stage, mut is_warm) = (jobs(plan), Instant::now(), None, false);
    let until = plan.minutes.map(|minutes| begun + Duration::from_mins(minutes).saturating_sub(AROUND));
    loop {
        let seen = jobs.iter().map(|job| (job.rounds(plan, sheet), *job));
        let mut left: Vec<(usize, Job)> = seen.filter(|(round, job)| *round < job.wanted(plan)).collect();
        if left.is_empty() {
            return Ok(());
        }
        left.sort_by_key(|(round, _)| *round);
        let expected = |job: Job| job.expected(plan, sheet) * if is_warm { 1 } else { 2 };
        let fits = |job: Job| until.is_none_or(|until| Instant::now() + expected(job) <= until);
        let Some((round, job)) = left.iter().copied().find(|(_, job)| fits(*job)) else {
            let rounds: usize = left.iter().map(|(round, job)| job.wanted(plan) - round).sum();
            println!("the time is over, and {rounds} rounds are left: the same command goes on with them");
            return Ok(());
        };
        let stage = on(&mut stage, fleet, job.delay()).await?;
        let seen = match job {
            Job::Turns(load) => {
                if !is_warm {
                    let short = Load { volumes: WARMING, ..load };
                    take_turns(stage, &plan.subjects, short, 0, "warm").await?;
                    is_warm = true;
                }
                take_turns(stage, &plan.subjects, load, round, &round.to_string()).await?
            }
            Job::Behind => {
                let (own, tag) = (&plan.subjects[OWN], format!("behind-{round}"));
                vec![(own.name.as_str(), Box::pin(stage.turn_behind(provisioner, own, &tag)).await?)]
            }
        };
        for (name, figures) in &seen {
            tell(round, &job.part(), name, figures);
            sheet.add(&job.part(), name, figures);
        }
        sheet.write()?;
    }
}

/// The stage at which the member is so far away.
async fn on<'a>(stage: &'a mut Option<(u16, Stage)>, fleet: &Path, delay: u16) -> Result<&'a mut Stage> {
    if stage.as_ref().is_none_or(|(at, _)| *at != delay) {
        // What was started for the one of before ends first.
        *stage = None;
        *stage = Some((delay, Stage::new(fleet, delay).await?));
    }
    stage.as_mut().map(|(_, stage)| stage).ok_or_else(|| anyhow::anyhow!("there is no stage"))
}

/// All of them once, in an order that goes round.
async fn take_turns<'a>(
    stage: &mut Stage,
    subjects: &'a [Terms],
    load: Load,
    first: usize,
    tag: &str,
) -> Result<Vec<(&'a str, Figures)>> {
    let mut seen = Vec::new();
    for terms in subjects.iter().cycle().skip(first).take(subjects.len()) {
        let tag = format!("{}-{tag}-{}-{}", terms.name, load.callers, load.delay);
        seen.push((terms.name.as_str(), Box::pin(stage.turn(terms, load, &tag)).await?));
    }
    for (other, what) in BESIDE {
        let its = seen.iter().find(|(name, _)| *name == other).map(|(_, figures)| figure(figures, RATE));
        let Some(rate) = its else { continue };
        for (_, figures) in seen.iter_mut().filter(|(name, _)| *name != other) {
            figures.push((what, figure(figures, RATE) / rate * 100.0));
        }
    }
    Ok(seen)
}

fn load(callers: usize, delay: u16) -> Load {
    let volumes = match callers {
        ..10 if delay > 0 => 50,
        ..10 => 300,
        10..500 => 1000,
        _ => 2000,
    };
    Load { callers, volumes, delay }
}

fn figure(figures: &Figures, what: &str) -> f64 {
    figures.iter().find(|(name, _)| *name == what).map_or(f64::NAN, |(_, value)| *value)
}

fn tell(round: usize, part: &str, who: &str, figures: &Figures) {
    let figure = |what: &str| figure(figures, what);
    println!(
        "round {round}, {part}, {who}: {:.0} made and {:.0} deleted a second, {:.2} processor seconds per 1000",
        figure(RATE),
        figure("deletes a second"),
        figure(PROCESSOR)
    );
}
