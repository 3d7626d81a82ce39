//! Volumes move to other members, as VolumeMoves of the host ask for it: each is looked at, the plan (`domain::volume::moving`)
//! says what is next, and one step is taken. Whoever holds the lease does it; what he needs to know stands in the objects.
//!
//! Its page: `docs/design/moving.md`.

mod act;
mod attachments;
mod begin;
mod ends;
mod forgotten;
mod growth;
mod line;
mod look;
mod obstacles;
mod places;
mod refused;
mod sources;
mod switch;
mod tell;
mod unknown;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{Id, JoinSet},
    time::{Instant, sleep, timeout},
};
use tracing::Instrument;

use domain::{
    error::{Error, Result},
    volume::moving::{Moving, Part, Phase, Seen, next},
};
use host::{
    Host,
    moves::{self, Moves, StatusChange, VolumeMove},
    volumes::HostVolumes,
};
use leaf::moving::ends::Keys;
use member::{Registry, Writes, traces::TRACES};

pub use obstacles::Obstacles;

/// Between two looks at what others have to do first: it grows from the one to the other.
const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(5);
/// What takes longer is told, and keeps no others from going on: as both pods of the movers running, or ending.
const LONG: Duration = Duration::from_mins(1);
/// After a step that came to nothing.
const FAILED: Duration = Duration::from_secs(30);
/// More than follow one another without a pause.
const STEPS: u32 = 40;
/// So old may be what was read, where a look begins that follows a step without a pause. What is written on a leaf tests the version that it
/// was decided on.
const FRESH: Duration = Duration::from_secs(1);
/// So often what the watch says is gone by, even if it says nothing.
const ROUND: Duration = Duration::from_mins(1);

/// Reasons of a stall.
const LEAF_STUCK: &str = "LeafStuck";
const MEMBER_UNREACHABLE: &str = "MemberUnreachable";
const MEMBER_REFUSES: &str = "MemberRefuses";
const STEP_FAILED: &str = "StepFailed";

/// What moving needs.
#[derive(Clone, Debug)]
pub struct Movers {
    pub host: Host,
    pub members: Registry,
    /// Of the movers' pods.
    pub image: String,
    /// Namespace in the members for volumes without a host claim.
    pub leaf_namespace: String,
    /// The moves that there are.
    pub known: Arc<Moves>,
    /// As many copy at the same time.
    pub slots: Arc<Semaphore>,
    /// What was found of their leaves.
    pub obstacles: Arc<Obstacles>,
}

/// One move, as long as this process drives it.
#[derive(Debug)]
struct RunningMove {
    movers: Movers,
    of: VolumeMove,
    /// For who begins, and for who has a copy made.
    places: places::Places,
    /// Those of the attempt under way, where this process has made them.
    keys: Option<Keys>,
    /// Movers that have failed are not begun again before this.
    not_before: Option<Instant>,
    /// The attempt whose sender this process has given its keys.
    has_sent_keys: Option<u32>,
    /// UIDs of pods that had a node at the last look, and no volume then.
    stranded: BTreeSet<String>,
    /// Between the two movers.
    line: Option<line::Line>,
    told: tell::Told,
    /// Since when `of`, and what else is known, was read for the steps that follow one another.
    fresh_since: Option<Instant>,
    /// What else was read since then, and no step has changed.
    reusable: look::Reusable,
    /// When the host's volume was seen to be what it was.
    volume_seen: Option<Instant>,
    /// Since when its movers are to end.
    ending_since: Option<Instant>,
    /// From when its copy is made until its source is closed, and since when.
    place: Option<(OwnedSemaphorePermit, Instant)>,
    /// While its movers are there, and since when.
    slot: Option<(OwnedSemaphorePermit, Instant)>,
    /// Since when no mover of it works.
    idle_since: Option<Instant>,
    /// While it waits for one, and pods wait for it.
    urgent: Option<places::Urgent>,
    /// Whose member does not answer, and since when.
    silent: Option<tell::Silent>,
    /// What the movers failed of, until they have not.
    failure: Option<String>,
    /// The last step, and what it was decided on.
    before: Option<(Moving, Seen)>,
}

/// How it stands after a look.
enum Went {
    On,
    Waits(String),
    /// Until a person has acted: the reason, and why.
    Stuck(&'static str, String),
    Over,
}

impl Movers {
    /// Works until it is dropped.
    pub async fn run(self, volumes: &HostVolumes) {
        tokio::select! {
            biased;
            () = moves::keep(&self.host, &self.known) => {}
            () = self.drive_all() => {}
            () = forgotten::heal(&self, volumes) => {}
            () = attachments::tidy(&self) => {}
            () = sources::delete(&self) => {}
        }
    }

    async fn drive_all(&self) {
        let (mut jobs, mut told) = (JoinSet::new(), self.known.told());
        let (mut driven, mut of_jobs) = (BTreeSet::new(), HashMap::<Id, String>::new());
        let of_all = places::Places::new();
        loop {
            told.mark_unchanged();
            let mut found = self.known.under_way_but(&driven);
            // What another process has led has its place before others take that.
            found.sort_by_key(|(_, of)| Reverse(moves::phase_of(of)));
            for (uid, of) in found {
                let mut job = RunningMove::new(self.clone(), of, of_all.clone());
                places::takes_again(&mut job);
                of_jobs.insert(jobs.spawn(Writes::of_this(job.drive())).id(), uid.clone());
                driven.insert(uid);
            }
            tokio::select! {
                biased;
                Some(ended) = jobs.join_next_with_id() => {
                    let id = ended.map_or_else(|fault| fault.id(), |(id, ())| id);
                    if let Some(uid) = of_jobs.remove(&id) {
                        driven.remove(&uid);
                    }
                    // What the watch shows may be of a moment before its end.
                    let _ = timeout(SOON, told.changed()).await;
                }
                _ = timeout(ROUND, told.changed()) => {}
            }
        }
    }
}

impl RunningMove {
    fn new(movers: Movers, of: VolumeMove, places: places::Places) -> Self {
        Self {
            movers,
            of,
            places,
            keys: None,
            not_before: None,
            has_sent_keys: None,
            stranded: BTreeSet::new(),
            line: None,
            told: tell::Told::default(),
            fresh_since: None,
            reusable: look::Reusable::default(),
            volume_seen: None,
            ending_since: None,
            place: None,
            slot: None,
            idle_since: None,
            urgent: None,
            silent: None,
            failure: None,
            before: None,
        }
    }

    async fn drive(mut self) {
        let (mut pause, mut steps) = (SOON, 0);
        // Since when looks come to nothing, one after the other.
        let mut in_vain: Option<Instant> = None;
        loop {
            let mut longest = LATE;
            let went = Box::pin(self.go_on()).await;
            in_vain = in_vain.filter(|_| matches!(went, Err(Error::InProgress(_))));
            match went {
                Ok(Went::Over) => return,
                Ok(Went::On) if steps < STEPS => {
                    (pause, steps) = (SOON, steps + 1);
                    continue;
                }
                Ok(Went::On) => {}
                // What has come a moment later is no news.
                Ok(Went::Waits(_) | Went::Stuck(..)) if pause == SOON => {}
                Ok(Went::Waits(why)) => self.tell_of_waiting(&why).await,
                Ok(Went::Stuck(reason, why)) => self.tell_of_trouble(reason, why).await,
                // It was changed meanwhile, which is looked at; but not again and again.
                Err(Error::InProgress(why)) if in_vain.get_or_insert_with(Instant::now).elapsed() < LONG => {
                    tracing::debug!(of = self.name(), why, "a move is looked at again");
                }
                Err(error) => {
                    places::lets_others_copy(&mut self, false, true);
                    self.tell_of_trouble(STEP_FAILED, refused::told_of(&error)).await;
                    (pause, longest) = (pause.max(LATE), FAILED);
                }
            }
            pause = pause.min(longest);
            sleep(pause).await;
            (self.fresh_since, steps) = (None, 0);
            pause = (pause * 2).min(longest);
        }
    }

    /// One look, and one step.
    async fn go_on(&mut self) -> Result<Went> {
        if self.fresh_since.is_none_or(|since| since.elapsed() > FRESH) {
            (self.fresh_since, self.reusable) = (Some(Instant::now()), look::Reusable::default());
            let Some(now) = moves::read(&self.movers.host, &self.of).await? else { return Ok(Went::Over) };
            self.of = now;
        }
        if moves::is_over(&self.of) {
            return Ok(Went::Over);
        }
        match moves::phase_of(&self.of) {
            None => {
                let span = tracing::trace_span!(target: TRACES, "step of a move", of = self.name(), step = "Begin");
                let _place = places::begins(self).await;
                return begin::begin(self).instrument(span).await;
            }
            Some(Phase::Refused) => {
                self.of = moves::release(&self.movers.host, &self.of).await?;
                return Ok(Went::Over);
            }
            Some(_) => {}
        }
        let looked = Box::pin(look::look(self)).await;
        self.urgent = None;
        let mut seen = looked?;
        let step = next(&seen.seen);
        tracing::debug!(of = self.name(), ?step, seen = ?seen.seen, "next step of a move");
        // Acted, and nothing has changed: looking on would be asking in circles.
        let circles = self.before.replace((step, seen.seen)) == Some((step, seen.seen));
        let circles = circles.then(|| seen.awaited("the driver does not see yet what it has written"));
        self.silent.take_if(|_| !matches!(step, Moving::AwaitMember(_)));
        match step {
            Moving::Nothing => {
                self.of = moves::release(&self.movers.host, &self.of).await?;
                Ok(Went::Over)
            }
            Moving::Await(_) | Moving::AwaitMember(_) => {
                places::lets_others_copy(self, seen.has_users(), seen.copies());
                line::see_to(self, &seen)?;
                let went = Box::pin(ends::see_to_keys(self, &seen)).await?;
                Ok(went.unwrap_or_else(|| self.awaits(&seen, step)))
            }
            Moving::Stuck(part, what) => {
                (self.place, self.slot, self.line) = (None, None, None);
                Ok(stuck(&seen, part, what))
            }
            step => {
                let span = tracing::trace_span!(target: TRACES, "step of a move", of = self.name(), ?step);
                let went = Box::pin(act::take(self, step, &mut seen)).instrument(span).await?;
                self.reusable = look::Reusable::after(step, seen);
                Ok(match (went, circles) {
                    (Went::On, Some(what)) => Went::Waits(what),
                    (went, _) => went,
                })
            }
        }
    }

    fn awaits(&mut self, seen: &look::Looked, step: Moving) -> Went {
        let what = match step {
            Moving::Await(what) => what,
            Moving::AwaitMember(part) => match self.awaits_member(seen, part) {
                Some((reason, told)) => {
                    // It may be for good.
                    self.slot = None;
                    return Went::Stuck(reason, told);
                }
                None => "its member has to answer",
            },
            _ => "it goes on",
        };
        let mut sides = [&seen.status.from, &seen.status.to].into_iter().flatten();
        let obstacle = sides.find_map(|side| self.movers.obstacles.of(&side.member, seen.hash));
        let what = match seen.seen.phase {
            Phase::Waiting if seen.has_users() && places::are_taken(self) => {
                let others = format!("{what}, and may keep it until other moves have copied ({})", places::OTHERS_COPY);
                seen.awaited(&others)
            }
            _ => seen.awaited(what),
        };
        match (obstacle, self.line.as_ref().and_then(line::Line::trouble)) {
            (Some(obstacle), _) => Went::Stuck(LEAF_STUCK, format!("{obstacle}; {what}")),
            (None, Some(trouble)) => Went::Stuck(STEP_FAILED, format!("{trouble}; {what}")),
            (None, None) => Went::Waits(what),
        }
    }

    async fn write(&mut self, change: StatusChange) -> Result<Went> {
        self.of = moves::change_status(&self.movers.host, &self.of, change).await?;
        Ok(Went::On)
    }

    fn name(&self) -> String {
        moves::name(&self.of)
    }
}

/// What keeps others waiting: answers of a member that come slowly, one after the other, would hold it up for hours. It is begun again later.
async fn within<T>(most: Duration, asking: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Error::InProgress(format!("to ask the clusters takes longer than {} s", most.as_secs()));
    timeout(most, asking).await.unwrap_or_else(|_| Err(late()))
}

fn stuck(seen: &look::Looked, part: Part, what: &str) -> Went {
    let (half, is_forgotten) = match part {
        Part::Copy => (&seen.copy, seen.seen.copy_forgotten),
        Part::Source | Part::IsolatedSource => (&seen.source, seen.seen.source_forgotten),
    };
    let reason = if is_forgotten { MEMBER_UNREACHABLE } else { LEAF_STUCK };
    let taken_by = half.as_ref().ok().and_then(|half| half.sight.taken_by.as_ref());
    let which = taken_by.map(|by| format!(": {by}")).unwrap_or_default();
    Went::Stuck(reason, format!("member {}: {what}{which}", seen.member_of(part)))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_others_wait_for_is_given_up_after_a_while_and_looked_at_again() {
        let began = Instant::now();
        let given_up = within(LONG, pending::<Result<()>>()).await;
        assert!(matches!(given_up, Err(Error::InProgress(_))), "{given_up:?}");
        assert!((LONG..LONG * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert_eq!(within(LONG, async { Ok(1) }).await, Ok(1));
    }
}
