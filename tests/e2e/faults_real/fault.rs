//! What can go wrong between the driver and a member, each with the rule that plays it.

use std::time::Duration;

use crate::clusters::between::{
    Action, Delivery, GATEWAY_TIMEOUT, INTERNAL_ERROR, NO_SUCH_PAGE, Rule, UNAUTHORIZED, Watched, Which,
    too_many_requests,
};

#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub name: &'static str,
    /// By users, while it goes on.
    pub seen: &'static str,
    /// It goes on until it has taken place so often.
    pub times: usize,
    /// From its end until all has come about.
    pub within: Duration,
    pub rule: Rule,
}

const MEMBER_WAITS: &str = "What needs the member waits, and an event says why; all else goes on";
const LATE: &str = "What needs the member is done a little later; all else goes on";

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

const fn answer(name: &'static str, rule: Rule) -> Fault {
    Fault { name, seen: MEMBER_WAITS, times: 3, within: SOON, rule }
}

const fn body(name: &'static str, rule: Rule) -> Fault {
    Fault { name, seen: LATE, times: 2, within: SOON, rule }
}

const fn watch(name: &'static str, how: Watched) -> Fault {
    Fault { name, seen: LATE, times: 2, within: LISTED, rule: each(READS, Action::Events(how)) }
}

const fn way(name: &'static str, times: usize, within: Duration, rule: Rule) -> Fault {
    Fault { name, seen: MEMBER_WAITS, times, within, rule }
}

pub const ANSWERS: [Fault; 7] = [
    answer("504 after a write was carried out", each(WRITES, Action::AnswerAfter(GATEWAY_TIMEOUT))),
    answer(
        "429 with Retry-After to every second request",
        every_second(ALL, Action::Answer(too_many_requests(Some(1)))),
    ),
    answer("429 without Retry-After", each(ALL, Action::Answer(too_many_requests(None)))),
    answer("500", each(ALL, Action::Answer(INTERNAL_ERROR))),
    answer("500 to every second request", every_second(ALL, Action::Answer(INTERNAL_ERROR))),
    answer("401", each(ALL, Action::Answer(UNAUTHORIZED))),
    answer("404 page of a load balancer", each(ALL, Action::Answer(NO_SUCH_PAGE))),
];

pub const STREAMS: [Fault; 8] = [
    body("body that is cut in the middle", every_second(READS, Action::Body(Delivery::Cut))),
    body("half of a body as if it were all", every_second(READS, Action::Body(Delivery::Half))),
    body("body that comes in drops", each(READS, Action::Body(DROPS))),
    watch("watch that stays silent", Watched::Silent),
    watch("watch that tells all twice", Watched::Twice),
    watch("watch that goes back in versions", Watched::Back),
    watch("watch that is told 410", Watched::Expired),
    watch("watch that is cut in an event", Watched::Cut),
];

pub const WAYS: [Fault; 4] = [
    way("wrong certificate", 2, LISTED, each(ALL, Action::WrongCertificate)),
    way("answers of another cluster", 2, LISTED, each(ALL, Action::Elsewhere)),
    way("changes and removals that arrive late", 1, LISTED, held(CHANGES)),
    way("claims that arrive late", 1, FORGOTTEN, held(CREATIONS)),
];
