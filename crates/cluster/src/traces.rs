//! Spans for whoever collects traces. They name clusters, members, kinds and steps, and nothing that is in an object.

use http::Response;
use tower::BoxError;
use tracing::{Span, field::Empty, level_filters::LevelFilter};

/// The target of what only traces tell, at the level `TRACE`: no filter that logs have by themselves lets it pass, and then such a span
/// is one comparison and no field of it is looked at.
pub const TRACES: &str = "traces";

/// The span of a call, which is in each line of its log as well.
pub const CALL: &str = "rpc";

/// Whether somebody collects them. The log writes out whatever a span is told, also what comes after its last line.
pub fn are_collected() -> bool {
    LevelFilter::current() == LevelFilter::TRACE
}

/// A part of some work, by its name.
pub fn phase(name: &'static str, member: Option<&str>) -> Span {
    tracing::trace_span!(target: TRACES, "phase", otel.name = name, member)
}

/// A round of the work that nobody asks for; none where there is nothing to do.
pub fn round(name: &'static str, member: &str, count: usize) -> Span {
    if count == 0 {
        return Span::none();
    }
    tracing::trace_span!(target: TRACES, "round", otel.name = name, member, count)
}

/// A request to a cluster, as part of the work that makes it; none where it is part of none, as the renewal of a lease.
pub(super) fn request(cluster: &str, verb: &'static str, resource: &str) -> Span {
    // The span that is current is looked up, and held meanwhile.
    if verb == "watch" || !are_collected() || Span::current().is_none() {
        return Span::none();
    }
    tracing::trace_span!(
        target: TRACES,
        "request",
        otel.kind = "client",
        otel.name = format!("{verb} {resource}"),
        otel.status_code = Empty,
        cluster,
        verb,
        resource,
        code = Empty,
    )
}

/// One that was given up has no code.
pub(super) fn answered<B>(request: &Span, answer: &Result<Response<B>, BoxError>) {
    match answer {
        Ok(answer) => request.record("code", answer.status().as_u16()),
        Err(_) => request.record("code", "no answer").record("otel.status_code", "ERROR"),
    };
}
