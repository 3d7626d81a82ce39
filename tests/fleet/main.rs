//! The agent with many members, in this process, between simulated clusters: what it does for one of them does not grow with how many
//! there are. Time is tokio's; work is the processor time of the one thread on which all of it runs, the clusters as well.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "../authority.rs"]
mod authority;
mod replicas;
#[path = "../within.rs"]
mod within;
mod world;

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use cluster::Dial;
use simulate::faults::{Action, Verb};
use tokio::time::{Instant, sleep};
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

/// Whoever takes over has all of them open already.
#[test]
fn members_are_listed_a_few_at_a_time() {
    const MEMBERS: u32 = 80;
    const AT_ONCE: usize = 32;
    /// A member takes so long to tell its pods.
    const SLOW: Duration = Duration::from_millis(500);
    story(async {
        let world = World::new(MEMBERS).await;
        let listed = Arc::<Mutex<Vec<Instant>>>::default();
        for member in world.clusters().skip(1) {
            let times = Arc::clone(&listed);
            member.faults().set(move |asked| {
                if (asked.verb, asked.resource.as_str()) != (Verb::List, "pods") {
                    return Action::Pass;
                }
                times.lock().unwrap().push(Instant::now());
                Action::Delay(SLOW)
            });
        }
        world.start();
        world.all_run().await;
        let listed = listed.lock().unwrap().clone();
        assert_eq!(listed.len(), MEMBERS as usize, "each was listed once");
        assert!(listed[AT_ONCE - 1] - listed[0] < SLOW, "the first wait for each other");
        let crowd = listed.windows(AT_ONCE + 1).find(|times| times[AT_ONCE] - times[0] < SLOW);
        assert!(crowd.is_none(), "{crowd:?}");
    });
}

/// Of those who build a way: how many are at it, how many were at the same time, and whether one has waited for another in vain.
#[derive(Default)]
struct Met {
    now: usize,
    most: usize,
    in_vain: bool,
}

impl Met {
    fn is_open(&self) -> bool {
        self.most < 2 && !self.in_vain
    }
}

#[derive(Default)]
struct Meeting {
    met: Mutex<Met>,
    came: Condvar,
}

impl Meeting {
    const PATIENCE: Duration = Duration::from_secs(5);

    /// Stays until there are two, or nobody else comes.
    fn attend(&self) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.now += 1;
        met.most = met.most.max(met.now);
        self.came.notify_all();
        let waited = self.came.wait_timeout_while(met, Self::PATIENCE, |met| met.is_open());
        let (mut met, end) = waited.unwrap_or_else(PoisonError::into_inner);
        met.in_vain |= end.timed_out();
        met.now -= 1;
        self.came.notify_all();
    }

    /// How many there were at most.
    fn most(&self) -> usize {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_timeout_while(met, Self::PATIENCE * 4, |met| met.is_open());
        waited.unwrap_or_else(PoisonError::into_inner).0.most
    }
}

/// On two threads, as the program has them.
#[test]
fn ways_to_members_are_built_side_by_side() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let meeting = Arc::<Meeting>::default();
    let attended = Arc::clone(&meeting);
    let world = runtime.block_on(async {
        let world = World::new(8).await;
        let Dial::Within(open) = world.dial() else { panic!("its clusters are in this process") };
        world.start_by(Dial::Within(Arc::new(move |address: &http::Uri| {
            if address.host() != Some("host") {
                attended.attend();
            }
            open(address)
        })));
        world
    });
    assert_eq!(meeting.most(), 2, "one after the other");
    drop(world);
}
