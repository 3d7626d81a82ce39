//! The agent with many members, in this process, between simulated clusters: what it does for one of them does not grow with how many
//! there are. Time is tokio's; work is the processor time of the one thread on which all of it runs, the clusters as well.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "../authority.rs"]
mod authority;
#[path = "../within.rs"]
mod within;
mod world;

use std::time::Duration;

use tokio::time::sleep;
use world::{ATTACHMENTS, World, story};

const IDLE: Duration = Duration::from_mins(1);
const EVENTS: u32 = 500;
/// How much more it may be among ten times as many: looking things up takes a little longer, and the machine has other work.
const MORE: u32 = 3;
/// What an event may seem to take that is an idle moment's.
const SHARE: Duration = Duration::from_micros(200);

/// What one thing takes among so many members.
#[derive(Debug)]
struct Taken {
    /// A member, from the start to its node and a pod on it.
    start: Duration,
    /// A member, in a minute in which nothing happens.
    idle: Duration,
    /// A change of a pod of the host, of a virtual node, of an attachment.
    pod: Duration,
    node: Duration,
    attachment: Duration,
    /// Requests of the agent in that minute, to the host and to all members: without renewals of Leases.
    requests: usize,
}

fn taken(members: u32) -> Taken {
    story(async {
        let world = World::new(members).await;
        world.start();
        let (start, _) = world.during(world.all_run()).await;
        let before = world.requests();
        let (idle, _) = world.during(sleep(IDLE)).await;
        let requests = world.requests() - before;
        let (mut taken, kinds) = (Vec::new(), ["pods", "nodes", ATTACHMENTS]);
        for kind in kinds {
            let (spent, time) = world.during(world.change(kind, EVENTS)).await;
            let without = idle.mul_f64(time.as_secs_f64() / IDLE.as_secs_f64());
            taken.push(spent.saturating_sub(without) / EVENTS);
        }
        Taken {
            start: start / members,
            idle: idle / members,
            pod: taken[0],
            node: taken[1],
            attachment: taken[2],
            requests,
        }
    })
}

#[test]
fn what_is_done_for_one_member_and_for_one_event_does_not_grow_with_the_members() {
    let most = std::env::var("KOSMOS_CSI_MEMBERS").map_or(200, |most| most.parse().unwrap());
    let (few, many) = (taken(most / 10), taken(most));
    println!("of {}: {few:?}\nof {most}: {many:?}", most / 10);
    assert!(many.requests < few.requests * 12, "requests: {} and {}", few.requests, many.requests);
    for (what, few, many) in [
        ("the start of a member", few.start, many.start),
        ("a member", few.idle, many.idle),
        ("a pod", few.pod, many.pod),
        ("a node", few.node, many.node),
        ("an attachment", few.attachment, many.attachment),
    ] {
        assert!(many < few * MORE + SHARE, "{what}: {few:?} among {}, {many:?} among {most}", most / 10);
    }
}
