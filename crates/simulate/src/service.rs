//! A request from outside: asked about at the faults, carried out, and answered. Without a socket this is what a client
//! is built on; with one, `server` puts HTTP around it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use http::{Method, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::{Value, json};

use super::{
    Cluster,
    call::{Call, Place, Query},
    discovery, fairness,
    faults::{Action, Asked, Verb},
    read::{as_list, get, item_text, list},
    remove::{self, Removed},
    review,
    status_error::StatusError,
    table, versions,
    watch::Watching,
    write::Written,
};

/// The connection broke: there is no answer, whether or not something was applied.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost")]
pub struct Lost;

/// So many objects of a list are written at once.
const PIECE: usize = 500;
/// What stands before them.
const ITEMS: &str = "\"items\":[";

pub type Reply = UnsyncBoxBody<Bytes, Lost>;
type Answered = Result<Response<Reply>, Lost>;

/// One client's way to the cluster without a socket.
#[derive(Clone, Debug)]
pub struct Service {
    cluster: Cluster,
    client: Arc<str>,
}

impl Service {
    pub(super) fn new(cluster: Cluster, client: &str) -> Self {
        Self { cluster, client: client.into() }
    }
}

impl tower::Service<Request<Body>> for Service {
    type Response = Response<Reply>;
    type Error = Lost;
    type Future = Pin<Box<dyn Future<Output = Answered> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { cluster, client } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
            answer(&cluster, &client, &parts, body.into()).await
        })
    }
}

/// Carries out one request, as far as the faults let it.
pub async fn answer(cluster: &Cluster, client: &str, parts: &http::request::Parts, body: Vec<u8>) -> Answered {
    let action = cluster.faults().decide(asked(client, parts, &body));
    match action {
        Action::Refuse => return Err(Lost),
        Action::Hang => std::future::pending().await,
        Action::Delay(time) => tokio::time::sleep(time).await,
        Action::Late(time) => return arrive(cluster.clone(), parts.clone(), body, time).await,
        Action::Answer { code, reason } => return Ok(refused(&StatusError::injected(code, reason))),
        _ => {}
    }
    let elsewhere = if action == Action::Elsewhere { cluster.faults().elsewhere() } else { None };
    let cluster = elsewhere.as_ref().unwrap_or(cluster);
    let done = carry_out(cluster, parts, body, &action);
    match action {
        Action::ApplyThenLose => Err(Lost),
        Action::ApplyThenHang => std::future::pending().await,
        Action::ApplyThenAnswer { code, reason } => Ok(refused(&StatusError::injected(code, reason))),
        _ => {
            let mut answer = done.unwrap_or_else(|refusal| refused(&refusal));
            let schema = if let Action::Under(schema) = action { schema } else { fairness::USUAL };
            fairness::note(cluster, schema, &mut answer);
            if let Ok(date) = http::HeaderValue::try_from(cluster.date()) {
                answer.headers_mut().insert(http::header::DATE, date);
            }
            Ok(answer)
        }
    }
}

/// On its way it outlives its sender.
async fn arrive(cluster: Cluster, parts: http::request::Parts, body: Vec<u8>, after: Duration) -> Answered {
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        // What is refused by then is told to nobody.
        drop(carry_out(&cluster, &parts, body, &Action::Pass));
    });
    std::future::pending().await
}

fn asked(client: &str, parts: &http::request::Parts, body: &[u8]) -> Asked {
    let place = Place::parse(parts.uri.path()).unwrap_or_default();
    let query = parts.uri.query().unwrap_or_default();
    let object: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let in_body = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Asked {
        number: 0,
        client: client.to_owned(),
        verb: place.verb(&parts.method, &Query::parse(query)).unwrap_or(Verb::Get),
        resource: place.resource(),
        namespace: place.namespace,
        name: if place.name.is_empty() { in_body.to_owned() } else { place.name },
        subresource: place.subresource,
        query: query.to_owned(),
        body: Arc::new(object),
    }
}

fn carry_out(
    cluster: &Cluster,
    parts: &http::request::Parts,
    body: Vec<u8>,
    fault: &Action,
) -> Result<Response<Reply>, StatusError> {
    let accept = parts.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if parts.method == Method::POST && parts.uri.path() == review::PATH {
        return Ok(json_answer(201, &review::answered(&body)?));
    }
    let mut store = cluster.store();
    let Some(place) = Place::parse(parts.uri.path()) else {
        let kinds = store.tables().map(|table| Arc::clone(&table.kind));
        let stale = matches!(fault, Action::Stale(_));
        let kinds: Vec<_> = kinds.filter(|kind| !(stale && kind.custom)).collect();
        let page = discovery::page(parts.uri.path(), accept, &kinds).ok_or_else(StatusError::no_page)?;
        return Ok(whole(200, &page.content_type, page.body));
    };
    let mut call = Call::new(&place, parts, body, &store)?;
    super::options::check(&call)?;
    if let Action::Pages(most) = fault {
        call.query.lower_limit(*most);
    }
    if let Action::Rewrite { at, value } = fault {
        call.webhook = Some((*at, *value));
    }
    let back = if let Action::Stale(back) = fault { *back } else { 0 };
    let object = |code: u16, object: &Arc<Value>| Ok(json_answer(code, &present(cluster, &call, object)));
    if !call.subresource.is_empty()
        && let Some(answer) = super::subresources::answer(cluster, &call, &mut store)
    {
        let (code, object) = answer?;
        return Ok(json_answer(code, &object));
    }
    match call.verb {
        Verb::Get => object(200, &get(&call, &store, back)?),
        Verb::List => {
            let page = list(&call, &store, back)?;
            if table::is_wanted(&call.accept) {
                return Ok(json_answer(200, &table::of_list(&call, &page, cluster.now())));
            }
            if is_partial(&call.accept) {
                return Ok(json_answer(200, &partial_list(&call, &page)));
            }
            if page.objects.len() > PIECE {
                return Ok(list_in_pieces(call, page));
            }
            Ok(json_answer(200, &as_list(&call, &page)))
        }
        Verb::Watch => Ok(stream_of(Watching::begin(cluster, call, &store, fault.clone())?)),
        Verb::Create => Ok(warned(cluster, &call, &cluster.create_by(&call, &mut store)?)),
        Verb::Update => Ok(warned(cluster, &call, &cluster.update_by(&call, &mut store)?)),
        Verb::Patch => Ok(warned(cluster, &call, &cluster.patch_by(&call, &mut store)?)),
        Verb::Delete => Ok(json_answer(200, &removal(cluster, &call, &remove::delete_by(cluster, &call, &mut store)?))),
        Verb::DeleteCollection => {
            let objects = remove::delete_all_by(cluster, &call, &mut store)?;
            let page = super::read::Page { objects, revision: store.revision, next: None, remaining: None };
            Ok(json_answer(200, &as_list(&call, &page)))
        }
    }
}

/// What was written, with what the client should know about it.
fn warned(cluster: &Cluster, call: &Call, written: &Written) -> Response<Reply> {
    let mut answer = json_answer(if written.new { 201 } else { 200 }, &present(cluster, call, &written.object));
    for warning in &written.warnings {
        if let Ok(value) = format!("299 - {}", json!(warning)).parse() {
            answer.headers_mut().append(http::header::WARNING, value);
        }
    }
    answer
}

/// Kinds of which the API returns the object itself when it is gone at once; of the others, a word.
fn removal(cluster: &Cluster, call: &Call, removed: &Removed) -> Value {
    const RETURNED: &[&str] = &["pods", "persistentvolumeclaims", "persistentvolumes", "namespaces", "resourcequotas"];
    let returned = RETURNED.contains(&call.resource.as_str()) || call.kind.group == "storage.k8s.io";
    match removed {
        Removed::Terminating(object) => present(cluster, call, object),
        Removed::Gone(object) if returned && call.resource != "csistoragecapacities.storage.k8s.io" => {
            present(cluster, call, object)
        }
        Removed::Gone(object) => {
            let mut details = json!({"name": call.name, "kind": call.kind.plural, "uid": object["metadata"]["uid"]});
            if !call.kind.group.is_empty() {
                details["group"] = json!(call.kind.group);
            }
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
        }
    }
}

/// An object in the form that was asked for.
pub(super) fn present(cluster: &Cluster, call: &Call, object: &Arc<Value>) -> Value {
    if table::is_wanted(&call.accept) {
        return table::of_one(call, object, cluster.now());
    }
    if is_partial(&call.accept) {
        return partial(object);
    }
    let mut given = Value::clone(object);
    versions::to_given(call, &mut given);
    given
}

fn is_partial(accept: &str) -> bool {
    accept.contains("as=PartialObjectMetadata")
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn partial_list(call: &Call, page: &super::read::Page) -> Value {
    let mut list = as_list(call, page);
    list["kind"] = json!("PartialObjectMetadataList");
    list["apiVersion"] = json!("meta.k8s.io/v1");
    list["items"] = page.objects.iter().map(|object| partial(object)).collect();
    list
}

pub(super) fn refused(refusal: &StatusError) -> Response<Reply> {
    if refusal.is_page() {
        return whole(refusal.code, "text/plain; charset=utf-8", refusal.message.clone().into_bytes());
    }
    json_answer(refusal.code, &refusal.to_status())
}

fn json_answer(code: u16, body: &Value) -> Response<Reply> {
    whole(code, "application/json", body.to_string().into_bytes())
}

fn whole(code: u16, content_type: &str, body: Vec<u8>) -> Response<Reply> {
    let mut response = Response::new(Full::from(body).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
}

/// A long list is written a piece at a time: nobody holds its text as a whole.
fn list_in_pieces(call: Call, page: super::read::Page) -> Response<Reply> {
    let objects = page.objects;
    let text = as_list(&call, &super::read::Page { objects: Vec::new(), ..page }).to_string();
    let (head, tail) = text.split_at(text.find(ITEMS).map_or(0, |at| at + ITEMS.len()));
    let starts = (0..objects.len()).step_by(PIECE);
    let pieces = stream::iter(starts).map(move |start| {
        let piece = objects.iter().skip(start).take(PIECE);
        let items: Vec<String> = piece.map(|object| item_text(&call, object)).collect();
        format!("{}{}", if start > 0 { "," } else { "" }, items.join(","))
    });
    let whole = stream::iter([head.to_owned()]).chain(pieces).chain(stream::iter([tail.to_owned()]));
    streamed(whole)
}

fn stream_of(watching: Watching) -> Response<Reply> {
    let events = stream::unfold(watching, async |mut watching| {
        let event = watching.next().await?;
        Some((format!("{event}\n"), watching))
    });
    streamed(events)
}

fn streamed(text: impl Stream<Item = String> + Send + 'static) -> Response<Reply> {
    let frames = text.map(|piece| Ok::<_, Lost>(Frame::data(Bytes::from(piece))));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
