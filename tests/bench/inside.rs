//! What is measured on real API servers: all drivers in turns, at one, a hundred and a thousand callers.

use std::path::Path;

use anyhow::Result;

use super::{
    Plan, conditions,
    measure::{Figures, OVER_BIND_LAST, OVER_BIND_MIDDLE, PROCESSOR, RATE},
    report::{Row, print},
    sheet::Sheet,
    sidecar::CLAIMS,
    subject::Terms,
    turn::{Load, Stage},
};

const UNLIKE_LIFE: [&str; 10] = [
    "Callers, drivers, two API servers, their etcds and the binder share the processors: among a hundred callers a time is \
     mostly one of waiting for a processor, which is told.",
    "etcd does not wait for the disk (--unsafe-no-fsync), and the API servers write an audit log without bodies.",
    "All are administrators by certificate: no token is checked and no right is looked up.",
    "No controller-manager, scheduler, webhook or quota: a binder makes the member's volumes at once and lets claims go, and claims of \
     the host are made before the clock runs.",
    "The callers play external-provisioner: each asks for the next volume once it has the last. The host's volume is made beside \
     that, and its binding is one write.",
    "The driver and the bare one have at most 32 requests under way in a cluster; what another has is its own.",
    "A driver is started for each turn, with no volumes but those of the turn, and nothing else is in the clusters.",
    "What a driver does in the background once it has answered counts only as far as it falls into the turn.",
    "A member that is farther away is so for who connects to it from the host's side: what is sent waits half of the delay each way, in \
     a process of its own; nothing is lost, and the line is not narrow.",
    "Processor time of the servers is all that they used meanwhile, also idle.",
];

/// Of the subjects: after the two bare ones.
const OWN: usize = 2;
const OF_BARE: &str = "rate, of the bare driver's (%)";
const OF_MARKED: &str = "rate, of one's that marks too (%)";

/// Of callers at once, where the member is far away: more of them say nothing new and take long.
const MOST_FAR_AWAY: usize = 100;

/// What was seen is told also where something fails.
pub async fn measure(fleet: &Path, provisioner: &Path, plan: &Plan) -> Result<()> {
    let mut sheet = Sheet::default();
    let done = Box::pin(all_rounds(fleet, provisioner, plan, &mut sheet)).await;
    let head = conditions::conditions(&UNLIKE_LIFE);
    conditions::print(&head);
    sheet.print();
    print(&goals(&sheet, plan));
    sheet.write(&plan.json, &head)?;
    done
}

/// The first round of each way to the member warms the servers, and is not counted.
async fn all_rounds(fleet: &Path, provisioner: &Path, plan: &Plan, sheet: &mut Sheet) -> Result<()> {
    for delay in &plan.delays {
        let mut stage = Stage::new(fleet, *delay).await?;
        let callers = plan.callers.iter().copied().filter(|callers| *delay == 0 || *callers <= MOST_FAR_AWAY);
        let loads: Vec<Load> = callers.map(|callers| load(callers, *delay)).collect();
        for round in 0..=plan.rounds {
            for load in &loads {
                let seen = take_turns(&mut stage, &plan.subjects, *load, round).await?;
                for (name, figures) in seen.iter().filter(|_| round > 0) {
                    sheet.add(&load.part(), name, figures);
                }
            }
            if let Some(own) = plan.subjects.get(OWN).filter(|_| *delay == 0) {
                let part = format!("{CLAIMS} claims through external-provisioner");
                let figures = Box::pin(stage.turn_behind(provisioner, own, &format!("behind-{round}"))).await?;
                tell(round, &part, &own.name, &figures);
                if round > 0 {
                    sheet.add(&part, &own.name, &figures);
                }
            }
        }
    }
    Ok(())
}

/// All of them once, in an order that goes round.
async fn take_turns<'a>(
    stage: &mut Stage,
    subjects: &'a [Terms],
    load: Load,
    round: usize,
) -> Result<Vec<(&'a str, Figures)>> {
    let mut seen = Vec::new();
    for terms in subjects.iter().cycle().skip(round).take(subjects.len()) {
        let tag = format!("{}-{round}-{}-{}", terms.name, load.callers, load.delay);
        let figures = Box::pin(stage.turn(terms, load, &tag)).await?;
        tell(round, &load.part(), &terms.name, &figures);
        seen.push((terms.name.as_str(), figures));
    }
    for (other, what) in subjects.iter().zip([OF_BARE, OF_MARKED]) {
        let its = |(name, figures): &(&str, Figures)| (*name == other.name).then(|| figure(figures, RATE));
        let rate = seen.iter().find_map(its).unwrap_or(f64::NAN);
        for (_, figures) in seen.iter_mut().filter(|(name, _)| *name != other.name) {
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

/// What was to be reached, of what was seen.
fn goals(sheet: &Sheet, plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    let who = plan.subjects.get(OWN).map(|own| own.name.as_str()).unwrap_or_default();
    for load in plan.callers.iter().map(|callers| load(*callers, 0)) {
        let over_bind = match load.callers {
            1 => vec![(OVER_BIND_MIDDLE, 1.5), (OVER_BIND_LAST, 6.0)],
            100 => vec![(OVER_BIND_LAST, 25.0)],
            _ => Vec::new(),
        };
        let what = |figure: &str| format!("{figure}, {} at once", load.callers);
        for (figure, goal) in over_bind.into_iter().chain([(PROCESSOR, 0.10)]) {
            let seen = sheet.middle(&load.part(), who, figure);
            rows.extend(seen.map(|seen| Row::at_most(what(figure), Some(goal), seen)));
        }
        for figure in [OF_BARE, OF_MARKED] {
            let seen = sheet.middle(&load.part(), who, figure);
            rows.extend(seen.map(|seen| Row::at_least(what(figure), Some(95.0), seen)));
        }
    }
    rows
}
