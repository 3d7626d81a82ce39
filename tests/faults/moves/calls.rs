//! What sidecars ask of a volume while it moves, by the handle that it has or by the one that it had: some have not heard of the move.

use std::time::Duration;

use fastrand::Rng;
use simulate::text;
use tokio::time::sleep;
use tonic::Code;

use super::{MOMENTS, SOME, STEP, Story, VOLUMES, disturbed, none_is_wrong};
use crate::{
    ask::{Target, ask},
    extent::drawn,
    fixture, virtual_time,
};

const DELETES: &str = "DeleteVolume";
const PUBLISHES: &str = "ControllerPublishVolume";
const GROWS: &str = "ControllerExpandVolume";
const RPCS: [&str; 4] = [DELETES, PUBLISHES, GROWS, "ControllerModifyVolume"];
const CALLS: usize = 10;
/// Until a node has left the volume.
const TRIES: usize = 60;

fn handle(story: &Story) -> Option<String> {
    let volume = story.bench.host.get(VOLUMES, "", story.caller.volume())?;
    Some(text(&volume, "/spec/csi/volumeHandle").to_owned())
}

/// As external-attacher sees to, once it has asked for the other.
async fn leaves(story: &Story, target: &Target) {
    for _ in 0..TRIES {
        let (code, why) = ask(&story.bench, "ControllerUnpublishVolume", target).await;
        if code == Code::Ok {
            return;
        }
        story.bench.guard.note(|| format!("Unpublish {}: {why}", target.volume));
        sleep(STEP * 10).await;
    }
    story.bench.guard.report(format!("I10: no node leaves {}", target.volume));
}

/// The host wants the volume all the while.
async fn are_made(story: &Story, chance: &mut Rng) {
    let former = story.caller.handle().unwrap().to_owned();
    for _ in 0..CALLS {
        let volume = handle(story).filter(|_| chance.bool()).unwrap_or_else(|| former.clone());
        let member = volume.split('/').next().unwrap_or_default().to_owned();
        let target = Target { volume, member, class: fixture::NOW.to_owned(), ..Target::default() };
        let rpc = *chance.choice(&RPCS).unwrap();
        // A volume that grows is not moved: its user is told so when the move begins.
        let is_too_early = rpc == GROWS && !story.status().contains("\"from\"");
        if !is_too_early {
            let (code, why) = ask(&story.bench, rpc, &target).await;
            story.bench.guard.note(|| format!("{rpc} {}: {code:?} {why}", target.volume));
            if rpc == DELETES && code == Code::Ok {
                story.bench.guard.report(format!("I6: {} is removed, and the host has its volume", target.volume));
            }
            if rpc == PUBLISHES {
                leaves(story, &target).await;
            }
        }
        sleep(Duration::from_millis(chance.u64(..3000))).await;
    }
}

#[test]
fn volume_moves_whatever_sidecars_ask_of_it_at_any_moment() {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
        disturbed(moment, &[true], &async |story: &mut Story| are_made(story, &mut Rng::with_seed(moment)).await)
    }));
}
