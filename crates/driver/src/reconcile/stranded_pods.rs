//! Pods that cannot come to their volume: the scheduler says on the pod that no node fits, and the claim says in which member
//! the volume is.

use std::{collections::VecDeque, pin::pin, time::Duration};

use futures::TryStreamExt;
use tokio::time::{Instant, sleep};

use super::Reconciler;
use domain::{
    error::Result,
    volume::{Claim, VolumeId},
};
use host::{events::News, pod::StrandedPod};

/// Before it is listened again.
const PAUSE: Duration = Duration::from_secs(1);
/// Pods that were told of and need not be looked at again.
const KNOWN: usize = 1024;

/// Works until it is dropped.
pub(super) async fn tell(reconciler: &Reconciler) {
    let mut known = VecDeque::new();
    reconciler.volumes.listed().await;
    loop {
        if let Err(error) = listen_to_scheduler(reconciler, &mut known).await {
            tracing::debug!(%error, "the scheduler's events cannot be watched");
        }
        sleep(PAUSE).await;
    }
}

async fn listen_to_scheduler(reconciler: &Reconciler, known: &mut VecDeque<String>) -> Result<()> {
    let mut pods = pin!(host::pod::stranded(&reconciler.host).await?);
    while let Some(pod) = pods.try_next().await? {
        if known.contains(&pod.uid) {
            continue;
        }
        match tell_of_stranded(reconciler, &pod).await {
            Ok(true) => known.push_back(pod.uid),
            // The scheduler says it again.
            Ok(false) => {}
            // Whoever writes events and pods in one namespace decides whether they can be read, and not whether others are told of.
            Err(error) => {
                let StrandedPod { namespace, name, .. } = &pod;
                tracing::debug!(namespace, name, %error, "the driver cannot tell on the claims of a pod where its volumes are");
            }
        }
        if known.len() > KNOWN {
            known.pop_front();
        }
    }
    Ok(())
}

/// False where there is no more budget now.
async fn tell_of_stranded(reconciler: &Reconciler, pod: &StrandedPod) -> Result<bool> {
    // The host is not asked for what could not be told.
    if !reconciler.budget().has_some(Instant::now()) {
        return Ok(false);
    }
    for claim in host::pod::bound_claims(&reconciler.host, pod).await? {
        let handle = reconciler.volumes.handle_of(&claim.volume);
        let Some(id) = handle.and_then(|handle| VolumeId::parse(&handle)) else { continue };
        if !reconciler.budget().take(Instant::now()) {
            return Ok(false);
        }
        let of = Claim { namespace: pod.namespace.clone(), name: claim.name };
        let message = format!(
            "pod {} finds no node: this claim's volume is in member {} and can be used only there, and no node of that \
             member (such as kosmos-{}) takes the pod. Let the pod run there, or give it another claim",
            pod.name, id.member, id.member
        );
        host::events::tell_claim(
            &reconciler.host,
            &of,
            &claim.uid,
            &News { reason: "VolumeElsewhere", message, warning: true },
        )
        .await;
    }
    Ok(true)
}
