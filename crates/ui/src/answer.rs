//! In which form a page is answered: HTML for people, the same as JSON for programs.

use askama::Template;
use axum::{
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{MethodRouter, get},
};
use serde::Serialize;

use crate::API;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Html,
    Json,
}

impl Form {
    pub(crate) fn answer<T: Template + Serialize>(self, page: &T) -> Response {
        match self {
            Self::Html => page.render().map(Html).map_err(|error| failed(&error)).into_response(),
            Self::Json => {
                let text = serde_json::to_string_pretty(page).map_err(|error| failed(&error));
                text.map(|text| ([(header::CONTENT_TYPE, "application/json")], format!("{text}\n"))).into_response()
            }
        }
    }

    /// In a sentence.
    pub(crate) fn refuse(self, status: StatusCode, sentence: &str) -> Response {
        match self {
            Self::Html => {
                let page = Sorry { sentence };
                (status, page.render().map(Html).map_err(|error| failed(&error))).into_response()
            }
            Self::Json => {
                let text = serde_json::json!({"kind": "Error", "message": sentence}).to_string();
                (status, [(header::CONTENT_TYPE, "application/json")], format!("{text}\n")).into_response()
            }
        }
    }
}

#[derive(Template)]
#[template(path = "sorry.html")]
struct Sorry<'a> {
    sentence: &'a str,
}

fn failed(error: &dyn std::error::Error) -> StatusCode {
    tracing::error!(%error, "a page cannot be written");
    StatusCode::INTERNAL_SERVER_ERROR
}

pub(crate) fn asset(kind: &'static str, text: &'static str) -> MethodRouter {
    get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
}

pub(crate) async fn no_page(uri: http::Uri) -> Response {
    let form = if uri.path().starts_with(API) { Form::Json } else { Form::Html };
    form.refuse(StatusCode::NOT_FOUND, "There is no such page.")
}
