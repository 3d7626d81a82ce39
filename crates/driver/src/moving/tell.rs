//! Whoever asked for a move, and whoever uses the claim, is told how it goes: by events on both, and by a condition of the move.

use tokio::time::Instant;

use super::{
    LONG, MEMBER_REFUSES, MEMBER_UNREACHABLE, RunningMove,
    line::Line,
    look::{Looked, Users},
    refused::who_gives_it_back,
};
use domain::{
    error::Error,
    some_of::some_of,
    volume::moving::{Outcome, Part, Phase, Seen, Sum},
};
use host::{
    Host,
    events::{About, News},
    moves::{self, Progress, VolumeMove},
};
use leaf::moving::ends::{Mover, State};

/// What becomes of it once the member is forgotten.
const NOTHING_IS_LEFT: &str =
    "the host may have nothing of the data then, so do not type this while that member may come back";
const CANNOT_GO_ON: &str = "the move cannot go on then, and has to be called off";
/// As many are named.
const NAMED: usize = 5;

/// The leaf whose member does not answer, or refuses to show it.
#[derive(Debug)]
pub(super) struct Silent {
    part: Part,
    /// As which of these its user is told of it.
    reason: &'static str,
    since: Instant,
    /// As its user is told.
    told_since: String,
    /// Another process has told him so.
    is_told: bool,
}

impl Silent {
    fn now(part: Part, reason: &'static str, told_since: Option<String>) -> Self {
        let is_told = told_since.is_some();
        let told_since = told_since.unwrap_or_else(moves::now_in_words);
        Self { part, reason, since: Instant::now(), told_since, is_told }
    }
}

/// What was told last.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Told {
    reason: String,
    message: String,
    progress: Option<Progress>,
}

impl Looked {
    pub(super) fn awaited(&self, what: &str) -> String {
        let halves = [&self.source, &self.copy];
        let Seen { source, copy, source_forgotten, copy_forgotten, .. } = self.seen;
        let unanswered = [source.is_none() && !source_forgotten, copy.is_none() && !copy_forgotten];
        let mut silent = halves.iter().zip(unanswered).filter(|(_, is_silent)| *is_silent);
        if let Some(error) = silent.find_map(|(half, _)| half.as_ref().err()) {
            return error.to_string();
        }
        let movers = halves.into_iter().flatten().flat_map(|half| half.movers.iter().map(move |mover| (half, mover)));
        let starting = movers.filter_map(|(half, mover)| match &mover.state {
            State::Starting(why) if !why.is_empty() => {
                Some(format!("member {}: pod {}: {why}", half.side.member, mover.name))
            }
            _ => None,
        });
        let what = match &self.users {
            Users::Have(users) if !users.is_empty() => format!("{what}: {}", some_of(users, NAMED)),
            Users::Keep(users) if !users.is_empty() => {
                format!("{what}; the claim that is being deleted is kept by {}", some_of(users, NAMED))
            }
            Users::Have(_) | Users::Keep(_) => what.to_owned(),
        };
        std::iter::once(what).chain(starting).collect::<Vec<_>>().join("; ")
    }

    /// The name of the member that has this leaf.
    pub(super) fn member_of(&self, part: Part) -> &str {
        let side = match part {
            Part::Copy => &self.status.to,
            Part::Source | Part::IsolatedSource => &self.status.from,
        };
        side.as_ref().map(|side| side.member.as_str()).unwrap_or_default()
    }

    /// How it stands while a member does not answer, and what becomes of it once that is forgotten.
    fn once_forgotten(&self, part: Part, source: &str) -> [String; 2] {
        let (from, to) = (self.member_of(Part::Source), self.member_of(Part::Copy));
        let (now, then) = match (self.seen.phase, part == Part::Copy) {
            (Phase::Finishing | Phase::Succeeded, false) => (
                format!(
                    "The volume is in member {to}, and its pods need not wait; the move ends once the driver has released the source, {source}"
                ),
                "the source stays as it is",
            ),
            (Phase::Finishing | Phase::Succeeded, true) => (
                format!("The volume is in that member, and the source, {source}, is kept"),
                "the move ends, and the volume stays where it is",
            ),
            (_, true) if self.seen.may_be_all(part) => (
                "The copy holds all that was in the source, and the source is not seen to be as it was".to_owned(),
                NOTHING_IS_LEFT,
            ),
            (Phase::Cancelling | Phase::Cancelled, false) if !self.seen.may_be_all(part) => (
                "The move is called off, and the copy, which holds all that was in the source, stays meanwhile"
                    .to_owned(),
                "the copy stays then too",
            ),
            (Phase::Cancelling | Phase::Cancelled, false) => (
                format!("The move is called off, and the source is to be in member {from} as it was"),
                if self.seen.verified {
                    NOTHING_IS_LEFT
                } else {
                    "the driver removes what was copied so far, and the host has nothing else of the data"
                },
            ),
            (Phase::Cancelling | Phase::Cancelled, true) => (
                "The move is called off, and the driver has to remove what it made for the copy".to_owned(),
                "the move ends, and what was made for the copy stays there",
            ),
            (_, false) if !self.seen.may_be_all(part) => {
                ("The copy holds all that is in the source".to_owned(), "the move goes on with the copy")
            }
            (_, false) => (
                "Nothing is lost meanwhile".to_owned(),
                "the move cannot go on then, and the driver removes what was copied so far once you call the move off",
            ),
            (_, true) if self.seen.source_forgotten => (
                "The source is in a member that the host has forgotten: add that member again, or delete the VolumeMove to call the move off"
                    .to_owned(),
                CANNOT_GO_ON,
            ),
            (_, true) => (
                "You can delete the VolumeMove to call the move off: the volume then stays where it was".to_owned(),
                CANNOT_GO_ON,
            ),
        };
        [now, then.to_owned()]
    }
}

impl RunningMove {
    /// Waiting is no trouble, but where movers fail again and again. What is waited for stands in the condition.
    pub(super) async fn tell_of_waiting(&mut self, why: &str) {
        let (reason, message) = match &self.failure {
            Some(failure) => ("MoverFailed", format!("{failure}; {why}")),
            None => (moves::PROGRESSING, why.to_owned()),
        };
        let progress = self.line.as_ref().map(Line::progress);
        self.tell_condition(Told { reason: reason.to_owned(), message, progress }).await;
    }

    /// The host's administrator, or that member's, can end it: the reason, and how. None: it may answer in a moment.
    pub(super) fn awaits_member(&mut self, looked: &Looked, part: Part) -> Option<(&'static str, String)> {
        let half = match part {
            Part::Copy => &looked.copy,
            Part::Source | Part::IsolatedSource => &looked.source,
        };
        let member = looked.member_of(part);
        let (why, reason, how) = match half {
            Err(why @ Error::Unreachable { .. }) => {
                let forget = format!("`kosmos-csi member forget {member} --force`");
                (why, MEMBER_UNREACHABLE, format!("`kosmos-csi member remove {member} --force` and {forget}"))
            }
            Err(why @ (Error::Denied(_) | Error::Refused(_) | Error::NoPlace(_))) => {
                (why, MEMBER_REFUSES, who_gives_it_back(member))
            }
            _ => {
                self.silent = None;
                return None;
            }
        };
        let since = self.silent_since(part, reason, &how)?;
        if reason == MEMBER_REFUSES {
            let told = "The move does not go on until then, and nothing is lost";
            return Some((reason, format!("{why} (since {since}). {told}. {how}")));
        }
        let [now, then] = looked.once_forgotten(part, &moves::source_in_words(&self.of).unwrap_or_default());
        let told = format!("{why} (since {since}). {now}. If that member is gone for good, type {how}: {then}");
        Some((reason, told))
    }

    /// As its user is told. None: for less than a minute.
    fn silent_since(&mut self, part: Part, reason: &'static str, how: &str) -> Option<String> {
        let before = self.silent.take().filter(|before| before.part == part && before.reason == reason);
        let now = || Silent::now(part, reason, moves::told_since(&self.of, reason, how));
        let silent = self.silent.insert(before.unwrap_or_else(now));
        (silent.since.elapsed() >= LONG || silent.is_told).then(|| silent.told_since.clone())
    }

    pub(super) async fn tell_of_trouble(&mut self, reason: &str, message: String) {
        let told = Told { reason: reason.to_owned(), message: message.clone(), progress: None };
        if self.tell_condition(told).await {
            self.tell_event("MoveStalled", message, true).await;
        }
    }

    /// Whether one has failed, and not only come too late.
    pub(super) async fn tell_of_failure(&mut self, looked: &Looked) -> bool {
        let movers = || [&looked.source, &looked.copy].into_iter().flatten().flat_map(|half| &half.movers);
        let ended = movers().filter(|mover| matches!(mover.state, State::Ended(_))).count();
        let mut failures: Vec<String> = movers().filter_map(failure_of).collect();
        let mut sums = movers().filter_map(|mover| match &mover.state {
            State::Ended(Some(Outcome::Copied(sum))) => Some(sum),
            _ => None,
        });
        if sums.next().zip(sums.next()).is_some_and(|(one, other)| one != other) {
            failures.push("the copy differs from the source (CopyDiffers)".to_owned());
        }
        for failure in &failures {
            self.tell_event("MoveStalled", format!("{failure}; the driver tries again"), true).await;
        }
        if !failures.is_empty() {
            self.failure = Some(failures.join("; "));
        }
        ended > 0
    }

    pub(super) async fn tell_of_verification(&mut self, sum: &Sum) {
        let message =
            format!("source and copy are the same: {} files, {} bytes ({})", sum.files, sum.bytes, sum.digest);
        self.tell_event("MoveVerified", message, false).await;
    }

    pub(super) async fn tell_of_phase(&mut self, phase: Phase, looked: &Looked) {
        let status = &looked.status;
        let to = status.to.as_ref().map(|to| to.member.as_str()).unwrap_or_default();
        let from = status.from.as_ref().map(|from| from.member.as_str()).unwrap_or_default();
        let (reason, message) = match phase {
            Phase::Waiting => (
                "MoveWaits",
                format!(
                    "no further pod gets the volume; the copy to member {to} begins once the pods of member {from} that have it have ended"
                ),
            ),
            Phase::Switching => (
                "MoveSwitching",
                format!(
                    "the host's volume now leads to member {to}. For a moment an event says that the claim has lost its volume (ClaimLost): ignore it"
                ),
            ),
            Phase::Succeeded => {
                let fate = moves::fate_of_source(&self.of);
                ("Moved", format!("the volume is in member {to}; the source in member {from} {fate}"))
            }
            Phase::Cancelling => {
                let why = looked.loss.map(|loss| format!(", because the host's volume {loss}")).unwrap_or_default();
                ("MoveCancelled", format!("the move is called off{why}: the volume stays in member {from}"))
            }
            _ => return,
        };
        self.tell_event(reason, message, false).await;
    }

    pub(super) async fn tell_event(&self, reason: &'static str, message: String, warning: bool) {
        tell(&self.movers.host, &self.of, reason, message, warning).await;
    }

    /// True where it is news.
    async fn tell_condition(&mut self, told: Told) -> bool {
        if self.told == told {
            return false;
        }
        let change = match told.progress {
            Some(progress) => moves::progress(&self.of, progress, &told.reason, &told.message),
            None => moves::condition(&self.of, &told.reason, &told.message),
        };
        match moves::change_status(&self.movers.host, &self.of, change).await {
            Ok(now) => {
                self.of = now;
                self.told = told;
                true
            }
            Err(error) => {
                tracing::debug!(of = self.name(), %error, "how a move stands is not told");
                false
            }
        }
    }
}

/// By an event on the move, and one on the claim.
pub(super) async fn tell(host: &Host, of: &VolumeMove, reason: &'static str, message: String, warning: bool) {
    let (claim, mark) = (moves::claim_of(of), moves::mark(of, Part::Source));
    let news = News { reason, message, warning };
    let about = About { kind: moves::KIND, namespace: claim.namespace.clone(), name: mark.name, uid: mark.uid };
    host::events::tell_of(host, &about, &news).await;
    if let Some(pinned) = of.status.as_ref().and_then(|status| status.volume.as_ref()) {
        host::events::tell_claim(host, &claim, &pinned.claim_uid, &news).await;
    }
}

fn failure_of(mover: &Mover) -> Option<String> {
    match &mover.state {
        State::Ended(Some(Outcome::Failed { reason, message })) => {
            Some(format!("pod {}: {reason}: {message}", mover.name))
        }
        State::Ended(None) => Some(format!("pod {}: it ended without a result", mover.name)),
        _ => None,
    }
}
