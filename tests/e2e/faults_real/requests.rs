//! What can go wrong on a way, request by request, each with the rule that plays it.

use std::time::Duration;

use super::{
    credentials,
    fault::{A_WHILE, FOUND, Fault, HOST_WAITS, How, MEMBER_WAITS, MINUTES, PODS_WAIT, Words},
};
use crate::clusters::between::{
    Action, Delivery, GATEWAY_TIMEOUT, INTERNAL_ERROR, NO_SUCH_PAGE, Rule, UNAUTHORIZED, Watched, Which,
    too_many_requests,
};

const LATE: Words = Words {
    seen: "What needs the member is done a little later; all else goes on",
    does: "Nothing. Where it goes on for long, whoever runs the network looks at what lies between host and member",
};
const REFUSED: Words = Words {
    seen: MEMBER_WAITS.seen,
    does: "Users do nothing. The host's administrator gives [new credentials](outages.md#credentials-are-refused), where they stay refused",
};
const ASTRAY: Words = Words {
    seen: MEMBER_WAITS.seen,
    does: "Users do nothing. The host's administrator looks where the member's kubeconfig leads, and [corrects it](members.md#where-a-member-is-named)",
};
const MOVES_WAIT: Words = Words {
    seen: "A volume that moves takes longer, and where that lasts its move says why; all else goes on",
    does: "Users do nothing. `kosmos-csi volume status` says [what a move waits for](moving.md#move-one)",
};

const SOON: Duration = Duration::from_mins(1);
const A_MINUTE: Duration = Duration::from_mins(1);
/// A member whose watches break again and again is listed again after half a minute.
const LISTED: Duration = Duration::from_mins(2);
/// What came for a claim that is gone, or to another member than was meant, is withdrawn after a quarter of an hour.
pub const FORGOTTEN: Duration = Duration::from_mins(20);

const ALL: &[&str] = &[];
const READS: &[&str] = &["GET"];
const WRITES: &[&str] = &["DELETE", "PATCH", "POST", "PUT"];
const CREATIONS: &[&str] = &["POST"];
const CHANGES: &[&str] = &["DELETE", "PATCH", "PUT"];
/// Longer than anybody waits for an answer.
const HELD: Duration = Duration::from_secs(8);
/// Of movers and what is theirs, and the lines to them.
const OF_MOVERS: &str = "*/namespaces/kosmos-csi-movers/*";
const LINES: &str = "*/namespaces/kosmos-csi-movers/*/portforward";
const VOLUMES: &str = "*/persistentvolumes";
/// Less than the two ends of a copy say before they know each other.
const HANDSHAKE: u64 = 512;
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

const fn of_member(name: &'static str, words: Words, times: usize, within: Duration, rule: Rule) -> Fault {
    let how = How::Request(rule);
    Fault { name, words, lasts: Duration::ZERO, times, within, takes: MINUTES, is_members: true, how }
}

const fn answer(name: &'static str, rule: Rule) -> Fault {
    of_member(name, MEMBER_WAITS, 3, SOON, rule)
}

const fn body(name: &'static str, rule: Rule) -> Fault {
    of_member(name, LATE, 2, SOON, rule)
}

const fn watch(name: &'static str, how: Watched) -> Fault {
    of_member(name, LATE, 2, LISTED, each(READS, Action::Events(how)))
}

const fn with(words: Words, fault: Fault) -> Fault {
    Fault { words, ..fault }
}

const fn for_a_minute(fault: Fault) -> Fault {
    Fault { lasts: A_MINUTE, ..fault }
}

const fn way(name: &'static str, times: usize, within: Duration, rule: Rule) -> Fault {
    of_member(name, MEMBER_WAITS, times, within, rule)
}

const fn of_agent(name: &'static str, times: usize, rule: Rule) -> Fault {
    Fault { lasts: A_WHILE, ..of_member(name, PODS_WAIT, times, LISTED, rule) }
}

const fn of_move(name: &'static str, times: usize, rule: Rule) -> Fault {
    Fault { lasts: A_WHILE, is_members: false, ..of_member(name, MOVES_WAIT, times, LISTED, rule) }
}

const fn at(path: &'static str, which: Which, rule: Rule) -> Rule {
    Rule { path, which, ..rule }
}

const fn of_host(name: &'static str, times: usize, rule: Rule) -> Fault {
    Fault { lasts: A_WHILE, is_members: false, ..of_member(name, HOST_WAITS, times, FOUND, rule) }
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
    with(REFUSED, for_a_minute(answer("401 for a minute", each(ALL, Action::Answer(UNAUTHORIZED))))),
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
    with(ASTRAY, way("wrong certificate", 2, LISTED, each(ALL, Action::WrongCertificate))),
    Fault {
        takes: FORGOTTEN,
        ..with(ASTRAY, way("answers of another cluster", 2, FORGOTTEN, each(ALL, Action::Elsewhere)))
    },
    way("changes and removals that arrive late", 1, LISTED, held(CHANGES)),
    Fault { takes: FORGOTTEN, ..way("claims that arrive late", 1, FORGOTTEN, held(CREATIONS)) },
];

/// Of what moves a volume.
pub const OF_MOVES: [Fault; 4] = [
    of_move(
        "move: 500 to every second request about movers",
        2,
        at(OF_MOVERS, Which::Every(2), each(ALL, Action::Answer(INTERNAL_ERROR))),
    ),
    of_move(
        "move: 504 after a write about movers was carried out",
        2,
        at(OF_MOVERS, Which::Every(1), each(WRITES, Action::AnswerAfter(GATEWAY_TIMEOUT))),
    ),
    of_move("move: line that is refused", 1, at(LINES, Which::First(3), each(ALL, Action::Answer(INTERNAL_ERROR)))),
    of_move("move: line that is cut", 1, at(LINES, Which::First(2), each(ALL, Action::Upgraded(HANDSHAKE)))),
];

/// Of the driver and its sidecars.
pub const TO_HOST: [Fault; 18] = [
    of_host("host: 504 after a write was carried out", 3, each(WRITES, Action::AnswerAfter(GATEWAY_TIMEOUT))),
    of_host("host: 429 with Retry-After to all", 3, each(ALL, Action::Answer(too_many_requests(Some(1))))),
    of_host("host: 429 without Retry-After", 3, each(ALL, Action::Answer(too_many_requests(None)))),
    of_host("host: 500", 3, each(ALL, Action::Answer(INTERNAL_ERROR))),
    of_host("host: 500 to every second request", 3, every_second(ALL, Action::Answer(INTERNAL_ERROR))),
    for_a_minute(of_host("host: 401 for a minute", 3, each(ALL, Action::Answer(UNAUTHORIZED)))),
    of_host("host: 404 page of a load balancer", 3, each(ALL, Action::Answer(NO_SUCH_PAGE))),
    of_host("host: body that is cut in the middle", 1, every_second(READS, Action::Body(Delivery::Cut))),
    of_host("host: half of a body as if it were all", 1, every_second(READS, Action::Body(Delivery::Half))),
    of_host("host: body that comes in drops", 1, each(READS, Action::Body(DROPS))),
    of_host("host: watch that stays silent", 2, each(READS, Action::Events(Watched::Silent))),
    of_host("host: watch that tells all twice", 2, each(READS, Action::Events(Watched::Twice))),
    of_host("host: watch that is told 410", 2, each(READS, Action::Events(Watched::Expired))),
    of_host("host: watch that is cut in an event", 2, each(READS, Action::Events(Watched::Cut))),
    of_host("host: wrong certificate", 2, each(ALL, Action::WrongCertificate)),
    Fault { within: FORGOTTEN, ..of_host("host: answers of another cluster", 2, each(ALL, Action::Elsewhere)) },
    of_host(
        "host: volumes that arrive late",
        1,
        at(VOLUMES, Which::First(3), each(CREATIONS, Action::Hold(HELD, GATEWAY_TIMEOUT))),
    ),
    credentials::TO_HOST,
];

pub const OF_AGENT: [Fault; 13] = [
    of_agent("agent: 504 after a write was carried out", 1, each(WRITES, Action::AnswerAfter(GATEWAY_TIMEOUT))),
    of_agent("agent: 429 without Retry-After", 2, each(ALL, Action::Answer(too_many_requests(None)))),
    of_agent("agent: 500 to every second request", 2, every_second(ALL, Action::Answer(INTERNAL_ERROR))),
    for_a_minute(of_agent("agent: 401 for a minute", 2, each(ALL, Action::Answer(UNAUTHORIZED)))),
    of_agent("agent: 404 page of a load balancer", 2, each(ALL, Action::Answer(NO_SUCH_PAGE))),
    of_agent("agent: watch that stays silent", 1, each(READS, Action::Events(Watched::Silent))),
    of_agent("agent: watch that goes back in versions", 1, each(READS, Action::Events(Watched::Back))),
    of_agent("agent: watch that is told 410", 1, each(READS, Action::Events(Watched::Expired))),
    of_agent("agent: watch that is cut in an event", 1, each(READS, Action::Events(Watched::Cut))),
    of_agent("agent: wrong certificate", 2, each(ALL, Action::WrongCertificate)),
    of_agent("agent: answers of another cluster", 2, each(ALL, Action::Elsewhere)),
    credentials::OF_AGENT[0],
    credentials::OF_AGENT[1],
];
