//! Which copies of a host run in a member and have claims, by their nodes. Whoever makes pods there may write the marks of a copy on his:
//! what is kept of them has bounds, and a pod that no kubelet runs leads to no node, whichever it names.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    pin::pin,
    time::Duration,
};

use futures::AsyncBufReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource, ResourceExt, api::ListParams, core::Request};
use tokio::time::{Instant, timeout_at};

use super::{
    share::shared,
    summary::{CopiedPod, Copies},
};
use crate::{items::Items, limits::overlong, ownership::COPY_OF};
use cluster::{Reading, with_causes};

/// Pods at a time, of a list; and where so many have not come in time.
const PAGE: u32 = 500;
const FEW: u32 = 10;
/// Of a pod, in bytes: one that is longer is left out.
const LONGEST: usize = 2 << 20;
/// Nobody but its kubelet writes that of one.
const RUNNING: &str = "status.phase=Running";
/// Volumes that are asked for: more than can be told at once.
const MOST: usize = 20_000;
/// Of one copy: a pod that names more is not run.
const MOST_OF_A_POD: usize = 200;
/// A UID is no longer.
const LONGEST_UID: usize = 64;

/// A copy, and where it runs.
struct Running {
    node: String,
    uid: String,
    copy: CopiedPod,
}

/// By namespace.
#[derive(Default)]
struct Found {
    all: BTreeMap<String, Vec<Running>>,
    volumes: usize,
    left_out: usize,
}

/// The copies there, by a list that goes on at the next look where one has no time for all of it: long pods of others hide none.
#[derive(Default)]
pub(super) struct Listing {
    /// By their nodes, those of the last list that has come to its end; and how many there was no room for.
    whole: BTreeMap<String, Copies>,
    pub(super) left_out: usize,
    /// Of the list under way, and how to ask for what follows.
    found: Found,
    next: Option<String>,
    /// Its pods are long, or do not come at all.
    is_slow: bool,
}

impl Listing {
    /// Reads on for so long. Why it has not come to the end.
    pub(super) async fn go_on(&mut self, client: &Client, ours: &str, time: Duration) -> Result<(), String> {
        let (until, mut is_stuck) = (Instant::now() + time, true);
        loop {
            let limit = if self.is_slow { FEW } else { PAGE };
            let mut wanted = ListParams::default().labels(ours).fields(RUNNING).limit(limit);
            wanted.continue_token.clone_from(&self.next);
            match timeout_at(until, page(client, &wanted)).await {
                Ok(Ok((found, next))) => {
                    self.found.add(found);
                    (self.next, is_stuck) = (next, false);
                }
                // It may be another one by now.
                Ok(Err(reason)) => {
                    (self.found, self.next) = (Found::default(), None);
                    return Err(reason);
                }
                Err(_) => {
                    self.is_slow |= is_stuck;
                    return Err(format!("no end of the list within {} s: it goes on at the next look", time.as_secs()));
                }
            }
            if self.next.is_none() {
                (self.whole, self.left_out) = std::mem::take(&mut self.found).by_node();
                self.is_slow = false;
                return Ok(());
            }
        }
    }

    /// All that are known, by their nodes. One that has gone since is told of by no kubelet.
    pub(super) fn by_node(&self) -> BTreeMap<String, Copies> {
        let mut nodes = self.whole.clone();
        for Running { node, uid, copy } in self.found.all.values().flatten() {
            nodes.entry(node.clone()).or_default().insert(uid.clone(), copy.clone());
        }
        nodes
    }
}

/// The copies on one page, and how to ask for the next one.
async fn page(client: &Client, wanted: &ListParams) -> Result<(Found, Option<String>), String> {
    let request = Request::new(Pod::url_path(&(), None)).list(wanted);
    let mut request = request.map_err(|error| error.to_string())?;
    request.extensions_mut().insert(Reading::InPieces);
    let mut page = pin!(client.request_stream(request).await.map_err(|error| with_causes(&error))?);
    let (mut items, mut found, mut count) = (Items::of("items", LONGEST), Found::default(), 0);
    loop {
        let piece = page.fill_buf().await.map_err(|error| with_causes(&error))?;
        if piece.is_empty() {
            break;
        }
        let read = piece.len();
        let Ok(()) = items.feed(piece, &mut |item| -> Result<(), Infallible> {
            count += 1;
            // One that nobody understands does not hide the others.
            if let Ok(pod) = serde_json::from_slice(item) {
                found.take(&pod);
            }
            Ok(())
        });
        page.consume_unpin(read);
        if let Some(reason) = overlong(count, items.unfinished()) {
            return Err(reason);
        }
    }
    let head = items.head().map_err(|error| format!("what is answered is no list: {error}"))?;
    Ok((found, Some(head.next).filter(|next| !next.is_empty())))
}

impl Found {
    fn take(&mut self, pod: &Pod) {
        let Some(found) = copy(pod) else { return };
        self.volumes += found.copy.volumes.len();
        self.all.entry(found.copy.namespace.clone()).or_default().push(found);
        self.bound();
    }

    fn add(&mut self, other: Self) {
        for (namespace, mut more) in other.all {
            self.all.entry(namespace).or_default().append(&mut more);
        }
        self.volumes += other.volumes;
        self.left_out += other.left_out;
        self.bound();
    }

    /// Not for each of many.
    fn bound(&mut self) {
        if self.volumes > 2 * MOST {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.left_out += shared(&mut self.all, MOST, |one| one.copy.volumes.len());
        self.volumes = self.all.values().flatten().map(|one| one.copy.volumes.len()).sum();
    }

    fn by_node(mut self) -> (BTreeMap<String, Copies>, usize) {
        self.cut();
        let mut nodes: BTreeMap<String, Copies> = BTreeMap::new();
        for Running { node, uid, copy } in self.all.into_values().flatten() {
            nodes.entry(node).or_default().insert(uid, copy);
        }
        (nodes, self.left_out)
    }
}

/// None where it is no copy, or has no claims.
fn copy(pod: &Pod) -> Option<Running> {
    let spec = pod.spec.as_ref()?;
    let claimed = spec.volumes.iter().flatten().filter(|volume| volume.persistent_volume_claim.is_some());
    let volumes: BTreeSet<String> = claimed.take(MOST_OF_A_POD).map(|volume| volume.name.clone()).collect();
    let of = pod.annotations().get(COPY_OF).filter(|uid| !uid.is_empty() && uid.len() <= LONGEST_UID)?.clone();
    (!volumes.is_empty()).then_some(())?;
    let copy = CopiedPod { namespace: pod.namespace()?, name: pod.name_any(), of, volumes };
    Some(Running { node: spec.node_name.clone()?, uid: pod.uid()?, copy })
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn pod(namespace: &str, name: &str, of: &str, volumes: usize) -> Pod {
        let volume = |at| json!({"name": format!("v{at}"), "persistentVolumeClaim": {"claimName": "leaf"}});
        let metadata = json!({"namespace": namespace, "name": name, "uid": format!("{namespace}/{name}"), "annotations": {(COPY_OF): of}});
        let spec = json!({"nodeName": "n", "containers": [], "volumes": (0..volumes).map(volume).collect::<Vec<_>>()});
        from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn pod_that_says_it_is_a_copy_is_kept_with_as_much_as_a_copy_has() {
        let one = copy(&pod("shop", "db", "u", 1000)).unwrap();
        assert_eq!((one.node.as_str(), one.uid.as_str(), one.copy.volumes.len()), ("n", "shop/db", MOST_OF_A_POD));
        assert_eq!((one.copy.namespace.as_str(), one.copy.name.as_str(), one.copy.of.as_str()), ("shop", "db", "u"));
        let long = "u".repeat(LONGEST_UID + 1);
        for (of, volumes) in [("", 1), (long.as_str(), 1), ("u", 0)] {
            assert!(copy(&pod("shop", "db", of, volumes)).is_none(), "{of:?}");
        }
    }

    #[test]
    fn namespace_full_of_what_looks_like_copies_leaves_those_of_the_others() {
        let mut found = Found::default();
        for number in 0..(3 * MOST).div_ceil(MOST_OF_A_POD) {
            found.take(&pod("a", &format!("p{number}"), "u", MOST_OF_A_POD));
        }
        for number in 0..50 {
            found.take(&pod("shop", &format!("db-{number}"), "u", 2));
        }
        assert!(found.volumes <= 2 * MOST, "{}", found.volumes);
        let (nodes, left_out) = found.by_node();
        let of = |namespace: &str| nodes["n"].values().filter(|copy| copy.namespace == namespace).count();
        assert_eq!((of("shop"), of("a")), (50, (MOST - 100) / MOST_OF_A_POD));
        assert_eq!(left_out, (3 * MOST).div_ceil(MOST_OF_A_POD) - of("a"));
    }
}
