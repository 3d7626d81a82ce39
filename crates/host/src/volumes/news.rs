//! What there is news of, told to whoever looks after the member concerned and to nobody else: of a thousand members one has something
//! to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;

use super::compact::member_of;

/// Of which volumes of one member there was news since somebody looked at them.
#[derive(Debug, Default)]
pub struct MemberNews {
    handles: Mutex<BTreeSet<Arc<str>>>,
    told: Notify,
}

impl MemberNews {
    /// Until there is some. For one who waits: others would miss it.
    pub async fn told(&self) {
        self.told.notified().await;
    }

    /// Handles of which there was news since this was asked last.
    pub fn take(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut *self.lock())
    }

    fn tell(&self, handle: &Arc<str>) {
        self.lock().insert(Arc::clone(handle));
        self.told.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those who listen, by member. Of what nobody listens to, nothing is remembered.
#[derive(Debug, Default)]
pub(super) struct Listeners(BTreeMap<Box<str>, Vec<Weak<MemberNews>>>);

impl Listeners {
    /// From now on, for as long as it is kept.
    pub(super) fn add(&mut self, member: &str) -> Arc<MemberNews> {
        self.0.retain(|_, listeners| {
            listeners.retain(|listener| listener.strong_count() > 0);
            !listeners.is_empty()
        });
        let news = Arc::<MemberNews>::default();
        self.0.entry(member.into()).or_default().push(Arc::downgrade(&news));
        news
    }

    pub(super) fn tell(&self, handle: &Arc<str>) {
        let listeners = self.0.get(member_of(handle)).into_iter().flatten();
        for listener in listeners.filter_map(Weak::upgrade) {
            listener.tell(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn news_wakes_who_looks_after_the_member_concerned_and_nobody_else() {
        let mut listeners = Listeners::default();
        let members: Vec<_> = (0..1000).map(|number| listeners.add(&format!("m{number}"))).collect();
        listeners.tell(&"m7/n/c/1".into());
        listeners.tell(&"m7/n/c/2".into());
        let woken = members.iter().filter(|news| news.told().now_or_never().is_some()).count();
        assert_eq!((woken, members[7].take().len()), (1, 2));
        assert!(members.iter().all(|news| news.take().is_empty() && news.told().now_or_never().is_none()));
    }

    #[test]
    fn who_has_gone_is_told_nothing_and_takes_no_room() {
        let mut listeners = Listeners::default();
        let (gone, stays) = (listeners.add("m0"), listeners.add("m0"));
        drop(gone);
        listeners.tell(&"m0/n/c/1".into());
        assert_eq!(stays.take().len(), 1);
        drop(stays);
        let other = listeners.add("m1");
        assert_eq!((listeners.0.len(), other.take().len()), (1, 0));
    }
}
