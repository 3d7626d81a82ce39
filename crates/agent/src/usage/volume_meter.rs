//! What the readers in one member have said of volumes.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::{super::view::HostCache, PATIENCE, volumes::Volumes};
use domain::{error::Result, printable::short, volume::HostId};
use leaf::stats::{self, ReaderAnswer};
use member::Member;

/// Of what a reader says of itself, in the log.
const LONGEST: usize = 400;

#[derive(Debug, Default)]
pub(super) struct VolumeMeter {
    pub(super) asked: Option<Instant>,
    pub(super) volumes: Volumes,
    /// Readers that said nothing when they were asked last, the last one last: all others are asked before them.
    silent: Vec<String>,
    /// Not all is told. Why, a member says in other words each time if it likes.
    is_lacking: bool,
}

impl VolumeMeter {
    /// Asks the readers there, and says once why they do not tell of all. Where there is none, nobody wants to know.
    pub(super) async fn ask(&mut self, name: &str, member: Result<Arc<Member>>, host: &HostId, view: &HostCache) {
        self.asked = Some(Instant::now());
        let readers = stats::readers_of(view.running_in(name, stats::NAMESPACE), host);
        let said = match member {
            _ if readers.is_empty() => Ok(ReaderAnswer::default()),
            Ok(member) => self.said(&member, readers).await,
            Err(error) => Err(error.to_string()),
        };
        let reason = match said {
            Ok(told) => {
                self.volumes.take(told.volumes, &view.kept_pods_for(name), Timestamp::now());
                told.unread.into_iter().next()
            }
            Err(reason) => Some(reason),
        };
        match &reason {
            Some(reason) if !self.is_lacking => {
                let reason = short(reason, LONGEST);
                tracing::warn!(
                    member = name,
                    reason,
                    "the member does not tell of all volumes there how full they are"
                );
            }
            None if self.is_lacking => {
                tracing::info!(member = name, "the member tells of all volumes there again how full they are");
            }
            _ => {}
        }
        self.is_lacking = reason.is_some();
    }

    async fn said(&mut self, member: &Member, mut readers: Vec<String>) -> Result<ReaderAnswer, String> {
        let client = member.unbounded().map_err(|error| error.to_string())?;
        self.silent.retain(|reader| readers.contains(reader));
        readers.sort_by_key(|reader| self.silent.iter().position(|silent| silent == reader));
        let silent = |reader: &str| {
            self.silent.retain(|silent| silent != reader);
            self.silent.push(reader.to_owned());
        };
        let (reader, told) = stats::ask(&client, &readers, PATIENCE, silent).await?;
        self.silent.retain(|silent| *silent != reader);
        Ok(told)
    }
}
