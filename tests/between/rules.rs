//! What is decided, without a network.

use std::time::Duration;

use hyper::body::Bytes;

use crate::between::{
    Action, Asked, Delivery, Events, GATEWAY_TIMEOUT, INTERNAL_ERROR, Rule, Rules, Then, UNAUTHORIZED, Watched, Which,
    readable,
};

const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const POST: Asked<'static> = Asked { method: "POST", path: CLAIMS, watches: false, upgrades: false };
const LIST: Asked<'static> = Asked { method: "GET", ..POST };
const WATCH: Asked<'static> = Asked { watches: true, ..LIST };
const FORWARD: Asked<'static> = Asked { upgrades: true, ..LIST };

fn rule(methods: &'static [&'static str], path: &'static str, which: Which, action: Action) -> Rule {
    Rule { methods, path, which, action }
}

fn is_for(rule: Rule, asked: &Asked<'_>) -> bool {
    Rules::new(&[rule]).decide(asked).is_some()
}

#[test]
fn rule_is_for_the_methods_and_paths_that_it_names() {
    for (path, expected) in [
        ("*", true),
        (CLAIMS, true),
        ("/api/v1/*/persistentvolumeclaims", true),
        ("/api/*/shop/*claims", true),
        ("*/shop/*", true),
        ("*/persistentvolumeclaims/*", false),
        ("/api/v1/namespaces", false),
        ("*/shop", false),
        ("*/shop/*/shop/*", false),
        ("", false),
    ] {
        assert_eq!(is_for(rule(&[], path, Which::Every(1), Action::Answer(INTERNAL_ERROR)), &POST), expected, "{path}");
    }
    let writes = rule(&["POST", "PATCH"], "*", Which::Every(1), Action::Answer(INTERNAL_ERROR));
    assert!(is_for(writes, &POST) && !is_for(writes, &LIST));
}

#[test]
fn what_spoils_a_body_a_watch_or_another_protocol_is_for_nothing_else() {
    for (action, expected) in [
        (Action::Answer(UNAUTHORIZED), [true, true, true]),
        (Action::Elsewhere, [true, true, true]),
        (Action::Body(Delivery::Half), [true, false, false]),
        (Action::AnswerAfter(GATEWAY_TIMEOUT), [true, false, false]),
        (Action::Hold(Duration::from_secs(1), GATEWAY_TIMEOUT), [true, false, false]),
        (Action::Events(Watched::Silent), [false, true, false]),
        (Action::Upgraded(1), [false, false, true]),
        (Action::WrongCertificate, [false, false, false]),
    ] {
        let rule = rule(&[], "*", Which::Every(1), action);
        assert_eq!([&LIST, &WATCH, &FORWARD].map(|asked| is_for(rule, asked)), expected, "{action:?}");
    }
}

#[test]
fn watch_is_known_by_its_query_and_another_protocol_by_a_header() {
    for (address, watches) in [
        ("/api/v1/pods", false),
        ("/api/v1/pods?watch=true", true),
        ("/api/v1/pods?limit=1&watch=1", true),
        ("/api/v1/pods?watch=false", false),
        ("/api/v1/pods?labelSelector=watch%3Dtrue", false),
    ] {
        let (head, ()) = http::Request::get(address).body(()).unwrap().into_parts();
        let asked = Asked::of(&head);
        assert_eq!((asked.method, asked.path, asked.watches), ("GET", "/api/v1/pods", watches), "{address}");
        assert!(!asked.upgrades);
    }
    let (head, ()) = http::Request::get(CLAIMS).header("upgrade", "websocket").body(()).unwrap().into_parts();
    assert!(Asked::of(&head).upgrades);
}

#[test]
fn rule_has_its_turns_and_the_first_one_whose_turn_it_is_has_the_request() {
    let first = rule(&["POST"], "*", Which::First(1), Action::Answer(INTERNAL_ERROR));
    let second = rule(&["POST"], "*", Which::Every(2), Action::Answer(UNAUTHORIZED));
    let mut rules = Rules::new(&[first, second]);
    let mut decided = || {
        assert!(rules.decide(&LIST).is_none(), "it is for others, and changes nobody's turn");
        rules.decide(&POST).map(|decision| decision.action)
    };
    let (one, two) = (Some(Action::Answer(INTERNAL_ERROR)), Some(Action::Answer(UNAUTHORIZED)));
    assert_eq!([decided(), decided(), decided(), decided()], [one, two, None, two]);
}

#[test]
fn rule_counts_what_was_done_and_not_what_was_decided() {
    let mut rules = Rules::new(&[rule(&[], "*", Which::Every(1), Action::Elsewhere)]);
    let decision = rules.decide(&LIST).unwrap();
    assert_eq!(rules.counts()[0].get(), 0);
    decision.played.add();
    assert_eq!(rules.counts()[0].get(), 1);
    assert!(rules.wrong_certificate().is_none());
}

#[test]
fn event_that_comes_in_pieces_is_one_event() {
    let mut events = Events::new(Watched::Twice);
    assert!(events.take(b"{\"a\"").is_empty());
    let fates = events.take(b": 1}\n{\"b\"");
    assert_eq!(fates.len(), 1);
    assert_eq!(fates[0].said, ["{\"a\": 1}\n", "{\"a\": 1}\n"]);
    assert_eq!(events.take(b": 2}\n")[0].said, ["{\"b\": 2}\n", "{\"b\": 2}\n"]);
}

#[test]
fn events_are_swallowed_told_again_told_late_replaced_or_cut() {
    let expired = |said: &str| said.contains("\"type\":\"ERROR\"") && said.contains("410") && said.ends_with("}\n");
    for (how, spoiled, last) in [
        (Watched::Silent, [true, true], Then::GoesOn),
        (Watched::Twice, [true, true], Then::GoesOn),
        (Watched::Back, [false, true], Then::GoesOn),
        (Watched::Expired, [true, true], Then::Ends),
        (Watched::Cut, [true, true], Then::Breaks),
    ] {
        let fates = Events::new(how).take(b"first\nsecond\n");
        assert_eq!([fates[0].spoiled, fates[1].spoiled], spoiled, "{how:?}");
        assert_eq!(fates[1].then, last, "{how:?}");
        let said = fates.iter().flat_map(|fate| &fate.said).map(|said| String::from_utf8_lossy(said).into_owned());
        let said: Vec<String> = said.collect();
        match how {
            Watched::Silent => assert_eq!(said, [""; 0]),
            Watched::Twice => assert_eq!(said, ["first\n", "first\n", "second\n", "second\n"]),
            Watched::Back => assert_eq!(said, ["first\n", "second\n", "first\n"]),
            Watched::Expired => assert!(expired(&said[0]), "{said:?}"),
            Watched::Cut => assert_eq!(said, ["fir", "sec"]),
        }
    }
}

#[test]
fn body_is_cut_halved_or_comes_in_drops() {
    let body = Bytes::from_static(b"0123456789");
    let pause = Duration::from_millis(7);
    for (delivery, left, breaks) in [
        (Delivery::Cut, vec!["01234"], true),
        (Delivery::Half, vec!["01234"], false),
        (Delivery::Drip { piece: 4, pause }, vec!["0123", "4567", "89"], false),
    ] {
        let pieces = delivery.of(&body);
        assert_eq!(pieces.left, left, "{delivery:?}");
        assert_eq!(pieces.breaks, breaks, "{delivery:?}");
    }
}

#[test]
fn whoever_takes_protobuf_gets_json_which_can_be_broken_line_by_line() {
    let (json, table) = ("application/json", "application/json;as=Table;g=meta.k8s.io;v=v1");
    for (accepted, expected) in [
        ("application/json", json),
        ("application/vnd.kubernetes.protobuf", json),
        ("application/vnd.kubernetes.protobuf,application/json", json),
        ("application/vnd.kubernetes.protobuf;as=Table, application/json;as=Table;g=meta.k8s.io;v=v1", table),
        ("*/*", "*/*"),
    ] {
        assert_eq!(readable(accepted), expected, "{accepted}");
    }
}
