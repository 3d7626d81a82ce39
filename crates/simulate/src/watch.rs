//! Watches: what is there first, then every change in order, resumed where a client left off.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Cluster,
    call::Call,
    decoder,
    faults::Action,
    news::Listener,
    service::present,
    status_error::StatusError,
    store::{Entry, Store, What, text},
};

/// As often as a quiet watch is told how far it has come.
const BETWEEN_BOOKMARKS: Duration = Duration::from_mins(1);
/// A watch that names no limit of its own ends after this.
const LONGEST: Duration = Duration::from_mins(30);

/// One watch under way.
#[derive(Debug)]
pub struct Watching {
    cluster: Cluster,
    call: Call,
    position: u64,
    restored: u32,
    pending: VecDeque<Value>,
    news: Listener,
    /// Where it lags: versions that have come and are not told yet, and when each is.
    behind: VecDeque<(Instant, u64)>,
    ends: Instant,
    bookmark: Option<Instant>,
    fault: Action,
    told: u64,
    over: bool,
}

impl Watching {
    pub fn begin(cluster: &Cluster, call: Call, store: &Store, fault: Action) -> Result<Self, StatusError> {
        let table = store.table(&call.resource).ok_or_else(StatusError::no_such_path)?;
        let now = Instant::now();
        let limit =
            call.query.number("timeoutSeconds").filter(|seconds| *seconds > 0).map_or(LONGEST, Duration::from_secs);
        let wanted = call.query.get("resourceVersion").to_owned();
        let bookmarks = call.query.is_true("allowWatchBookmarks");
        let mut watching = Self {
            cluster: cluster.clone(),
            position: store.revision,
            restored: store.restored,
            pending: VecDeque::new(),
            news: table.news.listen(),
            behind: VecDeque::new(),
            ends: now + limit,
            bookmark: bookmarks.then(|| now + BETWEEN_BOOKMARKS),
            call,
            fault,
            told: 0,
            over: false,
        };
        watching.start(store, &wanted)?;
        Ok(watching)
    }

    fn start(&mut self, store: &Store, wanted: &str) -> Result<(), StatusError> {
        let Some(table) = store.table(&self.call.resource) else { return Ok(()) };
        let initial = self.call.query.get("sendInitialEvents");
        let whole = ["", "0"].contains(&wanted) && initial != "false" || initial == "true";
        if whole {
            let there = table.objects().values().filter(|object| self.concerns(object));
            let events: Vec<Value> = there.map(|object| self.event("ADDED", object)).collect();
            self.pending.extend(events);
            if initial == "true" && self.call.query.is_true("allowWatchBookmarks") {
                self.pending.push_back(self.bookmark(true));
            }
            return Ok(());
        }
        let from: u64 = decoder::version(wanted).map_err(|problem| StatusError::unforeseen(&problem))?;
        if from < table.forgotten {
            let problem = StatusError::expired(&format!("too old resource version: {from} ({})", table.forgotten));
            self.pending.push_back(json!({"type": "ERROR", "object": problem.to_status()}));
            self.over = true;
        }
        self.position = from;
        Ok(())
    }

    fn concerns(&self, object: &Value) -> bool {
        let place = &self.call.namespace;
        (place.is_empty() || text(object, "/metadata/namespace") == place) && self.call.selector.matches(object)
    }

    /// The next event; none when the watch is over.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            match self.fault {
                Action::Cut(after) if self.told >= after => return None,
                Action::Silence(after) if self.told >= after => return self.stay_silent().await,
                _ => {}
            }
            if let Some(mut event) = self.pending.pop_front() {
                // Columns are told once.
                if self.told > 0 && event.pointer("/object/kind") == Some(&json!("Table")) {
                    event["object"]["columnDefinitions"] = Value::Null;
                }
                self.told += 1;
                return Some(event);
            }
            if self.over {
                return None;
            }
            let until = if let Action::Lag(time) = self.fault { self.lag(time).await } else { u64::MAX };
            self.collect(until);
            if self.over || !self.pending.is_empty() || !self.behind.is_empty() {
                continue;
            }
            if !self.wait().await {
                self.over = true;
                if self.bookmark.is_some() {
                    self.pending.push_back(self.bookmark(false));
                }
            }
        }
    }

    async fn stay_silent(&self) -> Option<Value> {
        tokio::time::sleep_until(self.ends).await;
        None
    }

    /// Waits until something is old enough to be told, and says up to which version that is.
    async fn lag(&mut self, time: Duration) -> u64 {
        loop {
            let Some(newest) = self.newest() else { return u64::MAX };
            let now = Instant::now();
            if now >= self.ends {
                self.behind.clear();
                return self.position;
            }
            if newest > self.behind.back().map_or(self.position, |(_, version)| *version) {
                self.behind.push_back((now + time, newest));
            }
            let due = self.behind.front().map_or(self.ends, |(due, _)| *due);
            if due <= now
                && let Some((_, version)) = self.behind.pop_front()
            {
                return version;
            }
            let _ = tokio::time::timeout_at(due.min(self.ends), self.news.changed()).await;
        }
    }

    /// The version of the newest change of its kind; none where the cluster has begun again, which ends all watches at once.
    fn newest(&self) -> Option<u64> {
        let store = self.cluster.store();
        let table = store.table(&self.call.resource).filter(|_| self.restored == store.restored)?;
        Some(table.news.latest())
    }

    /// Whether there may be more.
    async fn wait(&mut self) -> bool {
        let bookmark = self.bookmark.unwrap_or(self.ends);
        tokio::select! {
            biased;
            () = self.news.changed() => true,
            () = tokio::time::sleep_until(self.ends) => false,
            () = tokio::time::sleep_until(bookmark), if bookmark < self.ends => {
                self.bookmark = Some(bookmark + BETWEEN_BOOKMARKS);
                self.pending.push_back(self.bookmark(false));
                true
            }
        }
    }

    /// Up to a version.
    fn collect(&mut self, until: u64) {
        let cluster = self.cluster.clone();
        let store = cluster.store();
        self.news.catch_up();
        let Some(table) = store.table(&self.call.resource).filter(|_| self.restored == store.restored) else {
            self.over = true;
            return;
        };
        if self.position < table.forgotten {
            let problem =
                StatusError::expired(&format!("too old resource version: {} ({})", self.position, table.forgotten));
            self.pending.push_back(json!({"type": "ERROR", "object": problem.to_status()}));
            self.over = true;
            return;
        }
        let since = table.since(self.position).take_while(|entry| entry.revision <= until);
        let told: Vec<Value> = since.filter_map(|entry| self.told(entry)).collect();
        for event in told {
            if self.fault == Action::Duplicate {
                self.pending.push_back(event.clone());
            }
            self.pending.push_back(event);
        }
        // A version of the future is waited for in silence.
        self.position = self.position.max(store.revision.min(until));
    }

    /// An object that no longer matches is gone to this watch, one that begins to match is new.
    fn told(&self, entry: &Entry) -> Option<Value> {
        let was = entry.before.as_ref().filter(|before| self.concerns(before));
        let is = entry.what != What::Deleted && self.concerns(&entry.object);
        match (was, is) {
            (None, true) => Some(self.event("ADDED", &entry.object)),
            (Some(_), true) => Some(self.event("MODIFIED", &entry.object)),
            (Some(_), false) if entry.what == What::Deleted => Some(self.event("DELETED", &entry.object)),
            (Some(before), false) => {
                let mut last = Value::clone(before);
                last["metadata"]["resourceVersion"] = json!(entry.revision.to_string());
                Some(self.event("DELETED", &Arc::new(last)))
            }
            (None, false) => None,
        }
    }

    fn event(&self, what: &str, object: &Arc<Value>) -> Value {
        json!({"type": what, "object": present(&self.cluster, &self.call, object)})
    }

    fn bookmark(&self, first: bool) -> Value {
        let mut metadata = json!({"resourceVersion": self.position.to_string()});
        if first {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, version) = (&self.call.kind.kind, self.call.api_version());
        json!({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": version, "metadata": metadata}})
    }
}
