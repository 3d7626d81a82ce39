//! Which copies of a host run in a member and have claims, by their nodes. Whoever makes pods there may write the marks of a copy on his:
//! what is kept of them has bounds, and a pod that no kubelet runs leads to no node, whichever it names.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    pin::pin,
};

use futures::AsyncBufReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource, ResourceExt, api::ListParams, core::Request};

use super::{
    share::shared,
    summary::{CopiedPod, Copies},
};
use crate::{items::Items, limits::overlong, ownership::COPY_OF};
use cluster::{Reading, with_causes};

/// Pods at a time, of a list.
const PAGE: u32 = 500;
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

/// The copies, by their nodes, and how many there was no room for.
pub(super) async fn running(client: &Client, ours: &str) -> Result<(BTreeMap<String, Copies>, usize), String> {
    let mut wanted = ListParams::default().labels(ours).fields(RUNNING).limit(PAGE);
    let (mut found, mut count) = (Found::default(), 0);
    loop {
        let request = Request::new(Pod::url_path(&(), None)).list(&wanted);
        let mut request = request.map_err(|error| error.to_string())?;
        request.extensions_mut().insert(Reading::InPieces);
        let mut page = pin!(client.request_stream(request).await.map_err(|error| with_causes(&error))?);
        let mut items = Items::of_list();
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
        if head.next.is_empty() {
            return Ok(found.by_node());
        }
        wanted.continue_token = Some(head.next);
    }
}

impl Found {
    fn take(&mut self, pod: &Pod) {
        let Some(found) = copy(pod) else { return };
        self.volumes += found.copy.volumes.len();
        self.all.entry(found.copy.namespace.clone()).or_default().push(found);
        // Not for each of many.
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
