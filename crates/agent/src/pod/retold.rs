//! What an event of a member about a copy says of the host's pod. Pure.

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::object::{Place, short, text};

/// Who reports them: not the driver's own words.
const REPORTER: &str = "kosmos.csi.io/member";
/// The driver tells users by it that their volume is where no pod can go. That a copy finds no node stands in the pod's condition.
const NOT_TOLD: &str = "FailedScheduling";
/// In bytes. The API server takes 1024 of a message.
const MESSAGE: usize = 900;
const WORD: usize = 120;

/// An event about a copy as one about the host's pod; none where it is about another. Whoever makes events in the member says what he likes: it is
/// told as the word of somebody there.
pub(super) fn retold(event: &Value, pod: &Value, copy: &Value, member: &str, now: Timestamp) -> Option<Event> {
    let about = text(event, "/involvedObject/uid");
    let reason = short(text(event, "/reason"), WORD);
    if about.is_empty() || about != text(copy, "/metadata/uid") || reason == NOT_TOLD {
        return None;
    }
    let Place { namespace, name } = Place::of(pod);
    let uid = text(pod, "/metadata/uid");
    let metadata = ObjectMeta {
        name: Some(named(&name, [member, uid, text(event, "/metadata/uid")])),
        namespace: Some(namespace.clone()),
        ..ObjectMeta::default()
    };
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace),
        uid: Some(uid.to_owned()),
        field_path: Some(short(text(event, "/involvedObject/fieldPath"), WORD)).filter(|path| !path.is_empty()),
        name: Some(name),
        ..ObjectReference::default()
    };
    Some(Event {
        metadata,
        involved_object: about,
        reason: Some(reason),
        message: Some(short(text(event, "/message"), MESSAGE)),
        type_: Some(if event["type"] == "Warning" { "Warning" } else { "Normal" }.to_owned()),
        source: Some(EventSource { component: Some(source(event, member)), host: None }),
        reporting_component: Some(REPORTER.to_owned()),
        reporting_instance: Some(member.to_owned()),
        first_timestamp: Some(time(event, &["/firstTimestamp", "/eventTime"], now)),
        last_timestamp: Some(time(event, &["/lastTimestamp", "/series/lastObservedTime", "/eventTime"], now)),
        count: Some(count(event)),
        ..Event::default()
    })
}

/// The first of these times that it tells. A member's clock may be ahead.
fn time(event: &Value, fields: &[&str], now: Timestamp) -> Time {
    let told = fields.iter().find_map(|field| text(event, field).parse::<Timestamp>().ok());
    Time(told.unwrap_or(now).min(now))
}

fn count(event: &Value) -> i32 {
    let told = event["count"].as_i64().or_else(|| event["series"]["count"].as_i64());
    i32::try_from(told.unwrap_or(1)).unwrap_or(i32::MAX).max(1)
}

/// Who said it, and where: `kubelet, cluster38/worker-1`.
fn source(event: &Value, member: &str) -> String {
    let fields = ["/source/component", "/reportingComponent"];
    let component = fields.map(|field| text(event, field)).into_iter().find(|word| !word.is_empty());
    let node = short(text(event, "/source/host"), WORD);
    let place = if node.is_empty() { member.to_owned() } else { format!("{member}/{node}") };
    format!("{}, {place}", short(component.unwrap_or_default(), WORD))
}

/// One event of the member has one name in the host, whoever tells it.
fn named(pod: &str, [member, uid, event]: [&str; 3]) -> String {
    let digest = Sha256::digest(json!(["an event in a member", member, uid, event]).to_string());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    let pod = pod.get(..200).unwrap_or(pod).trim_end_matches(['-', '.']);
    format!("{pod}.{:016x}", u64::from_be_bytes(first))
}

/// The change by which an event that is there counts further, if it is the one that was made here.
pub(super) fn again(event: &Event) -> Value {
    json!([
        {"op": "test", "path": "/involvedObject/uid", "value": event.involved_object.uid},
        {"op": "test", "path": "/reportingComponent", "value": REPORTER},
        {"op": "add", "path": "/count", "value": event.count},
        {"op": "add", "path": "/lastTimestamp", "value": event.last_timestamp},
        {"op": "add", "path": "/message", "value": event.message},
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn event(fields: &Value) -> Value {
        let mut whole = json!({
            "metadata": {"uid": "e", "name": "web.1", "namespace": "shop"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web", "uid": "c"},
            "type": "Warning", "reason": "BackOff", "message": "waits",
            "source": {"component": "kubelet", "host": "worker-1"},
        });
        for (field, value) in fields.as_object().into_iter().flatten() {
            whole[field] = value.clone();
        }
        whole
    }

    fn told(fields: &Value) -> Option<Value> {
        let pod = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u"}});
        let copy = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "c"}});
        retold(&event(fields), &pod, &copy, "m", "2026-01-01T00:10:00Z".parse().unwrap()).map(|told| json!(told))
    }

    #[test]
    fn only_what_is_about_the_copy_is_told_and_nothing_that_the_driver_would_act_on() {
        assert_eq!(text(&told(&json!({})).unwrap(), "/involvedObject/uid"), "u");
        for fields in [
            json!({"involvedObject": {"uid": "another"}}),
            json!({"involvedObject": {}}),
            json!({"reason": "FailedScheduling"}),
        ] {
            assert_eq!(told(&fields), None, "{fields}");
        }
    }

    #[test]
    fn who_said_it_where_and_how_often_is_told_in_both_forms_of_events() {
        let times =
            json!({"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:05:00Z", "count": 7});
        let series = json!({"eventTime": "2026-01-01T00:00:00.000000Z", "source": {}, "reportingComponent": "kubelet",
            "series": {"count": 7, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}});
        for (fields, source) in [(times, "kubelet, m/worker-1"), (series, "kubelet, m")] {
            let told = told(&fields).unwrap();
            assert_eq!((text(&told, "/source/component"), &told["count"]), (source, &json!(7)), "{told}");
            assert_eq!(text(&told, "/firstTimestamp"), "2026-01-01T00:00:00Z");
            assert_eq!(text(&told, "/lastTimestamp"), "2026-01-01T00:05:00Z");
        }
    }

    #[test]
    fn member_writes_no_row_of_anothers_nor_from_the_future_nor_without_end() {
        let hostile = told(&json!({
            "lastTimestamp": "9999-12-31T12:00:00Z", "firstTimestamp": "2027-01-01T00:00:00Z", "type": "Alarm", "count": -3,
            "reason": "x\n  Normal\tScheduled \u{1b}[8m\u{202e}", "message": "ä".repeat(2000),
            "source": {"component": "k".repeat(2000), "host": "h\nh"},
        }))
        .unwrap();
        for time in ["/firstTimestamp", "/lastTimestamp"] {
            assert_eq!(text(&hostile, time), "2026-01-01T00:10:00Z");
        }
        assert_eq!((text(&hostile, "/type"), &hostile["count"]), ("Normal", &json!(1)));
        assert_eq!(text(&hostile, "/reason"), "x   Normal Scheduled \u{fffd}[8m\u{fffd}");
        assert!(text(&hostile, "/message").len() <= MESSAGE && text(&hostile, "/source/component").len() < 3 * WORD);
        assert!(!hostile.to_string().contains("\\n"), "{hostile}");
    }

    #[test]
    fn event_has_a_name_that_no_other_member_and_no_other_pod_gives() {
        let names: HashSet<String> =
            [["m", "u", "e"], ["m", "ue", ""], ["mu", "", "e"], ["m", "u", "f"], ["n", "u", "e"]]
                .map(|parts| named("web", parts))
                .into();
        assert_eq!(names.len(), 5);
        assert!(named(&"p".repeat(253), ["m", "u", "e"]).len() <= 253);
    }
}
