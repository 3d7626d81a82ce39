//! What the reader in one member has said of volumes.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::{super::view::HostCache, PATIENCE, volumes::Volumes};
use domain::{error::Result, printable::short, volume::HostId};
use leaf::stats::{self, Told};
use member::Member;

/// Of what a reader says of itself, in the log.
const LONGEST: usize = 400;

#[derive(Debug, Default)]
pub(super) struct VolumeMeter {
    pub(super) asked: Option<Instant>,
    pub(super) volumes: Volumes,
    /// Not all is told. Why, a member says in other words each time if it likes.
    is_lacking: bool,
}

impl VolumeMeter {
    /// Asks the reader there, and says once why it does not tell of all. Where there is none, nobody wants to know.
    pub(super) async fn ask(&mut self, name: &str, member: Result<Arc<Member>>, host: &HostId, view: &HostCache) {
        self.asked = Some(Instant::now());
        let reader = stats::readers_of(view.running_in(name, stats::NAMESPACE), host).into_iter().next();
        let said = match (reader, member) {
            (None, _) => Ok(Told::default()),
            (Some(reader), Ok(member)) => said(&member, &reader).await,
            (Some(_), Err(error)) => Err(error.to_string()),
        };
        let reason = match said {
            Ok(told) => {
                self.volumes.take(told.volumes, &view.pods_for(name), Timestamp::now());
                told.unread.into_iter().next()
            }
            Err(reason) => Some(reason),
        };
        match &reason {
            Some(reason) if !self.is_lacking => {
                let reason = short(reason, LONGEST);
                tracing::warn!(member = name, reason, "how full volumes there are is not known, or not of all of them");
            }
            None if self.is_lacking => tracing::info!(member = name, "how full volumes there are is known again"),
            _ => {}
        }
        self.is_lacking = reason.is_some();
    }
}

async fn said(member: &Member, reader: &str) -> Result<Told, String> {
    let client = member.unbounded().map_err(|error| error.to_string())?;
    let late = |_| Err(format!("pod {}/{reader}: no answer within {} s", stats::NAMESPACE, PATIENCE.as_secs()));
    timeout(PATIENCE, stats::ask(&client, reader)).await.unwrap_or_else(late)
}
