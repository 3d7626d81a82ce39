//! How all of it stands, at a glance.

use askama::Template;
use axum::{Extension, extract::State, response::Response};
use serde::Serialize;

use super::{
    Frame,
    events::{self, EventLine},
    members::{self, MemberLine, Volumes},
    moves::{self, MoveLine},
    volumes,
    waiting::{self, WaitLine},
};
use crate::{
    Sources,
    answer::Form,
    shown::{Level, Seconds, counted},
};

const WAITING: usize = 5;
/// From then on a claim that waits is worth a look.
const LONG: Seconds = Seconds(120);
const LATELY: usize = 20;
/// Cards; those that are not well come first.
const CARDS: usize = 100;
/// Classes on a card.
const CLASSES: usize = 3;

#[derive(Template, Serialize)]
#[template(path = "overview.html")]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    summary: String,
    level: Level,
    members: Vec<MemberLine>,
    /// How many more members there are.
    more: usize,
    volumes: Volumes,
    /// Volumes that the host has in use and whose leaf claim has gone: among those of members they count as released.
    leaf_claims_gone: u64,
    /// How many claims wait, and those that do for the longest.
    waiting: usize,
    longest: Vec<WaitLine>,
    events: Vec<EventLine>,
}

pub(crate) async fn show(State(sources): State<Sources>, Extension(form): Extension<Form>) -> Response {
    let mut longest = waiting::lines(&sources);
    let waiting = longest.len();
    longest.truncate(WAITING);
    let mut members = members::lines(&sources, CLASSES);
    let volumes = members.iter().fold(Volumes::default(), |sum, member| sum.plus(member.volumes));
    let (mut summary, mut level) = summary(&members, volumes, waiting, longest.first(), sources.are_members_read());
    let leaf_claims_gone = volumes::without_claim(&sources).await;
    if let Some(told) = told_of_gone(leaf_claims_gone) {
        summary.push_str(&told);
        level = Level::Wrong;
    }
    let moves = moves::under_way(&sources);
    if let Some(told) = told_of_moves(&moves) {
        summary.push_str(&told);
    }
    if moves.iter().any(|line| line.level == Level::Wrong) {
        level = Level::Wrong;
    }
    members.sort_by_key(|member| std::cmp::Reverse(member.level));
    let more = members.len().saturating_sub(CARDS);
    members.truncate(CARDS);
    form.answer(&Page {
        frame: Frame::new(&sources, "Overview", "/", "/overview"),
        summary,
        level,
        members,
        more,
        volumes,
        leaf_claims_gone,
        waiting,
        longest,
        events: events::lines(&sources).take(LATELY).collect(),
    })
}

/// In a line, and how bad that is.
fn summary(
    members: &[MemberLine],
    volumes: Volumes,
    waiting: usize,
    oldest: Option<&WaitLine>,
    are_read: bool,
) -> (String, Level) {
    if !are_read {
        return ("The members are still being read.".to_owned(), Level::Waits);
    }
    let named: Vec<&MemberLine> = members.iter().filter(|member| member.alias_of.is_none()).collect();
    if named.is_empty() {
        return ("No member has joined: kosmos-csi member add lets one join.".to_owned(), Level::Waits);
    }
    let level = named.iter().map(|member| member.level).max().unwrap_or(Level::Well);
    let well = named.iter().filter(|member| member.level == Level::Well).count();
    let members = format!("{well} of {} well.", counted(named.len() as u64, "member is", "members are"));
    let waits = match oldest {
        None => "No claim waits.".to_owned(),
        Some(oldest) => {
            let claims = counted(waiting as u64, "claim waits", "claims wait");
            format!("{claims}, the oldest for {}.", oldest.since)
        }
    };
    let all = counted(volumes.all(), "volume", "volumes");
    let level = match oldest {
        _ if volumes.lost > 0 => Level::Wrong,
        Some(oldest) if oldest.since >= LONG => level.max(Level::Waits),
        _ => level,
    };
    (format!("{members} {waits} {all}: {} lost, {} stray.", volumes.lost, volumes.stray), level)
}

fn told_of_gone(count: u64) -> Option<String> {
    (count > 0).then(|| format!(" {} in use without a leaf claim.", counted(count, "volume is", "volumes are")))
}

fn told_of_moves(moves: &[MoveLine]) -> Option<String> {
    let stalled = moves.iter().filter(|line| line.level == Level::Wrong).count();
    let stalls = if stalled > 0 { format!(", {stalled} of them stalled") } else { String::new() };
    (!moves.is_empty()).then(|| format!(" {} under way{stalls}.", counted(moves.len() as u64, "move is", "moves are")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, level: Level) -> MemberLine {
        MemberLine {
            name: name.to_owned(),
            state: "ok",
            level,
            why: String::new(),
            cordoned: false,
            alias_of: (name == "alias").then(|| "a".to_owned()),
            volumes: Volumes { bound: 1, ..Volumes::default() },
            oldest_creation: Seconds(0),
            oldest_deletion: Seconds(0),
            token_ends: None,
            token_late: false,
            classes: Vec::new(),
        }
    }

    fn waits(seconds: i64) -> WaitLine {
        WaitLine {
            claim: "shop/db".to_owned(),
            volume: String::new(),
            member: String::new(),
            handle: String::new(),
            since: Seconds(seconds),
            why: String::new(),
        }
    }

    #[test]
    fn line_says_how_many_are_well_what_waits_and_what_is_lost() {
        let both = [member("a", Level::Well), member("b", Level::Wrong), member("alias", Level::Well)];
        let (some, one_lost) = (Volumes { bound: 2, ..Volumes::default() }, Volumes { lost: 1, ..Volumes::default() });
        for (members, volumes, oldest, level, words) in [
            (&both[..1], some, None, Level::Well, "1 of 1 member is well. No claim waits. 2 volumes: 0 lost, 0 stray."),
            (&both[..], some, None, Level::Wrong, "1 of 2 members are well."),
            (&both[..1], one_lost, None, Level::Wrong, "1 volume: 1 lost"),
            (&both[..1], some, Some(waits(5)), Level::Well, "1 claim waits, the oldest for 5s."),
            (&both[..1], some, Some(waits(240)), Level::Waits, "1 claim waits, the oldest for 4m."),
            (&[], some, None, Level::Waits, "No member has joined"),
        ] {
            let (text, told) = summary(members, volumes, usize::from(oldest.is_some()), oldest.as_ref(), true);
            assert!(text.contains(words), "{words}: {text}");
            assert_eq!(told, level, "{words}");
        }
        assert_eq!(summary(&both, some, 0, None, false).1, Level::Waits, "while they are being read");
    }
}
