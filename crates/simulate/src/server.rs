//! HTTP/1.1 on a loopback port, so that kubectl and other processes can speak to a simulated cluster.

use std::net::IpAddr;

use http::{HeaderMap, Request, Response, header::HOST, uri::Authority};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    Cluster,
    service::{Lost, Reply, answer, refused},
    status_error::StatusError,
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
    if !is_by_address(&parts.headers) {
        let problem = "it is asked for by a name that is no address of this machine";
        return Ok(refused(&StatusError::forbidden("host", "header", problem)));
    }
    let client = parts.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    answer(cluster, client, &parts, body.into()).await
}

/// There are no credentials, and a page in a browser can give its own name this machine's address: what it asks for carries that
/// name.
fn is_by_address(headers: &HeaderMap) -> bool {
    let authority = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    authority.is_some_and(|authority| {
        let host = authority.host().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    #[tokio::test]
    async fn page_of_a_browser_that_gives_its_name_this_machines_address_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(Cluster::new("m", 1), listener));
        for (host, code) in [
            (address.to_string(), "200"),
            ("localhost:1".to_owned(), "200"),
            ("[::1]:1".to_owned(), "200"),
            ("page.example:1".to_owned(), "403"),
            ("127.0.0.1.page.example".to_owned(), "403"),
            (String::new(), "403"),
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let asked = format!("GET /version HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stream.write_all(asked.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer.split(' ').nth(1), Some(code), "{host}: {answer}");
        }
        serving.abort();
    }
}
