//! A leaf claim that waits, and what its member has said of it.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use domain::volume::VolumeHash;
use leaf::{
    member_events::MemberEvent,
    row::{ClaimRow, Consumer},
};

/// Whoever is seen so often passes by.
const PASSES_BY: u32 = 2;
/// Between two words on one claim, and between two times the same; also between two looks at what may be its consumer.
const APART: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_mins(5);
/// Different things that are said of one claim are remembered so far.
const REMEMBERED: usize = 8;

/// The controller that hands claims to provisioners. It says that it waits, and never that it does not.
const BINDER: &str = "persistentvolume-controller";

/// Something to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Telling {
    pub(super) text: String,
    pub(super) warning: bool,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) row: ClaimRow,
    /// What this process knows of the pod that consumes it.
    consumer: Consumer,
    pod_name: String,
    /// UID of what has the name of that pod, and may have been made by another replica.
    pub(super) namesake: Option<String>,
    /// UID of the one that was read and is ours; and when one was read.
    pub(super) found: Option<String>,
    read: Option<Instant>,
    pub(super) since: Instant,
    looks: u32,
    /// The newest thing to be told.
    pub(super) word: Option<Telling>,
    /// Somebody has said something: whoever provisions it lives.
    pub(super) answered: bool,
    /// What was told, without its numbers, and when.
    told: VecDeque<(String, Instant)>,
}

impl Waiting {
    pub(super) fn new(hash: VolumeHash, row: ClaimRow, now: Instant) -> Self {
        Self {
            row,
            consumer: Consumer::Unknown,
            pod_name: leaf::consumer::pod_name(hash),
            namesake: None,
            found: None,
            read: None,
            since: now,
            looks: 0,
            word: None,
            answered: false,
            told: VecDeque::new(),
        }
    }

    pub(super) fn seen(&self) -> (&ClaimRow, &Consumer) {
        (&self.row, &self.consumer)
    }

    /// It is there still, as it was seen where there is no news. Whether what was said before may be of it, which was not known then.
    pub(super) fn see(&mut self, news: Option<(ClaimRow, Consumer)>) -> bool {
        self.looks += 1;
        let Some((row, consumer)) = news else { return false };
        let is_other = self.looks == 1 || self.consumer != consumer;
        (self.row, self.consumer) = (row, consumer);
        is_other
    }

    /// It does not only pass by.
    pub(super) fn lasts(&self) -> bool {
        self.looks > PASSES_BY
    }

    pub(super) fn hear(&mut self, word: &MemberEvent) {
        let of_claim = *word.about == *self.row.uid;
        if !of_claim && !self.has_pod(&word.about) {
            if word.name == self.pod_name && word.namespace == self.row.place.namespace {
                self.namesake = Some(word.about.clone());
            }
            return;
        }
        self.answered |= of_claim && word.by != BINDER;
        if word.warning {
            let whose = if of_claim { "waits" } else { "waits for a pod that finds no node" };
            self.word = Some(Telling { text: format!("{whose}: {}: {}", word.reason, word.message), warning: true });
        }
    }

    /// The one that this process knows, or that was read.
    fn has_pod(&self, uid: &str) -> bool {
        let is_made = matches!(&self.consumer, Consumer::Made(made) if **made == *uid);
        is_made || self.found.as_deref() == Some(uid)
    }

    /// The UID of a pod that has to be read, as that may be its consumer. Another replica may have made one after this process has made, or
    /// ended, its own.
    pub(super) fn take_namesake(&mut self, now: Instant) -> Option<String> {
        let soon = self.read.is_some_and(|read| now.saturating_duration_since(read) < APART);
        if soon || !self.lasts() {
            return None;
        }
        let namesake = self.namesake.take()?;
        if self.has_pod(&namesake) {
            return None;
        }
        self.read = Some(now);
        Some(namesake)
    }

    /// What is to be told now.
    pub(super) fn due(&self, now: Instant) -> Option<&Telling> {
        let word = self.word.as_ref()?;
        let same = without_numbers(&word.text);
        let soon = self.told.iter().any(|(told, at)| {
            let apart = if *told == same { AGAIN } else { APART };
            now.saturating_duration_since(*at) < apart
        });
        (!soon).then_some(word)
    }

    /// None: nothing was told of it yet.
    pub(super) fn last_told(&self) -> Option<Instant> {
        self.told.back().map(|(_, at)| *at)
    }

    pub(super) fn was_told(&mut self, now: Instant) {
        if let Some(word) = &self.word {
            let same = without_numbers(&word.text);
            self.told.retain(|(told, _)| *told != same);
            self.told.push_back((same, now));
            if self.told.len() > REMEMBERED {
                self.told.pop_front();
            }
        }
    }
}

/// The same thing is said with other numbers: how long, how often, which port.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namesake_is_read_whatever_this_process_knows_of_its_own_pod() {
        let hash = VolumeHash::new(&domain::volume::HostId("h".to_owned()), "pvc-1");
        for consumer in [Consumer::Unknown, Consumer::Gone, Consumer::Made("p-1".into())] {
            let now = Instant::now();
            let row = ClaimRow::new(&<_>::default());
            let mut waiting = Waiting::new(hash, row.clone(), now);
            for _ in 0..=PASSES_BY {
                waiting.see(Some((row.clone(), consumer.clone())));
            }
            let word = MemberEvent {
                about: "p-2".to_owned(),
                namespace: row.place.namespace.clone(),
                name: leaf::consumer::pod_name(hash),
                warning: true,
                reason: "FailedScheduling".to_owned(),
                message: "no node".to_owned(),
                by: "default-scheduler".to_owned(),
            };
            waiting.hear(&word);
            assert_eq!((waiting.take_namesake(now).as_deref(), &waiting.word), (Some("p-2"), &None), "{consumer:?}");
            waiting.found = Some("p-2".to_owned());
            waiting.hear(&word);
            assert!(waiting.word.is_some(), "{consumer:?}");
            waiting.namesake = Some("p-3".to_owned());
            assert_eq!(waiting.take_namesake(now), None, "soon after another");
        }
    }

    #[test]
    fn numbers_make_no_new_word() {
        assert_eq!(
            without_numbers("dial tcp 10.0.0.1:443: after 3s"),
            without_numbers("dial tcp 10.0.0.1:8443: after 17s")
        );
        assert_ne!(without_numbers("quota"), without_numbers("no room"));
    }
}
