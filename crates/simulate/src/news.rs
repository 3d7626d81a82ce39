//! Word that something has changed. Those who wait are woken in the order in which they began to, so that one seed always
//! gives one course of events; tokio's own `watch` wakes them in an order drawn by chance.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

#[derive(Clone, Debug, Default)]
pub struct News(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    latest: AtomicU64,
    told: Notify,
}

/// One who listens.
#[derive(Clone, Debug)]
pub struct Listener {
    news: News,
    seen: u64,
}

impl News {
    pub fn tell(&self, latest: u64) {
        self.0.latest.store(latest, Ordering::Release);
        self.0.told.notify_waiters();
    }

    pub fn latest(&self) -> u64 {
        self.0.latest.load(Ordering::Acquire)
    }

    /// Hears of what comes from now on.
    pub fn listen(&self) -> Listener {
        Listener { news: self.clone(), seen: self.latest() }
    }
}

impl Listener {
    /// What was told last when this was last awake.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Whatever has been told so far is known.
    pub fn catch_up(&mut self) {
        self.seen = self.news.latest();
    }

    /// Returns once there is something new.
    pub async fn changed(&mut self) {
        loop {
            let told = self.news.0.told.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            let latest = self.news.latest();
            if latest != self.seen {
                self.seen = latest;
                return;
            }
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_told_before_the_wait_began_is_heard() {
        let news = News::default();
        let mut listener = news.listen();
        news.tell(1);
        listener.changed().await;
        news.tell(2);
        listener.catch_up();
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(1), listener.changed());
        assert!(waiting.await.is_err());
    }

    #[tokio::test]
    async fn who_began_first_is_woken_first() {
        let (news, order) = (News::default(), std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (mut listener, order) = (news.listen(), std::sync::Arc::clone(&order));
            waiting.spawn(async move {
                listener.changed().await;
                order.lock().unwrap().push(number);
            });
        }
        tokio::task::yield_now().await;
        news.tell(1);
        waiting.join_all().await;
        assert!(order.lock().unwrap().is_sorted());
    }
}
