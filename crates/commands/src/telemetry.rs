//! Logs: one line per event on standard error, for people or as JSON. And traces, for a collector, where one is named.

#[cfg(feature = "otlp")]
#[path = "telemetry/otlp.rs"]
mod traces;
#[cfg(not(feature = "otlp"))]
#[path = "telemetry/without.rs"]
mod traces;

use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, fmt, layer::SubscriberExt, registry, registry::LookupSpan, util::SubscriberInitExt,
};

pub use traces::Traces;

/// The variable by which every program that traces finds its collector.
const STANDARD: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

type BoxedLayer<S> = Box<dyn Layer<S> + Send + Sync>;

/// Logs alone.
pub fn start(format: LogFormat) {
    registry().with(lines(format)).with(filter()).init();
    tell_of_filter();
}

/// Logs, and traces of a role that goes on, where a collector is given or named by the standard variable. Fails where one is given and
/// gets none.
pub fn start_with_traces(role: &str, format: LogFormat, given: Option<&str>) -> Result<Traces, String> {
    let standard = std::env::var(STANDARD).ok().filter(|address| !address.is_empty());
    let Some(address) = given.map(str::to_owned).or(standard) else {
        start(format);
        return Ok(Traces::default());
    };
    // Each has a filter of its own: what logs leave out is traced all the same, and the other way round.
    match collector(&address).and_then(|collector| traces::begin(role, &collector)) {
        Ok((layer, traces)) => {
            registry().with(lines(format).with_filter(filter())).with(layer).init();
            tell_of_filter();
            tracing::info!(collector = address, "traces are sent to the collector");
            Ok(traces)
        }
        Err(reason) => {
            start(format);
            if given.is_some() {
                return Err(format!("--otlp-endpoint {address}: {reason}"));
            }
            // It is set for many programs at once, which is no reason to give nobody a volume.
            tracing::warn!("{STANDARD} is {address}, and no traces are sent: {reason}");
            Ok(Traces::default())
        }
    }
}

/// As it is typed. What asks for TLS, or for a path as that of OTLP over HTTP, would get neither.
pub fn collector(text: &str) -> Result<String, String> {
    let is_plain = |address: &http::Uri| {
        let asks_for_no_more = address.path() == "/" && address.query().is_none();
        address.scheme_str() == Some("http") && asks_for_no_more && address.host().is_some_and(|host| !host.is_empty())
    };
    if text.parse().is_ok_and(|address| is_plain(&address)) {
        return Ok(text.to_owned());
    }
    Err("it must be http://HOST:PORT of a collector that takes OTLP by gRPC, such as http://collector.monitoring:4317"
        .to_owned())
}

/// Whoever sets what no filter is would look for lines that are not written.
fn tell_of_filter() {
    let Some(given) = given_filter() else { return };
    if let Err(error) = EnvFilter::try_new(&given) {
        tracing::warn!(
            "RUST_LOG is {given:?}, which is not understood ({error}): the log is as it would be without it"
        );
    }
}

/// `RUST_LOG` decides what is written, this driver's own lines from `info` up where it is unset or not understood.
fn filter() -> EnvFilter {
    let given = given_filter().and_then(|given| EnvFilter::try_new(given).ok());
    given.unwrap_or_else(|| EnvFilter::new("warn,kosmos_csi=info,kube_client=off"))
}

/// An empty one, which would leave out all, is one that nobody has filled in.
fn given_filter() -> Option<String> {
    std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|given| !given.is_empty())
}

fn lines<S>(format: LogFormat) -> BoxedLayer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // A line that cannot be written is lost: telling so on the same closed stream would panic.
    let lines = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_is_a_host_that_takes_otlp_by_grpc() {
        for text in ["http://collector.monitoring:4317", "http://10.0.0.7:4317/", "http://[fd00::1]:4317", "http://c"] {
            assert_eq!(collector(text).as_deref(), Ok(text));
        }
        for text in ["", "collector:4317", "https://c:4317", "http://c:4318/v1/traces", "http://", "http://c/?x=y"] {
            assert!(collector(text).is_err(), "{text}");
        }
    }
}
