//! What can go wrong between the driver and a member, each with the rule that plays it.

use std::time::Duration;

use crate::clusters::between::{
    Action, Delivery, GATEWAY_TIMEOUT, INTERNAL_ERROR, NO_SUCH_PAGE, Rule, UNAUTHORIZED, Watched, Which,
    too_many_requests,
};

#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub name: &'static str,
    /// It goes on until it has taken place so often.
    pub times: usize,
    /// From its end until all has come about.
    pub within: Duration,
    pub rule: Rule,
}

const SOON: Duration = Duration::from_mins(1);
/// A member whose watches break again and again is listed anew after half a minute.
const LISTED: Duration = Duration::from_mins(2);
/// What came for a claim that is gone is withdrawn after a quarter of an hour.
pub const FORGOTTEN: Duration = Duration::from_mins(20);

const ALL: &[&str] = &[];
const READS: &[&str] = &["GET"];
const WRITES: &[&str] = &["DELETE", "PATCH", "POST", "PUT"];
const CREATIONS: &[&str] = &["POST"];
const CHANGES: &[&str] = &["DELETE", "PATCH", "PUT"];
/// Longer than anybody waits for an answer.
const HELD: Duration = Duration::from_secs(8);
/// Some kilobytes a second.
const DROPS: Delivery = Delivery::Drip { piece: 256, pause: Duration::from_millis(100) };

const fn each(methods: &'static [&'static str], action: Action) -> Rule {
    Rule { methods, path: "*", which: Which::Every(1), action }
}

const fn every_second(methods: &'static [&'static str], action: Action) -> Rule {
    Rule { methods, path: "*", which: Which::Every(2), action }
}

const fn held(methods: &'static [&'static str]) -> Rule {
    let action = Action::Hold(HELD, GATEWAY_TIMEOUT);
    Rule { methods, path: "*/persistentvolumeclaims*", which: Which::First(3), action }
}

pub const ANSWERS: [Fault; 7] = [
    Fault {
        name: "504 after a write was carried out",
        times: 3,
        within: SOON,
        rule: each(WRITES, Action::AnswerAfter(GATEWAY_TIMEOUT)),
    },
    Fault {
        name: "429 with Retry-After to every second request",
        times: 3,
        within: SOON,
        rule: every_second(ALL, Action::Answer(too_many_requests(Some(1)))),
    },
    Fault {
        name: "429 without Retry-After",
        times: 3,
        within: SOON,
        rule: each(ALL, Action::Answer(too_many_requests(None))),
    },
    Fault { name: "500", times: 3, within: SOON, rule: each(ALL, Action::Answer(INTERNAL_ERROR)) },
    Fault {
        name: "500 to every second request",
        times: 3,
        within: SOON,
        rule: every_second(ALL, Action::Answer(INTERNAL_ERROR)),
    },
    Fault { name: "401", times: 3, within: SOON, rule: each(ALL, Action::Answer(UNAUTHORIZED)) },
    Fault {
        name: "404 page of a load balancer",
        times: 3,
        within: SOON,
        rule: each(ALL, Action::Answer(NO_SUCH_PAGE)),
    },
];

pub const STREAMS: [Fault; 8] = [
    Fault {
        name: "body that is cut in the middle",
        times: 2,
        within: SOON,
        rule: every_second(READS, Action::Body(Delivery::Cut)),
    },
    Fault {
        name: "half of a body as if it were all",
        times: 2,
        within: SOON,
        rule: every_second(READS, Action::Body(Delivery::Half)),
    },
    Fault { name: "body that comes in drops", times: 2, within: SOON, rule: each(READS, Action::Body(DROPS)) },
    Fault {
        name: "watch that stays silent",
        times: 2,
        within: LISTED,
        rule: each(READS, Action::Events(Watched::Silent)),
    },
    Fault {
        name: "watch that tells all twice",
        times: 2,
        within: LISTED,
        rule: each(READS, Action::Events(Watched::Twice)),
    },
    Fault {
        name: "watch that goes back in versions",
        times: 2,
        within: LISTED,
        rule: each(READS, Action::Events(Watched::Back)),
    },
    Fault {
        name: "watch that is told 410",
        times: 2,
        within: LISTED,
        rule: each(READS, Action::Events(Watched::Expired)),
    },
    Fault {
        name: "watch that is cut in an event",
        times: 2,
        within: LISTED,
        rule: each(READS, Action::Events(Watched::Cut)),
    },
];

pub const WAYS: [Fault; 4] = [
    Fault { name: "wrong certificate", times: 2, within: LISTED, rule: each(ALL, Action::WrongCertificate) },
    Fault { name: "answers of another cluster", times: 2, within: LISTED, rule: each(ALL, Action::Elsewhere) },
    Fault { name: "changes and removals that arrive late", times: 1, within: LISTED, rule: held(CHANGES) },
    Fault { name: "claims that arrive late", times: 1, within: FORGOTTEN, rule: held(CREATIONS) },
];
