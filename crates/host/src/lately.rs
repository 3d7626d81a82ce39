//! What was told lately, for whoever looks: events themselves are in the host, and last an hour there.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::jiff::Timestamp;

use super::events::{About, News};

const REMEMBERED: usize = 500;

#[derive(Clone, Debug)]
pub struct Told {
    pub at: Timestamp,
    pub about: About,
    pub news: News,
}

/// The newest things that this process has told.
#[derive(Debug, Default)]
pub struct Lately(Mutex<VecDeque<Told>>);

impl Lately {
    /// The newest first.
    pub fn all(&self) -> Vec<Told> {
        self.lock().iter().rev().cloned().collect()
    }

    pub(crate) fn put(&self, about: &About, news: &News) {
        let mut all = self.lock();
        all.push_back(Told { at: Timestamp::now(), about: about.clone(), news: news.clone() });
        if all.len() > REMEMBERED {
            all.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_come_first_and_the_oldest_are_forgotten() {
        let lately = Lately::default();
        for number in 0..REMEMBERED + 7 {
            let about = About {
                kind: "PersistentVolume",
                namespace: String::new(),
                name: number.to_string(),
                uid: String::new(),
            };
            lately.put(&about, &News { reason: "LeafHealed", message: String::new(), warning: false });
        }
        let names: Vec<String> = lately.all().into_iter().map(|told| told.about.name).collect();
        assert_eq!((names.len(), names[0].as_str(), names[REMEMBERED - 1].as_str()), (REMEMBERED, "506", "7"));
    }
}
