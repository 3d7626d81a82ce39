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
/// After that hardly any comes, and each costs two requests: moves that have succeeded may stay for years.
const A_WHILE: Duration = Duration::from_mins(30);
const SELDOM: Duration = Duration::from_mins(10);

/// Attachments that no pod wants, by their UIDs, and their volumes.
type Unwanted = BTreeMap<String, String>;

/// A move that has switched.
struct Moved {
    /// The name of the host's volume.
    volume: String,
    is_long_over: bool,
}

/// The volumes of which moves are looked at.
#[derive(Default)]
struct Rounds {
    /// By the UIDs of the moves, since when each is known to have switched; none of one that was long over then.
    switched: BTreeMap<String, Option<Instant>>,
    /// When all were looked at.
    looked: Option<Instant>,
}

impl Rounds {
    /// Those whose turn it is now.
    fn due(&mut self, moved: &BTreeMap<String, Moved>, unwanted: &Unwanted) -> BTreeSet<String> {
        self.switched.retain(|uid, _| moved.contains_key(uid));
        for (uid, one) in moved {
            self.switched.entry(uid.clone()).or_insert_with(|| (!one.is_long_over).then(Instant::now));
        }
        let is_seldom = self.looked.is_none_or(|looked| looked.elapsed() >= SELDOM);
        if is_seldom {
            self.looked = Some(Instant::now());
        }
        let is_recent = |uid: &String| {
            let since = self.switched.get(uid).copied().flatten();
            since.is_some_and(|since| since.elapsed() < A_WHILE)
        };
        let unwanted: BTreeSet<&String> = unwanted.values().collect();
        let due = moved.iter().filter(|(uid, one)| is_seldom || is_recent(uid) || unwanted.contains(&one.volume));
        due.map(|(_, one)| one.volume.clone()).collect()
    }
}

/// Works until it is dropped.
pub(super) async fn tidy(movers: &Movers) {
    let (mut rounds, mut unwanted) = (Rounds::default(), Unwanted::new());
    loop {
        sleep(ROUND).await;
        let moved = movers.known.all().into_iter().filter_map(|(uid, of)| Some((uid, moved(&of)?))).collect();
        let due = rounds.due(&moved, &unwanted);
        if due.is_empty() {
            continue;
        }
        match Box::pin(round(movers, &due, &unwanted)).await {
            Ok(now) => unwanted = now,
            Err(error) => tracing::debug!(%error, "attachments that no pod wants are not looked for"),
        }
    }
}

/// Those of these volumes that no pod wants now.
async fn round(movers: &Movers, moved: &BTreeSet<String>, before: &Unwanted) -> Result<Unwanted> {
    let host = &movers.host;
    let mut unwanted = Unwanted::new();
    let attachments = attachments::list(host).await?.into_iter();
    for attachment in attachments.filter(|one| moved.contains(&one.volume) && may_be_deleted(one)) {
        // It may have been given to another claim since it was moved.
        let volume = host::volume::read(host, &attachment.volume).await?;
        if let Some(claim) = volume.and_then(|volume| volume.claim)
            && host::pod::has_user(host, &claim, &attachment.node).await?
        {
            continue;
        }
        if before.contains_key(&attachment.uid) {
            tracing::info!(
                attachment = attachment.name,
                volume = attachment.volume,
                node = attachment.node,
                "the driver deletes an attachment of a volume that was moved, because no pod on its node uses it"
            );
            attachments::delete(host, &attachment).await?;
        }
        unwanted.insert(attachment.uid, attachment.volume);
    }
    Ok(unwanted)
}

/// On a real node it may be mounted still, which only its kubelet and the attach controller know.
fn may_be_deleted(attachment: &Attached) -> bool {
    !attachment.attached || attachment.is_to_virtual_node()
}

/// None while the host's volume does not lead to the copy.
fn moved(of: &VolumeMove) -> Option<Moved> {
    let has_switched = matches!(moves::phase_of(of), Some(Phase::Finishing | Phase::Succeeded));
    let volume = of.status.as_ref()?.volume.as_ref().filter(|_| has_switched)?;
    Some(Moved { volume: volume.name.clone(), is_long_over: moves::has_succeeded_before(of, A_WHILE) })
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// However many there are of the others.
    #[tokio::test(start_paused = true)]
    async fn volumes_of_moves_that_are_long_over_are_looked_at_seldom_and_no_other_move_changes_that() {
        let mut rounds = Rounds::default();
        let move_of = |name: &str, is_long_over| {
            let moved = Moved { volume: name.to_owned(), is_long_over };
            (format!("move-of-{name}"), moved)
        };
        let mut moved = BTreeMap::from([move_of("old", true), move_of("older", true), move_of("new", false)]);
        let mut due = |moved: &BTreeMap<String, Moved>, unwanted: &[&str]| {
            let unwanted = unwanted.iter().map(|volume| (format!("of-{volume}"), (*volume).to_owned())).collect();
            rounds.due(moved, &unwanted).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(due(&moved, &[]), ["new", "old", "older"], "nothing is known yet");
        advance(ROUND).await;
        assert_eq!(due(&moved, &[]), ["new"]);
        assert_eq!(due(&moved, &["old"]), ["new", "old"], "what is unwanted is looked at again soon");
        advance(SELDOM).await;
        assert_eq!(due(&moved, &[]), ["new", "old", "older"]);
        advance(A_WHILE).await;
        assert_eq!(due(&moved, &[]).len(), 3);
        advance(ROUND).await;
        assert!(due(&moved, &[]).is_empty());
        moved.extend([move_of("newer", false)]);
        assert_eq!(due(&moved, &[]), ["newer"]);
        moved.clear();
        assert!(due(&moved, &["old"]).is_empty(), "its move has gone");
    }
}
