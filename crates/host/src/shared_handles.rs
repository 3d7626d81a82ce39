//! Which handles several volumes of the host have, as people make them: what one of them gives up another may want.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, watch},
    time::{Instant, timeout_at},
};

use super::{
    Host, volume,
    volumes::{HostVolumes, member_of},
};
use domain::{error::Result, volume::healing::Wish};

/// For the watch to tell what whoever asks has seen already.
const MOMENT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct SharedHandles {
    /// As this replica follows them.
    volumes: Arc<HostVolumes>,
    leads: watch::Receiver<bool>,
    listed: Mutex<Option<Listed>>,
}

/// As they were listed last.
#[derive(Debug)]
struct Listed {
    began: Instant,
    handles: HashSet<Box<str>>,
}

impl SharedHandles {
    pub fn new(volumes: Arc<HostVolumes>, leads: watch::Receiver<bool>) -> Self {
        Self { volumes, leads, listed: Mutex::default() }
    }

    /// Whether this is one of them, as was asked at that moment for one that is to go. The replica that leads goes by its watch of the
    /// host's volumes, where that says of the one that it is to go, and has told something lately: then it has told of all that were there by
    /// that time. It may have died unnoticed, also since it said so, and that of any other replica sooner: then they are listed, once for all
    /// that have asked before that list begins.
    pub async fn have(&self, host: &Host, handle: &str, asked: Instant) -> Result<bool> {
        if *self.leads.borrow()
            && let Some(have) = self.told(handle).await
        {
            return Ok(have);
        }
        let mut listed = self.listed.lock().await;
        if let Some(listed) = &*listed
            && listed.began >= asked
        {
            return Ok(listed.handles.contains(handle));
        }
        let began = Instant::now();
        let handles = shared(volume::each_handle(host).await?);
        let has = handles.contains(handle);
        *listed = Some(Listed { began, handles });
        Ok(has)
    }

    /// What the watch tells, a moment later at the latest.
    async fn told(&self, handle: &str) -> Option<bool> {
        if let Some(have) = self.says(handle) {
            return Some(have);
        }
        // Nothing more is to be told of what is to go already.
        if !self.volumes.whole() || self.volumes.with(handle).iter().all(|known| known.wish() == Wish::Nothing) {
            return None;
        }
        let (until, news) = (Instant::now() + MOMENT, self.volumes.listen(member_of(handle)));
        loop {
            if let Some(have) = self.says(handle) {
                return Some(have);
            }
            timeout_at(until, news.told()).await.ok()?;
        }
    }

    /// None where the watch has not told that a volume with this handle is to go, or may have died since.
    fn says(&self, handle: &str) -> Option<bool> {
        match self.volumes.with(handle).as_slice() {
            _ if !self.volumes.whole() => None,
            [known] if known.wish() == Wish::Nothing => self.volumes.heard_lately().then_some(false),
            [] | [_] => None,
            _ => Some(true),
        }
    }
}

fn shared(handles: impl IntoIterator<Item = Box<str>>) -> HashSet<Box<str>> {
    let mut seen = HashSet::new();
    handles.into_iter().filter(|handle| !seen.insert(handle.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_is_shared_that_is_there_more_than_once() {
        let handles = ["m/n/a/1", "m/n/b/1", "m/n/a/1", "m/n/c/1", "m/n/a/1"].map(Box::from);
        assert_eq!(shared(handles), HashSet::from([Box::from("m/n/a/1")]));
    }
}
