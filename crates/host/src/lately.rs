//! What was told lately, for whoever looks: events themselves are in the host, and last an hour there.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::jiff::Timestamp;

use super::events::{About, News};

const REMEMBERED: usize = 500;

#[derive(Clone, Debug)]
pub struct RecentEvent {
    pub at: Timestamp,
    pub about: About,
    pub news: News,
    /// The event's name: what is told again has the same.
    event: String,
}

/// The newest things that this process has told.
#[derive(Debug, Default)]
pub struct RecentEvents(Mutex<VecDeque<RecentEvent>>);

impl RecentEvents {
    /// The newest first.
    pub fn all(&self) -> Vec<RecentEvent> {
        self.lock().iter().rev().cloned().collect()
    }

    /// With the message as it was written: what was to be said may be as long as a member likes.
    pub(crate) fn put(&self, event: &str, about: &About, news: News) {
        let mut all = self.lock();
        all.retain(|told| told.event != event);
        all.push_back(RecentEvent { at: Timestamp::now(), about: about.clone(), news, event: event.to_owned() });
        if all.len() > REMEMBERED {
            all.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RecentEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(lately: &RecentEvents, number: usize) {
        let name = number.to_string();
        let about =
            About { kind: "PersistentVolume", namespace: String::new(), name: name.clone(), uid: String::new() };
        lately.put(&name, &about, News { reason: "LeafHealed", message: String::new(), warning: false });
    }

    #[test]
    fn newest_come_first_once_each_and_the_oldest_are_forgotten() {
        let lately = RecentEvents::default();
        (0..REMEMBERED + 7).for_each(|number| put(&lately, number));
        let names = || -> Vec<String> { lately.all().into_iter().map(|told| told.about.name).collect() };
        let all = names();
        assert_eq!((all.len(), all[0].as_str(), all[REMEMBERED - 1].as_str()), (REMEMBERED, "506", "7"));
        put(&lately, 100);
        let all = names();
        assert_eq!((all.len(), all[0].as_str()), (REMEMBERED, "100"), "told again, it is there once");
        assert_eq!(all.iter().filter(|name| *name == "100").count(), 1);
    }
}
