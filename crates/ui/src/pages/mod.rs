//! The pages: each is what is shown, made from the sources, and a template beside it.

pub(crate) mod capacity;
pub(crate) mod events;
pub(crate) mod member;
pub(crate) mod members;
pub(crate) mod moves;
pub(crate) mod overview;
pub(crate) mod row;
pub(crate) mod volume;
pub(crate) mod volumes;
pub(crate) mod waiting;

use k8s_openapi::jiff::{Timestamp, Unit};
use serde::Serialize;

use crate::{API, Sources};

/// What every page has.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Frame {
    api_version: &'static str,
    kind: &'static str,
    version: &'static str,
    host_id: String,
    replica: String,
    /// It does the work in the background.
    leads: bool,
    as_of: String,
    /// Whether the members have been read, and what each of those has that can be asked.
    complete: bool,
    #[serde(skip)]
    here: &'static str,
    #[serde(skip)]
    json: String,
}

impl Frame {
    /// `here`: the page in the list of pages; `path`: this very page.
    fn new(sources: &Sources, kind: &'static str, here: &'static str, path: &str) -> Self {
        let now = Timestamp::now();
        Self {
            api_version: "ui.kosmos.csi.io/v1alpha1",
            kind,
            version: env!("CARGO_PKG_VERSION"),
            host_id: sources.host.to_string(),
            replica: sources.replica.clone(),
            leads: sources.leads(),
            as_of: now.round(Unit::Second).unwrap_or(now).to_string(),
            complete: sources.is_complete(),
            here,
            json: format!("{API}{path}"),
        }
    }

    fn pages(&self) -> [(&'static str, &'static str, bool); 7] {
        [
            ("/", "Overview"),
            ("/volumes", "Volumes"),
            ("/waiting", "Waiting"),
            ("/moves", "Moves"),
            ("/capacity", "Capacity"),
            ("/members", "Members"),
            ("/events", "Events"),
        ]
        .map(|(path, name)| (path, name, path == self.here))
    }
}
