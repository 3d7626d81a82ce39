//! What a cluster says in events.

use futures::{Stream, TryStreamExt};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};

/// Events with these fields, until the cluster ends it. What it has said before comes first.
pub async fn listen(
    events: &Api<Event>,
    fields: &str,
) -> Result<impl Stream<Item = Result<Event, kube::Error>> + Send + use<>, kube::Error> {
    let about = WatchParams::default().fields(fields);
    let events = events.watch(&about, "0").await?;
    Ok(events.try_filter_map(async |event| match event {
        WatchEvent::Added(event) | WatchEvent::Modified(event) => Ok(Some(event)),
        WatchEvent::Error(status) => Err(kube::Error::Api(status)),
        WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => Ok(None),
    }))
}
