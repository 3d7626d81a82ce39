//! Runs the programs that know filesystems and loop devices, each with a deadline, so that a hanging device cannot
//! hold a call for ever.

use std::ffi::OsStr;
use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::error::Error;

const DEADLINE: Duration = Duration::from_mins(1);

/// Copies take as long as there is data.
const COPY_DEADLINE: Duration = Duration::from_mins(10);

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    line: String,
    /// None after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// What the program printed, if it ended well.
    pub(crate) fn well(self) -> Result<String, Error> {
        if self.code == Some(0) {
            Ok(self.stdout)
        } else {
            Err(self.failure())
        }
    }

    pub(crate) fn failure(&self) -> Error {
        Error::Internal(self.to_string())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(formatter, "{} ended with {code}", self.line)?,
            None => write!(formatter, "{} was killed", self.line)?,
        }
        write!(formatter, ": {}", self.stderr.trim().replace('\n', "; "))
    }
}

/// Runs a program to its end, whatever that is.
pub(crate) async fn attempt(program: &str, arguments: &[&OsStr]) -> Result<Ended, Error> {
    run(program, arguments, DEADLINE).await
}

/// Runs a program that has to end well.
pub(crate) async fn require(program: &str, arguments: &[&OsStr]) -> Result<String, Error> {
    attempt(program, arguments).await?.well()
}

/// Like [`require`], for a copy of data.
pub(crate) async fn copy(arguments: &[&OsStr]) -> Result<(), Error> {
    run("cp", arguments, COPY_DEADLINE).await?.well().map(drop)
}

async fn run(program: &str, arguments: &[&OsStr], deadline: Duration) -> Result<Ended, Error> {
    let mut line = program.to_owned();
    for argument in arguments {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .kill_on_drop(true);
    let output = timeout(deadline, command.output())
        .await
        .map_err(|_| {
            Error::Internal(format!(
                "{line} has not ended within {} s",
                deadline.as_secs()
            ))
        })?
        .map_err(Error::during(format!("starting {program}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ended {
        line,
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_says_what_ran_and_what_it_said() {
        let error = require(
            "sh",
            &["-c", "echo first >&2; echo second >&2; exit 3"].map(OsStr::new),
        )
        .await
        .unwrap_err();
        assert!(
            error.to_string().ends_with("ended with 3: first; second"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_ended() {
        let error = run("sleep", &[OsStr::new("60")], Duration::from_millis(20))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("has not ended"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = require("no-such-program", &[]).await.unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
