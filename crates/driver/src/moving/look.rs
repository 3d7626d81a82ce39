//! What there is of a move, read just now: in the host, and in both members as far as they answer.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{RunningMove, growth};
use domain::{
    error::{Error, Result},
    volume::{
        LeafName, LeafPlace, VolumeHash, VolumeId,
        moving::{End, Moving, Outcome, Part, Phase, Seen, SeenLeaf, YARD},
    },
};
use host::{
    moves::{
        self, Cutover, MoveStatus, PinnedLeaf, PinnedVolume, Side,
        subject::{Subject, read_subject},
    },
    replacement::Replacing,
};
use leaf::{
    MemberClient,
    moving::{
        Fate, Leaving, Sight, clones_of,
        ends::{Mover, State, movers},
        pods_with,
    },
    ownership::PUBLISHED,
    row::{ClaimRow, VolumeRow},
};
use member::Member;

/// So old may be what is known of the host's volume while a copy is made of it: nothing else goes by that then.
const VOLUME_SEEN: Duration = Duration::from_secs(30);

/// One of the two members, and what it has of the volume.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) side: Side,
    pub(super) member: Arc<Member>,
    pub(super) sight: Sight,
    pub(super) movers: Vec<Mover>,
}

/// Who keeps a leaf.
#[derive(Debug)]
pub(super) enum Users {
    /// A claim is to stay, and these have it: pods of the member, whoever made them, and nodes of the host.
    Have(Vec<String>),
    /// These keep a claim from going: pods, and finalizers of others.
    Keep(Vec<String>),
}

/// What the steps that follow one another read once, as long as none of them changes it.
#[derive(Debug, Default)]
pub(super) struct Reusable {
    subject: Option<Subject>,
    source: Option<Box<Half>>,
    copy: Option<Box<Half>>,
}

impl Reusable {
    /// What this step leaves as it is, and what it has made of the rest, where that was told.
    pub(super) fn after(step: Moving, looked: Looked) -> Self {
        let Looked { seen, subject, source, copy, is_noted, .. } = looked;
        let is_changed = |part| step.changes(part) && !is_noted;
        // What comes late is looked for once more.
        if matches!(step, Moving::Enter(next) if next.is_over()) {
            return Self::default();
        }
        // From then on its movers are looked for.
        let may_have_sender = |phase: Phase| phase >= Phase::Copying;
        let is_outdated = matches!(step, Moving::Enter(next) if may_have_sender(next) && !may_have_sender(seen.phase));
        Self {
            subject,
            source: source.ok().filter(|_| !is_outdated && !is_changed(Part::Source)),
            copy: copy.ok().filter(|_| !is_changed(Part::Copy)),
        }
    }
}

impl Half {
    async fn users(&self, fate: Fate) -> Result<Vec<String>> {
        let (home, published, member) = (self.side.home(), self.sight.published(), &self.side.member);
        let pods = pods_with(self.member.leaf()?, &home, fate).await?;
        let nodes = published.real_nodes().map(|node| format!("node {node} of the host"));
        let unknown = published.is_corrupt().then(|| {
            format!(
                "whoever annotation {PUBLISHED} of leaf claim {home} in member {member} names, which cannot be read"
            )
        });
        Ok(pods.into_iter().chain(nodes).chain(unknown).collect())
    }

    /// Nothing is decided by that.
    async fn keepers(&self, leaving: Leaving) -> Vec<String> {
        let Leaving { place, is_used, finalizers } = leaving;
        let pods = if is_used { self.pods_on(&place).await } else { Vec::new() };
        // A claim in the yard has a name that nobody has heard of.
        let is_at_home = place == self.side.home();
        let of = if is_at_home { String::new() } else { format!(" of claim {place} in member {}", self.side.member) };
        pods.into_iter().chain(finalizers.into_iter().map(|name| format!("finalizer {name}{of}"))).collect()
    }

    async fn pods_on(&self, place: &LeafPlace) -> Vec<String> {
        let Ok(leaf) = self.member.leaf() else { return Vec::new() };
        pods_with(leaf, place, Fate::Goes).await.unwrap_or_else(|error| {
            tracing::debug!(member = self.side.member, %error, "what keeps a leaf claim is not told");
            Vec::new()
        })
    }

    /// They would neither be made nor let the claim go once that is on its way out.
    async fn clones(&self) -> Result<Vec<String>> {
        match &self.sight.home {
            Some(claim) => clones_of(self.member.leaf()?, claim).await,
            None => Ok(Vec::new()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Looked {
    pub(super) seen: Seen,
    pub(super) pinned: PinnedVolume,
    pub(super) hash: VolumeHash,
    pub(super) status: MoveStatus,
    /// The host's claim, and its volume where a copy is made or switched to; none where the claim has gone, or another one has its name.
    pub(super) subject: Option<Subject>,
    /// What has become of the host's volume, where the move is called off for that.
    pub(super) loss: Option<&'static str>,
    pub(super) source: Result<Box<Half>>,
    pub(super) copy: Result<Box<Half>>,
    /// While that is waited for.
    pub(super) users: Users,
    /// What the step has changed is in it.
    pub(super) is_noted: bool,
}

impl Looked {
    /// As when the copy was made. It is asked before pods have to end, and once more at the end.
    pub(super) fn has_same_attributes(&self) -> Result<()> {
        let class = self.subject.as_ref().and_then(|subject| subject.attributes_class());
        let is_modified = self.subject.as_ref().is_some_and(|subject| subject.is_modified);
        if !is_modified && class == self.pinned.attributes_class.as_deref() {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "the host's volume {} is given another VolumeAttributesClass than its copy has: delete the VolumeMove to call the move off, and make it again",
            self.pinned.name
        )))
    }

    /// Somebody has the leaf that is to be nobody's.
    pub(super) fn has_users(&self) -> bool {
        matches!(&self.users, Users::Have(users) if !users.is_empty())
    }

    /// Its movers are there and have not ended, as far as is seen.
    pub(super) fn copies(&self) -> bool {
        let is_at_work = |leaf: SeenLeaf| matches!(leaf.end, End::Starting | End::Ready);
        [self.seen.source, self.seen.copy].into_iter().any(|leaf| leaf.is_none_or(is_at_work))
    }

    /// What the member of the source is doing with it is waited for while its pods go on.
    pub(super) async fn awaited_work(&mut self) -> Result<Option<String>> {
        let half = self.source.as_ref().map_err(Clone::clone)?;
        if let Some(why) = half.sight.home.as_ref().and_then(|claim| growth::awaited(&ClaimRow::new(claim))) {
            return Ok(Some(self.awaited(&format!("the volume is being enlarged{why}"))));
        }
        let clones = half.clones().await?;
        if clones.is_empty() {
            return Ok(None);
        }
        self.users = Users::Have(clones);
        Ok(Some(self.awaited("clones of the volume are being made")))
    }
}

pub(super) async fn look(job: &mut RunningMove) -> Result<Looked> {
    let known = std::mem::take(&mut job.reusable);
    let status = job.of.status.clone().unwrap_or_default();
    let (Some(pinned), Some(from), Some(to), Some(phase)) =
        (status.volume.clone(), status.from.clone(), status.to.clone(), status.phase)
    else {
        return Err(Error::Refused(format!("{}: its status was changed by somebody else", job.name())));
    };
    // The step that decides goes by what is read just before it.
    let known = if phase == Phase::Ready { Reusable::default() } else { known };
    let subject = subject(job, phase, &pinned, known.subject).await?;
    let loss = subject.as_ref().and_then(|(_, loss)| *loss);
    let subject = subject.map(|(subject, _)| subject);
    let hash = VolumeHash::new(&job.movers.host.id, &pinned.name);
    let looks_at_copy = phase.goes_by_copy() || may_be_lost(job, &status, &to, hash);
    let (source, copy) = tokio::join!(
        half(job, &from, hash, phase.goes_by_source().then_some(Part::Source), known.source),
        half(job, &to, hash, looks_at_copy.then_some(Part::Copy), known.copy)
    );
    // Nobody takes back that a volume is being deleted, and its pods are not to wait for that.
    let is_wanted = subject.as_ref().is_some_and(|subject| !subject.is_leaving && loss.is_none());
    let mut seen = Seen {
        phase,
        called_off: job.of.metadata.deletion_timestamp.is_some() || phase < Phase::Switching && !is_wanted,
        may_switch: job.of.spec.cutover == Cutover::Automatic || job.of.spec.approved,
        verified: status.verified.is_some(),
        switched: phase == Phase::Switching && is_switched(job, &status, &pinned).await?,
        source: seen_of(job, &source, phase.goes_by_source()),
        copy: seen_of(job, &copy, phase.goes_by_copy()),
        source_forgotten: is_forgotten(job, &from, &source).await,
        copy_forgotten: is_forgotten(job, &to, &copy).await,
    };
    compare(seen.source.as_mut(), &source, status.source.as_ref());
    compare(seen.copy.as_mut(), &copy, status.copy.as_ref());
    if let Some(leaf) = seen.copy.as_mut().filter(|_| copy.is_ok() && !phase.goes_by_copy()) {
        // It was kept by then, also where its claim has gone with it.
        leaf.lost |= leaf.volume.is_none();
    }
    let users = users_of(&mut seen, [&source, &copy]).await?;
    let movers = |half: &Result<Box<Half>>| half.as_ref().map(|half| half.movers.clone()).unwrap_or_default();
    let ends = ends_of(&movers(&source), &movers(&copy), status.attempt);
    seen.source.as_mut().into_iter().for_each(|leaf| leaf.end = ends.0);
    seen.copy.as_mut().into_iter().for_each(|leaf| leaf.end = ends.1);
    Ok(Looked { seen, pinned, hash, status, subject, loss, source, copy, users, is_noted: false })
}

/// The host's claim, where it is the one that is moved, and what has become of its volume if that is no more what it was. From the switch on
/// the move goes by neither.
async fn subject(
    job: &mut RunningMove,
    phase: Phase,
    pinned: &PinnedVolume,
    known: Option<Subject>,
) -> Result<Option<(Subject, Option<&'static str>)>> {
    if phase >= Phase::Switching {
        return Ok(None);
    }
    let with_volume = matches!(phase, Phase::Preparing | Phase::Closing | Phase::Ready)
        || job.volume_seen.is_none_or(|seen| seen.elapsed() > VOLUME_SEEN);
    let subject = match known.filter(|known| !with_volume || known.volume_uid().is_some()) {
        Some(known) => Some(known),
        None => read_subject(&job.movers.host, &moves::claim_of(&job.of), with_volume).await?,
    };
    let Some(subject) = subject.filter(|subject| subject.claim_uid == pinned.claim_uid) else { return Ok(None) };
    let loss = match () {
        () if subject.is_volume_leaving() => Some("is being deleted"),
        () if with_volume && subject.volume_uid().as_ref() != Some(&pinned.uid) => Some("is gone"),
        () => None,
    };
    // What is lost is read at the next look as well: the step that calls the move off may come to nothing.
    if with_volume && loss.is_none() {
        job.volume_seen = Some(Instant::now());
    }
    Ok(Some((subject, loss)))
}

/// Who has a leaf is asked where the next step is to be sure that nobody has. Those that keep one are told of before them, and those of the
/// source first, as its user waits for it.
async fn users_of(seen: &mut Seen, halves: [&Result<Box<Half>>; 2]) -> Result<Users> {
    let asked = match seen.phase {
        _ if seen.called_off => None,
        Phase::Waiting => seen.source.as_mut().zip(halves[0].as_ref().ok()).zip(Some(Fate::WillGo)),
        Phase::Ready if seen.may_switch => seen.copy.as_mut().zip(halves[1].as_ref().ok()).zip(Some(Fate::Stays)),
        _ => None,
    };
    let mut users = Vec::new();
    if let Some(((leaf, half), fate)) = asked {
        users.extend(half.users(fate).await?);
        if fate == Fate::WillGo {
            users.extend(half.clones().await?);
        }
        leaf.used = leaf.used || !users.is_empty();
    }
    for half in halves.into_iter().flatten() {
        let keepers = match half.sight.leaving() {
            Some(leaving) => half.keepers(leaving).await,
            None => Vec::new(),
        };
        if !keepers.is_empty() {
            return Ok(Users::Keep(keepers));
        }
    }
    Ok(Users::Have(users))
}

/// While pods are waited for, nobody asks the member of the copy again and again. But where the watches know of no volume there any more whose
/// claim belongs into the yard, or of another one alone, or there is no such member, it is looked at: its user is told before his pods have
/// ended for nothing.
fn may_be_lost(job: &RunningMove, status: &MoveStatus, side: &Side, hash: VolumeHash) -> bool {
    let is_unread = matches!(status.phase, Some(Phase::Waiting | Phase::Isolating));
    let Some(members) = job.movers.members.all().ok().filter(|_| is_unread) else { return false };
    let id = VolumeId { member: side.member.clone(), leaf: LeafName::Hashed(hash) };
    let is_kept = |volume: &VolumeRow| {
        let is_other = status.copy.as_ref().is_some_and(|pinned| volume.uid() != pinned.uid);
        let is_lent = volume.place.as_ref().is_some_and(|place| place.namespace == YARD);
        is_lent && !volume.is_terminating() && !is_other
    };
    let is_known = |leaf: &MemberClient| leaf.rows.volumes_of(&id).iter().any(is_kept);
    members.get(&side.member).is_none_or(|member| member.leaf().is_ok_and(|leaf| !is_known(leaf)))
}

/// Not looked at where what is next does not go by it.
async fn half(
    job: &RunningMove,
    side: &Side,
    hash: VolumeHash,
    part: Option<Part>,
    known: Option<Box<Half>>,
) -> Result<Box<Half>> {
    let Some(part) = part else {
        return Err(Error::InProgress(format!("member {} is not looked at now", side.member)));
    };
    if let Some(known) = known {
        return Ok(known);
    }
    let member = job.movers.members.get_same(&side.member, &side.cluster).await?;
    let leaf = member.leaf()?;
    let of = moves::mark(&job.of, part);
    let sight = leaf::moving::look(leaf, hash, &side.home(), Some(&of)).await?;
    let has_no_sender = part == Part::Source && moves::phase_of(&job.of).is_some_and(|phase| phase < Phase::Copying);
    let movers = if has_no_sender { Vec::new() } else { movers(leaf, &of.uid).await? };
    Ok(Box::new(Half { side: side.clone(), member: Arc::clone(&member), sight, movers }))
}

/// None: it was to be looked at, and its member does not answer.
fn seen_of(job: &RunningMove, half: &Result<Box<Half>>, is_wanted: bool) -> Option<SeenLeaf> {
    match half {
        Ok(half) => Some(half.sight.seen(&half.side.home(), &moves::mark(&job.of, Part::Source))),
        Err(_) if is_wanted => None,
        Err(_) => Some(SeenLeaf::default()),
    }
}

/// With what was pinned, of the copy once it was prepared: who restores a backup may have made another volume in its place.
fn compare(leaf: Option<&mut SeenLeaf>, half: &Result<Box<Half>>, pinned: Option<&PinnedLeaf>) {
    let (Some(leaf), Ok(half)) = (leaf, half) else { return };
    leaf.ordinary = pinned.map_or(half.sight.is_home_ordinary, |pinned| half.sight.has_as_ordinary(&pinned.uid));
    let live = half.sight.volume.as_ref().map(VolumeRow::new);
    if let (Some(pinned), Some(volume), Some(live)) = (pinned, &mut leaf.volume, live) {
        volume.pinned = live.uid() == pinned.uid;
        volume.remade = !volume.pinned;
    }
}

/// Others are not found for other reasons.
async fn is_forgotten(job: &RunningMove, side: &Side, half: &Result<Box<Half>>) -> bool {
    matches!(half, Err(Error::NotFound(_))) && job.movers.members.is_forgotten(&side.member, &side.cluster).await
}

async fn is_switched(job: &RunningMove, status: &MoveStatus, pinned: &PinnedVolume) -> Result<bool> {
    match replacing(job, status, pinned) {
        Some(replacing) => replacing.is_done(&job.movers.host).await,
        None => Ok(false),
    }
}

/// What the host's volume is to be, once that is decided.
pub(super) fn replacing(job: &RunningMove, status: &MoveStatus, pinned: &PinnedVolume) -> Option<Replacing> {
    Some(Replacing {
        replaced: pinned.uid.clone(),
        claim: moves::claim_of(&job.of),
        claim_uid: pinned.claim_uid.clone(),
        volume: status.switch.clone()?,
    })
}

/// What they say counts only where both say the same.
fn ends_of(source: &[Mover], copy: &[Mover], attempt: u32) -> (End, End) {
    let sum = |movers: &[Mover]| match movers {
        [one] => match &one.state {
            State::Ended(Some(Outcome::Copied(sum))) if one.attempt == attempt => Some(sum.clone()),
            _ => None,
        },
        _ => None,
    };
    let same = sum(source) == sum(copy);
    (single(source, attempt, 0), single(copy, attempt, u8::from(!same)))
}

fn single(movers: &[Mover], attempt: u32, digest: u8) -> End {
    match movers {
        [] => End::None,
        [one] if one.attempt != attempt || one.is_leaving => End::Failed,
        [one] => match &one.state {
            State::Starting(_) => End::Starting,
            State::Running => End::Ready,
            State::Ended(Some(Outcome::Copied(_))) => End::Copied(digest),
            State::Ended(_) => End::Failed,
        },
        _ => End::Failed,
    }
}
