//! The reader: on which nodes copies of its host are, what the kubelets there say of their volumes, and whoever connects is told. Nobody is
//! asked anything while nobody connects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::Mutex,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{ReaderAnswer, VolumeStats, copies::Listing, kubelet::Kubelets, share, summary::Copies};
use crate::ownership::{HOST, MANAGED_BY, selector};
use cluster::with_causes;
use domain::{
    printable::short,
    volume::{DRIVER, HostId},
};

/// How long what was read is told again.
const BELIEVED: Duration = Duration::from_secs(5);
/// For all of it. Who asks waits a little longer.
const LOOK: Duration = Duration::from_secs(4);
/// Of that, for the list of pods.
const LIST: Duration = Duration::from_secs(2);
/// For one kubelet.
const PATIENCE: Duration = Duration::from_secs(3);
/// Until one that could not be read has its turn again.
const AGAIN: Duration = Duration::from_secs(30);
/// For whoever has connected to take what he is told.
const TAKEN: Duration = Duration::from_secs(10);
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Kubelets at a time, and connections.
const AT_ONCE: usize = 16;
/// Of kubelets that could not be read, how many are named, and in how many bytes.
const NAMED: usize = 5;
const LONGEST: usize = 200;
/// Of volumes, in bytes: whoever asks takes 4 MiB, and those that could not be read are told besides.
const ROOM: usize = 7 << 19;

/// By the names of nodes.
type Asked = BTreeMap<String, Turn>;

/// What is known of a kubelet that was asked.
struct Turn {
    /// Not before.
    next: Instant,
    /// Among those that may be asked, who waits since the earliest comes first.
    since: Instant,
    /// Why it could not be read.
    fault: Option<String>,
}

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
    listing: Listing,
    asked: Asked,
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
            tracing::debug!("an answer was not taken");
        }
    }

    /// All that there is to tell, as JSON in one line, read again where that was long ago.
    pub async fn line(&self) -> Arc<Vec<u8>> {
        let mut said = self.said.lock().await;
        if said.at.is_none_or(|at| at.elapsed() >= BELIEVED) {
            let Said { listing, asked, .. } = &mut *said;
            let told = self.look(listing, asked).await;
            let mut line = serde_json::to_vec(&told).unwrap_or_default();
            line.push(b'\n');
            (said.at, said.line) = (Some(Instant::now()), Arc::new(line));
        }
        Arc::clone(&said.line)
    }

    async fn look(&self, listing: &mut Listing, asked: &mut Asked) -> ReaderAnswer {
        let until = Instant::now() + LOOK;
        let ours = self.host.as_ref().map_or_else(|| format!("{MANAGED_BY}={DRIVER},{HOST}"), selector);
        let unlisted = listing.go_on(&self.client, &ours, LIST).await.err().map(|reason| {
            tracing::warn!(reason, "not all pods are listed: volumes of the others are left out");
            format!("list pods: {}", short(&reason, LONGEST))
        });
        let copies = listing.by_node();
        asked.retain(|node, _| copies.contains_key(node));
        let due = due(asked, copies.keys());
        let of_all = due.len();
        let (begun, told) = self.ask_all(due, &copies, asked, until).await;
        let (volumes, left_out) = share::line(told, ROOM);
        let faults = asked.iter().filter_map(|(node, turn)| {
            let reason = turn.fault.as_ref()?;
            Some(format!("node {node}: {}", short(reason, LONGEST)))
        });
        let lacking = [
            ("kubelets that there was no time to ask", of_all - begun),
            ("copies left out, as the others have all volumes that can be told at once", listing.left_out),
            ("volumes left out, as the others are all that can be told at once", left_out),
        ];
        let lacking = lacking.into_iter().filter(|(_, count)| *count > 0);
        let lacking = lacking.map(|(what, count)| format!("{what}: {count}"));
        ReaderAnswer { unread: unlisted.into_iter().chain(faults.take(NAMED)).chain(lacking).collect(), volumes }
    }

    /// As many in their order as there is time for: how many those are, and what they say.
    async fn ask_all(
        &self,
        due: Vec<String>,
        copies: &BTreeMap<String, Copies>,
        asked: &mut Asked,
        until: Instant,
    ) -> (usize, Vec<VolumeStats>) {
        let (mut begun, mut ended, mut told) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let asking = due.into_iter().map(|node| {
            begun.insert(node.clone());
            async move {
                let answer = self.ask(&node, &copies[&node]).await;
                (node, answer)
            }
        });
        let mut answers = stream::iter(asking).buffer_unordered(AT_ONCE);
        while let Ok(Some((node, answer))) = timeout_at(until, answers.next()).await {
            let fault = answer.map(|mut volumes| told.append(&mut volumes)).err();
            note(asked, &node, fault);
            ended.insert(node);
        }
        drop(answers);
        // There was less time for it than it may take: it comes before others next time.
        for node in begun.difference(&ended) {
            note(asked, node, Some(late(LOOK)));
            asked.entry(node.clone()).and_modify(|turn| turn.since = Instant::now());
        }
        (begun.len(), told)
    }

    async fn ask(&self, node: &str, copies: &Copies) -> Result<Vec<VolumeStats>, String> {
        let asking = async {
            let found = Api::<Node>::all(self.client.clone()).get(node).await;
            let found = found.map_err(|error| format!("get node {node}: {}", with_causes(&error)))?;
            let told = self.kubelets.volumes(&found, copies).await;
            told.map_err(|reason| format!("get its /stats/summary: {reason}"))
        };
        timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(late(PATIENCE)))
    }
}

/// Those that may be asked, in their order: who never was comes first, and then who waits for the longest. So all have their turn, also
/// where there is not time for all of them at one look.
fn due<'a>(asked: &Asked, nodes: impl Iterator<Item = &'a String>) -> Vec<String> {
    let now = Instant::now();
    let mut due: Vec<String> =
        nodes.filter(|&node| asked.get(node).is_none_or(|turn| turn.next <= now)).cloned().collect();
    due.sort_by_key(|node| asked.get(node).map(|turn| turn.since));
    due
}

/// Why it cannot be read is said once in the log for as long as it is the same.
fn note(asked: &mut Asked, node: &str, fault: Option<String>) {
    let before = asked.get(node).and_then(|turn| turn.fault.as_ref());
    if let Some(reason) = fault.as_ref().filter(|reason| before != Some(*reason)) {
        tracing::warn!(node, reason, "the node's kubelet cannot be read: volumes there are left out");
    }
    let next = Instant::now() + if fault.is_some() { AGAIN } else { Duration::ZERO };
    asked.insert(node.to_owned(), Turn { next, since: next, fault });
}

fn late(patience: Duration) -> String {
    format!("no answer within {} s", patience.as_secs())
}
