//! The admin endpoint: is the process alive, is it ready, what has it done. A member's outage is a metric here, never a
//! reason to be restarted.

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use cluster::metrics::{Metrics, exposition::Form};

#[derive(Clone, Debug)]
struct Admin {
    ready: watch::Receiver<bool>,
    metrics: Metrics,
}

/// Serves until the token is cancelled.
pub async fn serve(
    listener: TcpListener,
    ready: watch::Receiver<bool>,
    metrics: Metrics,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(text))
        .with_state(Admin { ready, metrics });
    axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    if *admin.ready.borrow() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: starting or stopping\n")
    }
}

async fn text(State(admin): State<Admin>, headers: HeaderMap) -> Result<impl IntoResponse, StatusCode> {
    let accept: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let form = Form::accepted(&accept.join(","));
    let text = admin.metrics.text().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, form.content_type())], form.written(text)))
}
