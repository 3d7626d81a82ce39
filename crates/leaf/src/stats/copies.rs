//! Which copies of a host run in a member and have claims, by their nodes. Whoever makes pods there may write the marks of a copy on his:
//! what is kept of them has bounds, and a pod that no kubelet runs leads to no node, whichever it names.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource, ResourceExt, api::ListParams, core::Request};
use tokio::time::{Instant, timeout_at};

use super::{
    share::shared,
    summary::{CopiedPod, Copies},
};
use crate::{limits::overlong, ownership::COPY_OF};
use cluster::{items::Items, read_list, with_causes};

/// Pods at a time, of a list; and where so many have not come in time, of which half are asked for where those do not come either, and so on.
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
    /// Looks in which not one page has come, as where pods are long: fewer are asked for at a time.
    in_vain: u32,
    /// The API server has forgotten what was there when the list began, and nothing has come since.
    is_forgotten: bool,
}

/// Why a page has not come.
#[derive(Debug)]
enum Unread {
    /// What was there when the list began is forgotten, as an API server does after some minutes. By this token the list goes on among what
    /// is there now.
    Forgotten(String),
    Other(String),
}

impl std::fmt::Display for Unread {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forgotten(_) => out.write_str("the API server forgets what was there before it has told all of it"),
            Self::Other(reason) => out.write_str(reason),
        }
    }
}

impl From<kube::Error> for Unread {
    fn from(error: kube::Error) -> Self {
        let next = match &error {
            kube::Error::Api(status) if status.code == 410 => {
                status.metadata.as_ref().and_then(|metadata| metadata.continue_.clone()).filter(|next| !next.is_empty())
            }
            kube::Error::SerdeError(error) => return Self::Other(format!("what is answered is no list: {error}")),
            _ => None,
        };
        next.map_or_else(|| Self::Other(with_causes(&error)), Self::Forgotten)
    }
}

impl Listing {
    /// Reads on for so long. Why it has not come to the end.
    pub(super) async fn go_on(&mut self, client: &Client, ours: &str, time: Duration) -> Result<(), String> {
        let (until, before) = (Instant::now() + time, self.next.clone());
        loop {
            let mut wanted = ListParams::default().labels(ours).fields(RUNNING).limit(at_a_time(self.in_vain));
            wanted.continue_token.clone_from(&self.next);
            let Ok(answer) = timeout_at(until, page(client, &wanted)).await else {
                self.in_vain += u32::from(self.next == before);
                return Err(format!("no end of the list within {} s: it goes on at the next look", time.as_secs()));
            };
            self.take(answer)?;
            if self.next.is_none() {
                return Ok(());
            }
        }
    }

    /// What has come is kept, but for that of a list that cannot go on: whatever is asked next may be another API server.
    fn take(&mut self, answer: Result<(Found, Option<String>), Unread>) -> Result<(), String> {
        match answer {
            Ok((found, next)) => {
                self.found.add(found);
                (self.next, self.is_forgotten) = (next, false);
                // Not all that follows need be as long as what did not come.
                self.in_vain = if self.in_vain > 1 { self.in_vain - 1 } else { self.in_vain };
            }
            // Where it forgets once more before anything has come, it would be asked without end.
            Err(Unread::Forgotten(next)) if !self.is_forgotten => (self.next, self.is_forgotten) = (Some(next), true),
            Err(unread) => {
                (self.found, self.next, self.is_forgotten) = (Found::default(), None, false);
                return Err(unread.to_string());
            }
        }
        if self.next.is_none() {
            (self.whole, self.left_out) = std::mem::take(&mut self.found).by_node();
            self.in_vain = 0;
        }
        Ok(())
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

/// How many pods are asked for at a time, after so many looks in which none have come.
fn at_a_time(in_vain: u32) -> u32 {
    match in_vain {
        0 => PAGE,
        looks => FEW.checked_shr(looks - 1).unwrap_or_default().max(1),
    }
}

/// The copies on one page, and how to ask for the next one.
async fn page(client: &Client, wanted: &ListParams) -> Result<(Found, Option<String>), Unread> {
    let request = Request::new(Pod::url_path(&(), None)).list(wanted).map_err(kube::Error::BuildRequest)?;
    let (mut found, mut count) = (Found::default(), 0);
    let head = read_list(client, request, Items::of("items", LONGEST), |items, piece| {
        let Ok(()) = items.feed(piece, &mut |item| -> Result<(), Infallible> {
            count += 1;
            // One that nobody understands does not hide the others.
            if let Ok(pod) = serde_json::from_slice(item) {
                found.take(&pod);
            }
            Ok(())
        });
        overlong(count, items.unfinished()).map_or(Ok(()), |reason| Err(Unread::Other(reason)))
    });
    let head = head.await?;
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

    /// A page with one copy.
    fn page_of(name: &str, next: Option<&str>) -> (Found, Option<String>) {
        let mut found = Found::default();
        found.take(&pod("shop", name, "u", 1));
        (found, next.map(str::to_owned))
    }

    fn names(listing: &Listing) -> String {
        let names: Vec<String> = listing.by_node().into_values().flatten().map(|(_, copy)| copy.name).collect();
        names.join(" ")
    }

    #[test]
    fn list_whose_beginning_is_forgotten_keeps_what_has_come_and_goes_on_by_the_token_of_the_refusal() {
        let mut listing = Listing::default();
        let forgotten = || Err(Unread::Forgotten("now".to_owned()));
        for (before, after) in [("a", "b"), ("b", "c")] {
            listing.take(Ok(page_of(before, Some(after)))).unwrap();
            listing.take(forgotten()).unwrap();
            assert_eq!(listing.next.as_deref(), Some("now"));
        }
        listing.take(Ok(page_of("c", None))).unwrap();
        assert_eq!((names(&listing).as_str(), listing.next.as_deref()), ("a b c", None));
    }

    #[test]
    fn list_that_is_forgotten_again_before_anything_has_come_or_that_cannot_be_read_begins_again() {
        for last in [Unread::Forgotten("again".to_owned()), Unread::Other("HTTP 500".to_owned())] {
            let mut listing = Listing::default();
            listing.take(Ok(page_of("of-before", None))).unwrap();
            listing.take(Ok(page_of("a", Some("b")))).unwrap();
            listing.take(Err(Unread::Forgotten("now".to_owned()))).unwrap();
            let words = last.to_string();
            assert_eq!(listing.take(Err(last)).unwrap_err(), words);
            assert_eq!((names(&listing).as_str(), listing.next.as_deref()), ("of-before", None));
        }
    }

    #[test]
    fn pods_that_do_not_come_are_asked_for_in_ever_smaller_numbers_down_to_one() {
        let asked: Vec<u32> = (0..6).chain([100]).map(at_a_time).collect();
        assert_eq!(asked, [500, 10, 5, 2, 1, 1, 1]);
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
