//! One watch of a member's claims, which all who wait for one share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client, ResourceExt,
    api::{WatchEvent, WatchParams},
};
use leaf::trimmed::Trimmed;
use tokio::{sync::oneshot, time::sleep};

type Claim = Trimmed<PersistentVolumeClaim>;

/// The version at which a watch tells of all that there is.
const ALL: &str = "0";
/// After a watch that has failed.
const PAUSE: Duration = Duration::from_millis(200);

/// Who waits, by `namespace/name` of the claim.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    bound: HashMap<String, oneshot::Sender<()>>,
    gone: HashMap<String, oneshot::Sender<()>>,
}

impl Seen {
    /// Told when the watch shows the claim bound.
    pub fn bound(&self, claim: &str) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.lock().bound.insert(claim.to_owned(), sender);
        receiver
    }

    /// Told when it shows that the claim has gone.
    pub fn gone(&self, claim: &str) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.lock().gone.insert(claim.to_owned(), sender);
        receiver
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until it is dropped.
    pub async fn follow(self, client: Client) {
        follow(client, |event| {
            match event {
                WatchEvent::Added(claim) | WatchEvent::Modified(claim) if is_bound(&claim) => {
                    tell(self.lock().bound.remove(&place(&claim)));
                }
                WatchEvent::Deleted(claim) => tell(self.lock().gone.remove(&place(&claim))),
                _ => {}
            }
            Ok(())
        })
        .await;
    }
}

/// Shows all claims and then each change of one, until it is dropped. An API server ends a watch after some minutes; the next one goes on
/// where it was, as nobody tells of what was deleted in between.
pub async fn follow(client: Client, mut see: impl FnMut(WatchEvent<Claim>) -> Result<()>) {
    let (claims, mut version) = (Api::<Claim>::all(client), ALL.to_owned());
    loop {
        if let Err(error) = follow_once(&claims, &mut version, &mut see).await {
            eprintln!("the watch of claims: {error:#}");
            if is_outdated(&error) {
                ALL.clone_into(&mut version);
            }
            sleep(PAUSE).await;
        }
    }
}

async fn follow_once(
    claims: &Api<Claim>,
    version: &mut String,
    see: &mut impl FnMut(WatchEvent<Claim>) -> Result<()>,
) -> Result<()> {
    let mut events = std::pin::pin!(claims.watch(&WatchParams::default(), version).await?);
    while let Some(event) = events.try_next().await? {
        match &event {
            WatchEvent::Added(claim) | WatchEvent::Modified(claim) | WatchEvent::Deleted(claim) => {
                *version = claim.resource_version().unwrap_or_default();
            }
            WatchEvent::Bookmark(bookmark) => version.clone_from(&bookmark.metadata.resource_version),
            WatchEvent::Error(status) => return Err(kube::Error::Api(status.clone()).into()),
        }
        see(event)?;
    }
    Ok(())
}

/// Whether the version lies before all that is still known.
fn is_outdated(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == 410)
}

/// Who gave up needs no answer.
fn tell(waiting: Option<oneshot::Sender<()>>) {
    let _ = waiting.map(|waiting| waiting.send(()));
}

pub fn is_bound(claim: &Claim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// As `namespace/name`.
pub fn place(claim: &Claim) -> String {
    format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any())
}
