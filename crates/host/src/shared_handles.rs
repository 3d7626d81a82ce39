//! Which handles several volumes of the host have, as people make them: what one of them gives up another may want.

use std::{collections::HashSet, sync::Arc};

use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use super::{
    Host,
    volume::{self, HostVolume},
    volumes::HostVolumes,
};
use domain::error::Result;

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

    /// Whether this is one of them, as was asked at that moment. The replica that leads goes by its watch of the host's volumes; that of any
    /// other one may have died unnoticed, so it lists them, once for all that have asked before that list begins.
    pub async fn have(&self, host: &Host, handle: &str, asked: Instant) -> Result<bool> {
        if *self.leads.borrow() && self.volumes.synced() {
            return Ok(self.volumes.with(handle).len() > 1);
        }
        let mut listed = self.listed.lock().await;
        if let Some(listed) = &*listed
            && listed.began >= asked
        {
            return Ok(listed.handles.contains(handle));
        }
        let began = Instant::now();
        let all = volume::all(host).await?;
        let handles = shared(all.iter().filter_map(HostVolume::new).map(|volume| volume.handle));
        let has = handles.contains(handle);
        *listed = Some(Listed { began, handles });
        Ok(has)
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
