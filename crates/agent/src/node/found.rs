//! What was found in a member for each of its virtual nodes a moment ago. Its nodes may come and go under ever new names, as where a cloud makes
//! them when they are needed: nothing is kept of those that nobody asks for any more.

use std::collections::HashMap;

use tokio::time::Instant;

use super::{BELIEVED, ObservedStatus};

/// By the names of the virtual nodes.
#[derive(Debug, Default)]
pub(super) struct Found(HashMap<String, (Instant, ObservedStatus)>);

impl Found {
    pub(super) fn get(&self, name: &str) -> Option<&ObservedStatus> {
        self.0.get(name).filter(|(since, _)| since.elapsed() < BELIEVED).map(|(_, found)| found)
    }

    pub(super) fn put(&mut self, name: &str, found: ObservedStatus) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|_, (since, _)| since.elapsed() < BELIEVED);
        }
        self.0.insert(name.to_owned(), (Instant::now(), found));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::room::Amounts, *};

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_believed_for_a_moment_and_nothing_is_kept_of_nodes_that_have_gone() {
        let mut all = Found::default();
        let found = ObservedStatus {
            room: Amounts::new(),
            version: "v1.34.0".to_owned(),
            architecture: "amd64".to_owned(),
            kubelet_api: None,
            features: Vec::new(),
        };
        for number in 0..1000 {
            let name = format!("kosmos-m-n{number}");
            all.put(&name, found.clone());
            assert_eq!(all.get(&name), Some(&found));
            tokio::time::advance(BELIEVED).await;
            assert_eq!(all.get(&name), None);
        }
        assert!(all.0.len() < 10, "{}", all.0.len());
    }
}
