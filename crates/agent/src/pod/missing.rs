//! ConfigMaps and Secrets that pods name, and the host has not: the member has empty ones in their place, which are filled where the host's come
//! later. A kubelet gives no pod that runs what its copy does not name, and nobody else can have a name that is taken.

use serde_json::{Value, json};

use super::{
    super::{
        cache::Cached,
        host_pod::HostPod,
        object::{Place, mark, read},
    },
    Pods, length,
    names::{Kind, Name, Need, VERSION, named, rewritten},
    rejection::{PodRejection, denied},
};

/// In the place of a version, on an empty one.
const NONE: &str = "none";

/// Whether the member has an empty one now. That it does not take it is no reason to wait.
pub(super) async fn is_given_empty(pods: &Pods<'_>, name: &Name, namespace: &str) -> kube::Result<bool> {
    match put_empty(pods, name, namespace).await {
        Err(error) if !matches!(error, kube::Error::Api(_)) => Err(error),
        put => Ok(matches!(put, Ok(Ok(())))),
    }
}

/// Whether an empty one keeps its place there, or what is in the way. What is left of one that the host has no more is for pods that run and
/// were given it.
pub(super) async fn stands_in(
    pods: &Pods<'_>,
    thing: &Name,
    namespace: &str,
) -> kube::Result<Result<bool, PodRejection>> {
    let (kind, name) = thing;
    match read(&pods.of_kind(*kind, namespace, false), name).await {
        Ok(Some(there)) if pods.is_ours(&there) && !is_empty(&there) => Ok(Ok(false)),
        Ok(_) => Ok(put_empty(pods, thing, namespace).await?.map(|()| true)),
        Err(error) => denied(error, *kind, namespace, &pods.member.name),
    }
}

/// What is left there of one that the host has no more is emptied by the next look, if it is.
async fn put_empty(pods: &Pods<'_>, (kind, name): &Name, namespace: &str) -> kube::Result<Result<(), PodRejection>> {
    let put = || pods.put(*kind, namespace, name, empty_one(pods, name, namespace), |_: &Value| true);
    let first = put().await;
    // Another pod may just have put it there.
    if matches!(first, Ok(Err(_))) { put().await } else { first }
}

/// Of one that the host has not: pods of the host that run there name it, and each can do without, or is to wait for it. What was given is left
/// to who needs it, as a kubelet leaves it in volumes.
pub(super) fn is_to_be_emptied(pods: &Pods<'_>, (kind, place): &(Kind, Place), there: Option<&Value>) -> bool {
    if there.is_some_and(is_empty) {
        return false;
    }
    let name = (*kind, place.name.clone());
    let near = pods.view.kept_pods_for(&pods.member.name).into_iter();
    let near: Vec<_> = near.filter(|(at, kept)| at.namespace == place.namespace && !kept.is_over()).collect();
    // How much one needs it that is cut, nobody knows.
    let names = |at: &Place| pods.there.get(at).is_some_and(|copy| named(&copy["spec"]).contains_key(&name));
    if near.iter().any(|(at, kept)| kept.is_cut() && names(at)) || length::hides_names(pods, &place.namespace) {
        return false;
    }
    let run = near.iter().map(|(at, kept)| HostPod::read(kept, at)).filter(|pod| pods.runs(pod));
    let needs = run.filter_map(|pod| named(&rewritten(&pod, true, &pods.host.id.0)).get(&name).copied());
    let most = if there.is_some() { Need::Nothing } else { Need::Container };
    needs.max().is_some_and(|need| need <= most)
}

pub(super) async fn empty(
    pods: &Pods<'_>,
    (kind, name): &Name,
    namespace: &str,
) -> kube::Result<Result<(), PodRejection>> {
    let mut wanted = empty_one(pods, name, namespace);
    if *kind == Kind::Secret {
        // One of another type has to have something in it.
        wanted["type"] = json!("Opaque");
    }
    pods.put(*kind, namespace, name, wanted, is_empty).await
}

fn empty_one(pods: &Pods<'_>, name: &str, namespace: &str) -> Value {
    pods.marked(name, namespace, &json!({VERSION: NONE}))
}

fn is_empty(there: &Value) -> bool {
    mark(there, "annotations", VERSION) == NONE
}
