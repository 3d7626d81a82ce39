//! Runs a command that takes minutes and lets a person see that it lives: on a terminal one line that counts the
//! seconds, elsewhere a line every half minute. What the command says goes to a log, shown when it fails.
#![expect(clippy::print_stdout, reason = "it speaks to a person")]

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const GLANCE: Duration = Duration::from_millis(250);
const LINE_EVERY: u64 = 30;
const SHOWN_OF_LOG: usize = 20;

/// Runs the command to its end and answers how long it took.
pub fn run(label: &str, mut command: Command, log: &Path) -> Result<Duration> {
    let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
    command.stdout(file.try_clone()?).stderr(file);
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("start {command:?}"))?;
    let status = watch(label, child, start)?;
    let took = start.elapsed();
    if !status.success() {
        bail!("{label}: {status}; {}:\n{}", log.display(), tail(log)?);
    }
    println!("{label}: built in {} s", seconds(took));
    Ok(took)
}

fn watch(label: &str, mut child: Child, start: Instant) -> Result<ExitStatus> {
    let terminal = io::stdout().is_terminal();
    let mut shown = 0;
    if !terminal {
        println!("{label} ...");
    }
    loop {
        if let Some(status) = child.try_wait()? {
            if terminal {
                print!("\r\x1b[K");
            }
            return Ok(status);
        }
        let elapsed = start.elapsed().as_secs();
        if terminal {
            print!("\r{label} ... {elapsed} s\x1b[K");
            io::stdout().flush()?;
        } else if elapsed >= shown + LINE_EVERY {
            shown = elapsed;
            println!("{label} ... {elapsed} s");
        }
        sleep(GLANCE);
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64())
}

fn tail(log: &Path) -> Result<String> {
    let text = fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
    let lines: Vec<_> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(SHOWN_OF_LOG)..].join("\n"))
}
