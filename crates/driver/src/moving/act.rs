//! One step of a move is taken.

use super::{
    Job, Went, begin, ends,
    look::{Half, Looked},
    switch,
};
use domain::{
    error::{Error, Result},
    volume::moving::{Moving, Outcome, Part, Phase},
};
use host::moves;
use leaf::moving::{self as writes, ends::State};

pub(super) async fn take(job: &mut Job, step: Moving, looked: Looked) -> Result<Went> {
    match step {
        Moving::Enter(Phase::Switching) => return switch::decide(job, &looked).await,
        Moving::Enter(Phase::Finishing) => switch::settle_in_host(job, &looked).await?,
        Moving::StartReceiver => return ends::start_receiver(job, &looked).await,
        Moving::StartSender => return ends::start_sender(job, &looked).await,
        Moving::RemoveEnds => return ends::remove_ends(job, &looked).await,
        Moving::NoteVerified => return note_verified(job, &looked).await,
        Moving::Replace => return Box::pin(switch::replace(job, &looked)).await,
        Moving::MakeCopy => return begin::make_copy(job, &looked).await,
        _ => {}
    }
    match step {
        Moving::Enter(phase) => {
            let went = job.write(moves::phase(phase)).await?;
            job.tell_of_phase(phase, &looked).await;
            Ok(went)
        }
        Moving::KeepCopy | Moving::PlaceCopy | Moving::ReleaseCopy | Moving::RemoveCopy => {
            change_copy(step, &looked).await
        }
        _ => change_source(job, step, &looked).await,
    }
}

async fn note_verified(job: &mut Job, looked: &Looked) -> Result<Went> {
    let said = |half: &Half| match half.movers.first().map(|mover| &mover.state) {
        Some(State::Ended(Some(Outcome::Copied(sum)))) => Some(sum.clone()),
        _ => None,
    };
    let half = looked.copy.as_ref().map_err(Clone::clone)?;
    let sum = said(half).ok_or_else(|| Error::InProgress("nobody has said what was copied".to_owned()))?;
    let went = job.write(moves::verified(&sum)).await?;
    job.tell_of_verification(&sum).await;
    Ok(went)
}

async fn change_source(job: &mut Job, step: Moving, looked: &Looked) -> Result<Went> {
    let half = looked.source.as_ref().map_err(Clone::clone)?;
    let (leaf, sight, hash) = (half.member.leaf()?, &half.sight, looked.hash);
    match (step, &sight.home, &sight.yard, &sight.volume) {
        (Moving::CloseSource, Some(claim), ..) => {
            writes::mark_source(leaf, claim, &moves::mark(&job.of, Part::Source)).await?;
        }
        (Moving::IsolateSource, Some(claim), ..) => {
            writes::mark_source(leaf, claim, &moves::mark(&job.of, Part::IsolatedSource)).await?;
        }
        (Moving::LendSource, .., Some(volume)) => writes::lend_source(leaf, volume, hash).await?,
        (Moving::ReturnSource, .., Some(volume)) => {
            writes::return_source(leaf, volume, &half.side.home()).await?;
        }
        (Moving::OpenSource, ..) => writes::open_source(leaf, sight).await?,
        (Moving::RetireSource, .., Some(volume)) => {
            let to = looked.status.to.as_ref().map(|to| to.handle.as_str()).unwrap_or_default();
            writes::retire_source(leaf, volume, hash, to).await?;
        }
        (Moving::RemoveYardClaim, _, Some(claim), _) => writes::remove_yard_claim(leaf, claim, hash).await?,
        _ => return Ok(Went::Waits("the source is as it has to be".to_owned())),
    }
    Ok(Went::On)
}

async fn change_copy(step: Moving, looked: &Looked) -> Result<Went> {
    let half = looked.copy.as_ref().map_err(Clone::clone)?;
    let (leaf, sight, hash) = (half.member.leaf()?, &half.sight, looked.hash);
    match (step, &sight.volume) {
        (Moving::KeepCopy, Some(volume)) => writes::keep_copy(leaf, volume, hash, &half.side.handle).await?,
        (Moving::PlaceCopy, Some(volume)) => writes::place_copy(leaf, volume, &half.side.home()).await?,
        (Moving::ReleaseCopy, _) => writes::release_copy(leaf, sight).await?,
        (Moving::RemoveCopy, _) if writes::is_going(leaf, sight, hash) => {
            return Ok(Went::Waits("the copy goes".to_owned()));
        }
        (Moving::RemoveCopy, _) => writes::remove_copy(leaf, sight, hash).await?,
        _ => return Ok(Went::Waits("the copy is as it has to be".to_owned())),
    }
    Ok(Went::On)
}
