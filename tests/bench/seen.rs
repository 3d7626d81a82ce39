//! One watch of a member's claims, which all who wait for one share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client, ResourceExt,
    api::{WatchEvent, WatchParams},
};
use leaf::trimmed::Trimmed;
use tokio::sync::oneshot;

type Claim = Trimmed<PersistentVolumeClaim>;

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
        loop {
            if let Err(error) = self.follow_once(&client).await {
                eprintln!("the watch of claims: {error:#}");
            }
        }
    }

    async fn follow_once(&self, client: &Client) -> Result<()> {
        let claims = Api::<Claim>::all(client.clone());
        let mut events = std::pin::pin!(claims.watch(&WatchParams::default(), "0").await?);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(claim) | WatchEvent::Modified(claim) if is_bound(&claim) => {
                    tell(self.lock().bound.remove(&place(&claim)));
                }
                WatchEvent::Deleted(claim) => tell(self.lock().gone.remove(&place(&claim))),
                _ => {}
            }
        }
        Ok(())
    }
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
