//! What is under way, by the namespaces of the pods: logs that are followed, commands, forwarded ports. All of it comes from the host's API
//! server, whoever asks there, so that a user with very many would take the places of all others.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use kube::client::Body;

#[derive(Debug)]
pub(super) struct Conversations {
    under_way: Mutex<HashMap<String, usize>>,
    all: usize,
}

/// One of a namespace, until this is dropped.
#[derive(Debug)]
pub(super) struct Conversation {
    conversations: Arc<Conversations>,
    namespace: String,
}

/// What is answered, and the conversation that it is part of until all of it is told.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    _conversation: Option<Arc<Conversation>>,
}

impl Conversations {
    pub(super) fn of_connections(all: usize) -> Self {
        Self { under_way: Mutex::default(), all }
    }

    /// Whether the namespace has fewer than it leaves to all others.
    pub(super) fn has_room(&self, namespace: &str) -> bool {
        self.lets_in(&self.lock(), namespace)
    }

    /// None where it has not.
    pub(super) fn begin(self: &Arc<Self>, namespace: &str) -> Option<Conversation> {
        let mut under_way = self.lock();
        if !self.lets_in(&under_way, namespace) {
            return None;
        }
        *under_way.entry(namespace.to_owned()).or_default() += 1;
        Some(Conversation { conversations: Arc::clone(self), namespace: namespace.to_owned() })
    }

    fn lets_in(&self, under_way: &HashMap<String, usize>, namespace: &str) -> bool {
        let left = self.all.saturating_sub(under_way.values().sum());
        under_way.get(namespace).copied().unwrap_or_default() < left
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let mut under_way = self.conversations.lock();
        let left = under_way.remove(&self.namespace).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            under_way.insert(std::mem::take(&mut self.namespace), left);
        }
    }
}

impl Answer {
    pub(super) fn of(conversation: Arc<Conversation>, body: Body) -> Self {
        Self { body, _conversation: Some(conversation) }
    }
}

impl From<Body> for Answer {
    fn from(body: Body) -> Self {
        Self { body, _conversation: None }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_has_no_more_conversations_than_it_leaves_to_all_others_and_gives_them_back() {
        let conversations = Arc::new(Conversations::of_connections(256));
        let begun = |namespace: &str| -> Vec<Conversation> {
            (0..300).filter_map(|_| conversations.begin(namespace)).collect()
        };
        let greedy = begun("greedy");
        assert_eq!(greedy.len(), 128);
        assert!(!conversations.has_room("greedy") && conversations.has_room("a"));
        let others: Vec<Vec<Conversation>> = ["a", "b", "c"].into_iter().map(begun).collect();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [64, 32, 16]);
        let last = conversations.begin("shop");
        assert!(last.is_some(), "a namespace with nothing under way is kept out");
        drop(greedy);
        assert!(conversations.begin("greedy").is_some() && conversations.begin("shop").is_some());
        drop((others, last));
        assert!(conversations.lock().is_empty());
    }

    #[tokio::test]
    async fn log_is_under_way_until_all_of_it_is_told() {
        let conversations = Arc::new(Conversations::of_connections(2));
        let conversation = conversations.begin("shop").map(Arc::new).unwrap();
        let answer = Answer::of(conversation, Body::from(b"line".to_vec()));
        assert!(conversations.begin("shop").is_none());
        let told = http_body_util::BodyExt::collect(answer).await.unwrap().to_bytes();
        assert_eq!(&told[..], b"line");
        assert!(conversations.begin("shop").is_some());
    }
}
