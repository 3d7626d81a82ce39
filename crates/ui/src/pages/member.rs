//! One member.

use askama::Template;
use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use member::registry;
use serde::Serialize;

use super::{Frame, members::MemberLine};
use crate::{Sources, answer::Form, shown::Seconds};

/// Nobody reads more.
const CLASSES: usize = 200;

#[derive(Template, Serialize)]
#[template(path = "member.html")]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    member: MemberLine,
    /// Other names of it.
    aliases: Vec<String>,
    /// When it told its capacity for the last time; none: it was not asked yet.
    capacity_told: Option<Seconds>,
}

pub(crate) async fn show(
    State(sources): State<Sources>,
    Extension(form): Extension<Form>,
    Path(name): Path<String>,
) -> Response {
    let members = sources.members();
    let Some(member) = members.get(&name) else {
        return form.refuse(StatusCode::NOT_FOUND, "There is no member of this name, or it has not joined yet.");
    };
    let told = member.last_known().and_then(|leaf| leaf.capacity.told_ago());
    form.answer(&Page {
        frame: Frame::new(&sources, "Member", "/members", &format!("/members/{name}")),
        member: MemberLine::of(member, CLASSES),
        aliases: registry::names(&members).remove(&name).unwrap_or_default().aliases,
        capacity_told: told.map(Into::into),
    })
}
