//! Logs: one line per event on standard error, for people or as JSON.

use tracing_subscriber::{EnvFilter, fmt};

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// `RUST_LOG` decides what is written, this driver's own lines from `info` up where it is unset.
pub fn start(format: LogFormat) {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,kosmos_csi=info,kube_client=off"));
    // A line that cannot be written is lost: telling so on the same closed stream would panic.
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_ansi(false).with_target(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
