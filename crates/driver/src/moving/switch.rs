//! The one write that decides, and what follows from it in the host.

use tokio::time::{Duration, Instant};

use super::{
    RunningMove, Went, begin,
    look::{self, Half, Looked},
    tell::Told,
};
use domain::{
    error::{Error, Result},
    volume::{MEMBER_KEY, moving::Phase},
};
use host::{
    claim::Chosen,
    moves::{self, subject::Subject},
    replacement::Replacing,
    volume::LeafAttributes,
};
use leaf::row::{ClaimRow, VolumeRow};

/// For the host's controller to bind the claim again.
const PATIENCE: Duration = Duration::from_secs(20);

/// All that is not in the plan is looked at once more; then the status says what the host's volume is to be.
pub(super) async fn decide(job: &mut RunningMove, looked: &Looked) -> Result<Went> {
    // From then on the move alone knows what the host's volume has to be.
    if !moves::is_held(&job.of) {
        job.of = moves::hold(&job.movers.host, &job.of).await?;
        return Ok(Went::On);
    }
    let half = looked.copy.as_ref().map_err(Clone::clone)?;
    let Some(replacing) = led_to(job, looked, half).await? else {
        return Ok(Went::Waits("the host's claim or volume is not as it was".to_owned()));
    };
    replacing.try_out(&job.movers.host).await?;
    let went = job.write(moves::switching(&job.of, &replacing)).await?;
    (job.failure, job.told) = (None, Told::default());
    job.tell_of_phase(Phase::Switching, looked).await;
    Ok(went)
}

/// Whether the host would take the volume that leads to the copy, while pods still have the former. The copy's claim is in the yard then, and
/// another one at the end.
pub(super) async fn try_out(job: &RunningMove, looked: &Looked) -> Result<()> {
    if looked.seen.copy.is_none_or(|copy| !copy.whole) {
        return Ok(());
    }
    let half = looked.copy.as_ref().map_err(Clone::clone)?;
    holds_what_pods_may_write(looked, half)?;
    match led_to(job, looked, half).await? {
        Some(replacing) => replacing.try_out(&job.movers.host).await,
        None => Ok(()),
    }
}

/// The host is told of a larger size some time after the source has it. Once all was copied, it has found its room.
fn holds_what_pods_may_write(looked: &Looked, half: &Half) -> Result<()> {
    let capacity = |half: &Half| half.sight.claim().map(|claim| ClaimRow::new(claim).capacity());
    let source = looked.source.as_deref().ok().and_then(capacity);
    let requested = looked.subject.as_ref().map_or(0, |subject| subject.requested);
    let grown = source.unwrap_or_default().min(requested);
    if capacity(half).is_some_and(|copy| copy < grown) { Err(has_grown(looked)) } else { Ok(()) }
}

fn has_grown(looked: &Looked) -> Error {
    Error::Refused(format!(
        "the host's volume {} has become larger than its copy: delete the VolumeMove to call the move off, and make it again",
        looked.pinned.name
    ))
}

pub(super) async fn replace(job: &mut RunningMove, looked: &Looked) -> Result<Went> {
    let missing = || Error::Refused("the status does not say what the host's volume is to be".to_owned());
    let replacing = look::replacing(job, &looked.status, &looked.pinned).ok_or_else(missing)?;
    match replacing.replace(&job.movers.host, Instant::now() + PATIENCE).await {
        Ok(()) => Ok(Went::On),
        Err(Error::InProgress(why)) => match replacing.changed(&job.movers.host).await? {
            // It is on record before the former goes, and the host takes it: what was tried out is not all of it any more.
            Some(volume) => {
                let now = Replacing { volume, ..replacing };
                now.try_out(&job.movers.host).await?;
                job.write(moves::switching_with(&job.of, &now.volume)).await
            }
            None => Ok(Went::Waits(format!("the host's claim is being bound to its new volume ({why})"))),
        },
        Err(error) => Err(error),
    }
}

/// Attachments of before, which nobody else takes away, and the choice on record.
pub(super) async fn settle_in_host(job: &RunningMove, looked: &Looked) -> Result<()> {
    let host = &job.movers.host;
    let (Some(replacing), Some(to)) = (look::replacing(job, &looked.status, &looked.pinned), &looked.status.to) else {
        return Ok(());
    };
    let reached = host::node::all_with(host, MEMBER_KEY, &to.member).await?;
    replacing.delete_attachments(host, |node| reached.iter().any(|one| one == node)).await?;
    let claim = moves::claim_of(&job.of);
    match host::claim::read(host, &claim, &looked.pinned.name).await? {
        Some(seen) if seen.uid == looked.pinned.claim_uid && seen.member.as_ref() != Some(&to.member) => {
            let members = &job.movers.members;
            let clustertree = members.is_beside_clustertree(&*members.all()?, &to.member);
            let chosen = Chosen { member: &to.member, clustertree };
            host::claim::record_member(host, &claim, &seen, &looked.pinned.name, chosen).await
        }
        _ => Ok(()),
    }
}

/// None where something of it is not as it was pinned, or not as it has to be.
async fn led_to(job: &RunningMove, looked: &Looked, half: &Half) -> Result<Option<Replacing>> {
    let (Some(subject), Some(claim), Some(volume)) = (&looked.subject, half.sight.claim(), &half.sight.volume) else {
        return Ok(None);
    };
    let from = looked.status.from.as_ref().map(|from| from.handle.as_str());
    let as_pinned = subject.volume_uid().as_ref() == Some(&looked.pinned.uid) && subject.handle() == from;
    if !as_pinned || !subject.is_bound || subject.is_leaving || subject.is_volume_leaving() {
        return Ok(None);
    }
    if let Some(finalizer) = subject.foreign_finalizer() {
        return Err(Error::Refused(format!(
            "the host's volume {} has finalizer {finalizer}: the driver replaces that volume once its owner has taken it off",
            looked.pinned.name
        )));
    }
    let (claim, volume) = (ClaimRow::new(claim), VolumeRow::new(volume));
    if claim.capacity() < subject.capacity() {
        return Err(has_grown(looked));
    }
    let member = &half.side.member;
    let class = begin::class_of(job, subject, member).await?;
    looked.has_same_attributes()?;
    let spec = begin::spec_of(job, subject, &class, &looked.pinned.name).await?;
    let told = LeafAttributes {
        claim_uid: &claim.uid,
        volume: &volume.name,
        driver: &volume.driver,
        handle: &volume.handle,
        attach_mode: spec.attach_mode(member),
    };
    let mut attributes = subject.attributes();
    told.checked(member)?.put_into(&mut attributes);
    let node = node_of(job, subject, member, &volume.node).await?;
    Ok(subject.led_to(half.side.handle.clone(), attributes, member, node))
}

/// The one node of the member from which it is reached, where nodes of the host stand for such. The former may say none, as it was reached
/// from all of its member.
async fn node_of<'a>(job: &RunningMove, subject: &Subject, member: &str, node: &'a str) -> Result<Option<&'a str>> {
    if node.is_empty() {
        return Ok(None);
    }
    let is_told = subject.names_node() || host::node::stand_for_nodes_of(&job.movers.host, member).await?;
    Ok(is_told.then_some(node))
}
