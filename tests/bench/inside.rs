//! What is measured: the bare driver and the driver in turns, at one, a hundred and a thousand callers.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use csi::v1::Volume;
use futures::future::try_join_all;

use super::{
    MEMBER, PATIENCE,
    clusters::wait_for,
    measure::{closed_loop, median, percentile},
    process::{Apart, memory, now, processor_time, waited},
    provisioner::{Host, HostClaim},
    report::{Row, print},
    subject::{Place, Subject, Terms},
    told::Heard,
};

/// Callers, and how many volumes they make in one run.
const LOADS: [(usize, usize); 3] = [(1, 100), (100, 1000), (1000, 2000)];

/// What was seen of one driver at one load, a value per round.
#[derive(Default)]
struct Seen {
    rate: Vec<f64>,
    over_bind: Vec<(Duration, Duration)>,
    /// Answers that were there before the bind was told, in a hundred.
    early: Vec<f64>,
    processor: Vec<f64>,
}

/// One answer.
struct Made<'a> {
    claim: &'a HostClaim,
    volume: Volume,
    /// The claim in the member.
    leaf: String,
    answered: Duration,
}

/// One turn of one driver.
struct Turn {
    rate: f64,
    over_bind: Vec<Duration>,
    early: f64,
    used: Duration,
    waited: Duration,
}

/// Where all take their turns.
struct Stage {
    host: Host,
    heard: Heard,
}

pub async fn measure(folder: &Path, rounds: usize) -> Result<()> {
    let kubeconfig = folder.join(MEMBER).join("admin-inside.kubeconfig");
    let told = folder.join("bound.told");
    let _binder = Apart::start([Path::new("bind"), &kubeconfig, &told])?;
    let heard = wait_for("the binder works", PATIENCE, || async { Heard::from(&told).map(Some) }).await?;
    let text = |cluster: &str| std::fs::read_to_string(folder.join(cluster).join("admin-inside.kubeconfig"));
    let place = Place::new(&folder.join("bench"), &text("host")?, &text(MEMBER)?)?;
    let mut stage = Stage { host: Host::new(&place.host()).await?, heard };
    let mut subjects = Vec::new();
    for terms in [Terms::bare()?, Terms::marked()?, Terms::own()?] {
        subjects.push(stage.start(&terms, &place).await?);
    }
    let mut seen: [[Seen; 3]; LOADS.len()] = Default::default();
    for round in 0..=rounds {
        for (load, seen) in LOADS.into_iter().zip(&mut seen) {
            for (subject, seen) in subjects.iter().zip(seen) {
                let turn = stage.turn(subject, load, round).await?;
                tell(round, load.0, subject.name(), &turn);
                // The first round warms connections and caches.
                if round > 0 {
                    seen.rate.push(turn.rate);
                    seen.early.push(turn.early);
                    seen.processor.push(turn.used.as_secs_f64() * 1000.0 / load.1 as f64);
                    seen.over_bind.push(middle_and_last(turn.over_bind));
                }
            }
        }
    }
    for subject in &subjects {
        let (memory, most) = memory(subject.id())?;
        println!("memory of {}: {} MB, at most {} MB", subject.name(), memory >> 20, most >> 20);
    }
    print(&rows(&seen));
    Ok(())
}

impl Stage {
    async fn start(&self, terms: &Terms, place: &Place) -> Result<Subject> {
        let subject = Subject::start(terms, place).await?;
        for claim in &self.host.claims(&format!("first-{}", subject.name()), 1, &subject.driver).await? {
            self.host.volume(claim, &subject.driver, &subject.serves(claim).await?).await?;
        }
        Ok(subject)
    }

    async fn turn(&mut self, subject: &Subject, (callers, volumes): (usize, usize), round: usize) -> Result<Turn> {
        let prefix = format!("{}-{round}-{callers}", subject.name());
        let claims = self.host.claims(&prefix, volumes, &subject.driver).await?;
        let before = (processor_time(subject.id())?, waited(subject.id())?);
        let run = closed_loop(callers, volumes, |number| create(subject, &claims[number])).await?;
        let used = processor_time(subject.id())?.saturating_sub(before.0);
        let waited = waited(subject.id())?.saturating_sub(before.1);
        let rate = run.rate();
        try_join_all(run.calls.iter().map(|made| self.host.volume(made.claim, &subject.driver, &made.volume))).await?;
        let (leaves, answered): (Vec<String>, Vec<Duration>) =
            run.calls.into_iter().map(|made| (made.leaf, made.answered)).unzip();
        let bound = self.heard.of(&leaves).await?;
        let early = answered.iter().zip(&bound).filter(|(answered, bound)| answered < bound).count();
        let over_bind = answered.iter().zip(&bound).map(|(answered, bound)| answered.saturating_sub(*bound));
        let early = early as f64 / answered.len() as f64 * 100.0;
        Ok(Turn { rate, over_bind: over_bind.collect(), early, used, waited })
    }
}

async fn create<'a>(subject: &Subject, claim: &'a HostClaim) -> Result<Made<'a>> {
    let (volume, _) = subject.create(claim).await?;
    let answered = now()?;
    Ok(Made { claim, volume, leaf: subject.leaf(claim).context("the driver makes a claim")?, answered })
}

fn middle_and_last(times: Vec<Duration>) -> (Duration, Duration) {
    (percentile(times.clone(), 50), percentile(times, 99))
}

fn tell(round: usize, callers: usize, who: &str, turn: &Turn) {
    let (middle, last) = middle_and_last(turn.over_bind.clone());
    println!(
        "round {round}, {callers} callers, {who}: {:.0}/s; over the bind p50 {middle:.1?} p99 {last:.1?}, {:.0} % before it; \
         {:.2} s of processors, and {:.2} s of waiting for one",
        turn.rate,
        turn.early,
        turn.used.as_secs_f64(),
        turn.waited.as_secs_f64()
    );
}

fn rows(seen: &[[Seen; 3]]) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((callers, _), [bare, marked, driver]) in LOADS.into_iter().zip(seen) {
        let milliseconds = |of: &Seen, pick: fn(&(Duration, Duration)) -> Duration| {
            median(of.over_bind.iter().map(|pair| pick(pair).as_secs_f64() * 1000.0).collect())
        };
        let goals = match callers {
            1 => (Some(1.5), Some(6.0)),
            100 => (None, Some(25.0)),
            _ => (None, None),
        };
        let what = |text: &str| format!("{text}, {callers} at once");
        rows.push(Row::at_most(what("over the bind, p50 (ms)"), goals.0, milliseconds(driver, |pair| pair.0)));
        rows.push(Row::at_most(what("over the bind, p99 (ms)"), goals.1, milliseconds(driver, |pair| pair.1)));
        rows.push(Row::at_most(what("… answered before it was told (%)"), None, median(driver.early.clone())));
        rows.push(Row::at_most(what("… of the bare driver, p50 (ms)"), None, milliseconds(bare, |pair| pair.0)));
        rows.push(Row::at_most(what("… of one that marks too, p50 (ms)"), None, milliseconds(marked, |pair| pair.0)));
        let ratio = |of: &Seen| {
            median(driver.rate.iter().zip(&of.rate).map(|(driver, other)| driver / other * 100.0).collect())
        };
        rows.push(Row::at_least(what("rate, of the bare driver's (%)"), Some(95.0), ratio(bare)));
        rows.push(Row::at_least(what("… of one's that marks too (%)"), Some(95.0), ratio(marked)));
        rows.push(Row::at_most(
            what("processor seconds per 1000 volumes"),
            Some(0.10),
            median(driver.processor.clone()),
        ));
        rows.push(Row::at_most(what("… of the bare driver"), None, median(bare.processor.clone())));
        rows.push(Row::at_most(what("… of one that marks too"), None, median(marked.processor.clone())));
    }
    rows
}
