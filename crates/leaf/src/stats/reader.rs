//! The reader: on which nodes copies of its host are, what the kubelets there say of their volumes, and whoever connects is told. Nobody is
//! asked anything while nobody connects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::Mutex,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    Told, VolumeStats,
    kubelet::Kubelets,
    summary::{self, CopiedPod, Copies},
};
use crate::ownership::{COPY_OF, HOST, MANAGED_BY, selector};
use cluster::with_causes;
use domain::{
    printable::short,
    volume::{DRIVER, HostId},
};

/// How long what was read is told again.
const BELIEVED: Duration = Duration::from_secs(5);
/// For all of it. Who asks waits a little longer.
const LOOK: Duration = Duration::from_secs(4);
/// For one kubelet.
const PATIENCE: Duration = Duration::from_secs(3);
/// Until one that could not be read is asked again, after the others.
const AGAIN: Duration = Duration::from_secs(30);
/// For whoever has connected to take what he is told.
const TAKEN: Duration = Duration::from_secs(10);
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Kubelets at a time, and connections.
const AT_ONCE: usize = 16;
/// Pods at a time, of a list.
const PAGE: u32 = 500;
/// Of kubelets that could not be read, how many are named, and in how many bytes.
const NAMED: usize = 5;
const LONGEST: usize = 200;
/// Of volumes, in bytes: whoever asks takes 4 MiB, and those that could not be read are told besides.
const ROOM: usize = 7 << 19;

/// By the names of nodes: since when, and why.
type Unread = BTreeMap<String, (Instant, String)>;

/// Reads for one host, or for all where none is named.
pub struct Reader {
    client: Client,
    kubelets: Kubelets,
    host: Option<HostId>,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    at: Option<Instant>,
    line: Arc<Vec<u8>>,
    unread: Unread,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Reader").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Reader {
    pub fn new(client: Client, kubelets: Kubelets, host: Option<HostId>) -> Self {
        Self { client, kubelets, host, said: Mutex::default() }
    }

    /// Tells whoever connects, until this is dropped.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut listening = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = listening.join_next() => {}
                accepted = listener.accept() => match accepted {
                    // One who finds no place is told nothing, and comes again.
                    Ok((stream, _)) if listening.len() < AT_ONCE => {
                        listening.spawn(Arc::clone(&self).tell(stream));
                    }
                    Ok(_) => tracing::warn!("a connection was closed: {AT_ONCE} are open"),
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    async fn tell(self: Arc<Self>, mut stream: TcpStream) {
        let line = self.line().await;
        let telling = async {
            stream.write_all(&line).await?;
            stream.shutdown().await
        };
        if !matches!(timeout(TAKEN, telling).await, Ok(Ok(()))) {
            tracing::debug!("what was told was not taken");
        }
    }

    /// All that there is to tell, as JSON in one line, read anew where that was long ago.
    pub async fn line(&self) -> Arc<Vec<u8>> {
        let mut said = self.said.lock().await;
        if said.at.is_none_or(|at| at.elapsed() >= BELIEVED) {
            let told = self.look(&mut said.unread).await;
            let mut line = serde_json::to_vec(&told).unwrap_or_default();
            line.push(b'\n');
            (said.at, said.line) = (Some(Instant::now()), Arc::new(line));
        }
        Arc::clone(&said.line)
    }

    async fn look(&self, unread: &mut Unread) -> Told {
        let until = Instant::now() + LOOK;
        let listed = timeout_at(until, self.copies()).await.unwrap_or_else(|_| Err(late(LOOK)));
        let copies = match listed {
            Ok(copies) => copies,
            Err(reason) => {
                tracing::warn!(reason, "pods cannot be listed, and nothing is told of their volumes");
                return Told { unread: vec![format!("list pods: {}", short(&reason, LONGEST))], ..Told::default() };
            }
        };
        unread.retain(|node, _| copies.contains_key(node));
        let is_due = |node: &&String| unread.get(*node).is_none_or(|(since, _)| since.elapsed() >= AGAIN);
        let mut due: Vec<String> = copies.keys().filter(is_due).cloned().collect();
        due.sort_by_key(|node| unread.get(node).map(|(since, _)| *since));
        let (of_all, mut begun, mut ended) = (due.len(), BTreeSet::new(), BTreeSet::new());
        let mut volumes = Line::new(ROOM);
        let copies = &copies;
        let asking = due.into_iter().map(|node| {
            begun.insert(node.clone());
            async move {
                let answer = self.ask(&node, &copies[&node]).await;
                (node, answer)
            }
        });
        let mut answers = stream::iter(asking).buffer_unordered(AT_ONCE);
        while let Ok(Some((node, answer))) = timeout_at(until, answers.next()).await {
            ended.insert(node.clone());
            match answer {
                Ok(told) => {
                    unread.remove(&node);
                    for one in told {
                        volumes.take(one);
                    }
                }
                Err(reason) => note(unread, &node, reason),
            }
        }
        drop(answers);
        // Whom nobody has asked yet comes first at the next look.
        for node in begun.difference(&ended) {
            note(unread, node, late(LOOK));
        }
        let not_asked = of_all - begun.len();
        let waiting = (not_asked > 0).then(|| format!("kubelets that there was no time to ask: {not_asked}"));
        let named = unread.iter().map(|(node, (_, reason))| format!("node {node}: {}", short(reason, LONGEST)));
        Told { unread: named.take(NAMED).chain(waiting).chain(volumes.lacking()).collect(), volumes: volumes.told }
    }

    /// The copies that have claims, by their nodes.
    async fn copies(&self) -> Result<BTreeMap<String, Copies>, String> {
        let ours = self.host.as_ref().map_or_else(|| format!("{MANAGED_BY}={DRIVER},{HOST}"), selector);
        let (pods, mut wanted) =
            (Api::<Pod>::all(self.client.clone()), ListParams::default().labels(&ours).limit(PAGE));
        let mut copies: BTreeMap<String, Copies> = BTreeMap::new();
        loop {
            let page = pods.list(&wanted).await.map_err(|error| with_causes(&error))?;
            for (node, own, copy) in page.items.iter().filter_map(copy) {
                copies.entry(node).or_default().insert(own, copy);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => wanted = wanted.continue_token(&token),
                None => return Ok(copies),
            }
        }
    }

    async fn ask(&self, node: &str, copies: &Copies) -> Result<Vec<VolumeStats>, String> {
        let asking = async {
            let found = Api::<Node>::all(self.client.clone()).get(node).await;
            let found = found.map_err(|error| format!("get node {node}: {}", with_causes(&error)))?;
            let page =
                self.kubelets.summary(&found).await.map_err(|reason| format!("get its /stats/summary: {reason}"))?;
            summary::volumes(&page, copies).map_err(|error| format!("its /stats/summary cannot be read: {error}"))
        };
        timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(late(PATIENCE)))
    }
}

/// The node of a copy that has claims, its UID, and what it is.
fn copy(pod: &Pod) -> Option<(String, String, CopiedPod)> {
    let spec = pod.spec.as_ref()?;
    let claimed = spec.volumes.iter().flatten().filter(|volume| volume.persistent_volume_claim.is_some());
    let volumes: BTreeSet<String> = claimed.map(|volume| volume.name.clone()).collect();
    let of = pod.annotations().get(COPY_OF).filter(|uid| !uid.is_empty())?.clone();
    (!volumes.is_empty()).then_some(())?;
    Some((spec.node_name.clone()?, pod.uid()?, CopiedPod { of, volumes }))
}

/// What is told, as long as there is room for it in the line: who asks gives up one that is too long, with all that is in it.
struct Line {
    told: Vec<VolumeStats>,
    room: usize,
    left_out: usize,
}

impl Line {
    fn new(room: usize) -> Self {
        Self { told: Vec::new(), room, left_out: 0 }
    }

    fn take(&mut self, one: VolumeStats) {
        // With a comma behind it.
        let length = serde_json::to_vec(&one).map_or(0, |text| text.len() + 1);
        match self.room.checked_sub(length) {
            Some(room) => {
                self.room = room;
                self.told.push(one);
            }
            None => self.left_out += 1,
        }
    }

    fn lacking(&self) -> Option<String> {
        let left_out = self.left_out;
        (left_out > 0).then(|| format!("volumes left out: {left_out}, as the others are all that can be told at once"))
    }
}

/// Said once in the log for as long as it is the same.
fn note(unread: &mut Unread, node: &str, reason: String) {
    if unread.get(node).is_none_or(|(_, before)| *before != reason) {
        tracing::warn!(node, reason, "its kubelet cannot be read, and nothing is told of volumes there");
    }
    unread.insert(node.to_owned(), (Instant::now(), reason));
}

fn late(patience: Duration) -> String {
    format!("no answer within {} s", patience.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{super::Figures, *};

    #[test]
    fn volumes_for_which_there_is_no_room_in_the_line_are_counted() {
        let one = VolumeStats {
            pod_uid: "u".to_owned(),
            volume: "data".to_owned(),
            time: String::new(),
            figures: Figures::default(),
        };
        let mut volumes = Line::new(2 * (serde_json::to_vec(&one).unwrap().len() + 1));
        for _ in 0..2 {
            volumes.take(one.clone());
        }
        assert_eq!((volumes.told.len(), volumes.lacking()), (2, None));
        volumes.take(one);
        assert!(volumes.told.len() == 2 && volumes.lacking().unwrap().starts_with("volumes left out: 1, "));
    }
}
