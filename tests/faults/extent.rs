//! How much is played, as the environment asks for it.

use std::env;

use fastrand::Rng;

/// Faulted operations of a run that nobody asks anything of.
const FEW: usize = 1000;
/// No more than there are.
pub const ALL: usize = usize::MAX;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: it must be a number")))
}

/// The seeds of schedules that have so many operations each.
pub fn seeds(operations: usize) -> Vec<u64> {
    let first = number("KOSMOS_CSI_SEED").unwrap_or(1);
    let all = number("KOSMOS_CSI_FAULTED_OPERATIONS").map_or(FEW, |number| usize::try_from(number).unwrap());
    (first..).take(all.div_ceil(operations)).collect()
}

/// What a schedule has found wrong, and its seed.
pub type Found = (String, u64);

pub fn found(wrong: &[String], seed: u64) -> Option<Found> {
    (!wrong.is_empty()).then(|| (format!("seed {seed}:\n  {}", wrong.join("\n  ")), seed))
}

/// Fails where one of so many schedules has found something, with the course of the first, and how it is played again.
#[track_caller]
pub fn nothing_is_found(all: &[Found], count: usize, test: &str, course: impl Fn(u64) -> Vec<String>) {
    let Some((first, seed)) = all.first() else { return };
    let wrong: Vec<&str> = all.iter().map(|(wrong, _)| wrong.as_str()).collect();
    panic!(
        "{}\n{}\n{} of {count} schedules; above is the course of {}\nplay it again: KOSMOS_CSI_SEED=<seed> \
         KOSMOS_CSI_FAULTED_OPERATIONS=1 cargo test --test faults {test}",
        course(*seed).join("\n"),
        wrong.join("\n"),
        all.len(),
        first.lines().next().unwrap_or_default(),
    );
}

/// Everything, however long it takes.
pub fn is_thorough() -> bool {
    env::var_os("KOSMOS_CSI_THOROUGH").is_some()
}

/// Of what takes hours, a tenth by its number, where the environment asks for one: all of that.
pub fn tenth() -> Option<usize> {
    number("KOSMOS_CSI_TENTH").map(|tenth| usize::try_from(tenth).unwrap())
}

/// At most so many of the runs; all where everything is asked for. A quick run has a sixth of them, each time another
/// one: it is drawn by the seed that orders the tests.
pub fn drawn<T>(runs: impl IntoIterator<Item = T>, usual: usize) -> Vec<T> {
    let mut runs: Vec<T> = runs.into_iter().collect();
    if is_thorough() {
        return runs;
    }
    let is_quick = env::var_os("KOSMOS_CSI_QUICK").is_some();
    let seed = if is_quick { number("KOSMOS_CSI_ORDER").unwrap_or(1) } else { 1 };
    Rng::with_seed(seed).shuffle(&mut runs);
    runs.truncate(usual.min(runs.len()).div_ceil(if is_quick { 6 } else { 1 }));
    runs
}
