//! Several agents, of which one works and the others stand by: each member is one agent's at a time, and another one's soon after that has
//! died. What each of them writes is seen where it is carried out.
//!
//! Their clocks are one: that they may differ is a matter of the times that `cluster::lease` goes by, and tested there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cluster::{Dial, Transport};
use http::{Method, Request};
use kube::client::Body;
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::{Instant, sleep};
use tower::{BoxError, Service, ServiceExt};

use super::{
    within::within,
    world::{Agent, World, story},
};

/// How paths of requests about the Lease of agents end.
const LEASE: &str = "/leases/kosmos-csi-virtual-node";
const LEASES: &str = "/namespaces/kosmos-csi-pods/leases";
/// From an agent's death until another one has written something for each of its members.
const TAKEN_OVER: Duration = Duration::from_secs(15);
/// From its end where it was asked to end.
const GIVEN_BACK: Duration = Duration::from_secs(3);
/// After which Kubernetes takes a node for dead.
const GRACE: Duration = Duration::from_secs(40);
const STEP: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_mins(1);

/// What a cluster has carried out, or refused.
#[derive(Clone, Debug)]
struct Written {
    at: Instant,
    agent: String,
    about: About,
    is_refused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum About {
    /// That by which agents agree who works.
    Lease,
    Member(String),
}

/// What becomes of an agent's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Well,
    /// It is dead, or stands still.
    Silent,
    CutFromHost,
    CutFromMembers,
    /// Of the host, in milliseconds.
    Slow(u64),
    /// What its watches tell, in milliseconds.
    Behind(u64),
    /// Every third write is carried out and answered as if it were not. Not of Leases: by what was answered of these it is known who has them.
    Unsure,
}

#[derive(Default)]
struct Seen {
    written: Vec<Written>,
    fates: BTreeMap<String, Fate>,
    /// By agent.
    lists: BTreeMap<String, usize>,
}

/// A world with agents.
struct Replicas {
    world: World,
    seen: Arc<Mutex<Seen>>,
    agents: BTreeMap<String, Agent>,
    begun: usize,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replicas {
    async fn of(members: u32) -> Self {
        let (world, seen) = (World::new(members).await, Arc::<Mutex<Seen>>::default());
        for (at, cluster) in world.clusters().enumerate() {
            let seen = Arc::clone(&seen);
            cluster.faults().set(move |asked| {
                let mut seen = lock(&seen);
                if asked.verb == Verb::List {
                    *seen.lists.entry(asked.client.clone()).or_default() += 1;
                }
                match seen.fates.get(&asked.client).copied().unwrap_or_default() {
                    Fate::Silent => Action::Hang,
                    Fate::CutFromHost if at == 0 => Action::Hang,
                    Fate::CutFromMembers if at > 0 => Action::Hang,
                    Fate::Behind(time) if asked.verb == Verb::Watch => Action::Lag(Duration::from_millis(time)),
                    Fate::Unsure if is_write(asked) && asked.number.is_multiple_of(3) => {
                        Action::ApplyThenAnswer { code: 504, reason: "Timeout" }
                    }
                    Fate::Slow(most) if at == 0 => Action::Delay(Duration::from_millis(fastrand::u64(..=most))),
                    _ => Action::Pass,
                }
            });
        }
        Self { world, seen, agents: BTreeMap::new(), begun: 0 }
    }

    /// Of which the first works and the second stands by; their names.
    async fn two_of(members: u32) -> (Self, [String; 2]) {
        let mut replicas = Self::of(members).await;
        let first = replicas.begin();
        replicas.world.all_run().await;
        let second = replicas.begin();
        sleep(MINUTE).await;
        (replicas, [first, second])
    }

    /// Its name.
    fn begin(&mut self) -> String {
        self.begun += 1;
        let name = format!("agent-{}", self.begun);
        let dial = noted(within(self.world.clusters(), &name), &name, &self.seen);
        self.agents.insert(name.clone(), Agent::start(dial));
        name
    }

    fn kill(&mut self, agent: &str) {
        self.set(agent, Fate::Silent);
        drop(self.agents.remove(agent));
    }

    async fn stop(&mut self, agent: &str) {
        if let Some(agent) = self.agents.remove(agent) {
            agent.stop().await;
        }
    }

    fn set(&self, agent: &str, fate: Fate) {
        lock(&self.seen).fates.insert(agent.to_owned(), fate);
    }

    fn lists(&self, agent: &str) -> usize {
        lock(&self.seen).lists.get(agent).copied().unwrap_or_default()
    }

    /// The members for which somebody else than this agent has written something since.
    fn taken_over(&self, from: &str, since: Instant) -> usize {
        let seen = lock(&self.seen);
        let of_others = seen.written.iter().filter(|one| one.at >= since && one.agent != from && !one.is_refused);
        let members = of_others.filter_map(|one| if let About::Member(name) = &one.about { Some(name) } else { None });
        members.collect::<BTreeSet<_>>().len()
    }

    /// What was carried out for a member while another agent held the Lease; and how often such a thing was refused.
    fn strays(&self) -> (Vec<Written>, usize) {
        let (mut holder, mut strays, mut refused) = (String::new(), Vec::new(), 0);
        for one in &lock(&self.seen).written {
            match one.about {
                About::Lease if !one.is_refused => holder.clone_from(&one.agent),
                About::Member(_) if one.agent != holder && one.is_refused => refused += 1,
                About::Member(_) if one.agent != holder => strays.push(one.clone()),
                _ => {}
            }
        }
        (strays, refused)
    }
}

/// The same way, on which is noted what comes of each write.
fn noted(dial: Dial, agent: &str, seen: &Arc<Mutex<Seen>>) -> Dial {
    let Dial::Within(open) = dial else { panic!("its clusters are in this process") };
    let (agent, seen) = (agent.to_owned(), Arc::clone(seen));
    Dial::Within(Arc::new(move |address: &http::Uri| -> Transport {
        let (mut way, cluster) = (open(address), address.host().unwrap_or_default().to_owned());
        let (agent, seen) = (agent.clone(), Arc::clone(&seen));
        let carry = move |request: Request<Body>| {
            let about = about(&cluster, request.method(), request.uri().path());
            let (answering, agent, seen) = (way.call(request), agent.clone(), Arc::clone(&seen));
            async move {
                let answer = answering.await?;
                if let Some(about) = about {
                    let is_refused = !answer.status().is_success();
                    lock(&seen).written.push(Written { at: Instant::now(), agent, about, is_refused });
                }
                Ok::<_, BoxError>(answer)
            }
        };
        tower::service_fn(carry).boxed()
    }))
}

fn is_write(asked: &Asked) -> bool {
    asked.verb.writes() && asked.resource != "leases.coordination.k8s.io"
}

/// What a request writes about; nothing where it is no member of its own.
fn about(cluster: &str, method: &Method, path: &str) -> Option<About> {
    let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method);
    if writes && is_member(cluster) {
        return Some(About::Member(cluster.to_owned()));
    }
    if writes && (path.ends_with(LEASE) || path.ends_with(LEASES)) {
        return Some(About::Lease);
    }
    let mut names = path.split('/').map(|part| part.strip_prefix("kosmos-").unwrap_or(part));
    names.find(|name| writes && is_member(name)).map(|name| About::Member(name.to_owned()))
}

fn is_member(name: &str) -> bool {
    name.len() == 5 && name.strip_prefix('m').is_some_and(|number| number.parse::<u32>().is_ok())
}

fn ready(world: &World) -> Vec<String> {
    let of = |node: &Arc<serde_json::Value>| {
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions.find(|one| one["type"] == "Ready").map(|one| text(one, "/status").to_owned())
    };
    world.nodes().iter().filter_map(of).collect()
}

/// Watches the nodes until all members are another agent's, and for a minute more. How long that took.
async fn until_taken_over(replicas: &Replicas, from: &str, since: Instant, within: Duration) -> Duration {
    let (world, members) = (&replicas.world, replicas.world.nodes().len());
    let mut beats: Vec<(String, Instant)> = world.heartbeats().into_iter().map(|beat| (beat, since)).collect();
    let before = ready(world);
    assert!(before.len() == members && before.iter().all(|status| status == "True"), "{before:?}");
    while replicas.taken_over(from, since) < members {
        let passed = since.elapsed();
        assert!(passed < within, "{} of {members} members after {passed:?}", replicas.taken_over(from, since));
        sleep(STEP).await;
        assert_eq!(ready(world), before, "a node is told to be not ready");
        for (beat, now) in beats.iter_mut().zip(world.heartbeats()) {
            if beat.0 != now {
                *beat = (now, Instant::now());
            }
            assert!(beat.1.elapsed() < GRACE, "a node is not kept alive");
        }
    }
    let took = since.elapsed();
    sleep(MINUTE).await;
    assert_eq!(ready(world), before, "a node is told to be not ready");
    assert_eq!(world.copies(), vec![1; members], "a pod has not one copy");
    assert!(replicas.strays().0.is_empty(), "{:?}", replicas.strays());
    took
}

fn members() -> u32 {
    std::env::var("KOSMOS_CSI_MEMBERS").map_or(40, |members| members.parse().unwrap())
}

#[test]
fn members_of_an_agent_that_died_are_another_ones_in_time_and_their_nodes_and_pods_stay_as_they_are() {
    story(async {
        let (mut replicas, [first, _]) = Replicas::two_of(members()).await;
        replicas.kill(&first);
        let took = until_taken_over(&replicas, &first, Instant::now(), TAKEN_OVER).await;
        println!("all members are another agent's {took:?} after a kill");
    });
}

#[test]
fn members_of_an_agent_that_was_asked_to_end_are_another_ones_at_once() {
    story(async {
        let (mut replicas, [first, _]) = Replicas::two_of(members()).await;
        let asked = Instant::now();
        replicas.stop(&first).await;
        let took = until_taken_over(&replicas, &first, asked, GIVEN_BACK).await;
        println!("all members are another agent's {took:?} after a stop");
    });
}

/// Nobody's work is begun again: the one that works lists nothing again.
#[test]
fn agent_that_stands_by_comes_and_goes_and_moves_nothing() {
    story(async {
        let (mut replicas, [first, second]) = Replicas::two_of(20).await;
        let (before, since) = (replicas.lists(&first), Instant::now());
        sleep(MINUTE).await;
        let usual = replicas.lists(&first) - before;
        let before = replicas.lists(&first);
        replicas.kill(&second);
        sleep(MINUTE / 2).await;
        replicas.begin();
        sleep(MINUTE / 2).await;
        let now = replicas.lists(&first) - before;
        // Each is asked once in some seconds whether it answers, which is a list.
        assert!(now <= usual + 20, "{now} lists in a minute, and {usual} in one in which nothing happens");
        assert_eq!(replicas.taken_over(&first, since), 0);
    });
}

/// Who has no host believes in himself for some seconds more, and others wait for longer than that.
#[test]
fn member_is_one_agents_at_a_time_whatever_befalls_agents() {
    let seeds = std::env::var("KOSMOS_CSI_SEEDS").map_or(5, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        story(async {
            fastrand::seed(seed);
            let mut replicas = Replicas::of(3).await;
            replicas.begin();
            replicas.world.all_run().await;
            replicas.begin();
            replicas.begin();
            for _ in 0..12 {
                sleep(Duration::from_millis(fastrand::u64(500..30_000))).await;
                befall(&mut replicas).await;
                replicas.world.change("pods", 3).await;
            }
            let names: Vec<String> = replicas.agents.keys().cloned().collect();
            for agent in &names {
                replicas.set(agent, Fate::Well);
            }
            sleep(MINUTE).await;
            let (strays, refused) = replicas.strays();
            assert!(strays.is_empty(), "seed {seed}: {strays:?}");
            let since = Instant::now();
            sleep(MINUTE / 2).await;
            assert_eq!(replicas.taken_over("", since), 3, "seed {seed}: a member is nobody's");
            assert_eq!(replicas.world.copies(), [1; 3], "seed {seed}");
            println!("seed {seed}: nothing of two at once, {refused} late requests refused");
        });
    }
}

async fn befall(replicas: &mut Replicas) {
    let names: Vec<String> = replicas.agents.keys().cloned().collect();
    let agent = names[fastrand::usize(..names.len())].clone();
    match fastrand::u8(..9) {
        0 => {
            replicas.kill(&agent);
            replicas.begin();
        }
        1 => {
            replicas.stop(&agent).await;
            replicas.begin();
        }
        2 => replicas.set(&agent, Fate::Silent),
        3 => replicas.set(&agent, Fate::CutFromHost),
        4 => replicas.set(&agent, Fate::Slow(3000)),
        5 => replicas.set(&agent, Fate::CutFromMembers),
        6 => replicas.set(&agent, Fate::Behind(fastrand::u64(500..20_000))),
        7 => replicas.set(&agent, Fate::Unsure),
        _ => replicas.set(&agent, Fate::Well),
    }
}
