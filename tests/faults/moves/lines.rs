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

/// What is compared would be compared from its beginning over another line, and that takes hours.
#[test]
fn line_stays_where_a_member_misses_one_look_at_the_movers() {
    for at in [0, 1] {
        virtual_time::run(1, async {
            let story = story_in("Copying").await;
            for member in &story.bench.members {
                member.faults().record(true);
            }
            let misses = Arc::new(AtomicBool::new(false));
            let next = Arc::clone(&misses);
            story.bench.guard.set_fate(move |_, of, asked| {
                let is_of_movers = asked.resource == "pods" && asked.namespace == YARD;
                match () {
                    () if asked.subresource == "portforward" => Action::Hang,
                    () if is_of_movers && of == at + 1 && next.swap(false, Ordering::Relaxed) => Action::Refuse,
                    () => Action::Pass,
                }
            });
            while reached(&story) < 2 {
                sleep(STEP).await;
            }
            misses.store(true, Ordering::Relaxed);
            sleep(LOOKED_AGAIN).await;
            assert!(!misses.load(Ordering::Relaxed), "m{at}: nobody has looked: {}", story.trace());
            assert_eq!(reached(&story), 2, "m{at}: {}", story.trace());
            story.bench.guard.heal();
            story.play.is(Mood::Well);
            approves(&story);
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "m{at}");
        });
    }
}
