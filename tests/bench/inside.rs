//! What is measured: the bare loop and the driver in turns, at one, a hundred and a thousand callers.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use csi::v1::Volume;
use futures::future::try_join_all;
use kube::Client;

use super::{
    MEMBER, PATIENCE,
    clusters::{kubernetes, wait_for},
    floor,
    measure::{Run, closed_loop, median, percentile},
    process::{Apart, memory, now, processor_time, waited},
    provisioner::{Host, HostClaim},
    report::{Row, print},
    seen::Seen as Watch,
    subject::{Place, Subject, Terms},
    told::Heard,
};

/// Callers, and how many volumes they make in one run.
const LOADS: [(usize, usize); 3] = [(1, 100), (100, 1000), (1000, 2000)];

/// Volumes a second.
#[derive(Clone, Copy)]
struct Rates {
    bare: f64,
    marked: f64,
    driver: f64,
}

/// What was seen at one load, a value per round.
#[derive(Default)]
struct Seen {
    rates: Vec<Rates>,
    over_bind: Vec<(Duration, Duration)>,
    /// One write of the member among as many others.
    write: Vec<(Duration, Duration)>,
    /// Answers that were there before the bind was seen by the binder, in a hundred.
    early: Vec<f64>,
    processor: Vec<f64>,
    /// The same of the bare loop.
    own: Vec<f64>,
}

/// What the driver's calls were like.
struct Calls {
    over_bind: Vec<Duration>,
    early: f64,
}

/// One of them.
struct Made<'a> {
    claim: &'a HostClaim,
    volume: Volume,
    /// The claim in the member.
    leaf: String,
    answered: Duration,
}

impl Calls {
    async fn of(run: Run<Made<'_>>, heard: &mut Heard) -> Result<Self> {
        let (claims, answered): (Vec<String>, Vec<Duration>) =
            run.calls.into_iter().map(|made| (made.leaf, made.answered)).unzip();
        let bound = heard.of(&claims).await?;
        let early = answered.iter().zip(&bound).filter(|(answered, bound)| answered < bound).count();
        let over_bind = answered.iter().zip(&bound).map(|(answered, bound)| answered.saturating_sub(*bound));
        Ok(Self { over_bind: over_bind.collect(), early: early as f64 / answered.len() as f64 * 100.0 })
    }
}

pub async fn measure(folder: &Path, rounds: usize) -> Result<()> {
    let kubeconfig = folder.join(MEMBER).join("admin-inside.kubeconfig");
    let told = folder.join("bound.told");
    let _binder = Apart::start([Path::new("bind"), &kubeconfig, &told])?;
    let mut heard = wait_for("the binder works", PATIENCE, || async { Heard::from(&told).map(Some) }).await?;
    let (client, watch) = (kubernetes::client(&kubeconfig).await?, Watch::default());
    let watching = tokio::spawn(watch.clone().follow(client.clone()));
    let text = |cluster: &str| std::fs::read_to_string(folder.join(cluster).join("admin-inside.kubeconfig"));
    let place = Place::new(&folder.join("bench"), &text("host")?, &text(MEMBER)?)?;
    let (host, subject) = (Host::new(&place.host()).await?, Subject::start(&Terms::own()?, &place).await?);
    for claim in &host.claims("first", 1, &subject.driver).await? {
        host.volume(claim, &subject.driver, &subject.serves(claim).await?).await?;
    }
    let mut seen: [Seen; LOADS.len()] = Default::default();
    for round in 0..=rounds {
        for ((callers, volumes), seen) in LOADS.into_iter().zip(&mut seen) {
            let name = |who: &str, number: usize| format!("{who}-{round}-{callers}-{number}");
            let own = processor_time(std::process::id())?;
            let bare = loop_of(callers, volumes, &client, &watch, |number| (name("bare", number), false)).await?;
            let own = processor_time(std::process::id())?.saturating_sub(own);
            let marked = loop_of(callers, volumes, &client, &watch, |number| (name("marked", number), true)).await?;
            let claims = host.claims(&format!("driver-{round}-{callers}"), volumes, &subject.driver).await?;
            let before = (processor_time(subject.id())?, waited(subject.id())?);
            let driver = closed_loop(callers, volumes, |number| create(&subject, &claims[number])).await?;
            let used = processor_time(subject.id())?.saturating_sub(before.0);
            let waited = waited(subject.id())?.saturating_sub(before.1);
            let rates = Rates { bare: bare.rate(), marked: marked.rate(), driver: driver.rate() };
            try_join_all(driver.calls.iter().map(|made| host.volume(made.claim, &subject.driver, &made.volume)))
                .await?;
            let calls = Calls::of(driver, &mut heard).await?;
            tell(round, callers, rates, &calls, (used, waited));
            // The first round warms connections and caches.
            if round > 0 {
                seen.rates.push(rates);
                seen.over_bind.push(middle_and_last(calls.over_bind));
                seen.early.push(calls.early);
                seen.write.push(middle_and_last(marked.calls));
                seen.processor.push(used.as_secs_f64() * 1000.0 / volumes as f64);
                seen.own.push(own.as_secs_f64() * 1000.0 / volumes as f64);
            }
        }
    }
    watching.abort();
    let (memory, most) = memory(subject.id())?;
    println!("the driver's memory: {} MB, at most {} MB", memory >> 20, most >> 20);
    print(&rows(&seen));
    Ok(())
}

/// The bare loop.
async fn loop_of(
    callers: usize,
    volumes: usize,
    client: &Client,
    watch: &Watch,
    what: impl Fn(usize) -> (String, bool),
) -> Result<Run<Duration>> {
    closed_loop(callers, volumes, |number| {
        let (name, marked) = what(number);
        async move { floor::create(client, watch, &name, marked).await }
    })
    .await
}

async fn create<'a>(subject: &Subject, claim: &'a HostClaim) -> Result<Made<'a>> {
    let (volume, _) = subject.create(claim).await?;
    let answered = now()?;
    Ok(Made { claim, volume, leaf: subject.leaf(claim).context("the driver makes a claim")?, answered })
}

fn middle_and_last(times: Vec<Duration>) -> (Duration, Duration) {
    (percentile(times.clone(), 50), percentile(times, 99))
}

fn tell(round: usize, callers: usize, rates: Rates, driver: &Calls, (used, waited): (Duration, Duration)) {
    let (middle, last) = middle_and_last(driver.over_bind.clone());
    println!(
        "round {round}, {callers} callers: bare {:.0}/s, with a mark {:.0}/s, driver {:.0}/s; over the bind p50 {:.1?} p99 {:.1?}, \
         {:.0} % before it; {:.2} s of processors, and {:.2} s of waiting for one",
        rates.bare,
        rates.marked,
        rates.driver,
        middle,
        last,
        driver.early,
        used.as_secs_f64(),
        waited.as_secs_f64()
    );
}

fn rows(seen: &[Seen]) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((callers, _), seen) in LOADS.into_iter().zip(seen) {
        let milliseconds = |of: &[(Duration, Duration)], pick: fn(&(Duration, Duration)) -> Duration| {
            median(of.iter().map(|pair| pick(pair).as_secs_f64() * 1000.0).collect())
        };
        let goals = match callers {
            1 => (Some(1.5), Some(6.0)),
            100 => (None, Some(25.0)),
            _ => (None, None),
        };
        let what = |text: &str| format!("{text}, {callers} at once");
        rows.push(Row::at_most(what("over the bind, p50 (ms)"), goals.0, milliseconds(&seen.over_bind, |pair| pair.0)));
        rows.push(Row::at_most(what("over the bind, p99 (ms)"), goals.1, milliseconds(&seen.over_bind, |pair| pair.1)));
        rows.push(Row::at_most(what("… answered before it was told (%)"), None, median(seen.early.clone())));
        rows.push(Row::at_most(
            what("… one write of the member, p50 (ms)"),
            None,
            milliseconds(&seen.write, |pair| pair.0),
        ));
        rows.push(Row::at_most(
            what("… one write of the member, p99 (ms)"),
            None,
            milliseconds(&seen.write, |pair| pair.1),
        ));
        let ratio = |of: fn(&Rates) -> f64| median(seen.rates.iter().map(|at| at.driver / of(at) * 100.0).collect());
        rows.push(Row::at_least(what("rate, of the bare loop's (%)"), Some(95.0), ratio(|at| at.bare)));
        rows.push(Row::at_least(what("… of a bare loop's that marks too (%)"), Some(95.0), ratio(|at| at.marked)));
        rows.push(Row::at_most(what("processor seconds per 1000 volumes"), Some(0.10), median(seen.processor.clone())));
        rows.push(Row::at_most(what("… of the bare loop"), None, median(seen.own.clone())));
    }
    rows
}
