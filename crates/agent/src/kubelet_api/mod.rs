//! The kubelet's endpoint of virtual nodes: logs, exec, attach and port-forward of a pod in the host are passed on to the
//! pod in the member that was made for it.
//!
//! Whoever gets in here has power over all pods of all members. So it opens only to a client certificate of one authority,
//! for whom the host itself says yes, and leads only to pods that carry the marks of this host's own.

mod entrance;
mod http_error;
mod path;
mod pod;
mod subject;
mod tls;
mod tunnel;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, header::UPGRADE};
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
    entrance::{Entering, Entrance},
    http_error::HttpError,
    path::Asked,
};
use domain::error::{Error, Result};
use host::{Host, access::Caller};
use member::Registry;
pub use tls::{Authority, Credentials, Shown};

/// Connections at a time of those who have shown who they are, and with them conversations.
const CONNECTIONS: usize = 256;
/// A request's head, in which a whole command may stand.
const LONGEST_HEAD: usize = 64 * 1024;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Also how long a connection may wait for its next request.
const HEAD: Duration = Duration::from_secs(30);
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// What the endpoint needs.
#[derive(Clone, Debug)]
pub struct Server {
    pub host: Host,
    pub members: Registry,
    pub credentials: Credentials,
}

/// A connection's place among all, kept until it and what it has become are over, and the sign to end.
#[derive(Clone, Debug)]
struct AuthenticatedCaller {
    caller: Arc<Caller>,
    place: Arc<OwnedSemaphorePermit>,
    stop: CancellationToken,
}

impl Server {
    /// Serves until a stop is asked for; conversations under way are ended then.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let (kubelet_api, entrance) = (Arc::new(self), Arc::new(Entrance::default()));
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => {
                        let Some(entering) = entrance.enter(from.ip()) else {
                            tracing::info!(%from, "a connection was closed: too many of them say nothing");
                            continue;
                        };
                        let kubelet_api = Arc::clone(&kubelet_api);
                        connections.spawn(kubelet_api.connection(stream, entering, from, Arc::clone(&places), stop.clone()));
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
        from: SocketAddr,
        places: Arc<Semaphore>,
        stop: CancellationToken,
    ) {
        let stream = match self.handshake(stream).await {
            Ok(stream) => stream,
            Err(reason) => return tracing::info!(%from, reason, "a connection to the kubelet endpoint was refused"),
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let Some(caller) = certificate.and_then(|certificate| subject::caller(certificate)) else {
            return tracing::info!(%from, "a client certificate names nobody");
        };
        let Ok(place) = places.try_acquire_owned() else {
            return tracing::warn!(%from, user = caller.user, "a connection was closed: {CONNECTIONS} are open");
        };
        drop(entering);
        let guest = AuthenticatedCaller { caller: Arc::new(caller), place: Arc::new(place), stop };
        let service = service_fn(|request| self.answer(&guest, request));
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

    async fn handshake(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let _ = stream.set_nodelay(true);
        let shaken = timeout(HANDSHAKE, async {
            let acceptor = TlsAcceptor::from(self.credentials.read(&self.host).await?);
            acceptor.accept(stream).await.map_err(|error| error.to_string())
        });
        shaken.await.map_err(|_| "no handshake in time".to_owned())?
    }

    async fn answer(
        &self,
        guest: &AuthenticatedCaller,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, std::convert::Infallible> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = self.try_answer(guest, request).await;
        let code = answer.as_ref().map_or_else(|refusal| refusal.code, Response::status).as_u16();
        tracing::info!(user = guest.caller.user, %method, path, code, "kubelet endpoint");
        Ok(answer.unwrap_or_else(HttpError::into_response))
    }

    async fn try_answer(
        &self,
        guest: &AuthenticatedCaller,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, HttpError> {
        let asked = Asked::parse(request.uri().path()).ok_or_else(|| {
            HttpError::new(StatusCode::NOT_FOUND, "a virtual node serves logs, exec, attach and portForward")
        })?;
        check_method(&asked, &request)?;
        // Logs are read; the others do something, whatever the method says.
        let verb = if asked.what.upgrades() { "create" } else { "get" };
        if !host::access::lets_reach_kubelets(&self.host, &guest.caller, verb).await? {
            let user = &guest.caller.user;
            return Err(Error::Denied(format!("user {user:?} may not {verb} nodes/proxy in the host")).into());
        }
        let member = self.member_of(&asked).await?;
        let target = asked.target(request.uri().query().unwrap_or_default());
        tunnel::pass(&member.unbounded()?, request, &target, guest).await
    }
}

fn check_method(asked: &Asked, request: &Request<Incoming>) -> Result<(), HttpError> {
    let upgrades = request.headers().contains_key(UPGRADE);
    match *request.method() {
        Method::GET if !asked.what.upgrades() => Ok(()),
        Method::GET | Method::POST if asked.what.upgrades() && upgrades => Ok(()),
        Method::GET | Method::POST if asked.what.upgrades() => Err(HttpError::bad_request("an upgrade is required")),
        _ => Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not served")),
    }
}
