//! A user who deletes all that he has at once, as with its namespace, while his volume moves: the move, the claim, and the host's volume.

use std::time::Duration;

use serde_json::json;
use simulate::text;
use tokio::time::{Instant, sleep, timeout};

use super::{CLAIM, ENDED, MOMENTS, MOVED, MOVES, SOME, STEP, Story, VOLUMES, is_slow, none_is_wrong};
use crate::{bench::SHOP, caller::Script, extent::drawn, virtual_time};

/// What is deleted, and in which order.
#[derive(Clone, Copy, Debug)]
enum Deleted {
    Move,
    Claim,
    Volume,
}

const ORDERS: [&[Deleted]; 4] = [
    &[Deleted::Move, Deleted::Claim],
    &[Deleted::Claim, Deleted::Move],
    &[Deleted::Claim, Deleted::Move, Deleted::Volume],
    &[Deleted::Volume, Deleted::Claim, Deleted::Move],
];

fn deletes(story: &Story, what: Deleted) {
    match what {
        Deleted::Move => drop(story.bench.host.delete(MOVES, SHOP, "to")),
        Deleted::Claim => story.caller.delete_claim(),
        // At one moment of the switch there is none.
        Deleted::Volume => drop(story.bench.host.delete(VOLUMES, "", story.caller.volume())),
    }
}

/// Whoever provisions has the volume removed, for as long as there is one, and by the handle that it has then.
async fn is_reclaimed(story: &mut Story) {
    let (host, name, end) = (story.bench.host.clone(), story.caller.volume().to_owned(), Instant::now() + ENDED);
    let volume = || host.get(VOLUMES, "", &name);
    while (volume().is_some() || !story.is_over() || !story.left().is_empty()) && Instant::now() < end {
        if let Some(volume) = volume() {
            story.caller.stands_for(text(&volume, "/spec/csi/volumeHandle"));
            let _ = timeout(Duration::from_secs(30), story.caller.reclaim()).await;
        }
        sleep(STEP).await;
    }
    sleep(MOVED).await;
}

/// But for sources that are kept.
fn remains(story: &Story) -> Vec<String> {
    let mut remains = story.left();
    let kept = story.kept(0).len();
    let volumes = [0, 1].map(|at| story.bench.members[at].list(VOLUMES).len());
    if volumes != [kept, 0] {
        remains.push(format!("{volumes:?} volumes are left, {kept} kept"));
    }
    for (kind, namespace, name) in [(MOVES, SHOP, "to"), (VOLUMES, "", story.caller.volume())] {
        remains.extend(story.bench.host.get(kind, namespace, name).map(|there| format!("{kind}: {there}")));
    }
    if !remains.is_empty() {
        remains.insert(0, format!("{}\n{}", story.status(), story.trace()));
    }
    remains
}

#[test]
fn user_who_deletes_move_claim_and_volume_at_any_moment_leaves_nothing_but_sources_that_are_kept() {
    for order in ORDERS {
        none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
            let left = virtual_time::run(moment, async {
                let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
                is_slow(&story);
                story.asks(1, &json!({}));
                sleep(Duration::from_millis(moment * 250)).await;
                for what in order {
                    deletes(&story, *what);
                    sleep(STEP).await;
                }
                is_reclaimed(&mut story).await;
                remains(&story)
            });
            (!left.is_empty()).then(|| format!("{order:?}, moment {moment}: {}", left.join("\n")))
        }));
    }
}
