//! What is done to which requests. Knows no network: the proxy asks for each request, and does what it is told.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{header::UPGRADE, request::Parts};

use super::{answer::Answer, body::Delivery, events::Watched};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// In the API server's place, which does not hear of the request.
    Answer(Answer),
    /// In place of what the API server says, if it has carried the request out.
    AnswerAfter(Answer),
    /// At once, and the API server gets the request so much later, whatever has become of who sent it.
    Hold(Duration, Answer),
    /// What is no watch is carried out, and the answer's body arrives like this.
    Body(Delivery),
    /// A watch's events arrive like this.
    Events(Watched),
    /// What has become another protocol, as port-forward does, ends once the API server has said so many bytes.
    Upgraded(u64),
    /// Another API server gets it.
    Elsewhere,
    /// Who connects is shown a certificate of an authority that nobody knows.
    WrongCertificate,
}

impl Action {
    fn is_for(self, asked: &Asked<'_>) -> bool {
        match self {
            Self::Answer(_) | Self::Elsewhere => true,
            Self::AnswerAfter(_) | Self::Hold(..) | Self::Body(_) => !asked.watches && !asked.upgrades,
            Self::Events(_) => asked.watches,
            Self::Upgraded(_) => asked.upgrades,
            Self::WrongCertificate => false,
        }
    }

    /// Connections and watches that are there already would not meet it.
    fn is_for_new_ones(self) -> bool {
        matches!(self, Self::Events(_) | Self::Elsewhere | Self::WrongCertificate)
    }
}

/// Of the requests that a rule is for, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    First(usize),
    /// Where it is 2: the second, the fourth, and so on.
    Every(usize),
}

impl Which {
    fn has(self, number: usize) -> bool {
        match self {
            Self::First(last) => number <= last,
            Self::Every(step) => number.is_multiple_of(step),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// None stands for any.
    pub methods: &'static [&'static str],
    /// `*` stands for anything, slashes too.
    pub path: &'static str,
    pub which: Which,
    pub action: Action,
}

impl Rule {
    fn is_for(&self, asked: &Asked<'_>) -> bool {
        let method = self.methods.is_empty() || self.methods.contains(&asked.method);
        method && matches_pattern(self.path, asked.path) && self.action.is_for(asked)
    }
}

fn matches_pattern(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// A request, as far as rules go by it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub watches: bool,
    /// It is to become another protocol, as exec and port-forward do.
    pub upgrades: bool,
}

impl<'a> Asked<'a> {
    pub fn of(head: &'a Parts) -> Self {
        let watches = |part: &str| ["watch=true", "watch=1"].contains(&part);
        let watches = head.uri.query().unwrap_or_default().split('&').any(watches);
        let upgrades = head.headers.contains_key(UPGRADE);
        Self { method: head.method.as_str(), path: head.uri.path(), watches, upgrades }
    }
}

/// How often a rule has done what it says.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicUsize>);

impl Count {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is to be done, and where it is counted once it is.
#[derive(Debug)]
pub struct Decision {
    pub action: Action,
    pub played: Count,
}

#[derive(Debug)]
struct Active {
    rule: Rule,
    /// How many requests came that it is for.
    met: usize,
    played: Count,
}

/// Those that hold.
#[derive(Debug, Default)]
pub struct Rules(Vec<Active>);

impl Rules {
    pub fn new(rules: &[Rule]) -> Self {
        Self(rules.iter().map(|rule| Active { rule: *rule, met: 0, played: Count::default() }).collect())
    }

    /// Each rule that is for the request counts it, and the first one whose turn it is has it.
    pub fn decide(&mut self, asked: &Asked<'_>) -> Option<Decision> {
        let mut decided = None;
        for active in self.0.iter_mut().filter(|active| active.rule.is_for(asked)) {
            active.met += 1;
            if decided.is_none() && active.rule.which.has(active.met) {
                decided = Some(Decision { action: active.rule.action, played: active.played.clone() });
            }
        }
        decided
    }

    /// Where a connection is counted that is to be shown a wrong certificate.
    pub fn wrong_certificate(&self) -> Option<Count> {
        let found = self.0.iter().find(|active| active.rule.action == Action::WrongCertificate);
        found.map(|active| active.played.clone())
    }

    pub fn are_for_new_ones(&self) -> bool {
        self.0.iter().any(|active| active.rule.action.is_for_new_ones())
    }

    pub fn counts(&self) -> Vec<Count> {
        self.0.iter().map(|active| active.played.clone()).collect()
    }
}
