//! A collector's end: it takes what is sent as it is on the wire.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use prost::Message;
use tokio::{net::TcpListener, task::JoinSet};
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, NamedService},
    transport::{Server, server::TcpIncoming},
};
use tower::{Service, service_fn};

use super::bytes::Bytes;

#[derive(Clone, Debug, Default)]
pub struct Collector(Arc<Mutex<Vec<Vec<u8>>>>);

impl Collector {
    /// Its address.
    pub async fn serve(&self, inside: &mut JoinSet<()>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let serving = Server::builder().add_service(self.clone()).serve_with_incoming(TcpIncoming::from(listener));
        inside.spawn(async move { serving.await.unwrap() });
        address
    }

    /// All that was sent, for who looks for something in it.
    pub fn text(&self) -> String {
        let sent = self.0.lock().unwrap().concat();
        String::from_utf8_lossy(&sent).into_owned()
    }

    pub fn spans(&self) -> Vec<Span> {
        let sent = self.0.lock().unwrap();
        let all = sent.iter().map(|batch| Export::decode(batch.as_slice()).unwrap());
        all.flat_map(|batch| batch.processes).flat_map(Process::spans).collect()
    }
}

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let all = Arc::clone(&self.0);
        let take = service_fn(move |batch: Request<Vec<u8>>| {
            all.lock().unwrap().push(batch.into_inner());
            async { Ok::<_, Status>(Response::new(Vec::new())) }
        });
        Box::pin(async move { Ok(Grpc::new(Bytes).unary(take, request).await) })
    }
}

/// What a test asks of a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// `service.name`.
    pub process: String,
    pub trace: Vec<u8>,
    pub id: Vec<u8>,
    /// Empty where it has none.
    pub parent: Vec<u8>,
    pub name: String,
    pub kind: i32,
    pub failed: bool,
    /// Lines of a log.
    pub events: usize,
    pub attributes: BTreeMap<String, String>,
}

impl Span {
    pub const SERVER: i32 = 2;
    pub const CLIENT: i32 = 3;

    pub fn says(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }
}

// As opentelemetry/proto/collector/trace/v1/trace_service.proto has them, but for what no test asks.

#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    processes: Vec<Process>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<Scope>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Sent>,
}

#[derive(Clone, PartialEq, Message)]
struct Sent {
    #[prost(bytes = "vec", tag = "1")]
    trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
    #[prost(bytes = "vec", repeated, tag = "11")]
    events: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "15")]
    state: Option<State>,
}

#[derive(Clone, PartialEq, Message)]
struct State {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    number: Option<i64>,
}

fn attributes(all: Vec<Attribute>) -> BTreeMap<String, String> {
    let text = |value: Value| value.text.or_else(|| value.number.map(|number| number.to_string()));
    all.into_iter().map(|one| (one.key, one.value.and_then(text).unwrap_or_default())).collect()
}

impl Process {
    fn spans(self) -> Vec<Span> {
        let of_process = attributes(self.resource.unwrap_or_default().attributes);
        let name = of_process.get("service.name").cloned().unwrap_or_default();
        let span = |sent: Sent| Span {
            process: name.clone(),
            trace: sent.trace,
            id: sent.id,
            parent: sent.parent,
            name: sent.name,
            kind: sent.kind,
            failed: sent.state.is_some_and(|state| state.code == 2),
            events: sent.events.len(),
            attributes: attributes(sent.attributes),
        };
        self.scopes.into_iter().flat_map(|scope| scope.spans).map(span).collect()
    }
}
