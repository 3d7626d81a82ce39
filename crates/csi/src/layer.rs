//! Around every RPC: a span, metrics and one line in the log, also for a call whose caller gave up.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tokio::time::Instant;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::{Instrument, Span, field::Empty};

use super::v1;
use cluster::{
    metrics::{Metrics, method},
    traces::{self, CALL},
};
use domain::volume::DRIVER;

#[derive(Clone, Debug)]
pub struct RpcObserver(pub Metrics);

impl<S> Layer<S> for RpcObserver {
    type Service = WatchedService<S>;

    fn layer(&self, inner: S) -> WatchedService<S> {
        WatchedService { inner, metrics: Arc::new(self.0.clone()) }
    }
}

#[derive(Clone, Debug)]
pub struct WatchedService<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B, R> Service<Request<B>> for WatchedService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = known(request.uri().path());
        let span = tracing::info_span!(
            CALL,
            method = method(path),
            volume.name = Empty,
            volume.id = Empty,
            pvc = Empty,
            otel.status_code = Empty,
            rpc.grpc.status_code = Empty,
        );
        let call = Call::begin(path, Arc::clone(&self.metrics), span.clone());
        let answering = span.in_scope(|| self.inner.call(request));
        let watched = async move {
            let answer = answering.await;
            if let Ok(response) = &answer {
                call.end(response.headers());
            }
            answer
        };
        Box::pin(watched.instrument(span))
    }
}

/// A path that the interface knows. Any other is the caller's invention, and no label.
fn known(path: &str) -> &'static str {
    v1::METHODS.iter().copied().find(|known| *known == path).unwrap_or("unknown")
}

/// A call under way. tonic drops a handler whose caller's deadline has passed, and no layer sees an answer then.
struct Call {
    path: &'static str,
    metrics: Arc<Metrics>,
    span: Span,
    begun: Instant,
    ended: bool,
}

impl Call {
    fn begin(path: &'static str, metrics: Arc<Metrics>, span: Span) -> Self {
        metrics.rpc_started(path);
        Self { path, metrics, span, begun: Instant::now(), ended: false }
    }

    fn end(mut self, headers: &http::HeaderMap) {
        self.ended = true;
        let status = Status::from_header_map(headers).unwrap_or_else(|| Status::new(Code::Ok, ""));
        self.tell(status.code(), status.message());
    }

    fn tell(&self, code: Code, message: &str) {
        let took = self.begun.elapsed();
        let name = format!("{code:?}");
        self.metrics.rpc_handled(DRIVER, self.path, &name, took);
        let milliseconds = took.as_millis();
        match code {
            Code::Ok if only_asks(method(self.path)) => {
                tracing::debug!(code = name, milliseconds, "the RPC is answered");
            }
            Code::Ok => tracing::info!(code = name, milliseconds, "the RPC is answered"),
            Code::Unavailable | Code::Internal | Code::Unknown | Code::PermissionDenied => {
                tracing::warn!(code = name, milliseconds, message, "the RPC is answered");
            }
            _ => tracing::info!(code = name, milliseconds, message, "the RPC is answered"),
        }
        // The line above says it to people.
        if traces::are_collected() {
            self.span.record("rpc.grpc.status_code", i32::from(code));
            if is_a_fault(code) {
                self.span.record("otel.status_code", "ERROR");
            }
        }
    }
}

/// Of this end, as traces know it: what the caller has asked for wrongly, or too early, is none.
fn is_a_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// Sidecars ask these again and again, and an answer that is well says nothing to who reads the log.
fn only_asks(method: &str) -> bool {
    let looks = ["List", "ControllerGet", "GetSnapshot", "GetVolumeGroupSnapshot", "NodeGet"];
    method == "Probe"
        || method == "GetCapacity"
        || method.starts_with("GetPlugin")
        || method.ends_with("GetCapabilities")
        || looks.iter().any(|look| method.starts_with(look))
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            let span = self.span.clone();
            span.in_scope(|| self.tell(Code::Cancelled, "the caller gave up"));
        }
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt, service_fn};

    use super::*;

    type Answer = Result<Response<()>, std::convert::Infallible>;

    async fn never(_: Request<()>) -> Answer {
        std::future::pending().await
    }

    async fn refused(_: Request<()>) -> Answer {
        Ok(Status::aborted("at work").into_http())
    }

    fn request(path: &str) -> Request<()> {
        Request::builder().uri(path).body(()).unwrap()
    }

    #[test]
    fn call_that_changes_something_has_its_line_in_the_log() {
        for asks in
            ["Probe", "GetCapacity", "GetPluginInfo", "NodeGetCapabilities", "ListVolumes", "ControllerGetVolume"]
        {
            assert!(only_asks(asks), "{asks}");
        }
        for does in ["CreateVolume", "DeleteSnapshot", "NodeStageVolume", "ControllerModifyVolume", "unknown"] {
            assert!(!only_asks(does), "{does}");
        }
    }

    #[tokio::test]
    async fn every_call_is_counted_by_method_and_code() {
        let metrics = Metrics::new();
        let path = "/csi.v1.Controller/CreateVolume";
        let answered = RpcObserver(metrics.clone()).layer(service_fn(refused)).oneshot(request(path)).await;
        assert!(answered.is_ok());
        let mut dropping = RpcObserver(metrics.clone()).layer(service_fn(never));
        drop(dropping.call(request(path)));
        for forged in ["/csi.v1.Controller/Forged", "/x/CreateVolume", "/"] {
            drop(dropping.call(request(forged)));
        }
        let text = metrics.text().unwrap();
        for line in [
            "kosmos_csi_rpc_handled_total{method=\"CreateVolume\",code=\"Aborted\"} 1",
            "kosmos_csi_rpc_handled_total{method=\"CreateVolume\",code=\"Cancelled\"} 1",
            "kosmos_csi_rpc_handled_total{method=\"unknown\",code=\"Cancelled\"} 3",
            "csi_plugin_operations_seconds_count{driver_name=\"kosmos.csi.io\",method_name=\"/csi.v1.Controller/CreateVolume\",grpc_status_code=\"Canceled\"} 1",
            "csi_plugin_operations_seconds_count{driver_name=\"kosmos.csi.io\",method_name=\"unknown\",grpc_status_code=\"Canceled\"} 3",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
