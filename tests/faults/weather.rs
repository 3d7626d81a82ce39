//! What goes wrong, drawn from a seed: rules that hold for a while, for one cluster or all, and strike some of the requests
//! they are about.

use std::time::Duration;

use fastrand::Rng;
use simulate::faults::{Action, Asked, Verb};

use crate::{
    attach::double::ATTACHMENTS,
    snapshotter::{GROUPS, SNAPSHOTS},
};

/// How long the weather lasts.
pub const STORM: Duration = Duration::from_mins(2);

#[derive(Clone, Debug)]
pub struct Weather {
    seed: u64,
    pub rules: Vec<Rule>,
}

/// One kind of trouble.
#[derive(Clone, Debug)]
pub struct Rule {
    /// None: every cluster. 0 is the host.
    cluster: Option<usize>,
    /// None: every replica of the driver. Else those whose number is odd, or those whose is not.
    odd: Option<bool>,
    about: About,
    from: Duration,
    until: Duration,
    per_mille: u64,
    trouble: Trouble,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Everything,
    Reads,
    Writes,
    /// Of one kind.
    WritesOf(&'static str),
    AllOf(&'static str),
    Watches,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Delay(Duration),
    Refuse,
    Answer(u16, &'static str),
    Hang,
    Lose,
    Mute,
    LateAnswer(u16, &'static str),
    Late(Duration),
    /// Only in pages a list comes in time, of so many objects, and some are forgotten before they have been read to the end.
    Pages(u64),
    Cut(u64),
    Silence(u64),
    Duplicate,
    Lag(Duration),
}

/// What the driver writes in members; volumes count thrice, as data may go by what is written on them.
const WRITTEN: [&str; 8] = [
    "persistentvolumes",
    "persistentvolumes",
    "persistentvolumes",
    "persistentvolumeclaims",
    "pods",
    SNAPSHOTS,
    GROUPS,
    ATTACHMENTS,
];

/// What the driver reads, follows and writes; some of it in members alone.
const ASKED_FOR: [&str; 7] = [
    "persistentvolumes",
    "persistentvolumeclaims",
    "storageclasses.storage.k8s.io",
    "pods",
    "events",
    SNAPSHOTS,
    ATTACHMENTS,
];

const ANSWERS: [(u16, &str); 7] = [
    (500, "InternalError"),
    (503, "ServiceUnavailable"),
    (504, "Timeout"),
    (429, "TooManyRequests"),
    (401, "Unauthorized"),
    (403, "Forbidden"),
    (404, "NotFound"),
];

impl Weather {
    pub fn draw(seed: u64, clusters: usize) -> Self {
        let mut chance = Rng::with_seed(seed);
        let mut rules: Vec<Rule> = (0..chance.usize(2..10)).map(|_| Rule::draw(&mut chance, clusters)).collect();
        if chance.u8(..10) < 4 {
            rules.push(Rule::black_hole(&mut chance, clusters));
        }
        if chance.u8(..10) < 4 {
            rules.push(Rule::slow_path(&mut chance));
        }
        if chance.u8(..10) < 3 {
            rules.push(Rule::policy(&mut chance, clusters));
        }
        if chance.u8(..10) < 4 {
            rules.push(Rule::outage_of_one_kind(&mut chance, clusters));
        }
        Self { seed, rules }
    }

    /// Besides, what is written on volumes in the members arrives late all the while, as data goes by it.
    pub fn holds_volumes_up(&mut self) {
        let mut chance = Rng::with_seed(self.seed);
        self.rules.push(Rule {
            about: About::WritesOf(WRITTEN[0]),
            from: Duration::ZERO,
            ..Rule::slow_path(&mut chance)
        });
    }

    /// What becomes of one request, by its number.
    pub fn decide(&self, time: Duration, number: u64, at: usize, asked: &Asked) -> Action {
        let strikes = |(index, rule): &(usize, &Rule)| {
            let drawn = Rng::with_seed(self.seed ^ (number << 8) ^ *index as u64).u64(..1000);
            rule.holds(time, at, asked) && drawn < rule.per_mille
        };
        let rule = self.rules.iter().enumerate().find(strikes).map(|(_, rule)| rule);
        rule.map_or(Action::Pass, |rule| rule.trouble.action(asked))
    }
}

impl Rule {
    fn draw(chance: &mut Rng, clusters: usize) -> Self {
        let about = *chance.choice(&[About::Everything, About::Reads, About::Writes, About::Watches]).unwrap();
        let from = Duration::from_millis(chance.u64(..1000 * STORM.as_secs()));
        let lasts = Duration::from_millis(chance.u64(100..1000 * STORM.as_secs()));
        Self {
            cluster: chance.bool().then(|| chance.usize(..clusters)),
            odd: (chance.u8(..4) == 0).then(|| chance.bool()),
            about,
            from,
            until: (from + lasts).min(STORM),
            per_mille: *chance.choice(&[10, 30, 100, 300, 1000]).unwrap(),
            trouble: if about == About::Watches {
                Trouble::of_watch(chance)
            } else {
                Trouble::of_request(chance, about)
            },
        }
    }

    /// A member that takes every packet and answers none.
    fn black_hole(chance: &mut Rng, clusters: usize) -> Self {
        let from = Duration::from_secs(chance.u64(..STORM.as_secs()));
        let cluster = Some(chance.usize(1..clusters));
        let (about, trouble) = (About::Everything, Trouble::Hang);
        Self { cluster, odd: None, about, from, until: STORM, per_mille: 1000, trouble }
    }

    /// Some writes of one kind reach the members when their senders have long given up.
    fn slow_path(chance: &mut Rng) -> Self {
        let about = About::WritesOf(chance.choice(&WRITTEN).unwrap());
        let from = Duration::from_secs(chance.u64(..STORM.as_secs() / 2));
        let (per_mille, trouble) = (chance.u64(200..700), Trouble::Late(Duration::from_secs(chance.u64(5..60))));
        Self { cluster: None, odd: None, about, from, until: STORM, per_mille, trouble }
    }

    /// The admission of one member refuses all writes of one kind, until people there see what that does.
    fn policy(chance: &mut Rng, clusters: usize) -> Self {
        let about = About::WritesOf(chance.choice(&WRITTEN).unwrap());
        let from = Duration::from_secs(chance.u64(..STORM.as_secs()));
        let until = (from + Duration::from_secs(chance.u64(10..60))).min(STORM);
        let trouble = Trouble::Answer(403, "Forbidden");
        Self { cluster: Some(chance.usize(1..clusters)), odd: None, about, from, until, per_mille: 1000, trouble }
    }

    /// One cluster serves all but one kind, as where a right was taken away, or what converts the kind does not answer.
    fn outage_of_one_kind(chance: &mut Rng, clusters: usize) -> Self {
        let about = About::AllOf(chance.choice(&ASKED_FOR).unwrap());
        let from = Duration::from_secs(chance.u64(..STORM.as_secs()));
        let until = (from + Duration::from_secs(chance.u64(10..60))).min(STORM);
        let (code, reason) = *chance.choice(&ANSWERS).unwrap();
        let cluster = Some(if chance.u8(..4) == 0 { 0 } else { chance.usize(1..clusters) });
        Self { cluster, odd: None, about, from, until, per_mille: 1000, trouble: Trouble::Answer(code, reason) }
    }

    fn holds(&self, time: Duration, at: usize, asked: &Asked) -> bool {
        let verb = asked.verb;
        let about = match self.about {
            About::Everything => true,
            About::Reads => matches!(verb, Verb::Get | Verb::List),
            About::Writes => verb.writes(),
            About::WritesOf(resource) => verb.writes() && asked.resource == resource,
            About::AllOf(resource) => asked.resource == resource,
            About::Watches => verb == Verb::Watch,
        };
        let is_odd = || asked.client.bytes().last().is_some_and(|last| last % 2 == 1);
        let is_meant = self.cluster.is_none_or(|cluster| cluster == at) && self.odd.is_none_or(|odd| odd == is_odd());
        about && is_meant && (self.from..self.until).contains(&time)
    }
}

impl Trouble {
    fn of_watch(chance: &mut Rng) -> Self {
        match chance.u8(..7) {
            0 => Self::Silence(chance.u64(..4)),
            1 => Self::Duplicate,
            2 => Self::of_request(chance, About::Reads),
            // An API server whose cache of what it watches is behind.
            3 | 4 => Self::Lag(Duration::from_millis(chance.u64(500..30_000))),
            _ => Self::Cut(chance.u64(..4)),
        }
    }

    fn of_request(chance: &mut Rng, about: About) -> Self {
        let (code, reason) = *chance.choice(&ANSWERS).unwrap();
        match chance.u8(..if about == About::Reads { 5 } else { 8 }) {
            0 => Self::Delay(Duration::from_millis(chance.u64(1..6000))),
            1 => Self::Refuse,
            2 => Self::Answer(code, reason),
            3 => Self::Hang,
            4 if about == About::Reads => Self::Pages(chance.u64(5..20)),
            4 => Self::Lose,
            5 => Self::Mute,
            6 => Self::Late(Duration::from_secs(chance.u64(5..60))),
            _ if chance.bool() => Self::LateAnswer(504, "Timeout"),
            _ if about == About::Writes && chance.bool() => Self::Answer(409, "Conflict"),
            _ => Self::LateAnswer(500, "InternalError"),
        }
    }

    fn action(self, asked: &Asked) -> Action {
        let is_next_page = || asked.query.contains("continue=");
        match self {
            Self::Delay(time) => Action::Delay(time),
            Self::Refuse => Action::Refuse,
            Self::Answer(code, reason) => Action::Answer { code, reason },
            Self::Hang => Action::Hang,
            Self::Lose => Action::ApplyThenLose,
            Self::Mute => Action::ApplyThenHang,
            Self::LateAnswer(code, reason) => Action::ApplyThenAnswer { code, reason },
            Self::Late(time) => Action::Late(time),
            Self::Pages(_) if asked.verb != Verb::List => Action::Pass,
            Self::Pages(_) if !asked.query.contains("limit=") => Action::Answer { code: 504, reason: "Timeout" },
            Self::Pages(_) if is_next_page() && asked.number.is_multiple_of(16) => {
                Action::Answer { code: 410, reason: "Expired" }
            }
            Self::Pages(most) => Action::Pages(most),
            Self::Cut(after) => Action::Cut(after),
            Self::Silence(after) => Action::Silence(after),
            Self::Duplicate => Action::Duplicate,
            Self::Lag(time) => Action::Lag(time),
        }
    }
}
