//! Why a leaf claim waits, as events on the claim of the host, in the member's own words and as soon as the member says it. The
//! provisioner's call tells it too, but only when it ends.
//!
//! Events of a member are watched only while a claim waits there. A hundred claims that wait for the same are told of once
//! each, and not again for a while; a member has a budget, and all together have one.

mod claim;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::{Instant, sleep, timeout},
};

use super::{Reconciler, budget::Budget, turn};
use claim::{Telling, Waiting};
use domain::{error::Result, volume::VolumeHash};
use host::events::News;
use leaf::{
    MemberClient,
    class_row::ClassRow,
    identity::is_leaf_of,
    member_events::{MemberEvent, OF_CLAIMS, OF_PODS},
    ownership::MadeFor,
    row::{ClaimRow, Consumer},
};
use member::{Member, registry::serving};

/// Between two looks at who waits.
const LOOK: Duration = Duration::from_millis(250);
/// From a word to a look at whom it is about.
const SOON: Duration = Duration::from_millis(100);
/// Nobody waits any more: others may soon.
const LINGER: Duration = Duration::from_secs(30);
/// After a watch of events that came to nothing.
const REFUSED: Duration = Duration::from_secs(5);
/// A provisioner that lives says that it begins; one that lives and has much to do has said so of others.
const QUIET: Duration = Duration::from_millis(600);
/// Where it has not by then, it is worth a warning.
const SILENCE: Duration = Duration::from_secs(10);
/// Words on objects that are not known to wait yet.
const RECENT: usize = 256;
/// Events at once about what waits in one member, and each further one after so long.
const BURST: u32 = 150;
const REFILL: Duration = Duration::from_secs(2);
/// All members together have so many times that: one whose claims all wait is not to silence the others.
const OF_ALL: u32 = 4;

/// Of events in one member.
fn budget_of_member() -> Budget {
    Budget::new(BURST, REFILL)
}

pub(super) fn budget_of_all() -> Budget {
    Budget::new(BURST * OF_ALL, REFILL / OF_ALL)
}

/// All that wait in a member.
#[derive(Debug)]
struct Queue {
    waiting: BTreeMap<VolumeHash, Waiting>,
    /// Whose claim it is, by the claim's UID.
    of_claims: BTreeMap<Box<str>, VolumeHash>,
    recent: VecDeque<MemberEvent>,
    budget: Budget,
}

impl Queue {
    fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            of_claims: BTreeMap::new(),
            recent: VecDeque::new(),
            budget: budget_of_member(),
        }
    }

    fn look(&mut self, leaf: &MemberClient, now: Instant) {
        let there = leaf.rows.pending_since(|hash| self.waiting.get(&hash).map(Waiting::seen));
        self.see(there, now);
    }

    /// All that wait now, in the order of their hashes, with what is new of them.
    fn see(&mut self, mut there: Vec<(VolumeHash, Option<(ClaimRow, Consumer)>)>, now: Instant) {
        // The host's claim has a volume, and waits for nothing.
        there.retain(|(_, news)| news.as_ref().is_none_or(|(row, _)| !row.is_copy_of_a_move()));
        let is_there = |hash: &VolumeHash| there.binary_search_by_key(hash, |(hash, _)| *hash).is_ok();
        let gone: Vec<VolumeHash> = self.waiting.keys().copied().filter(|hash| !is_there(hash)).collect();
        for hash in gone {
            self.forget(hash);
        }
        for (hash, news) in there {
            if let Some((row, _)) = &news
                && self.waiting.get(&hash).is_none_or(|known| known.row.uid != row.uid)
            {
                self.forget(hash);
                self.of_claims.insert(row.uid.clone(), hash);
                self.waiting.insert(hash, Waiting::new(hash, row.clone(), now));
            }
            let Some(waiting) = self.waiting.get_mut(&hash) else { continue };
            if waiting.see(news) {
                self.recent.iter().for_each(|word| waiting.hear(word));
            }
        }
    }

    fn forget(&mut self, hash: VolumeHash) {
        let Some(gone) = self.waiting.remove(&hash) else { return };
        // It may carry the labels of another volume by now.
        if self.of_claims.get(&gone.row.uid) == Some(&hash) {
            self.of_claims.remove(&gone.row.uid);
        }
    }

    /// Whether somebody does not only pass by.
    fn is_needed(&self) -> bool {
        self.waiting.values().any(Waiting::lasts)
    }

    fn hear(&mut self, word: MemberEvent) {
        if let Some(waiting) = self.of_claims.get(&*word.about).and_then(|hash| self.waiting.get_mut(hash)) {
            waiting.hear(&word);
        }
        if let Some(volumes) = leaf::consumer::volumes_of(&word.name) {
            self.waiting.range_mut(volumes).for_each(|(_, waiting)| waiting.hear(&word));
        }
        self.recent.push_back(word);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// A class that is bound without a pod, and nobody has said anything: nobody may be there.
    fn hear_silence(&mut self, leaf: &MemberClient, now: Instant) {
        let names: BTreeSet<&str> = self.waiting.values().map(|waiting| &*waiting.row.class).collect();
        let classes: BTreeMap<Box<str>, ClassRow> =
            names.into_iter().filter_map(|name| Some((name.into(), leaf.rows.class(name)?))).collect();
        let answered = self.waiting.values().filter(|waiting| waiting.answered);
        let answered = answered.filter_map(|waiting| classes.get(&waiting.row.class));
        let alive: BTreeSet<&str> = answered.map(|class| &*class.provisioner).collect();
        for waiting in self.waiting.values_mut() {
            let Some(class) = classes.get(&waiting.row.class) else { continue };
            let waits = class.waits_for_pod && !waiting.row.observed().node_selected;
            let heard = waiting.answered || waiting.word.as_ref().is_some_and(|word| word.warning);
            if waits || heard || waiting.row.volume().is_some() {
                continue;
            }
            let lasts = now.saturating_duration_since(waiting.since);
            if let Some((said, warning)) = silence(lasts, alive.contains(&*class.provisioner)) {
                let of = format!("provisioner {} of StorageClass {}", class.provisioner, waiting.row.class);
                waiting.word =
                    Some(Telling { text: format!("waits for {of}, which has said nothing of it {said}"), warning });
            }
        }
    }

    /// Those that were told nothing yet come first, and then who was told least lately: there may be more than can be told before the first are
    /// told again.
    fn due(&self, now: Instant) -> Vec<(VolumeHash, Telling)> {
        let there = self.waiting.iter().filter(|(_, waiting)| waiting.lasts());
        let due = there.filter_map(|(hash, waiting)| Some((waiting.last_told(), *hash, waiting.due(now)?.clone())));
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|(told, ..)| *told);
        due.into_iter().map(|(_, hash, word)| (hash, word)).collect()
    }
}

/// What there is to say of a provisioner's silence, and whether it is a warning.
fn silence(lasts: Duration, alive: bool) -> Option<(&'static str, bool)> {
    if lasts >= SILENCE {
        return Some(("for ten seconds: is it running there?", true));
    }
    (lasts >= QUIET && !alive).then_some(("yet", false))
}

/// Works until it is dropped.
pub(super) async fn tell(reconciler: &Reconciler, member: &Member) {
    let mut queue = Queue::new();
    sleep(turn(&member.name)).await;
    loop {
        let Ok(leaf) = member.leaf() else {
            sleep(LOOK).await;
            continue;
        };
        leaf.rows.somebody_waits().await;
        queue.look(leaf, Instant::now());
        if queue.is_needed() {
            let (say, words) = mpsc::channel(RECENT);
            tokio::select! {
                biased;
                () = pass_on(reconciler, leaf, &mut queue, words) => {}
                () = listen(leaf, OF_CLAIMS, &say) => {}
                () = listen(leaf, OF_PODS, &say) => {}
            }
        } else {
            sleep(LOOK).await;
        }
    }
}

/// Until nobody waits any more.
async fn pass_on(reconciler: &Reconciler, leaf: &MemberClient, queue: &mut Queue, mut words: Receiver<MemberEvent>) {
    let mut needed = Instant::now();
    while needed.elapsed() < LINGER {
        if let Ok(Some(word)) = timeout(LOOK, words.recv()).await {
            queue.hear(word);
            // More comes with it.
            sleep(SOON).await;
            while let Ok(word) = words.try_recv() {
                queue.hear(word);
            }
        }
        let now = Instant::now();
        queue.look(leaf, now);
        find_consumers(leaf, queue, now).await;
        queue.hear_silence(leaf, now);
        if queue.is_needed() {
            needed = now;
        }
        for (hash, word) in queue.due(now) {
            let Some(waiting) = queue.waiting.get_mut(&hash) else { continue };
            if !reconciler.budget().has_some(now) || !queue.budget.take(now) {
                break;
            }
            let passed_on = pass_on_one(reconciler, leaf, hash, &waiting.row, &word).await;
            if matches!(passed_on, Ok(false)) {
                break;
            }
            waiting.was_told(now);
            if let Err(error) = passed_on {
                tracing::debug!(member = leaf.member, claim = %waiting.row.place, %error, "the driver cannot tell why a leaf claim waits");
            }
        }
    }
}

/// Whoever has made a consumer pod knows its UID. Another replica goes by its name, which anybody may take who makes pods there: so it is
/// read, and its labels say whether it is ours.
async fn find_consumers(leaf: &MemberClient, queue: &mut Queue, now: Instant) {
    for (hash, waiting) in &mut queue.waiting {
        let Some(uid) = waiting.take_namesake(now) else { continue };
        match leaf::consumer::is_consumer(leaf, &waiting.row.place.namespace, *hash, &uid).await {
            Ok(true) => {
                waiting.found = Some(uid);
                queue.recent.iter().for_each(|word| waiting.hear(word));
            }
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(member = leaf.member, claim = %waiting.row.place, %error, "the consumer pod of a leaf claim cannot be read");
                waiting.namesake = Some(uid);
            }
        }
    }
}

/// Which claim of the host it is, stands on the leaf claim. False where it could not be told now.
async fn pass_on_one(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    hash: VolumeHash,
    row: &ClaimRow,
    word: &Telling,
) -> Result<bool> {
    let Some(claim) = leaf::claim::read(leaf, &row.place).await? else { return Ok(true) };
    let ours = is_leaf_of(&claim.metadata, &leaf.host, hash);
    let (Some(of), true) = (MadeFor::read(&claim.metadata), ours) else { return Ok(true) };
    if !is_for(reconciler, leaf, hash, row, &of).await? {
        tracing::debug!(member = leaf.member, claim = %row.place, "a leaf claim waits that is for no claim of the host which is known to wait there");
        return Ok(true);
    }
    if !reconciler.budget().take(Instant::now()) {
        return Ok(false);
    }
    let message = format!("member {}: leaf claim {} {}", leaf.member, row.place, word.text);
    let news = News { reason: "LeafPending", message, warning: word.warning };
    host::events::tell_claim(&reconciler.host, &of.claim, &of.uid, &news).await;
    Ok(true)
}

/// Whoever makes claims in a member can write any claim of the host on them. So the host has to say it as well: it has chosen
/// this member for that claim, or the leaf's volume is that claim's.
async fn is_for(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    hash: VolumeHash,
    row: &ClaimRow,
    of: &MadeFor,
) -> Result<bool> {
    let id = row.id(&leaf.member, hash);
    if reconciler.volumes.with(&id.to_string()).iter().any(|volume| *volume.claim_uid == *of.uid) {
        return Ok(true);
    }
    let Some(claim) = host::claim::read(&reconciler.host, &of.claim, &of.volume).await? else { return Ok(false) };
    let members = reconciler.members.all()?;
    let chosen = claim.member.is_some_and(|chosen| serving(&members, &chosen) == leaf.member);
    Ok(chosen && claim.uid == of.uid)
}

async fn listen(leaf: &MemberClient, fields: &str, say: &Sender<MemberEvent>) {
    loop {
        if let Err(error) = leaf::member_events::listen(leaf, fields, say).await {
            tracing::debug!(member = leaf.member, %error, "the member's events cannot be watched");
            sleep(REFUSED).await;
        }
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests;
