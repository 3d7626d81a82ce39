//! Tells the host what events in a member say of a pod that is not well: why an image cannot be pulled, a probe fails, a volume is not mounted,
//! a container does not end. `kubectl describe pod` shows it as for a pod on any node. Best effort, as events are.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use http_body_util::{BodyExt, Limited};
use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams, PostParams, Request},
    client::Body,
    core::Status,
};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::{
    super::{
        member_pod::MemberPod,
        object::{Place, items, short, text},
    },
    Pods,
    retold::{again, retold},
    told::{RelayedEvents, Seen},
};
use cluster::with_causes;

/// Between two looks at which pods are not well.
const LOOK: Duration = Duration::from_secs(1);
/// Of one pod. There are a dozen of a pod that cannot start.
const MOST: u32 = 50;
/// In bytes: what they may take together. Whoever may write events there decides how long they are.
const LONGEST: usize = 1 << 20;
/// The same of why it does not tell them, and how much of that is logged.
const FAILURE: usize = 64 << 10;
const LOGGED: usize = 300;
/// Until the member has told them, and until the host has taken one.
const LISTED: Duration = Duration::from_secs(4);
const WRITTEN: Duration = Duration::from_secs(2);

/// Works until it is dropped. The way to the member is one of its own: whoever fills a namespace there with events makes lists of them
/// slow, and that is not to be taken for a member that does not answer.
pub(crate) async fn relay(pods: &Pods<'_>, told: &mut RelayedEvents) {
    pods.there.synced().await;
    let mut way = None;
    loop {
        sleep(LOOK).await;
        let is_meant =
            |copy: &MemberPod| waits(copy) || copy.copy_of().is_some_and(|uid| told.has_news(uid, copy.restarts()));
        let copies = copies(pods, is_meant);
        if copies.is_empty() && told.is_empty() {
            continue;
        }
        let Some(client) = way.take().or_else(|| pods.member.unbounded().ok()) else { continue };
        let seen = copies.iter().map(|(uid, (place, copy))| {
            let seen = Seen { namespace: &place.namespace, waits: waits(copy), restarts: copy.restarts() };
            (uid.as_str(), seen)
        });
        let seen: HashMap<&str, Seen<'_>> = seen.collect();
        let all = pods.view.kept_pods_for(&pods.member.name);
        let there: HashSet<&str> = all.iter().map(|(_, pod)| pod.uid()).collect();
        for uid in told.due(&seen, |uid| there.contains(uid), Instant::now()) {
            let (place, _) = &copies[&uid];
            if let (Some(pod), Some(copy)) = (pods.view.pods.get(place), pods.there.get(place)) {
                tell(pods, &client, told, &pod, &copy).await;
            }
        }
        way = Some(client);
    }
}

/// Whether somebody may want to know why it takes so long.
fn waits(copy: &MemberPod) -> bool {
    copy.in_trouble() || copy.is_leaving() && !copy.is_over()
}

/// The copies that are meant, by the UIDs of the host's pods. Those alone are read whose events are asked for: all of them as trees would take
/// several times what they are kept in.
fn copies(pods: &Pods<'_>, is_meant: impl Fn(&MemberPod) -> bool) -> HashMap<String, (Place, Arc<MemberPod>)> {
    let copies = pods.there.kept_of(&pods.host.id.0).into_iter().filter(|(_, copy)| is_meant(copy));
    let is_served = |node: &str| pods.view.member_of_node(node).is_some_and(|member| member == pods.member.name);
    let pair = |(place, copy): (Place, Arc<MemberPod>)| {
        let pod = pods.view.pods.kept(&place)?;
        let is_its = copy.copy_of() == Some(pod.uid()) && is_served(&pod.node()?);
        is_its.then(|| (pod.uid().to_owned(), (place, copy)))
    };
    copies.filter_map(pair).collect()
}

async fn tell(pods: &Pods<'_>, client: &Client, told: &mut RelayedEvents, pod: &Value, copy: &Value) {
    let (member, place, uid) = (&pods.member.name, Place::of(pod), text(pod, "/metadata/uid"));
    let listed = timeout(LISTED, list(client, &place.namespace, text(copy, "/metadata/uid"))).await;
    let listed = match listed
        .unwrap_or_else(|_| Err(kube::Error::Service("the member does not list them in time".into())))
    {
        Ok(listed) => listed,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            told.refused(Instant::now());
            let reason = status.message;
            return tracing::warn!(
                member,
                reason,
                "the agent has no right to read events in the member; `kosmos-csi member add` gives it"
            );
        }
        Err(error) => {
            return tracing::debug!(member, pod = %place, error = with_causes(&error), "events of a pod cannot be read");
        }
    };
    let now = Timestamp::now();
    let all = items(&listed, "/items").filter_map(|event| retold(event, pod, copy, member, now)).collect();
    for (event, is_there) in told.new_of(uid, all) {
        if !told.may_tell(uid, &place.namespace, Instant::now()) {
            return;
        }
        let written = timeout(WRITTEN, write(pods, &event, is_there)).await;
        match written.unwrap_or_else(|_| Err(kube::Error::Service("the host does not answer in time".into()))) {
            Ok(()) => told.was_told(uid, &event),
            // It is another's, or nothing that the host keeps, and would be so for ever.
            Err(kube::Error::Api(status)) if [400, 409, 422].contains(&status.code) => {
                tracing::debug!(member, pod = %place, error = status.message, "the host does not take an event of a member");
                told.was_told(uid, &event);
            }
            Err(error) => {
                let error = with_causes(&error);
                return tracing::debug!(member, pod = %place, error, "an event of a member cannot be told in the host");
            }
        }
    }
}

/// The events about an object. An answer that goes on and on ends here, whether it says what was asked for or that it fails.
async fn list(client: &Client, namespace: &str, uid: &str) -> kube::Result<Value> {
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(MOST);
    let events = Request::new(Event::url_path(&(), Some(namespace)));
    let request = events.list(&about).map_err(kube::Error::BuildRequest)?;
    let (head, body) = client.send(request.map(Body::from)).await?.into_parts();
    let is_list = head.status.is_success();
    let whole = Limited::new(body, if is_list { LONGEST } else { FAILURE }).collect().await;
    let whole = whole.map_err(kube::Error::Service)?.to_bytes();
    if is_list {
        return serde_json::from_slice(&whole).map_err(kube::Error::SerdeError);
    }
    let told: Value = serde_json::from_slice(&whole).unwrap_or_default();
    let message = short(text(&told, "/message"), LOGGED);
    Err(kube::Error::Api(Box::new(Status { code: head.status.as_u16(), message, ..Status::default() })))
}

/// `is_there`: as far as it is known. The host keeps an event for an hour.
async fn write(pods: &Pods<'_>, told: &Event, is_there: bool) -> kube::Result<()> {
    let namespace = told.metadata.namespace.as_deref().unwrap_or_default();
    let name = told.metadata.name.as_deref().unwrap_or_default();
    let events = Api::<Event>::namespaced(pods.host.client.clone(), namespace);
    let count_on = async || {
        let change = serde_json::from_value(again(told)).map_err(kube::Error::SerdeError)?;
        events.patch(name, &PatchParams::default(), &Patch::<()>::Json(change)).await
    };
    if is_there {
        match count_on().await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => return other.map(drop),
        }
    }
    match events.create(&PostParams::default(), told).await {
        // Told by who worked before.
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => count_on().await.map(drop),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};

    use super::*;

    /// A member that answers this code, and then anything without end.
    fn endless(code: u16) -> Client {
        let answer = move |_: http::Request<Body>| async move {
            let piece = || Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(&[b'x'; 1 << 10])));
            let body = StreamBody::new(futures::stream::iter(std::iter::repeat_with(piece)));
            http::Response::builder().status(code).body(body)
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn answer_without_end_is_given_up_whatever_it_says() {
        for code in [200, 403, 500] {
            let error = list(&endless(code), "shop", "u").await.unwrap_err();
            assert!(with_causes(&error).contains("length limit exceeded"), "{error}");
        }
    }
}
