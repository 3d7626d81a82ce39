//! Leaves that say that a move has them, which is not in the host any more: somebody has removed it by force, or has written that
//! himself. Where the host's volume leads says what becomes of them.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::sleep;

use super::{LONG, Movers, ROUND, within};
use domain::{
    error::Result,
    volume::{
        HostId, LeafPlace, Parameters, Placing, VolumeHash, VolumeId,
        moving::{End, MoveMark, Moving, Part, Phase, YARD, forgotten},
    },
};
use host::{
    events::News,
    moves::{self, VolumeMove},
    volume::LiveVolume,
    volumes::HostVolumes,
};
use leaf::{
    MemberClient,
    moving::{self as writes, Moved, Sight, Written, ends, row_in_yard},
    row::{ClaimRow, Row, VolumeRow},
    saved::Saved,
};

/// More than are taken one after the other.
const STEPS: usize = 8;
/// Of one member in a round: whoever may write claims there makes as many such marks as he likes, and each costs the host reads.
const LOOKS: usize = 20;
/// Of these, for those of which no volume of the host is known: nothing true is kept waiting by marks that somebody made up.
const OF_OTHERS: usize = 5;

/// Which was looked at last, of each member: of those of which a volume of the host is known, and of the others.
type Last = BTreeMap<(String, bool), VolumeHash>;

/// A leaf, and where its claim is now.
pub(super) struct Forgotten<'a> {
    pub(super) leaf: &'a MemberClient,
    pub(super) hash: VolumeHash,
    pub(super) place: LeafPlace,
}

/// Works until it is dropped. What is there at one look and at the next is looked into: a move that has just been made is not in
/// the first list.
pub(super) async fn heal(movers: &Movers, volumes: &HostVolumes) {
    let (mut before, mut last) = (BTreeSet::new(), Last::new());
    loop {
        sleep(ROUND).await;
        match all(movers).await {
            Ok((known, now)) => {
                let again: BTreeSet<(String, VolumeHash)> = now.intersection(&before).cloned().collect();
                let hashes = again.iter().map(|(_, hash)| *hash).collect();
                let had = if again.len() > LOOKS { volumes.named(&hashes) } else { BTreeSet::new() };
                for (member, hash) in next(&again, &had, &mut last) {
                    if let Err(error) = within(LONG, Box::pin(end(movers, &known, &member, hash))).await {
                        tracing::debug!(member, %hash, %error, "a leaf whose move is gone is not an ordinary one yet");
                    }
                }
                before = now;
            }
            Err(error) => tracing::debug!(%error, "leaves whose move is gone are not looked for"),
        }
    }
}

/// The next few of each member, after those of the round before: first those that the host is known to have.
fn next(
    all: &BTreeSet<(String, VolumeHash)>,
    had: &BTreeSet<VolumeHash>,
    last: &mut Last,
) -> Vec<(String, VolumeHash)> {
    let mut members: BTreeMap<&String, Vec<VolumeHash>> = BTreeMap::new();
    for (member, hash) in all {
        members.entry(member).or_default().push(*hash);
    }
    last.retain(|(member, _), _| members.contains_key(member));
    let mut some = Vec::new();
    for (member, hashes) in members {
        let (had, others): (Vec<_>, Vec<_>) = hashes.into_iter().partition(|hash| had.contains(hash));
        let mut left = LOOKS;
        for (hashes, is_had, spare) in [(had, true, others.len().min(OF_OTHERS)), (others, false, 0)] {
            let key = (member.clone(), is_had);
            let hashes = turn(hashes, last.get(&key), left - spare);
            left -= hashes.len();
            last.extend(hashes.last().map(|hash| (key, *hash)));
            some.extend(hashes.into_iter().map(|hash| (member.clone(), hash)));
        }
    }
    some
}

fn turn(mut hashes: Vec<VolumeHash>, last: Option<&VolumeHash>, most: usize) -> Vec<VolumeHash> {
    let done = last.map_or(0, |last| hashes.partition_point(|hash| hash <= last));
    hashes.rotate_left(done);
    hashes.truncate(most);
    hashes
}

/// The moves, read just now.
#[derive(Default)]
struct Known {
    under_way: Vec<VolumeMove>,
    /// UIDs of the leaf volumes that the host was led away from.
    sources: BTreeSet<String>,
}

impl Known {
    async fn read(movers: &Movers) -> Result<Self> {
        let all = moves::list(&movers.host).await?;
        let has_switched = |of: &VolumeMove| matches!(moves::phase_of(of), Some(Phase::Finishing | Phase::Succeeded));
        let source = |of: &VolumeMove| Some(of.status.as_ref()?.source.as_ref()?.uid.clone());
        let sources = all.iter().filter(|of| has_switched(of)).filter_map(source).collect();
        Ok(Self { sources, under_way: all.into_iter().filter(|of| !moves::is_over(of)).collect() })
    }

    /// The host has another leaf since a move has kept this one, which a backup of its member shows as it was before.
    fn has_left(&self, volume: &VolumeRow, live: &LiveVolume) -> bool {
        given_out(live).is_some_and(|told| *told != *volume.name) && self.sources.contains(volume.uid())
    }

    /// By what a leaf claim says of its move; where it says nothing, by the volume that a move is about.
    fn have(&self, host: &HostId, mark: Option<&MoveMark>, hash: VolumeHash) -> bool {
        self.under_way.iter().any(|of| {
            let pinned = of.status.as_ref().and_then(|status| status.volume.as_ref());
            match mark {
                Some(mark) => Some(&mark.uid) == of.metadata.uid.as_ref(),
                None => pinned.is_some_and(|pinned| VolumeHash::new(host, &pinned.name) == hash),
            }
        })
    }
}

/// By what is in memory of the members, and by what the host says now.
async fn all(movers: &Movers) -> Result<(Known, BTreeSet<(String, VolumeHash)>)> {
    let members = movers.members.all()?;
    let mut moving = Vec::new();
    for member in members.values() {
        if let Ok(leaf) = member.leaf() {
            moving.extend(leaf.rows.moving().into_iter().map(|hash| (leaf, hash)));
        }
    }
    if moving.is_empty() {
        return Ok((Known::default(), BTreeSet::new()));
    }
    let known = Known::read(movers).await?;
    let gone = moving.into_iter().filter(|(leaf, hash)| {
        let claims = [leaf.rows.row(*hash).unwrap_or_default(), row_in_yard(leaf, *hash)];
        let marks = claims.iter().filter_map(|row| row.claim.as_ref()?.moving.as_deref());
        let is_had = |mark| known.have(&movers.host.id, mark, *hash);
        !is_had(None) || marks.clone().any(|mark| !is_had(Some(mark)))
    });
    let gone = gone.map(|(leaf, hash)| (leaf.member.clone(), hash)).collect();
    Ok((known, gone))
}

async fn end(movers: &Movers, known: &Known, member: &str, hash: VolumeHash) -> Result<()> {
    let member = movers.members.get(member).await?;
    let leaf = member.leaf()?;
    for _ in 0..STEPS {
        let Some(place) = place_of(leaf, hash) else { return Ok(()) };
        let forgotten = Forgotten { leaf, hash, place };
        if !Box::pin(forgotten.step(movers, known)).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Where the claim is that says that a move has it. One that is being recreated says nothing now.
fn place_of(leaf: &MemberClient, hash: VolumeHash) -> Option<LeafPlace> {
    let moving = leaf.rows.row(hash).filter(Row::is_moving).and_then(|row| row.claim);
    let in_yard = || row_in_yard(leaf, hash).claim;
    moving.or_else(in_yard).map(|claim| claim.place)
}

impl Forgotten<'_> {
    /// One look and one write. False: there is nothing to be done now.
    async fn step(&self, movers: &Movers, known: &Known) -> Result<bool> {
        let sight = writes::look(self.leaf, self.hash, &self.place, None).await?;
        if let Some(done) = self.at_sight(movers, known, &sight).await? {
            return Ok(done);
        }
        let Some((live, saved)) = self.host_volume(movers, &sight).await? else {
            return self.gives_back(movers, &sight).await;
        };
        let volume = sight.volume.as_ref().map(VolumeRow::new);
        let has_left = volume.as_ref().is_some_and(|volume| known.has_left(volume, &live));
        let leads_here = match self.leads_here(movers, &live).await {
            Some(leads_here) => leads_here,
            // What is in sight under the handle may be nothing but this one.
            None if has_left => false,
            None => return Ok(false),
        };
        let mark = sight.mark();
        let part = match &mark {
            Some(mark) if sight.is_held() && (mark.part == Part::Copy || sight.is_volume_ours()) => mark.part,
            None if leads_here => Part::Source,
            // A copy that a backup tool has made of such a claim carries no finalizer of ours.
            _ => return Ok(false),
        };
        // What a move has kept goes with no copy, and takes the place of nothing.
        let leads_here = if part == Part::Copy { leads_here || has_left } else { leads_here && !has_left };
        if part == Part::Copy && !leads_here && sight.claim().is_some_and(|claim| ClaimRow::new(claim).was_had()) {
            self.tell_of_newer(movers, &live).await;
            return Ok(false);
        }
        let home = self.home(movers, &live, &saved).await?;
        let (of, pods) = match &mark {
            Some(mark) => (mark.clone(), ends::movers(self.leaf, &mark.uid).await?),
            None => (nobody(), Vec::new()),
        };
        let mut seen = sight.seen(&home, &of);
        seen.end = if pods.is_empty() { End::None } else { End::Failed };
        if let Some((seen, volume)) = seen.volume.as_mut().zip(volume) {
            seen.pinned = given_out(&live) == Some(&*volume.name);
        }
        let step = forgotten(part, leads_here, &seen);
        tracing::info!(
            member = self.leaf.member, leaf = %self.place, volume = &*live.volume.name, of = mark.as_ref().map(MoveMark::object), ?step,
            "a leaf names a move that the host does not have any more"
        );
        for pod in pods.iter().filter(|pod| step == Moving::RemoveEnds && !pod.is_leaving) {
            ends::remove(self.leaf, pod).await?;
        }
        if matches!(step, Moving::ReturnSource | Moving::PlaceCopy) && home.namespace == YARD {
            self.tell_of_lost_home(movers, &live).await;
            return Ok(false);
        }
        self.write(step, &sight, &home, &of, &live.volume.handle).await
    }

    /// Whether anything was done, where that needs no look at the host's volume. None: it does.
    async fn at_sight(&self, movers: &Movers, known: &Known, sight: &Sight) -> Result<Option<bool>> {
        let has_it = |mark: Option<&MoveMark>| known.have(&movers.host.id, mark, self.hash);
        // At home, others than the driver may have written that on the leaf of a move that is under way.
        let is_had = has_it(sight.mark().as_ref()) || sight.yard.is_none() && has_it(None);
        match sight.of_nobody() {
            _ if is_had => Ok(Some(false)),
            // It may have been made since all were listed.
            _ if self.is_there(movers, sight).await? => Ok(Some(false)),
            // Pods may have had a leaf at home.
            Some(Moving::RemoveCopy) if sight.yard.is_none() && !self.is_needless(movers, sight).await? => {
                Ok(Some(false))
            }
            Some(step) => self.write(step, sight, &self.place, &nobody(), "").await.map(Some),
            // Whoever may write claims anywhere in the member may write such a one.
            None if !sight.is_volume_bound() => Ok(Some(false)),
            None => Ok(None),
        }
    }

    /// The host has led to it, and pods may have written on it since: it was restored from what was kept of it before.
    async fn tell_of_newer(&self, movers: &Movers, live: &LiveVolume) {
        let id = VolumeId::new(&self.leaf.member, &self.place.namespace, &self.place.claim, self.hash);
        let message = format!(
            "member {}: leaf claim {} is the copy of a move that the host does not know any more, and pods have used \
             it since: what this volume leads to is older. The driver removes neither. Look at both, and choose; the \
             copy's handle is {id}",
            self.leaf.member, self.place
        );
        tracing::debug!(member = self.leaf.member, leaf = %self.place, volume = &*live.volume.name, "a copy is kept that is newer than what the host leads to");
        host::events::tell(&movers.host, &live.volume, &News { reason: "LeafElsewhere", message, warning: true }).await;
    }

    async fn is_there(&self, movers: &Movers, sight: &Sight) -> Result<bool> {
        match sight.mark() {
            Some(mark) => moves::is_under_way(&movers.host, &mark).await,
            None => Ok(false),
        }
    }

    async fn write(&self, step: Moving, sight: &Sight, home: &LeafPlace, of: &MoveMark, handle: &str) -> Result<bool> {
        let moved = Moved { leaf: self.leaf, hash: self.hash, sight, home, of, handle };
        Ok(matches!(moved.write(step).await?, Written::Now | Written::Changed(_)))
    }

    /// No node had it, and the host's volume is seen to lead to another leaf.
    async fn is_needless(&self, movers: &Movers, sight: &Sight) -> Result<bool> {
        if sight.claim().is_some_and(|claim| ClaimRow::new(claim).was_had()) {
            return Ok(false);
        }
        let Some(live) = self.live(movers, sight).await? else { return Ok(false) };
        Ok(self.leads_here(movers, &live).await == Some(false))
    }

    /// The volume that the leaf is of, by the name on it, which its hash proves.
    async fn live(&self, movers: &Movers, sight: &Sight) -> Result<Option<LiveVolume>> {
        let Some(claim) = sight.claim() else { return Ok(None) };
        let name = claim.metadata.annotations.as_ref().and_then(|notes| notes.get(leaf::ownership::NAME));
        let Some(name) = name.filter(|name| VolumeHash::new(&movers.host.id, name) == self.hash) else {
            return Ok(None);
        };
        host::volume::read(&movers.host, name).await
    }

    async fn host_volume(&self, movers: &Movers, sight: &Sight) -> Result<Option<(LiveVolume, Saved)>> {
        let (Some(claim), Some(volume)) = (sight.claim(), &sight.volume) else { return Ok(None) };
        let live = self.live(movers, sight).await?;
        Ok(live.map(|live| (live, Saved::of_claim(claim, volume))))
    }

    /// Whether the host's volume leads to this leaf, by any name of the member. None: what it leads to is not seen, or on its way out, and
    /// nothing is taken for one that nobody needs.
    async fn leads_here(&self, movers: &Movers, live: &LiveVolume) -> Option<bool> {
        let id = VolumeId::parse(&live.volume.handle)?;
        let member = movers.members.get(&id.member).await.ok()?;
        let led_to = member.leaf().ok()?;
        let (hash, row) = led_to.rows.find(&id)?;
        let (volume, is_this) = (row.volume?, led_to.member == self.leaf.member && hash == self.hash);
        (is_this || !volume.is_terminating()).then_some(is_this)
    }

    /// Where the pods of the host's claim look for it; in the yard, where nobody can tell.
    async fn home(&self, movers: &Movers, live: &LiveVolume, saved: &Saved) -> Result<LeafPlace> {
        let named = VolumeId::parse(&live.volume.handle).and_then(|id| id.place());
        let before = match named {
            _ if self.place.namespace != YARD => self.place.clone(),
            Some(named) => named,
            None => self.home_by_class(movers, live).await?.unwrap_or_else(|| self.place.clone()),
        };
        match &live.claim {
            Some(claim) => saved.place(self.leaf, claim, &before),
            None => Ok(before),
        }
    }

    /// A handle that would be too long names no place.
    async fn home_by_class(&self, movers: &Movers, live: &LiveVolume) -> Result<Option<LeafPlace>> {
        let Some(class) = host::class::read(&movers.host, &live.class).await? else { return Ok(None) };
        let parameters = Parameters::parse(&class.parameters)?;
        let placing = Placing { parameters: &parameters, claim: live.claim.as_ref(), volume: &live.volume.name };
        placing.place(&self.leaf.member, &self.leaf.host, &movers.leaf_namespace).map(Some)
    }

    async fn tell_of_lost_home(&self, movers: &Movers, live: &LiveVolume) {
        let message = format!(
            "member {}: leaf claim {} is in the namespace of the movers, and its move is gone. Make StorageClass {} of \
             this volume again: it says where the leaf claim belongs, and the driver then puts it there",
            self.leaf.member, self.place, live.class
        );
        host::events::tell(&movers.host, &live.volume, &News { reason: "LeafStuck", message, warning: true }).await;
    }
}

/// The name of the leaf volume that was given out with it.
fn given_out(live: &LiveVolume) -> Option<&str> {
    live.given_out.as_ref().map(|leaf| leaf.volume.as_str()).filter(|name| !name.is_empty())
}

/// Where nothing says which move it was.
pub(super) fn nobody() -> MoveMark {
    MoveMark { namespace: String::new(), name: String::new(), uid: String::new(), part: Part::Source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> VolumeHash {
        VolumeHash::parse(&format!("{number:032x}")).unwrap()
    }

    #[test]
    fn each_round_looks_at_a_few_of_each_member_and_all_have_their_turn() {
        let many = (0..50).map(|number| ("forges".to_owned(), hash(number)));
        let all: BTreeSet<_> = many.chain([("one".to_owned(), hash(7))]).collect();
        let (mut last, mut seen, none) = (Last::new(), BTreeSet::new(), BTreeSet::new());
        for _ in 0..3 {
            let some = next(&all, &none, &mut last);
            assert_eq!(some.len(), LOOKS + 1);
            assert!(some.contains(&("one".to_owned(), hash(7))));
            seen.extend(some);
        }
        assert_eq!(seen, all);
        let fewer: BTreeSet<_> = [("one".to_owned(), hash(7))].into();
        assert_eq!(next(&fewer, &none, &mut last).len(), 1);
        assert_eq!(last.len(), 1, "nothing is kept of a member that has none any more");
    }

    #[test]
    fn what_the_host_is_known_to_have_waits_for_no_marks_that_somebody_made_up_and_others_have_their_turn_too() {
        let all: BTreeSet<_> = (0..5000).map(|number| ("m".to_owned(), hash(number))).collect();
        let one: BTreeSet<_> = [hash(4000)].into();
        let some = next(&all, &one, &mut Last::new());
        assert_eq!((some[0].1, some.len()), (hash(4000), LOOKS));
        let many: BTreeSet<_> = (1000..2000).map(hash).collect();
        let (mut last, mut seen) = (Last::new(), BTreeSet::new());
        for _ in 0..2 {
            seen.extend(next(&all, &many, &mut last));
        }
        assert_eq!(seen.len(), 2 * LOOKS, "nobody twice before the others");
        let of_others = seen.iter().filter(|(_, hash)| !many.contains(hash)).count();
        assert_eq!(of_others, 2 * OF_OTHERS);
    }
}
