//! The line between the two movers, as long as the driver may think that both are there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use simulate::faults::Action;
use tokio::time::sleep;

use super::{STEP, Story, YARD, at_the_end, gone::approves, killed::story_in, play::Mood};
use crate::virtual_time;

/// More than two looks take and a pause after them, and less than the movers are given to be reached.
const LOOKED_AGAIN: Duration = Duration::from_secs(20);

/// How often the driver has begun to reach a mover.
fn reached(story: &Story) -> usize {
    let asked = story.bench.members.iter().flat_map(|member| member.faults().log());
    asked.filter(|asked| asked.subresource == "portforward").count()
}

/// A story in which these members refuse one look at the movers; how often the driver has begun to reach a mover by then.
fn reached_where_a_look_is_missed(by: &[usize]) -> usize {
    virtual_time::run(1, async {
        let story = story_in("Copying").await;
        for member in &story.bench.members {
            member.faults().record(true);
        }
        let misses = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let next = Arc::clone(&misses);
        story.bench.guard.set_fate(move |_, of, asked| {
            let is_of_movers = asked.resource == "pods" && asked.namespace == YARD;
            match () {
                () if asked.subresource == "portforward" => Action::Hang,
                () if is_of_movers && of > 0 && next[of - 1].swap(false, Ordering::Relaxed) => Action::Refuse,
                () => Action::Pass,
            }
        });
        while reached(&story) < 2 {
            sleep(STEP).await;
        }
        for at in by {
            misses[*at].store(true, Ordering::Relaxed);
        }
        sleep(LOOKED_AGAIN).await;
        assert!(!misses.iter().any(|misses| misses.load(Ordering::Relaxed)), "nobody has looked: {}", story.trace());
        let reached = reached(&story);
        story.bench.guard.heal();
        story.play.is(Mood::Well);
        approves(&story);
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "{by:?}");
        reached
    })
}

/// What is compared would be compared from its beginning over another line, and that takes hours.
#[test]
fn line_stays_where_a_member_misses_one_look_at_the_movers() {
    assert_eq!([[0], [1]].map(|by| reached_where_a_look_is_missed(&by)), [2; 2]);
}

/// As where the host has lost its network, and with it both streams, without a word: nobody would end the line.
#[test]
fn line_is_made_again_where_neither_mover_is_seen() {
    assert_eq!(reached_where_a_look_is_missed(&[0, 1]), 4);
}
