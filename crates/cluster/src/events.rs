//! What a cluster says in events.

use std::convert;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
    core::Request,
};
use serde::Deserialize;
use serde_json::Value;

use super::unmanaged::Unmanaged;

/// An event, as far as anything goes by it. Whoever may write events in a namespace may give them times that no parser here takes; none is
/// read, or one such event would end the hearing of all others.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Event {
    pub involved_object: Object,
    #[serde(rename = "type")]
    pub kind: String,
    pub reason: String,
    pub message: String,
    source: Source,
    reporting_component: String,
}

/// What it is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Object {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Source {
    component: String,
}

impl Event {
    /// Who says it.
    pub fn by(&self) -> &str {
        if self.reporting_component.is_empty() { &self.source.component } else { &self.reporting_component }
    }
}

/// Events with these fields, until the cluster ends it. What it has said before comes first.
pub async fn listen(
    events: &Api<v1::Event>,
    fields: &str,
) -> Result<impl Stream<Item = Result<Event, kube::Error>> + Send + use<>, kube::Error> {
    let about = WatchParams::default().fields(fields);
    let watch = Request::new(events.resource_url()).watch(&about, "0").map_err(kube::Error::BuildRequest)?;
    let events = events.clone().into_client().request_events::<Event>(watch).await?;
    // Its items are known as such only beyond this.
    Ok(events.map(convert::identity).try_filter_map(async |event| match event {
        WatchEvent::Added(event) | WatchEvent::Modified(event) => Ok(Some(event)),
        WatchEvent::Error(status) => Err(kube::Error::Api(status)),
        WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => Ok(None),
    }))
}

/// Of the events of a list those that can be read: whoever may write events may give one a time that no parser here takes, and hides no other
/// by that.
pub fn readable(listed: Vec<Value>) -> Vec<v1::Event> {
    let read = |event| serde_json::from_value::<Unmanaged<v1::Event>>(event).ok();
    listed.into_iter().filter_map(read).map(Unmanaged::into_object).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_with_a_time_that_nobody_reads_hides_no_other() {
        let event = |message: &str, key: &str, value: &Value| {
            let mut event = json!({"metadata": {"name": "a"}, "involvedObject": {}, "message": message});
            event[key] = value.clone();
            event
        };
        let never = json!("9999-12-31T23:59:59Z");
        let mut written = event("written then", "reason", &json!("Why"));
        written["metadata"]["managedFields"] = json!([{"time": never}]);
        let listed = vec![
            event("theirs", "lastTimestamp", &never),
            event("theirs", "eventTime", &json!("9999-12-31T23:59:59.000000Z")),
            event("theirs", "series", &json!({"count": 1, "lastObservedTime": "9999-12-31T23:59:59.000000Z"})),
            event("ours", "lastTimestamp", &json!("2026-01-01T00:00:00Z")),
            written,
        ];
        let read: Vec<Option<String>> = readable(listed).into_iter().map(|event| event.message).collect();
        assert_eq!(read, ["ours", "written then"].map(|message| Some(message.to_owned())));
    }
}
