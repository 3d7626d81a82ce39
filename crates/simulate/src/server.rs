//! HTTP/1.1 on a loopback port, so that kubectl and other processes can speak to a simulated cluster.

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    Cluster,
    service::{Lost, Reply, answer},
};

/// Serves until it is dropped.
pub async fn serve(cluster: Cluster, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(cluster.clone(), stream))),
                Err(error) => tracing::warn!(%error, "a connection was not accepted"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(cluster: Cluster, stream: tokio::net::TcpStream) {
    let service = service_fn(|request| respond(&cluster, request));
    // An idle connection stays open: a client may use it again at the moment of its end.
    let serving = http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// An error here closes the connection, which is what a lost answer looks like from outside.
async fn respond(cluster: &Cluster, request: Request<Incoming>) -> Result<Response<Reply>, Lost> {
    let (parts, body) = request.into_parts();
    let client = parts.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    answer(cluster, client, &parts, body.into()).await
}
