//! The member's own words on why something waits.

use std::{pin::pin, time::Duration};

use futures::AsyncReadExt;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Resource,
    api::{ListParams, ObjectList},
    core::Request,
};
use serde_json::Value;

use super::MemberClient;
use cluster::{Reading, events::readable};

const QUICK: Duration = Duration::from_millis(400);
/// In bytes: what those about one object may take together. Whoever may write events in its namespace decides how long they are.
const LONGEST: u64 = 1 << 20;

/// The newest warning about an object, if there is one and the member can be asked.
pub async fn newest_warning(client: &MemberClient, namespace: &str, uid: &str) -> Option<String> {
    newest(warnings(client, namespace, uid).await?)
}

/// The same about an object that is in no namespace: events about it are in this one.
pub async fn newest_warning_of_clusters(client: &MemberClient, uid: &str) -> Option<String> {
    newest_warning(client, "default", uid).await
}

/// The newest word of the member's provisioner that it has no room for a claim.
pub async fn lack_of_room(client: &MemberClient, namespace: &str, uid: &str) -> Option<String> {
    let mut warnings = warnings(client, namespace, uid).await?;
    warnings.retain(says_that_room_is_lacking);
    newest(warnings)
}

async fn warnings(client: &MemberClient, namespace: &str, uid: &str) -> Option<Vec<Event>> {
    events(client, namespace, &format!("involvedObject.uid={uid},type=Warning")).await
}

/// Reason and message of the newest event about an object that has one of these reasons.
pub async fn newest_of(
    client: &MemberClient,
    namespace: &str,
    uid: &str,
    reasons: &[&str],
) -> Option<(String, String)> {
    let mut events = events(client, namespace, &format!("involvedObject.uid={uid}")).await?;
    events.retain(|event| event.reason.as_deref().is_some_and(|reason| reasons.contains(&reason)));
    let event = events.into_iter().max_by_key(time)?;
    Some((event.reason?, event.message.unwrap_or_default()))
}

async fn events(client: &MemberClient, namespace: &str, fields: &str) -> Option<Vec<Event>> {
    // The caller's own deadline is near: a reason is worth little time.
    let events = tokio::time::timeout(QUICK, list(client, namespace, fields)).await.ok()?;
    let events = events.inspect_err(|error| {
        tracing::debug!(member = %client.member, %error, "the member's events cannot be read");
    });
    events.ok()
}

/// That they are long says nothing of the member, which other answers of that length would close.
async fn list(client: &MemberClient, namespace: &str, fields: &str) -> kube::Result<Vec<Event>> {
    let request = Request::new(Event::url_path(&(), Some(namespace))).list(&ListParams::default().fields(fields));
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    request.extensions_mut().insert(Reading::InPieces);
    let text = pin!(client.client.request_stream(request).await?);
    let (mut text, mut whole) = (text.take(LONGEST), Vec::new());
    text.read_to_end(&mut whole).await.map_err(kube::Error::ReadEvents)?;
    if text.limit() == 0 {
        return Err(kube::Error::Service("they are longer than is read".into()));
    }
    let listed: ObjectList<Value> = serde_json::from_slice(&whole).map_err(kube::Error::SerdeError)?;
    Ok(readable(listed.items))
}

/// As the provisioners write it who call a CSI driver and pass on its answer.
fn says_that_room_is_lacking(event: &Event) -> bool {
    event.reason.as_deref() == Some("ProvisioningFailed")
        && event.message.as_deref().is_some_and(|message| message.contains("code = ResourceExhausted"))
}

fn newest(events: Vec<Event>) -> Option<String> {
    let event = events.into_iter().max_by_key(time)?;
    let (reason, message) = (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
    Some(format!("{reason}: {message}"))
}

fn time(event: &Event) -> Option<Time> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let precise = series.or(event.event_time.as_ref()).map(|time| Time(time.0));
    precise.or_else(|| event.last_timestamp.clone()).or_else(|| event.metadata.creation_timestamp.clone())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;

    #[test]
    fn the_newest_of_all_kinds_of_time_is_told() {
        let event = |message: &str, key: &str, value: &str| -> Event {
            from_value(json!({"metadata": {}, "involvedObject": {}, "reason": "ProvisioningFailed", "message": message, key: value}))
                .unwrap()
        };
        let events = vec![
            event("older", "lastTimestamp", "2026-01-01T00:00:00Z"),
            event("newer", "eventTime", "2026-01-01T00:00:01.000000Z"),
        ];
        assert_eq!(newest(events).as_deref(), Some("ProvisioningFailed: newer"));
        assert_eq!(newest(Vec::new()), None);
    }

    #[test]
    fn lack_of_room_is_told_from_other_failures() {
        let event = |reason: &str, message: &str| -> Event {
            from_value(json!({"metadata": {}, "involvedObject": {}, "reason": reason, "message": message})).unwrap()
        };
        let said =
            "failed to provision volume with StorageClass \"fast\": rpc error: code = ResourceExhausted desc = full";
        assert!(says_that_room_is_lacking(&event("ProvisioningFailed", said)));
        assert!(!says_that_room_is_lacking(&event("FailedMount", said)));
        let internal =
            "failed to provision volume: rpc error: code = Internal desc = ResourceExhausted by somebody else";
        assert!(!says_that_room_is_lacking(&event("ProvisioningFailed", internal)));
    }
}
