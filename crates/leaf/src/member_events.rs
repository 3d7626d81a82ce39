//! What a member says of claims that wait, as it says it: one watch of events for all of them, while any waits.

use std::pin::pin;

use futures::{TryStreamExt, future::select_all};
use k8s_openapi::api::core::v1::Event;
use tokio::sync::mpsc::Sender;

use super::MemberClient;
use cluster::events;
use domain::error::Result;

/// Of claims, and of pods that find no node.
pub const OF_CLAIMS: &str = "involvedObject.kind=PersistentVolumeClaim";
pub const OF_PODS: &str = "involvedObject.kind=Pod,reason=FailedScheduling";

/// An event, as far as it is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEvent {
    /// UID of the object it is about.
    pub about: String,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    /// Who says it.
    pub by: String,
}

impl MemberEvent {
    fn new(event: Event) -> Option<Self> {
        let by = event.reporting_component.filter(|name| !name.is_empty()).or(event.source?.component);
        Some(Self {
            about: event.involved_object.uid?,
            warning: event.type_.as_deref() == Some("Warning"),
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
            by: by.unwrap_or_default(),
        })
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
        if let Some(word) = MemberEvent::new(event) {
            // Where nobody hears it any more, this ends as well.
            drop(say.send(word).await);
        }
    }
    Ok(())
}
