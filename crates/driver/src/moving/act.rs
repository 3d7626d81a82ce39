//! One step of a move is taken.

use tokio::time::Instant;

use super::{
    RunningMove, Went, begin, ends,
    look::{Half, Looked},
    places, sources, switch,
    tell::Told,
};
use domain::{
    error::{Error, Result},
    volume::moving::{MoveMark, Moving, Outcome, Part, Phase},
};
use host::moves::{self, StatusChange};
use leaf::{
    moving::{Moved, Written, ends::State},
    row::{ClaimRow, VolumeRow},
};

pub(super) async fn take(job: &mut RunningMove, step: Moving, looked: &mut Looked) -> Result<Went> {
    match step {
        // Its pods go on until then.
        Moving::CloseSource => {
            if let Some(late) = closed_late(job, looked).await? {
                return change(job, Moving::OpenSource, looked, Part::Source, &late).await;
            }
            if looked.seen.phase == Phase::Closing {
                looked.has_same_attributes()?;
                if let Some(why) = looked.awaited_work().await? {
                    places::lets_others_copy(job, true, false);
                    return Ok(Went::Waits(why));
                }
            }
            if !places::takes_slot_to_close(job) {
                return Ok(Went::Waits(places::OTHERS_COPY.to_owned()));
            }
            if looked.seen.phase == Phase::Closing {
                let tried = Box::pin(switch::try_out(job, looked)).await;
                // Others need not wait for what is refused.
                job.slot.take_if(|_| tried.is_err());
                tried?;
            }
        }
        Moving::Enter(Phase::Switching) => return switch::decide(job, looked).await,
        Moving::Enter(Phase::Finishing) => switch::settle_in_host(job, looked).await?,
        Moving::StartReceiver => return ends::start_receiver(job, looked).await,
        Moving::StartSender => return ends::start_sender(job, looked).await,
        Moving::RemoveEnds => return ends::remove(job, looked).await,
        Moving::NoteVerified => return note_verified(job, looked).await,
        Moving::Replace => return Box::pin(switch::replace(job, looked)).await,
        Moving::MakeCopy => {
            if !places::takes_place(job) {
                return Ok(places::awaits_place(job).await);
            }
            return begin::make_copy(job, looked).await;
        }
        _ => {}
    }
    match step {
        Moving::Enter(phase) => {
            if phase == Phase::Succeeded {
                sources::note_forgotten(job, looked).await?;
            }
            let change = entered(job, phase, looked).await?;
            let went = job.write(change).await?;
            job.place.take_if(|_| phase != Phase::Closing);
            job.slot.take_if(|_| !(Phase::Closing..=Phase::Copying).contains(&phase));
            job.slot.iter_mut().for_each(|(_, since)| *since = Instant::now());
            (job.failure, job.told) = (None, Told::default());
            job.tell_of_phase(phase, looked).await;
            Ok(went)
        }
        step => {
            let part = if step.changes(Part::Copy) { Part::Copy } else { Part::Source };
            change(job, step, looked, part, &moves::mark(&job.of, part)).await
        }
    }
}

/// What the copy is, is on record before anybody has to stop for it.
async fn entered(job: &RunningMove, phase: Phase, looked: &Looked) -> Result<StatusChange> {
    let volume = looked.copy.as_ref().ok().and_then(|half| half.sight.volume.as_ref());
    match (phase, volume) {
        (Phase::Closing, Some(volume)) => Ok(moves::prepared(&job.of, &begin::pinned(&VolumeRow::new(volume)))),
        (Phase::Succeeded, _) => moves::succeeded(&job.movers.host, &job.of).await,
        _ => Ok(moves::phase(&job.of, phase)),
    }
}

async fn note_verified(job: &mut RunningMove, looked: &Looked) -> Result<Went> {
    let said = |half: &Half| match half.movers.first().map(|mover| &mover.state) {
        Some(State::Ended(Some(Outcome::Copied(sum)))) => Some(sum.clone()),
        _ => None,
    };
    let half = looked.copy.as_ref().map_err(Clone::clone)?;
    let sum = said(half).ok_or_else(|| Error::InProgress("the mover has not said what it has copied".to_owned()))?;
    let progress = job.line.take().map(|line| line.progress());
    job.failure = None;
    let went = job.write(moves::verified(&sum, progress)).await?;
    job.tell_of_verification(&sum).await;
    Ok(went)
}

/// By which move the source was closed that is in the host no more: it was called off, and that write arrived late. Nobody else would open it
/// while this one is under way.
async fn closed_late(job: &RunningMove, looked: &Looked) -> Result<Option<MoveMark>> {
    let half = looked.source.as_ref().map_err(Clone::clone)?;
    let mark = half.sight.home.as_ref().and_then(|claim| ClaimRow::new(claim).moving);
    match mark.filter(|mark| Some(&mark.uid) != job.of.metadata.uid.as_ref()) {
        Some(other) if !moves::is_under_way(&job.movers.host, &other).await? => Ok(Some(*other)),
        _ => Ok(None),
    }
}

/// `of`: what the leaf says, or is to say.
async fn change(job: &RunningMove, step: Moving, looked: &mut Looked, part: Part, of: &MoveMark) -> Result<Went> {
    let half = if part == Part::Copy { &mut looked.copy } else { &mut looked.source };
    let half = half.as_mut().map_err(|error| error.clone())?;
    let handle = looked.status.to.as_ref().map(|to| to.handle.as_str()).unwrap_or_default();
    let home = half.side.home();
    let leaf = half.member.leaf()?;
    let moved = Moved { leaf, hash: looked.hash, sight: &half.sight, home: &home, of, handle };
    let written = moved.write(step).await?;
    if step == Moving::RemoveCopy {
        // What keeps it from coming home is in nobody's way any more, and nobody looks there again.
        job.movers.obstacles.forget(&leaf.member, looked.hash);
    }
    Ok(match written {
        Written::Changed(now) => {
            half.sight = std::mem::take(&mut half.sight).with(now);
            looked.is_noted = true;
            Went::On
        }
        Written::Now => Went::On,
        Written::Awaited => {
            let what = format!("member {} removes what was made for the copy", leaf.member);
            Went::Waits(looked.awaited(&what))
        }
        Written::Nowhere => Went::Waits(format!("the leaf in member {} is not as it has to be yet", leaf.member)),
    })
}
