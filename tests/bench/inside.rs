//! What is measured on real API servers: all drivers in turns, at one, a hundred and a thousand callers.

use std::path::Path;

use anyhow::Result;

use super::{
    Plan, conditions,
    measure::{Figures, OVER_BIND_LAST, OVER_BIND_MIDDLE, PROCESSOR, RATE},
    report::{Row, print},
    sheet::Sheet,
    subject::Terms,
    turn::{Load, Stage},
};

const OF_BARE: &str = "rate, of the bare driver's (%)";
const OF_MARKED: &str = "rate, of one's that marks too (%)";

pub async fn measure(fleet: &Path, plan: &Plan) -> Result<()> {
    let (bare, marked, own) = (Terms::bare()?, Terms::marked()?, Terms::own()?);
    let (others, own) = ([(bare.name.clone(), OF_BARE), (marked.name.clone(), OF_MARKED)], own);
    let goals_of = own.name.clone();
    let subjects = [bare, marked, own];
    let (mut stage, mut sheet) = (Stage::new(fleet).await?, Sheet::default());
    for round in 0..=plan.rounds {
        for load in plan.callers.iter().copied().map(load) {
            let mut rates = Vec::new();
            // Each is first, second and last as often as the others.
            for terms in subjects.iter().cycle().skip(round).take(subjects.len()) {
                let tag = format!("{}-{round}-{}", terms.name, load.callers);
                let figures = Box::pin(stage.turn(terms, load, &tag)).await?;
                tell(round, plan.rounds, load, &terms.name, &figures);
                rates.push((&terms.name, figure(&figures, RATE)));
                // The first round warms the servers.
                if round > 0 {
                    sheet.add(&part(load), &terms.name, &figures);
                }
            }
            for (name, what) in others.iter().filter(|_| round > 0) {
                let other = rates.iter().find(|(who, _)| *who == name).map_or(f64::NAN, |(_, rate)| *rate);
                for (who, rate) in rates.iter().filter(|(who, _)| *who != name) {
                    sheet.add(&part(load), who, &[(*what, rate / other * 100.0)]);
                }
            }
        }
    }
    let head = conditions::conditions();
    conditions::print(&head);
    sheet.print();
    print(&goals(&sheet, &goals_of, plan));
    sheet.write(&plan.json, &head)
}

fn load(callers: usize) -> Load {
    let volumes = match callers {
        ..10 => 300,
        10..500 => 1000,
        _ => 2000,
    };
    Load { callers, volumes }
}

fn part(load: Load) -> String {
    format!("{} callers, {} volumes", load.callers, load.volumes)
}

fn figure(figures: &Figures, what: &str) -> f64 {
    figures.iter().find(|(name, _)| *name == what).map_or(f64::NAN, |(_, value)| *value)
}

fn tell(round: usize, rounds: usize, load: Load, who: &str, figures: &Figures) {
    let figure = |what: &str| figure(figures, what);
    println!(
        "round {round} of {rounds}, {}, {who}: {:.0} made and {:.0} deleted a second, {:.2} processor seconds per 1000",
        part(load),
        figure(RATE),
        figure("deletes a second"),
        figure(PROCESSOR)
    );
}

/// What was to be reached.
fn goals(sheet: &Sheet, who: &str, plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    for load in plan.callers.iter().copied().map(load) {
        let seen = |figure: &str| sheet.middle(&part(load), who, figure).unwrap_or(f64::NAN);
        let what = |figure: &str| format!("{figure}, {} at once", load.callers);
        if load.callers == 1 {
            rows.push(Row::at_most(what(OVER_BIND_MIDDLE), Some(1.5), seen(OVER_BIND_MIDDLE)));
            rows.push(Row::at_most(what(OVER_BIND_LAST), Some(6.0), seen(OVER_BIND_LAST)));
        }
        if load.callers == 100 {
            rows.push(Row::at_most(what(OVER_BIND_LAST), Some(25.0), seen(OVER_BIND_LAST)));
        }
        rows.push(Row::at_least(what(OF_BARE), Some(95.0), seen(OF_BARE)));
        rows.push(Row::at_least(what(OF_MARKED), Some(95.0), seen(OF_MARKED)));
        rows.push(Row::at_most(what(PROCESSOR), Some(0.10), seen(PROCESSOR)));
    }
    rows
}
