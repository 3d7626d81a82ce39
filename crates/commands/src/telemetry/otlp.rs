//! Traces, sent to an OpenTelemetry collector by a thread of their own. Nothing waits for it: what it cannot send in time, or has no room
//! for, is dropped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    trace::{SpanKind, TracerProvider},
};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{Layer, filter::FilterFn, registry::LookupSpan};

use super::BoxedLayer;
use cluster::traces::{CALL, TRACES};

/// For the last traces, once all else has ended.
const FLUSH: Duration = Duration::from_secs(2);

/// Whoever sends them, if anybody does.
#[derive(Debug, Default)]
pub struct Traces {
    provider: Option<SdkTracerProvider>,
    has_ended: Arc<AtomicBool>,
}

impl Traces {
    /// Sends what is left.
    pub async fn end(self) {
        let Some(provider) = self.provider else { return };
        let sent = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH)).await;
        self.has_ended.store(true, Ordering::Relaxed);
        if let Ok(Err(error)) = sent {
            tracing::debug!(%error, "the last traces were not sent");
        }
    }
}

pub(super) fn begin<S>(role: &str, collector: &str) -> Result<(BoxedLayer<S>, Traces), String>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(collector).build();
    let exporter = exporter.map_err(|error| error.to_string())?;
    let has_ended = Arc::<AtomicBool>::default();
    let provider = SdkTracerProvider::builder()
        .with_resource(process(role))
        .with_batch_exporter(LoggedExporter {
            exporter,
            fails: AtomicBool::new(false),
            has_ended: Arc::clone(&has_ended),
        })
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("kosmos-csi"))
        .with_context_activation(false)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(FilterFn::new(is_traced));
    Ok((layer.boxed(), Traces { provider: Some(provider), has_ended }))
}

/// Our own spans that are meant for it. No line of a log is: it may hold anybody's words. And nobody else's span is, as that of kube-client
/// with the path of each request, in which a Secret has its name.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    let is_of_a_call = metadata.name() == CALL && metadata.target().starts_with("kosmos_csi");
    metadata.is_span() && (metadata.target() == TRACES || is_of_a_call)
}

/// The span of a call says to people, in each line of its log, what they need, and the rest here.
fn as_traces_have_it(mut span: SpanData) -> SpanData {
    if span.name == CALL
        && let Some(method) = span.attributes.iter().find(|attribute| attribute.key.as_str() == "method")
    {
        (span.name, span.span_kind) = (method.value.to_string().into(), SpanKind::Server);
    }
    span
}

fn process(role: &str) -> Resource {
    let name = std::env::var("HOSTNAME").ok().map(|name| KeyValue::new("service.instance.id", name));
    Resource::builder()
        .with_service_name(format!("kosmos-csi-{role}"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(name)
        .build()
}

/// Says once that traces cannot be sent, and once that they can again.
#[derive(Debug)]
struct LoggedExporter<E> {
    exporter: E,
    fails: AtomicBool,
    /// What is still under way then is cut off with the process, and says nothing of the collector.
    has_ended: Arc<AtomicBool>,
}

impl<E: SpanExporter> SpanExporter for LoggedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.exporter.export(batch.into_iter().map(as_traces_have_it).collect()).await;
        match (&sent, self.fails.swap(sent.is_err(), Ordering::Relaxed)) {
            (Err(error), false) if !self.has_ended.load(Ordering::Relaxed) => {
                tracing::warn!(%error, "the collector takes no traces: they are dropped until it does, and nothing waits for it");
            }
            (Ok(()), true) => tracing::info!("the collector takes traces again"),
            _ => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
