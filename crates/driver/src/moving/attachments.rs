//! VolumeAttachments of volumes that were moved and that no pod wants. The attach controller goes on to make them for a while after the pod has
//! gone that was sent where the volume was, since it knows that pod's volume by the former handle; and it takes none away that was
//! attached after it had given up to attach it. The volume could not be deleted while there is one.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::Movers;
use domain::{error::Result, volume::moving::Phase};
use host::{
    attachments::{self, Attached},
    moves::{self, VolumeMove},
};

/// Between two looks, where a move has switched a while ago at most. What nobody wants at both goes.
const ROUND: Duration = Duration::from_secs(20);
/// After that hardly any comes, and all that the host has are listed: moves that have succeeded may stay for years.
const A_WHILE: Duration = Duration::from_mins(30);
const SELDOM: Duration = Duration::from_mins(10);

/// Works until it is dropped.
pub(super) async fn tidy(movers: &Movers) {
    // By the UIDs of the moves, since when each is known to have switched.
    let mut switched = BTreeMap::<String, Instant>::new();
    let (mut unwanted, mut looked) = (BTreeSet::new(), None::<Instant>);
    loop {
        sleep(ROUND).await;
        let moved: BTreeMap<String, String> =
            movers.known.all().into_iter().filter_map(|(uid, of)| Some((uid, moved_volume(&of)?))).collect();
        switched.retain(|uid, _| moved.contains_key(uid));
        for uid in moved.keys() {
            switched.entry(uid.clone()).or_insert_with(Instant::now);
        }
        let is_recent = !unwanted.is_empty() || switched.values().any(|since| since.elapsed() < A_WHILE);
        if moved.is_empty() || !is_recent && looked.is_some_and(|looked| looked.elapsed() < SELDOM) {
            continue;
        }
        looked = Some(Instant::now());
        match Box::pin(round(movers, &moved.into_values().collect(), &unwanted)).await {
            Ok(now) => unwanted = now,
            Err(error) => tracing::debug!(%error, "attachments that no pod wants are not looked for"),
        }
    }
}

/// Those of these volumes that no pod wants now.
async fn round(movers: &Movers, moved: &BTreeSet<String>, before: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let host = &movers.host;
    let mut unwanted = BTreeSet::new();
    let attachments = attachments::list(host).await?.into_iter();
    for attachment in attachments.filter(|one| moved.contains(&one.volume) && may_be_deleted(one)) {
        // It may have been given to another claim since it was moved.
        let volume = host::volume::read(host, &attachment.volume).await?;
        if let Some(claim) = volume.and_then(|volume| volume.claim)
            && host::pod::has_user(host, &claim, &attachment.node).await?
        {
            continue;
        }
        if before.contains(&attachment.uid) {
            tracing::info!(
                attachment = attachment.name,
                volume = attachment.volume,
                node = attachment.node,
                "the driver deletes an attachment of a volume that was moved, because no pod on its node uses it"
            );
            attachments::delete(host, &attachment).await?;
        }
        unwanted.insert(attachment.uid);
    }
    Ok(unwanted)
}

/// On a real node it may be mounted still, which only its kubelet and the attach controller know.
fn may_be_deleted(attachment: &Attached) -> bool {
    !attachment.attached || attachment.is_to_virtual_node()
}

/// The name of the host's volume, once it leads to the copy.
fn moved_volume(of: &VolumeMove) -> Option<String> {
    let has_switched = matches!(moves::phase_of(of), Some(Phase::Finishing | Phase::Succeeded));
    let volume = of.status.as_ref()?.volume.as_ref().filter(|_| has_switched)?;
    Some(volume.name.clone())
}
