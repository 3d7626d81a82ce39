//! What a member says of claims that wait, as it says it: one watch of events for all of them, while any waits.

use std::pin::pin;

use futures::{TryStreamExt, future::select_all};
use tokio::sync::mpsc::Sender;

use super::MemberClient;
use cluster::events::{self, Event};
use domain::error::Result;

/// Of claims, and of pods that find no node.
pub const OF_CLAIMS: &str = "involvedObject.kind=PersistentVolumeClaim";
pub const OF_PODS: &str = "involvedObject.kind=Pod,reason=FailedScheduling";

/// Of a text of an event, in bytes: Kubernetes' own are shorter. A member may say megabytes, and hundreds of events are kept.
const LONGEST: usize = 1024;

/// An event, as far as it is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEvent {
    /// UID of the object it is about, and where that is.
    pub about: String,
    pub namespace: String,
    pub name: String,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    /// Who says it.
    pub by: String,
}

impl MemberEvent {
    fn new(event: &Event) -> Option<Self> {
        let kept = |text: &str| text[..text.floor_char_boundary(LONGEST)].to_owned();
        let object = &event.involved_object;
        let (about, namespace, name) = (kept(&object.uid), kept(&object.namespace), kept(&object.name));
        let (reason, message, by) = (kept(&event.reason), kept(&event.message), kept(event.by()));
        Some(Self { about, namespace, name, warning: event.kind == "Warning", reason, message, by })
            .filter(|event| !event.about.is_empty())
    }
}

/// Listens until the member ends it. What it has said before comes first.
pub async fn listen(client: &MemberClient, fields: &str, say: &Sender<MemberEvent>) -> Result<()> {
    let namespaces = client.namespaces.each();
    select_all(namespaces.iter().map(|namespace| Box::pin(listen_within(client, *namespace, fields, say)))).await.0
}

async fn listen_within(
    client: &MemberClient,
    namespace: Option<&str>,
    fields: &str,
    say: &Sender<MemberEvent>,
) -> Result<()> {
    let unheard = |error: kube::Error| client.outcome("watch events", &error);
    let mut events = pin!(events::listen(&client.within(namespace), fields).await.map_err(unheard)?);
    while let Some(event) = events.try_next().await.map_err(unheard)? {
        if let Some(word) = MemberEvent::new(&event) {
            // Where nobody hears it any more, this ends as well.
            drop(say.send(word).await);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn text_without_end_is_kept_to_what_an_event_has() {
        let long = "\u{e4}".repeat(3 << 20);
        let object = json!({"uid": "u", "namespace": long, "name": long});
        let event = json!({"involvedObject": object, "type": "Warning", "reason": long, "message": long,
            "reportingComponent": long, "source": {"component": long}});
        let event = MemberEvent::new(&from_value(event).unwrap()).unwrap();
        for text in [&event.namespace, &event.name, &event.reason, &event.message, &event.by] {
            assert!(text.len() <= LONGEST && text.capacity() <= LONGEST, "{} bytes", text.capacity());
        }
        assert!(event.warning && event.about == "u");
    }
}
