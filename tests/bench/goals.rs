//! What was to be reached, of what was seen on real API servers.

use super::{
    measure::{Load, OF_ACCEPTED, OF_BARE, OF_MARKED, OVER_BIND_LAST, OVER_BIND_MIDDLE, PROCESSOR},
    report::Row,
    sheet::Sheet,
};

/// When it waits until a claim is bound, and when it does not.
const WAITS: &str = "kosmos-csi";
const ACCEPTS: &str = "kosmos-csi-accepted";

pub fn goals(sheet: &Sheet, loads: impl Iterator<Item = Load>) -> Vec<Row> {
    loads.flat_map(|load| of(sheet, load)).collect()
}

fn of(sheet: &Sheet, load: Load) -> Vec<Row> {
    let over_bind = match load.callers {
        1 => vec![(OVER_BIND_MIDDLE, 1.5), (OVER_BIND_LAST, 6.0)],
        100 => vec![(OVER_BIND_LAST, 25.0)],
        _ => Vec::new(),
    };
    let at_most = over_bind.into_iter().map(|(figure, goal)| (WAITS, figure, goal));
    let at_most = at_most.chain([(WAITS, PROCESSOR, 0.5), (ACCEPTS, PROCESSOR, 0.25)]);
    // One caller waits for two requests, one after the other, where the bare one has one: for three it would be a third.
    let of_accepted = if load.callers == 1 { 40.0 } else { 85.0 };
    let at_least = [(WAITS, OF_BARE, 95.0), (WAITS, OF_MARKED, 95.0), (ACCEPTS, OF_ACCEPTED, of_accepted)];
    let what = |who: &str, figure: &str| {
        let who = if who == ACCEPTS { ", waiting for nothing" } else { "" };
        format!("{figure}, {} at once{who}", load.callers)
    };
    let seen = |who: &str, figure: &str| sheet.middle(&load.part(), who, figure);
    let most =
        at_most.filter_map(|(who, figure, goal)| Some(Row::at_most(what(who, figure), Some(goal), seen(who, figure)?)));
    let least = at_least
        .into_iter()
        .filter_map(|(who, figure, goal)| Some(Row::at_least(what(who, figure), Some(goal), seen(who, figure)?)));
    most.chain(least).collect()
}
