//! The page on which people see which data is where, what waits and why: read-only, and from memory alone. To look at it costs no
//! cluster a request.
//!
//! Its page: `docs/design/ui.md`.

mod answer;
mod guard;
mod pages;
mod shown;
mod sources;

use axum::{Extension, Router, middleware, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::limit::GlobalConcurrencyLimitLayer;

use answer::{Form, asset};
pub use sources::Sources;

/// Who looks at all volumes takes a processor for a moment.
const AT_ONCE: usize = 2;
/// Below it programs find the same pages as JSON, each of which says its version.
const API: &str = "/api";

/// Serves until the token is cancelled.
pub async fn serve(listener: TcpListener, sources: Sources, stop: CancellationToken) -> std::io::Result<()> {
    axum::serve(listener, routes(sources)).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn routes(sources: Sources) -> Router {
    let pages = || {
        Router::new()
            .route("/volumes", get(pages::volumes::show))
            .route("/volumes/{member}/{*leaf}", get(pages::volume::show))
            .route("/members", get(pages::members::show))
            .route("/members/{name}", get(pages::member::show))
            .route("/waiting", get(pages::waiting::show))
            .route("/moves", get(pages::moves::show))
            .route("/capacity", get(pages::capacity::show))
            .route("/events", get(pages::events::show))
    };
    let html = pages().route("/", get(pages::overview::show)).layer(Extension(Form::Html));
    let json = pages().route("/overview", get(pages::overview::show)).layer(Extension(Form::Json));
    html.nest(API, json)
        .with_state(sources)
        .route("/style.css", asset("text/css; charset=utf-8", include_str!("../assets/style.css")))
        .route("/refresh.js", asset("text/javascript; charset=utf-8", include_str!("../assets/refresh.js")))
        .route("/icon.svg", asset("image/svg+xml", include_str!("../assets/icon.svg")))
        .fallback(answer::no_page)
        .layer(GlobalConcurrencyLimitLayer::new(AT_ONCE))
        .layer(middleware::from_fn(guard::guard))
}
