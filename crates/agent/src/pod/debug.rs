//! What `kubectl debug` adds to a pod that runs is added to its copy, or the pod says why not.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    super::{
        node::patch_of,
        object::{self, Place, items, read, text},
    },
    AGAIN, MUCH_LATER, Next, PATIENCE, Pods,
    copy::say_all,
    ephemeral::{LIST, STATUSES, missing},
    level::{refused_level, refused_namespace},
    names::named,
    rejection::{Here, PodRejection},
};
use cluster::with_causes;

/// The part of a pod by which API servers let ephemeral containers be added, and nothing else be changed.
const SUBRESOURCE: &str = "ephemeralcontainers";
/// What the member does not take.
const ADDED: &str = "ephemeral containers of the pod";

/// Why one is not added. It is judged by itself: another one that was refused stays in the pod for ever.
fn refusal(container: &Value, namespace: Option<&Value>, here: Here<'_>) -> Option<PodRejection> {
    let alone = json!({"spec": {"ephemeralContainers": [container]}});
    let above = refused_level(&alone, here).or_else(|| refused_namespace(&alone, namespace?, here));
    let above = above.map(|why| match why.reason {
        "AboveBaseline" => {
            let message = format!("{}. `kubectl debug --profile=baseline` asks for no more than that", why.message);
            PodRejection { message, ..why }
        }
        _ => why,
    });
    above.or_else(|| {
        let (kind, name) = named(&json!({"containers": [container]})).into_keys().next()?;
        let message = format!(
            "it names {kind} {name}, but a member gives ephemeral containers no ConfigMaps and Secrets: leave it out"
        );
        Some(PodRejection::new("ObjectNotGiven", message))
    })
}

/// The change that adds them to this copy and to no other pod of its name.
fn added(copy: &Value, containers: &[Value]) -> Value {
    let is_first = items(copy, LIST).next().is_none();
    let all = json!({"op": "add", "path": LIST, "value": containers});
    let each =
        || containers.iter().map(|one| json!({"op": "add", "path": format!("{LIST}/-"), "value": one})).collect();
    let changes: Vec<Value> = if is_first { vec![all] } else { each() };
    let test = json!({"op": "test", "path": "/metadata/uid", "value": copy["metadata"]["uid"]});
    Value::Array(std::iter::once(test).chain(changes).collect())
}

/// The pod's status, which says of containers why they are not added.
fn refused(pod: &Value, why: &[(&Value, PodRejection)]) -> Value {
    let said = why.iter().map(|(container, why)| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": why.reason, "message": why.message}},
        })
    });
    let all: Vec<Value> = items(pod, STATUSES).cloned().chain(said).collect();
    patch_of(pod, json!({"status": {"ephemeralContainerStatuses": all}}))
}

/// `looks`: how often it was tried.
pub(super) async fn add(pods: &Pods<'_>, pod: &Value, there: &Value, looks: u32) -> kube::Result<Next> {
    let place = Place::of(pod);
    let namespace = read(&object::namespaces(pods.client), &place.namespace).await?;
    let (mut new, mut not_added) = (Vec::new(), Vec::new());
    for container in missing(pod, there) {
        match refusal(container, namespace.as_ref(), pods.here()) {
            Some(why) => not_added.push((container, why)),
            None => new.push(container),
        }
    }
    if let Err(error) = give(pods, pod, there, &new).await {
        // It may have lost a race, or its right is not in force yet.
        if looks < PATIENCE || !matches!(error, kube::Error::Api(_)) {
            tracing::warn!(member = pods.member.name, pod = %place, error = with_causes(&error), "the agent cannot add ephemeral containers to the pod's copy");
            if looks >= PATIENCE {
                // They may be there yet: nothing is said of their state.
                let why = PodRejection::of_member(&pods.member.name, ADDED, &with_causes(&error));
                pods.warn(pod, &why).await;
            }
            return Ok(Next::After(MUCH_LATER.min(AGAIN * 2_u32.saturating_pow(looks))));
        }
        let why = PodRejection::of_member(&pods.member.name, ADDED, &with_causes(&error));
        not_added.extend(new.into_iter().map(|container| (container, why.clone())));
    }
    if not_added.is_empty() {
        return Ok(Next::Settled);
    }
    for (container, why) in &not_added {
        let message = format!("ephemeral container {} is not added: {}", text(container, "/name"), why.message);
        pods.warn(pod, &PodRejection::new(why.reason, message)).await;
    }
    pods.write(pod, refused(pod, &not_added)).await?;
    // If the pod has changed meanwhile, it was not written.
    Ok(Next::After(AGAIN))
}

async fn give(pods: &Pods<'_>, pod: &Value, there: &Value, new: &[&Value]) -> kube::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let place = Place::of(pod);
    let mut containers: Vec<Value> = new.iter().copied().cloned().collect();
    for container in &mut containers {
        say_all(container, pod);
    }
    let change = serde_json::from_value(added(there, &containers)).map_err(kube::Error::SerdeError)?;
    let copies = object::pods(pods.client, &place.namespace);
    let change = Patch::<()>::Json(change);
    copies.patch_subresource(SUBRESOURCE, &place.name, &PatchParams::default(), &change).await?;
    tracing::info!(member = pods.member.name, pod = %place, "the agent added ephemeral containers to the pod's copy");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Here<'static> = Here { host: "h", member: "m", privileged: false };

    fn debugger(name: &str) -> Value {
        json!({"name": name, "image": "i"})
    }

    #[test]
    fn what_is_added_leaves_what_is_there() {
        let pod = |containers: &[Value]| json!({"metadata": {"uid": "u"}, "spec": {"ephemeralContainers": containers}});
        let test = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let first = json!({"op": "add", "path": LIST, "value": [debugger("a")]});
        assert_eq!(added(&pod(&[]), &[debugger("a")]), json!([test, first]));
        let next = json!({"op": "add", "path": "/spec/ephemeralContainers/-", "value": debugger("b")});
        assert_eq!(added(&pod(&[debugger("a")]), &[debugger("b")]), json!([test, next]));
    }

    #[test]
    fn one_that_asks_for_more_than_the_member_gives_is_refused_by_itself() {
        let namespace = json!({"metadata": {"name": "shop", "labels": {"kosmos.csi.io/pods": "baseline"}}});
        let mut tracing = debugger("b");
        tracing["securityContext"] = json!({"capabilities": {"add": ["SYS_PTRACE"]}});
        let mut naming = debugger("c");
        naming["envFrom"] = json!([{"secretRef": {"name": "keys"}}]);
        let closed = json!({"metadata": {"name": "shop"}});
        for (container, namespace, reason, words) in [
            (&tracing, &namespace, "AboveBaseline", "--profile=baseline"),
            (&naming, &namespace, "ObjectNotGiven", "it names Secret keys"),
            (&debugger("a"), &closed, "NamespaceNotOpen", "namespace shop"),
        ] {
            let why = refusal(container, Some(namespace), HERE).unwrap();
            assert!(why.reason == reason && why.message.contains(words), "{why:?}");
        }
        assert_eq!(refusal(&debugger("a"), Some(&namespace), HERE), None);
    }

    #[test]
    fn refusal_is_said_as_the_state_of_the_container() {
        let pod = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "status": {"ephemeralContainerStatuses": [{"name": "a"}]}});
        let told = refused(&pod, &[(&debugger("b"), PodRejection::new("AboveBaseline", "why"))]);
        assert_eq!(told["metadata"], json!({"uid": "u", "resourceVersion": "1"}));
        assert_eq!(text(&told, "/status/ephemeralContainerStatuses/0/name"), "a");
        assert_eq!(text(&told, "/status/ephemeralContainerStatuses/1/state/waiting/reason"), "AboveBaseline");
    }
}
