//! What people could read on objects of the host while a fault went on, as `kubectl describe` shows it.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
use kube::{Api, api::ListParams};

use super::{load::Load, world::World};

/// Said without being a warning.
const WORDS: [&str; 2] = ["LeafPending", "NodeNotReady"];
const VIRTUAL_NODES: &str = "kosmos-";
/// A volume's name is this and a UID.
const VOLUME: &str = "pvc-";
const UID: usize = 36;
const LONGEST: usize = 300;

/// Of what was said of one thing for one reason, the last.
pub async fn said(world: &World<'_>, load: &Load, since: Timestamp) -> Result<Vec<String>> {
    let events: Api<Event> = Api::all(world.host.client.clone());
    let mut events = events.list(&ListParams::default()).await?.items;
    let is_new = |event: &Event| time(event).is_some_and(|time| time.as_second() >= since.as_second());
    events.retain(|event| is_for_people(event, &world.host.namespace) && is_new(event));
    events.sort_by_key(time);
    let names = load.names();
    let last: BTreeMap<String, String> = events.iter().map(|event| sentence(event, &names)).collect();
    Ok(last.into_iter().map(|(about, message)| format!("{about}: {message}")).collect())
}

fn time(event: &Event) -> Option<Timestamp> {
    let observed = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    observed.map(|time| time.0).max(last).max(event.event_time.as_ref().map(|time| time.0))
}

fn is_for_people(event: &Event, namespace: &str) -> bool {
    let object = &event.involved_object;
    let is_of = match object.kind.as_deref() {
        Some("PersistentVolume") => true,
        Some("Node") => object.name.as_deref().is_some_and(|name| name.starts_with(VIRTUAL_NODES)),
        _ => object.namespace.as_deref() == Some(namespace),
    };
    let is_warning = event.type_.as_deref() == Some("Warning");
    is_of && (is_warning || event.reason.as_deref().is_some_and(|reason| WORDS.contains(&reason)))
}

/// Of what and why, and the message.
fn sentence(event: &Event, names: &[(&str, &str)]) -> (String, String) {
    let text = |part: Option<&str>| plain(part.unwrap_or_default(), names);
    let object = &event.involved_object;
    let [kind, name, reason] = [&object.kind, &object.name, &event.reason].map(|part| text(part.as_deref()));
    (format!("{kind} {name}: {reason}"), text(event.message.as_deref()))
}

/// In one line, without what is another one each time.
fn plain(text: &str, names: &[(&str, &str)]) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = names.iter().fold(line, |line, (name, short)| line.replace(name, short));
    let mut parts = line.split(VOLUME);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let after = part.split_at_checked(UID).filter(|(uid, _)| uid.bytes().all(is_of_uid)).map(|(_, after)| after);
        plain.push_str(VOLUME);
        plain.push_str(if after.is_some() { "…" } else { "" });
        plain.push_str(after.unwrap_or(part));
    }
    match plain.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &plain[..end]),
        None => plain,
    }
}

fn is_of_uid(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(kind: &str, name: &str, reason: &str, message: &str) -> Event {
        let event: Value = json!({
            "metadata": {}, "type": "Warning", "reason": reason, "message": message,
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {"kind": kind, "name": name, "namespace": "shop"},
        });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn words_are_those_of_users_objects_and_name_nothing_that_is_another_one_each_time() {
        let uid = "0b0c5a3e-4d8f-4b6e-9a53-5a3f5f6f7a8b";
        let told = event("PersistentVolumeClaim", "now-3", "Failed", &format!("now-3:\n pvc-{uid} and pvc-protection"));
        assert!(is_for_people(&told, "shop") && !is_for_people(&told, "other"));
        let (about, message) = sentence(&told, &[("now-3", "now")]);
        assert_eq!((&*about, &*message), ("PersistentVolumeClaim now: Failed", "now: pvc-… and pvc-protection"));
        assert!(time(&told).is_some());
        let long = plain(&"word ".repeat(100), &[]);
        assert!(long.ends_with('…') && long.chars().count() == LONGEST + 1, "{long}");
    }

    #[test]
    fn other_nodes_than_virtual_ones_say_nothing_to_users() {
        assert!(is_for_people(&event("Node", "kosmos-cluster38", "NodeNotReady", ""), "shop"));
        assert!(!is_for_people(&event("Node", "host-n1", "Rebooted", ""), "shop"));
        let mut normal = event("Pod", "user-3", "Scheduled", "");
        normal.type_ = Some("Normal".to_owned());
        assert!(!is_for_people(&normal, "shop"));
    }
}
