//! ConfigMaps and Secrets that pods can do without, and the host has not: the member has empty ones in their place, which are filled where the
//! host's come later. A kubelet gives no pod that runs what its copy does not name.

use serde_json::{Value, json};

use super::{
    super::{cache::Cached, host_pod::HostPod, object::mark},
    Pods,
    config_sync::{NONE, VERSION, empty_one, rewritten},
    names::{Kind, Name, named},
    rejection::PodRejection,
    wanted::SyncedObject,
};

/// Of one that the host has no more, as a kubelet does where nobody needs it: pods of the host that run there name it, and each can do without.
pub(super) fn is_to_be_emptied(pods: &Pods<'_>, (kind, place): &SyncedObject, there: Option<&Value>) -> bool {
    if there.is_some_and(is_empty) {
        return false;
    }
    let name = (*kind, place.name.clone());
    let near = pods.view.kept_pods_for(&pods.member.name).into_iter();
    let near = near.filter(|(at, kept)| at.namespace == place.namespace && !kept.is_over());
    let run = near.map(|(at, kept)| HostPod::read(&kept, &at)).filter(|pod| pods.runs(pod));
    let need = run.filter_map(|pod| named(&rewritten(&pod, true, &pods.host.id.0)).get(&name).copied());
    let mut need = need.peekable();
    need.peek().is_some() && need.all(|needs| !needs)
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

fn is_empty(there: &Value) -> bool {
    mark(there, "annotations", VERSION) == NONE
}
