//! The `kosmos-csi` command.

mod arguments;

use std::{
    io::{Write, stderr},
    num::NonZero,
    process::ExitCode,
    thread::available_parallelism,
};

use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use commands::{
    args::{Process, Role, operator},
    run::{self, Misuse},
    telemetry::{self, LogFormat, Traces},
};
use domain::printable::printable;
use tokio::runtime::{Builder, Runtime};

/// Bad configuration, by the convention of `sysexits`.
const MISUSE: u8 = 64;
/// A command that only looks could not, as `grep` and `diff` say it: that something is wrong is 1.
const UNKNOWN: u8 = 2;
/// What serves in a cluster waits for others nearly all of the time: more threads than these only wake each other, and take memory.
const MOST_THREADS: usize = 2;
/// Whoever measures says by this how many it is to have, as of any program of tokio's.
const TOLD_THREADS: &str = "TOKIO_WORKER_THREADS";

fn main() -> ExitCode {
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { MISUSE.into() } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match runtime(&command) {
        Ok(runtime) => runtime,
        Err(error) => {
            sorry(&format!("kosmos-csi cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(play(command));
    // A thread may hang in the kernel over a dead disk, and is not waited for.
    runtime.shutdown_background();
    code
}

fn runtime(command: &Command) -> std::io::Result<Runtime> {
    let processors = available_parallelism().map_or(1, NonZero::get);
    let told = std::env::var(TOLD_THREADS).ok();
    let told = told.and_then(|told| told.parse::<NonZero<usize>>().ok());
    Builder::new_multi_thread().worker_threads(threads(command, processors, told)).enable_all().build()
}

/// Those that do its work; what blocks has others.
fn threads(command: &Command, processors: usize, told: Option<NonZero<usize>>) -> usize {
    let usual = if command.serves() { processors.min(MOST_THREADS) } else { processors };
    told.map_or(usual, NonZero::get)
}

async fn play(command: Command) -> ExitCode {
    // Two providers may be compiled in by dependencies; without a choice the first TLS connection would panic.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ended = match command {
        Command::Role(Role::Controller(controller)) => match begin("controller", &controller.common.process) {
            Ok(traces) => run::controller(controller, traces).await,
            Err(misuse) => Err(misuse.into()),
        },
        Command::Role(Role::VirtualNode(node)) => match begin("virtual-node", &node.process) {
            Ok(traces) => run::virtual_node(node, traces).await,
            Err(misuse) => Err(misuse.into()),
        },
        Command::Role(Role::Node(node)) => match begin("node", &node.process) {
            Ok(traces) => run::node(node, traces).await,
            Err(misuse) => Err(misuse.into()),
        },
        Command::Role(Role::Mover(command)) => {
            telemetry::start(LogFormat::Text);
            run::mover(command).await
        }
        Command::Role(Role::VolumeStats(arguments)) => {
            telemetry::start(LogFormat::Text);
            run::volume_stats(arguments).await
        }
        Command::Role(Role::Operator(command)) => return operate(&command).await,
        Command::Completion { shell } => return complete(shell),
        #[cfg(all(feature = "dev", target_os = "linux"))]
        Command::Dev(arguments) => match begin("dev", &arguments.process) {
            Ok(traces) => dev::run(arguments, traces).await,
            Err(misuse) => Err(misuse.into()),
        },
        #[cfg(not(all(feature = "dev", target_os = "linux")))]
        Command::Dev { .. } => {
            sorry(
                "this program is made for clusters and has no simulated ones in it: `dev` needs one that was built with \
                 them (`make dev` in a checkout builds and starts it, on Linux)",
            );
            return MISUSE.into();
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            if error.is::<Misuse>() { MISUSE.into() } else { ExitCode::FAILURE }
        }
    }
}

/// Begins the log, and traces where they are asked for.
fn begin(role: &str, process: &Process) -> Result<Traces, Misuse> {
    telemetry::start_with_traces(role, process.log_format, process.otlp_endpoint.as_deref()).map_err(Misuse)
}

fn complete(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "kosmos-csi", &mut script);
    match run::operator::out(&String::from_utf8_lossy(&script)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            sorry(&run::operator::in_words(&error));
            ExitCode::FAILURE
        }
    }
}

/// Where nobody reads it, the exit code says as much: `eprintln` would panic on a closed stream.
fn sorry(words: &str) {
    let _ = writeln!(stderr(), "error: {}", printable(words));
}

/// A command ends with what it found, and its errors are sentences, not lines of a log.
async fn operate(command: &operator::Command) -> ExitCode {
    match run::operator::operate(command).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            sorry(&run::operator::in_words(&error));
            match error.is::<Misuse>() {
                true => MISUSE.into(),
                false if command.only_looks() => UNKNOWN.into(),
                false => ExitCode::FAILURE,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serves_in_a_cluster_has_two_threads_at_most_and_a_command_has_all_processors() {
        let threads = |line: &str, processors| {
            let arguments = Arguments::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(threads(&arguments.command, processors, NonZero::new(3)), 3, "{line}: as it is told");
            threads(&arguments.command, processors, None)
        };
        for serving in ["controller", "virtual-node", "node --node-name a --member b", "volume-stats"] {
            let line = format!("kosmos-csi {serving}");
            assert_eq!([1, 2, 64].map(|processors| threads(&line, processors)), [1, 2, 2], "{line}");
        }
        assert_eq!([1, 64].map(|processors| threads("kosmos-csi status", processors)), [1, 64]);
    }
}
