//! Members that say who they are at about the same time are looked up in the record together, and those that are new to it are
//! written into it together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout},
};

use super::{Pin, TRIES, compare, forgotten, note_back, read_pins, write_pins};
use crate::{Host, PATIENCE};
use domain::error::{Error, Result};

/// In so long the record is looked at twice: for the first one that asks, and for those who have asked meanwhile.
const APART: Duration = Duration::from_millis(200);

/// Looks at the record for all members of a process.
#[derive(Debug)]
pub struct Pinning {
    host: Host,
    questions: Mutex<Vec<Question>>,
    /// When the last two looks have begun. Whoever holds it looks.
    looks: tokio::sync::Mutex<[Option<Instant>; 2]>,
}

/// Which member is which cluster?
#[derive(Debug)]
struct Question {
    name: String,
    identity: String,
    answer: oneshot::Sender<Result<Pin>>,
}

impl Question {
    fn answer(self, pin: Result<Pin>) {
        // Who has gone need not know.
        drop(self.answer.send(pin));
    }
}

impl Pinning {
    pub fn new(host: Host) -> Self {
        Self { host, questions: Mutex::default(), looks: tokio::sync::Mutex::default() }
    }

    /// Pins a name to a cluster at first sight; later, compares.
    ///
    /// What counts was read after this was asked. By what was read before, a cluster would pass as a member whose name means another
    /// one since: a look is shared by those alone who had asked when it began.
    pub async fn pin(&self, name: &str, identity: &str) -> Result<Pin> {
        loop {
            let mut answer = self.ask(name, identity);
            let told = tokio::select! {
                biased;
                told = &mut answer => told.ok(),
                looks = self.looks.lock() => {
                    self.look(looks).await;
                    answer.try_recv().ok()
                }
            };
            // None: whoever looked was given up.
            if let Some(pin) = told {
                return pin;
            }
        }
    }

    fn ask(&self, name: &str, identity: &str) -> oneshot::Receiver<Result<Pin>> {
        let (answer, answered) = oneshot::channel();
        self.questions().push(Question { name: name.to_owned(), identity: identity.to_owned(), answer });
        answered
    }

    /// Answers those who have asked until it begins.
    async fn look(&self, mut looks: tokio::sync::MutexGuard<'_, [Option<Instant>; 2]>) {
        let [before, last] = *looks;
        if let Some(before) = before {
            sleep_until(before + APART).await;
        }
        let mut questions = std::mem::take(&mut *self.questions());
        questions.retain(|question| !question.answer.is_closed());
        if questions.is_empty() {
            return;
        }
        *looks = [last, Some(Instant::now())];
        let mut tries = 0;
        while let Err(error) = self.try_look(&mut questions).await {
            tries += 1;
            if tries == TRIES || !matches!(error, Error::InProgress(_)) {
                return fail(questions, &error);
            }
        }
    }

    /// Answers what the record says, and what it says once those are in it who are new. They are left where that fails.
    async fn try_look(&self, questions: &mut Vec<Question>) -> Result<()> {
        let map = in_time(read_pins(&self.host)).await?;
        let none = BTreeMap::new();
        let pins = map.as_ref().and_then(|map| map.data.as_ref()).unwrap_or(&none);
        // A second name of a member is on no record, and may have been forgotten before.
        if let Some(map) = &map {
            let names = forgotten(map);
            let is_second =
                |one: &Question| matches!(compare(pins, &one.name, &one.identity), Some(Pin::SameAs { .. }));
            let back = questions.iter().filter(|one| names.contains(&*one.name) && is_second(one));
            let back: BTreeSet<String> = back.map(|one| one.name.clone()).collect();
            in_time(note_back(&self.host, map, &back)).await?;
        }
        for question in std::mem::take(questions) {
            match compare(pins, &question.name, &question.identity) {
                Some(pin) => question.answer(Ok(pin)),
                None => questions.push(question),
            }
        }
        if questions.is_empty() {
            return Ok(());
        }
        let (added, said) = add(questions.iter().map(|new| (new.name.as_str(), new.identity.as_str())));
        in_time(write_pins(&self.host, map, added)).await?;
        for (question, pin) in questions.drain(..).zip(said) {
            question.answer(Ok(pin));
        }
        Ok(())
    }

    fn questions(&self) -> MutexGuard<'_, Vec<Question>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be added for those of whom nothing is known, and what each is then: of several that want one name, or are one cluster, the
/// first one counts.
fn add<'a>(new: impl Iterator<Item = (&'a str, &'a str)>) -> (BTreeMap<String, String>, Vec<Pin>) {
    let (mut added, mut said) = (BTreeMap::new(), Vec::new());
    for (name, identity) in new {
        said.push(compare(&added, name, identity).unwrap_or_else(|| {
            added.insert(name.to_owned(), identity.to_owned());
            Pin::Held
        }));
    }
    (added, said)
}

fn fail(questions: Vec<Question>, error: &Error) {
    for question in questions {
        question.answer(Err(error.clone()));
    }
}

/// All members wait for it.
async fn in_time<T>(asking: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::HostUnreachable("its answer about the record of members does not end".to_owned());
    timeout(PATIENCE, asking).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_members_that_are_new_together_each_name_and_each_cluster_is_added_once() {
        let (added, said) = add([("a", "1"), ("b", "1"), ("a", "2"), ("c", "3"), ("a", "1")].into_iter());
        let same = Pin::SameAs { name: "a".to_owned() };
        let moved = Pin::Moved { pinned: "1".to_owned() };
        assert_eq!(said, [Pin::Held, same, moved, Pin::Held, Pin::Held]);
        let wanted = [("a", "1"), ("c", "3")].map(|(name, identity)| (name.to_owned(), identity.to_owned()));
        assert_eq!(added, wanted.into());
    }
}
