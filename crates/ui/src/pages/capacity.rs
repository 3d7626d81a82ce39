//! How much room each member has for each class, and what the host's scheduler is told of it.

use askama::Template;
use axum::{
    Extension,
    extract::{Query, State},
    response::Response,
};
use serde::{Deserialize, Serialize};

use super::{
    Frame,
    members::{ClassLine, MemberLine},
};
use crate::{
    Sources,
    answer::Form,
    shown::{Seconds, encoded},
};

/// So many rows, so that the page stays one.
const MOST: usize = 500;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CapacityLine {
    #[serde(flatten)]
    class: ClassLine,
    member: String,
    /// Nothing new goes there: cordoned, or not to be asked.
    closed: &'static str,
    /// How long ago the member told it.
    told: Option<Seconds>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CapacityQuery {
    q: String,
}

#[derive(Template, Serialize)]
#[template(path = "capacity.html")]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    items: Vec<CapacityLine>,
    /// How many more there are.
    more: usize,
    #[serde(skip)]
    wanted: CapacityQuery,
}

pub(crate) async fn show(
    State(sources): State<Sources>,
    Extension(form): Extension<Form>,
    Query(wanted): Query<CapacityQuery>,
) -> Response {
    let mut items = lines(&sources);
    items.retain(|line| line.class.name.contains(&wanted.q) || line.member.contains(&wanted.q));
    let more = items.len().saturating_sub(MOST);
    items.truncate(MOST);
    let path = format!("/capacity?q={}", encoded(&wanted.q));
    form.answer(&Page { frame: Frame::new(&sources, "CapacityList", "/capacity", &path), items, more, wanted })
}

/// By class, then by member: who looks for room has a class.
fn lines(sources: &Sources) -> Vec<CapacityLine> {
    let mut lines = Vec::new();
    for member in sources.members().values() {
        let MemberLine { name, classes, cordoned, why, alias_of, .. } = MemberLine::of(member, MOST);
        if alias_of.is_some() {
            continue;
        }
        let told = member.last_known().and_then(|leaf| leaf.capacity.told_ago()).map(Into::into);
        let closed = match (cordoned, why.is_empty()) {
            (true, _) => "cordoned",
            (false, false) => "cannot be asked",
            (false, true) => "",
        };
        lines.extend(classes.into_iter().map(|class| CapacityLine { class, member: name.clone(), closed, told }));
    }
    lines.sort_by(|left, right| (&left.class.name, &left.member).cmp(&(&right.class.name, &right.member)));
    lines
}
