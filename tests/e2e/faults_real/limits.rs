//! What of the matrix is played now: some faults alone, or as many as there is time for, and how often. The rest is left for another run.

use std::{
    env,
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

use super::fault::Fault;

/// Parts of their names, with commas between them.
const ROWS: &str = "KOSMOS_CSI_FAULTS_ROWS";
/// In seconds since 1970.
const UNTIL: &str = "KOSMOS_CSI_FAULTS_UNTIL";
/// How often each is played on the same clusters.
const ROUNDS: &str = "KOSMOS_CSI_FAULTS_ROUNDS";

#[derive(Debug)]
pub struct Limits {
    rows: Vec<String>,
    until: Option<u64>,
}

impl Limits {
    pub fn given() -> Self {
        Self::new(&env::var(ROWS).unwrap_or_default(), seconds(UNTIL))
    }

    pub fn new(rows: &str, until: Option<u64>) -> Self {
        let rows = rows.split(',').map(str::trim).filter(|row| !row.is_empty()).map(str::to_owned).collect();
        Self { rows, until }
    }

    /// If nothing is wrong: one that is waited for takes longer.
    pub fn allow(&self, fault: &Fault) -> bool {
        let ends = now() + (fault.lasts + fault.takes).as_secs();
        self.ask_for(fault) && self.until.is_none_or(|until| ends <= until)
    }

    /// Whether there is time for it or not.
    pub fn ask_for(&self, fault: &Fault) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|row| fault.name.contains(row.as_str()))
    }
}

/// Once, where nobody has asked for more.
pub fn rounds() -> usize {
    number(ROUNDS).unwrap_or(1)
}

/// Of a variable that says when.
pub fn seconds(variable: &str) -> Option<u64> {
    number(variable)
}

fn number<N: FromStr>(variable: &str) -> Option<N> {
    env::var(variable).ok()?.parse().ok()
}

/// In seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::faults_real::requests::ANSWERS;

    #[test]
    fn fault_is_played_where_its_name_is_asked_for_and_there_is_time_for_it() {
        let takes = Duration::from_mins(5);
        // How long it may take where something is wrong is not asked.
        let fault = Fault { name: "member: etcd is killed", within: 10 * takes, takes, ..ANSWERS[0] };
        for (rows, until, is_allowed) in [
            ("", None, true),
            ("etcd", None, true),
            ("disk, etcd", None, true),
            ("disk,", None, false),
            ("", Some(now() + 1_000), true),
            ("", Some(now() + 100), false),
            ("disk", Some(now() + 1_000), false),
        ] {
            let limits = Limits::new(rows, until);
            assert_eq!(limits.allow(&fault), is_allowed, "{rows:?} {until:?}");
            assert_eq!(limits.ask_for(&fault), rows.is_empty() || rows.contains("etcd"), "{rows:?} {until:?}");
        }
    }
}
