//! The kubelet's endpoint of virtual nodes: logs, exec, attach and port-forward of a pod in the host are passed on to the
//! pod in the member that was made for it, and what pods use is told.
//!
//! Who has a pod's processes here has power over all pods of all members. So they open only to a client certificate of one
//! authority, for whom the host itself says yes, and lead only to pods that carry the marks of this host's own. What pods use is
//! told also to whoever has a token by which the host lets him read that of nodes: one answer for each connection.

mod conversations;
mod entrance;
mod http_error;
mod path;
mod pod;
mod subject;
mod tls;
mod token;
mod tunnel;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, UPGRADE},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::client::Body;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use self::{
    conversations::{Answer, Conversations},
    entrance::{Entering, Entrance},
    http_error::HttpError,
    path::Asked,
    token::{Tokens, Verdict},
};
use super::{
    object::short,
    usage::{Page, Usage},
};
use domain::error::{Error, Result};
use host::{Host, access::Caller};
use member::Registry;
pub use tls::{Authority, Credentials, Shown};

/// Connections at a time of those who have shown who they are, and with them conversations.
const CONNECTIONS: usize = 256;
/// A request's head, in which a whole command may stand.
const LONGEST_HEAD: usize = 64 * 1024;
/// Of what is asked for, in the log.
const LONGEST_PATH: usize = 200;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Also how long a connection may wait for its next request.
const HEAD: Duration = Duration::from_secs(30);
/// How long somebody without a certificate may take for all he asks.
const ONCE: Duration = Duration::from_secs(30);
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// What the endpoint needs.
#[derive(Clone, Debug)]
pub struct Server {
    pub host: Host,
    pub members: Registry,
    pub credentials: Credentials,
    /// What pods use, where that is told.
    pub usage: Option<Arc<Usage>>,
}

/// What all ports have in common: who has come in, and who is known by a token.
#[derive(Debug)]
struct Known {
    /// For handshakes.
    entrance: Arc<Entrance>,
    /// For those who have shown no certificate.
    guests: Arc<Entrance>,
    places: Arc<Semaphore>,
    conversations: Arc<Conversations>,
    tokens: Tokens,
    stop: CancellationToken,
}

/// A connection, and the port to which it was made.
#[derive(Clone, Copy, Debug)]
struct ConnectionInfo {
    from: SocketAddr,
    port: u16,
}

/// A connection's place among all, kept until it and what it has become are over, and the sign to end.
#[derive(Clone, Debug)]
struct AuthenticatedCaller {
    caller: Arc<Caller>,
    place: Arc<OwnedSemaphorePermit>,
    conversations: Arc<Conversations>,
    stop: CancellationToken,
}

impl Server {
    /// Serves until a stop is asked for; conversations under way are ended then.
    pub async fn serve(self, listeners: Vec<TcpListener>, stop: CancellationToken) {
        let known = Arc::new(Known {
            entrance: Arc::new(Entrance::of_ports(listeners.len())),
            guests: Arc::new(Entrance::of_ports(listeners.len())),
            places: Arc::new(Semaphore::new(CONNECTIONS)),
            conversations: Arc::new(Conversations::of_connections(CONNECTIONS)),
            tokens: Tokens::default(),
            stop,
        });
        let server = Arc::new(self);
        let serving = listeners.into_iter().map(|listener| Arc::clone(&server).accept(listener, Arc::clone(&known)));
        futures::future::join_all(serving).await;
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, known: Arc<Known>) {
        let port = listener.local_addr().map_or(0, |address| address.port());
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = known.stop.cancelled() => return,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => {
                        let Some(entering) = known.entrance.enter(from.ip()) else {
                            tracing::info!(%from, "a connection was closed: too many connections from there have not said who they are");
                            continue;
                        };
                        let way = ConnectionInfo { from, port };
                        connections.spawn(Arc::clone(&self).connection(stream, entering, way, Arc::clone(&known)));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        entering: Entering,
        way: ConnectionInfo,
        known: Arc<Known>,
    ) {
        let from = way.from;
        let stream = match self.handshake(stream).await {
            Ok(stream) => stream,
            Err(reason) => return tracing::info!(%from, reason, "a connection to the kubelet endpoint was refused"),
        };
        let Some(certificate) = stream.get_ref().1.peer_certificates().and_then(<[_]>::first) else {
            let Some(asking) = known.guests.enter(from.ip()) else {
                return tracing::debug!(%from, "a connection was closed: too many connections from there show no certificate");
            };
            drop(entering);
            return self.answer_once(stream, way, &known, asking).await;
        };
        let Some(caller) = subject::caller(certificate) else {
            return tracing::info!(%from, "a client certificate names nobody");
        };
        let Ok(place) = Arc::clone(&known.places).try_acquire_owned() else {
            return tracing::warn!(%from, user = caller.user, "a connection was closed: {CONNECTIONS} are open");
        };
        drop(entering);
        let who = AuthenticatedCaller {
            caller: Arc::new(caller),
            place: Arc::new(place),
            conversations: Arc::clone(&known.conversations),
            stop: known.stop.clone(),
        };
        let service = service_fn(|request| self.answer(&who, way, request));
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        if let Err(error) = serving.await {
            tracing::debug!(%from, %error, "a connection ended");
        }
    }

    /// Whoever shows no certificate goes with his answer.
    async fn answer_once(&self, stream: TlsStream<TcpStream>, way: ConnectionInfo, known: &Known, _asking: Entering) {
        let service = service_fn(|request: Request<Incoming>| async move {
            let path = request.uri().path().to_owned();
            let answer = self.page_by_token(&request, way, &known.tokens).await;
            Ok::<_, std::convert::Infallible>(told(answer, "by a token", request.method(), &path))
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HANDSHAKE)
            .max_buf_size(LONGEST_HEAD)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        if let Ok(Err(error)) = timeout(ONCE, serving).await {
            tracing::debug!(from = %way.from, %error, "a connection ended");
        }
    }

    async fn handshake(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let _ = stream.set_nodelay(true);
        let shaken = timeout(HANDSHAKE, async {
            let config = self.credentials.read(&self.host, self.usage.is_some()).await?;
            let acceptor = TlsAcceptor::from(config);
            acceptor.accept(stream).await.map_err(|error| error.to_string())
        });
        shaken.await.map_err(|_| "no handshake in time".to_owned())?
    }

    async fn answer(
        &self,
        who: &AuthenticatedCaller,
        way: ConnectionInfo,
        request: Request<Incoming>,
    ) -> Result<Response<Answer>, std::convert::Infallible> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = self.try_answer(who, way, request).await;
        Ok(told(answer, &who.caller.user, &method, &path))
    }

    async fn try_answer(
        &self,
        who: &AuthenticatedCaller,
        way: ConnectionInfo,
        request: Request<Incoming>,
    ) -> Result<Response<Answer>, HttpError> {
        if let Some((usage, page)) = self.page_of(&request)? {
            self.check_right(who, "get", page.subresource()).await?;
            return self.page(usage, page, way).await;
        }
        let asked = Asked::parse(request.uri().path()).ok_or_else(|| {
            HttpError::new(
                StatusCode::NOT_FOUND,
                "a virtual node serves logs, exec, attach, portForward and what its pods use",
            )
        })?;
        check_method(&asked, &request)?;
        let refused = || too_many(&asked.namespace);
        // Before the host is asked: who begins again and again takes a place for as long as that takes.
        if !who.conversations.has_room(&asked.namespace) {
            return Err(refused());
        }
        // Logs are read; the others do something, whatever the method says.
        self.check_right(who, if asked.what.upgrades() { "create" } else { "get" }, "proxy").await?;
        let conversation = who.conversations.begin(&asked.namespace).ok_or_else(refused)?;
        let member = self.member_of(&asked).await?;
        let target = asked.target(request.uri().query().unwrap_or_default());
        tunnel::pass(&member.unbounded()?, request, &target, who, conversation).await
    }

    async fn check_right(&self, who: &AuthenticatedCaller, verb: &str, subresource: &str) -> Result<(), HttpError> {
        if host::access::lets_reach_kubelets(&self.host, &who.caller, verb, subresource).await? {
            return Ok(());
        }
        Err(denied(&who.caller.user, verb, subresource))
    }

    async fn page_by_token(
        &self,
        request: &Request<Incoming>,
        way: ConnectionInfo,
        tokens: &Tokens,
    ) -> Result<Response<Answer>, HttpError> {
        let unknown = || {
            HttpError::new(StatusCode::UNAUTHORIZED, "the request has neither a client certificate nor a valid token")
        };
        let Some((usage, page)) = self.page_of(request)? else {
            let message = "this needs a client certificate: a token is enough only for what pods use";
            return Err(HttpError::new(StatusCode::UNAUTHORIZED, message));
        };
        let token = token::of(request.headers()).ok_or_else(unknown)?;
        match tokens.judge(&self.host, token, page.subresource()).await? {
            Verdict::Nobody => Err(unknown()),
            Verdict::Denied(user) => Err(denied(&user, "get", page.subresource())),
            Verdict::Allowed(_) => self.page(usage, page, way).await,
        }
    }

    fn page_of(&self, request: &Request<Incoming>) -> Result<Option<(&Usage, Page)>, HttpError> {
        let page = self.usage.as_deref().and_then(|usage| Some((usage, Page::parse(request.uri().path())?)));
        if page.is_some() && *request.method() != Method::GET {
            return Err(HttpError::method_not_allowed());
        }
        Ok(page)
    }

    async fn page(&self, usage: &Usage, page: Page, way: ConnectionInfo) -> Result<Response<Answer>, HttpError> {
        let text = usage.page(page, &self.members, &self.host.id, way.port).await?;
        let mut answer = Response::new(Answer::from(Body::from(text.into_bytes())));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type()));
        Ok(answer)
    }
}

/// What is answered, which the log tells as well. What goes well every few seconds, and what a stranger asks, is for who looks closely.
fn told(answer: Result<Response<Answer>, HttpError>, user: &str, method: &Method, path: &str) -> Response<Answer> {
    let code = answer.as_ref().map_or_else(|refusal| refusal.code, Response::status);
    let (usual, path) = (code.is_success() && Page::parse(path).is_some(), short(path, LONGEST_PATH));
    if usual || code == StatusCode::UNAUTHORIZED {
        tracing::debug!(user, %method, path, code = code.as_u16(), "the kubelet endpoint has answered");
    } else {
        tracing::info!(user, %method, path, code = code.as_u16(), "the kubelet endpoint has answered");
    }
    answer.unwrap_or_else(|refusal| refusal.into_response().map(Answer::from))
}

fn denied(user: &str, verb: &str, subresource: &str) -> HttpError {
    Error::Denied(format!("user {user:?} may not {verb} nodes/{subresource} in the host")).into()
}

fn too_many(namespace: &str) -> HttpError {
    let message = format!(
        "namespace {namespace} has as many logs, commands and forwarded ports under way on virtual nodes as it may have, since others need \
         the rest: end some of them"
    );
    HttpError::new(StatusCode::TOO_MANY_REQUESTS, message)
}

fn check_method(asked: &Asked, request: &Request<Incoming>) -> Result<(), HttpError> {
    let upgrades = request.headers().contains_key(UPGRADE);
    match *request.method() {
        Method::GET if !asked.what.upgrades() => Ok(()),
        Method::GET | Method::POST if asked.what.upgrades() && upgrades => Ok(()),
        Method::GET | Method::POST if asked.what.upgrades() => Err(HttpError::bad_request("an upgrade is required")),
        _ => Err(HttpError::method_not_allowed()),
    }
}
