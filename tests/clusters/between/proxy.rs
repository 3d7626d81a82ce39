//! The proxy itself: it takes connections and requests, asks the rules, and passes on. It speaks HTTP/1.1, as the driver does.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::stream;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HOST, UPGRADE},
    request::Parts,
};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
    upgrade::{self, OnUpgrade},
};
use hyper_util::rt::TokioIo;
use kube::{Client, Config, client::Body};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;
use tower::BoxError;

use super::{
    answer::Answer,
    body::{BEFORE_THE_END, Delivery, Pieces},
    certificates::Certificates,
    events::{Events, Then, Watched},
    rule::{Action, Asked, Count, Decision, Rule, Rules},
    upgraded::{Most, join},
};

/// Of one connection alone; and bodies are to be read here.
const OF_THE_REQUEST: [&str; 5] = ["accept-encoding", "connection", "content-length", "host", "transfer-encoding"];
const OF_THE_ANSWER: [&str; 2] = ["connection", "transfer-encoding"];
const JSON: &str = "application/json";

type Passed = UnsyncBoxBody<Bytes, BoxError>;

/// What is taken as it was, but for what cannot be read here line by line.
pub fn readable(accepted: &str) -> String {
    let kinds: Vec<&str> = accepted.split(',').map(str::trim).filter(|kind| !kind.contains("protobuf")).collect();
    if kinds.is_empty() { JSON.to_owned() } else { kinds.join(",") }
}

/// The way to an API server.
#[derive(Clone)]
pub struct Upstream {
    client: Client,
    /// In place of what whoever asks shows.
    token: Option<HeaderValue>,
}

impl Upstream {
    /// The configuration is to have no credentials.
    pub fn new(mut config: Config, token: Option<&str>) -> Result<Self> {
        config.default_retry = false;
        (config.read_timeout, config.write_timeout) = (None, None);
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}"))).transpose()?;
        Ok(Self { client: Client::try_from(config).context("make a client of an API server")?, token })
    }

    async fn pass(&self, head: Parts, body: Bytes) -> Result<Response<Body>, kube::Error> {
        let mut request = Request::from_parts(head, Body::from(body));
        remove(&OF_THE_REQUEST, request.headers_mut());
        if let Some(accepted) = request.headers().get(ACCEPT) {
            let readable = HeaderValue::try_from(readable(accepted.to_str().unwrap_or(JSON)));
            request.headers_mut().insert(ACCEPT, readable.unwrap_or_else(|_| HeaderValue::from_static(JSON)));
        }
        self.send(request).await
    }

    /// What is to become another protocol says so by headers of its connection.
    async fn upgrade(&self, head: Parts) -> Result<Response<Body>, kube::Error> {
        let mut request = Request::from_parts(head, Body::empty());
        request.headers_mut().remove(HOST);
        self.send(request).await
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        self.client.send(request).await
    }
}

/// Where the proxy leads.
pub struct Ways {
    pub to: Upstream,
    /// For `Action::Elsewhere`.
    pub elsewhere: Upstream,
}

pub struct Proxy {
    ways: Ways,
    certificates: Mutex<Certificates>,
    rules: Mutex<Rules>,
    pub asked: Count,
    /// Ends all connections.
    cut: watch::Sender<()>,
    /// How many writes wait for their time.
    held: watch::Sender<usize>,
}

impl Proxy {
    pub fn new(ways: Ways, certificates: Certificates) -> Self {
        Self {
            ways,
            certificates: Mutex::new(certificates),
            rules: Mutex::default(),
            asked: Count::default(),
            cut: watch::Sender::new(()),
            held: watch::Sender::new(0),
        }
    }

    pub fn play(&self, rules: &[Rule]) -> Vec<Count> {
        let rules = Rules::new(rules);
        let (counts, for_new_ones) = (rules.counts(), rules.are_for_new_ones());
        let before = std::mem::replace(&mut *self.rules(), rules);
        if for_new_ones || before.are_for_new_ones() {
            self.cut.send_replace(());
        }
        counts
    }

    pub async fn held_are_delivered(&self) {
        let mut held = self.held.subscribe();
        let _ = held.wait_for(|held| *held == 0).await;
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn certificates(&self) -> MutexGuard<'_, Certificates> {
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of its own certificate, in PEM.
    pub fn authority(&self) -> String {
        self.certificates().authority.clone()
    }

    pub fn replace_certificate(&self) -> Result<()> {
        self.certificates().replace()?;
        self.cut.send_replace(());
        Ok(())
    }

    fn shown(&self) -> Arc<ServerConfig> {
        let wrong = self.rules().wrong_certificate();
        let certificates = self.certificates();
        let Some(played) = wrong else { return Arc::clone(&certificates.own) };
        played.add();
        Arc::clone(&certificates.strange)
    }
}

pub async fn serve(proxy: Arc<Proxy>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(Arc::clone(&proxy), stream))),
                Err(error) => eprintln!("the proxy could not take a connection: {error}"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Until either side ends it, or it is cut.
async fn connection(proxy: Arc<Proxy>, stream: TcpStream) {
    // Before the rules are asked, so that none of them is missed.
    let mut cut = proxy.cut.subscribe();
    tokio::select! {
        biased;
        _ = cut.changed() => {}
        () = converse(&proxy, stream) => {}
    }
}

async fn converse(proxy: &Arc<Proxy>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = TlsAcceptor::from(proxy.shown()).accept(stream).await else { return };
    let service = service_fn(|request| answer(proxy, request));
    let serving = http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service);
    // Either side may end it at any time.
    let _ = serving.with_upgrades().await;
}

/// An error here closes the connection.
async fn answer(proxy: &Arc<Proxy>, mut request: Request<Incoming>) -> Result<Response<Passed>, BoxError> {
    proxy.asked.add();
    let asker = request.headers().contains_key(UPGRADE).then(|| upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let decision = proxy.rules().decide(&Asked::of(&head));
    if let Some(asker) = asker {
        return upgraded(proxy, (head, asker), decision).await;
    }
    let body = body.collect().await?.to_bytes();
    let to = &proxy.ways.to;
    let Some(Decision { action, played }) = decision else {
        return Ok(whole(to.pass(head, body).await?));
    };
    match action {
        Action::Answer(answer) => {
            played.add();
            Ok(said(answer))
        }
        Action::AnswerAfter(answer) => {
            let carried_out = to.pass(head, body).await?;
            if !carried_out.status().is_success() {
                return Ok(whole(carried_out));
            }
            played.add();
            Ok(said(answer))
        }
        Action::Hold(time, answer) => {
            hold(Arc::clone(proxy), (head, body), time, played);
            Ok(said(answer))
        }
        Action::Body(delivery) => delivered(to.pass(head, body).await?, delivery, &played).await,
        Action::Events(how) => Ok(watched(to.pass(head, body).await?, how, played)),
        Action::Elsewhere => {
            let answer = proxy.ways.elsewhere.pass(head, body).await?;
            played.add();
            Ok(whole(answer))
        }
        // Of connections, and of what has become another protocol.
        Action::WrongCertificate | Action::Upgraded(_) => Ok(whole(to.pass(head, body).await?)),
    }
}

/// An API server that does not take it up says why.
async fn upgraded(
    proxy: &Arc<Proxy>,
    (head, asker): (Parts, OnUpgrade),
    decision: Option<Decision>,
) -> Result<Response<Passed>, BoxError> {
    let (to, most) = match decision {
        Some(Decision { action: Action::Answer(answer), played }) => {
            played.add();
            return Ok(said(answer));
        }
        Some(Decision { action: Action::Elsewhere, played }) => {
            played.add();
            (&proxy.ways.elsewhere, None)
        }
        Some(Decision { action: Action::Upgraded(bytes), played }) => (&proxy.ways.to, Some(Most { bytes, played })),
        _ => (&proxy.ways.to, None),
    };
    let cut = proxy.cut.subscribe();
    let mut answer = to.upgrade(head).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(whole(answer));
    }
    tokio::spawn(join(cut, asker, upgrade::on(&mut answer), most));
    Ok(answer.map(|_| Full::new(Bytes::new()).map_err(BoxError::from).boxed_unsync()))
}

fn hold(proxy: Arc<Proxy>, (head, body): (Parts, Bytes), time: Duration, played: Count) {
    proxy.held.send_modify(|held| *held += 1);
    tokio::spawn(async move {
        sleep(time).await;
        if proxy.ways.to.pass(head, body).await.is_ok() {
            played.add();
        }
        proxy.held.send_modify(|held| *held -= 1);
    });
}

fn remove(names: &[&'static str], headers: &mut HeaderMap) {
    for name in names {
        headers.remove(*name);
    }
}

fn said(answer: Answer) -> Response<Passed> {
    answer.response().map(|text| Full::new(text).map_err(BoxError::from).boxed_unsync())
}

/// As it comes.
fn whole(mut answer: Response<Body>) -> Response<Passed> {
    remove(&OF_THE_ANSWER, answer.headers_mut());
    answer.map(|body| body.map_err(BoxError::from).boxed_unsync())
}

async fn delivered(answer: Response<Body>, delivery: Delivery, played: &Count) -> Result<Response<Passed>, BoxError> {
    let (mut head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    remove(&OF_THE_ANSWER, &mut head.headers);
    head.headers.remove(CONTENT_LENGTH);
    played.add();
    let pieces = stream::unfold(delivery.of(&body), next_piece);
    Ok(Response::from_parts(head, StreamBody::new(pieces).boxed_unsync()))
}

type Sent<T> = Option<(Result<Frame<Bytes>, BoxError>, T)>;

async fn next_piece(mut pieces: Pieces) -> Sent<Pieces> {
    sleep(pieces.pause).await;
    if let Some(piece) = pieces.left.pop_front() {
        return Some((Ok(Frame::data(piece)), pieces));
    }
    if !pieces.breaks {
        return None;
    }
    pieces.breaks = false;
    Some((Err("the proxy cuts the connection".into()), pieces))
}

/// A watch that is refused is told so.
fn watched(mut answer: Response<Body>, how: Watched, played: Count) -> Response<Passed> {
    if !answer.status().is_success() {
        return whole(answer);
    }
    remove(&OF_THE_ANSWER, answer.headers_mut());
    answer.map(|from| {
        let watching = Watching { from, events: Events::new(how), ready: VecDeque::new(), over: false, played };
        StreamBody::new(stream::unfold(watching, next_event)).boxed_unsync()
    })
}

struct Watching {
    from: Body,
    events: Events,
    ready: VecDeque<Result<Bytes, BoxError>>,
    /// Nothing more comes.
    over: bool,
    played: Count,
}

impl Watching {
    fn take(&mut self, piece: &[u8]) {
        for fate in self.events.take(piece) {
            if self.over {
                return;
            }
            if fate.spoiled {
                self.played.add();
            }
            self.ready.extend(fate.said.into_iter().map(Ok));
            self.over = fate.then != Then::GoesOn;
            if fate.then == Then::Breaks {
                self.ready.push_back(Err("the proxy cuts the connection".into()));
            }
        }
    }
}

async fn next_event(mut watching: Watching) -> Sent<Watching> {
    loop {
        if let Some(next) = watching.ready.pop_front() {
            if next.is_err() {
                sleep(BEFORE_THE_END).await;
            }
            return Some((next.map(Frame::data), watching));
        }
        if watching.over {
            return None;
        }
        let next = watching.from.frame().await?;
        match next {
            Ok(frame) => {
                if let Ok(piece) = frame.into_data() {
                    watching.take(&piece);
                }
            }
            Err(error) => {
                watching.over = true;
                watching.ready.push_back(Err(error.into()));
            }
        }
    }
}
