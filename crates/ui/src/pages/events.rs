//! What this replica has told lately, as events in the host: there they last an hour, and stand with the object that each is about.

use askama::Template;
use axum::{
    Extension,
    extract::{Query, State},
    response::Response,
};
use host::lately::RecentEvent;
use k8s_openapi::jiff::Unit;
use serde::{Deserialize, Serialize};

use super::Frame;
use crate::{
    Sources,
    answer::Form,
    shown::{Seconds, encoded, text},
};

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventLine {
    pub(crate) time: String,
    pub(crate) age: Seconds,
    pub(crate) kind: &'static str,
    #[serde(skip)]
    pub(crate) uid: String,
    /// `NAMESPACE/NAME`, or the name alone.
    pub(crate) about: String,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) warning: bool,
}

impl From<RecentEvent> for EventLine {
    fn from(told: RecentEvent) -> Self {
        let about = told.about;
        let named = if about.namespace.is_empty() { about.name } else { format!("{}/{}", about.namespace, about.name) };
        Self {
            time: told.at.round(Unit::Second).unwrap_or(told.at).to_string(),
            age: Seconds::since(told.at.as_second()),
            kind: about.kind,
            uid: about.uid,
            about: text(&named),
            reason: told.news.reason,
            message: text(&told.news.message),
            warning: told.news.warning,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventsQuery {
    q: String,
    warnings: String,
}

impl EventsQuery {
    fn has(&self, event: &EventLine) -> bool {
        let is_said = || [&event.about, &event.message, event.reason].iter().any(|text| text.contains(&self.q));
        (self.warnings.is_empty() || event.warning) && (self.q.is_empty() || is_said())
    }
}

#[derive(Template, Serialize)]
#[template(path = "events.html")]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    items: Vec<EventLine>,
    #[serde(skip)]
    wanted: EventsQuery,
}

pub(crate) async fn show(
    State(sources): State<Sources>,
    Extension(form): Extension<Form>,
    Query(wanted): Query<EventsQuery>,
) -> Response {
    let items = lines(&sources).filter(|event| wanted.has(event)).collect();
    let path = format!("/events?q={}&warnings={}", encoded(&wanted.q), encoded(&wanted.warnings));
    form.answer(&Page { frame: Frame::new(&sources, "EventList", "/events", &path), items, wanted })
}

/// The newest first.
pub(crate) fn lines(sources: &Sources) -> impl Iterator<Item = EventLine> + use<> {
    sources.lately.all().into_iter().map(EventLine::from)
}
