//! rsync: with what it is called, what it may be called with, and how it is begun and ended.

use std::{ffi::OsStr, process::Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    task::{JoinHandle, spawn_blocking},
};

use crate::{
    attributes::FILTERS,
    outcome::{Failure, Reason},
    walk::Survey,
};

pub(crate) const PROGRAM: &str = "rsync";
/// Before it, trees of somebody else's making could lead a process of root astray, and sparse files could come out wrong.
const OLDEST: (u32, u32) = (3, 5);
/// Lines of standard error that are kept.
const KEPT: usize = 20;
/// Bytes of each: what is said of links has two paths, and all of them go in one frame.
const LONGEST: usize = 4 << 10;
/// Two of them.
pub(crate) const BETWEEN: &str = "; ";
/// What the other end is called where a host's name has to stand.
const OTHER_END: &str = "receiver";

/// Which pass over the tree it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Nothing of it is there.
    First,
    /// Something of it may be there.
    Again,
    /// What is there looks right and is not.
    Repair,
}

/// What the sender's rsync is called with.
pub(crate) fn arguments(survey: &Survey, pass: Pass, in_place: bool, shell: &str, folder: &str) -> Vec<String> {
    let plain = [
        "-aHAXXS",
        "--numeric-ids",
        "--super",
        "--one-file-system",
        "--delete",
        "--modify-window=-1",
        "--open-noatime",
        "--info=progress2",
        "--no-human-readable",
        "--outbuf=L",
    ];
    let mut arguments: Vec<String> = plain.into_iter().chain(FILTERS).map(str::to_owned).collect();
    if !survey.with_lost_and_found {
        arguments.push("--exclude=/lost+found".to_owned());
    }
    // Where an older copy has names as one that are two now, each would write over what the other has written.
    if in_place {
        arguments.push("--inplace".to_owned());
    }
    match pass {
        Pass::First => arguments.push("--whole-file".to_owned()),
        Pass::Again => arguments.push("--no-whole-file".to_owned()),
        Pass::Repair => arguments.extend(["--no-whole-file", "--checksum"].map(str::to_owned)),
    }
    arguments.push(format!("--rsh={shell}"));
    arguments.push(format!("{folder}/"));
    arguments.push(format!("{OTHER_END}:/"));
    arguments
}

/// What the receiver calls it with, of what the sender's rsync asks for: nothing that would make it write elsewhere, run
/// something or read from it. What is not known here is refused.
pub(crate) fn server_arguments(asked: &[String], folder: &str) -> Option<Vec<String>> {
    const LONG: [&str; 7] = ["--delete", "--super", "--numeric-ids", "--open-noatime", "--inplace", "--no-W", "-@-1"];
    let (head, tail) = (asked.get(..4)?, asked.get(4..)?);
    let is_server = head[0] == OTHER_END && head[1] == PROGRAM && head[2] == "--server" && is_short(&head[3]);
    let (places, options) = (tail.get(tail.len().checked_sub(2)?..)?, tail.get(..tail.len() - 2)?);
    let is_known = options.iter().all(|option| LONG.contains(&option.as_str()));
    let called = || {
        let options = options.iter().cloned();
        ["--server".to_owned(), head[3].clone()]
            .into_iter()
            .chain(options)
            .chain([".".to_owned(), format!("{folder}/")])
            .collect()
    };
    (is_server && is_known && places == [".", "/"]).then(called)
}

/// Letters of options that take no value, and after `e.` those of what the other end can do.
fn is_short(argument: &str) -> bool {
    const OPTIONS: &str = "lWHogDtpAXrcxSv";
    let Some((options, abilities)) = argument.strip_prefix('-').and_then(|letters| letters.split_once("e.")) else {
        return false;
    };
    options.chars().all(|letter| OPTIONS.contains(letter)) && abilities.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Bytes that were carried, by a line of `--info=progress2`.
pub(crate) fn progress(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    let bytes = words.next()?.parse().ok()?;
    words.next()?.strip_suffix('%')?.parse::<u8>().ok()?;
    Some(bytes)
}

fn version(printed: &str) -> Option<(u32, u32)> {
    let version = printed.strip_prefix("rsync ")?.trim_start().strip_prefix("version ")?;
    let mut numbers = version.split(['.', ' ', '-', '+']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether it is there and new enough; its version.
pub(crate) async fn check() -> Result<String, Failure> {
    let unfit = |why: String| Failure::new(Reason::Misconfigured, why);
    let output = Command::new(PROGRAM).arg("--version").output().await;
    let output = output.map_err(|error| unfit(format!("the mover cannot run rsync: {error}")))?;
    usable_version(&String::from_utf8_lossy(&output.stdout)).map_err(unfit)
}

/// The version of which an rsync prints that it is one, if it is new enough.
pub fn usable_version(printed: &str) -> Result<String, String> {
    let first = printed.lines().next().unwrap_or_default();
    let found = version(first).ok_or_else(|| format!("rsync does not say its version but {first:?}"))?;
    if found < OLDEST {
        let (major, minor) = OLDEST;
        return Err(format!("rsync is too old: {}.{}, and {major}.{minor} is needed", found.0, found.1));
    }
    Ok(format!("{}.{}", found.0, found.1))
}

/// One that runs, and all that it has started.
#[derive(Debug)]
pub(crate) struct Running {
    pub child: Child,
    pub group: Option<Pid>,
    said: JoinHandle<String>,
}

impl Running {
    pub(crate) fn start(arguments: &[String], environment: &[(&str, &OsStr)], stdin: Stdio) -> Result<Self, Failure> {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).envs(environment.iter().copied()).env("LC_ALL", "C").process_group(0);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let failed = |error| Failure::new(Reason::Misconfigured, format!("rsync cannot be run: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let said = tokio::spawn(last_lines(child.stderr.take()));
        Ok(Self { child, group, said })
    }

    /// How it has ended, where it does so by itself.
    pub(crate) async fn ended(mut self) -> std::io::Result<(bool, String)> {
        let status = self.child.wait().await?;
        let said = self.said.await.unwrap_or_default();
        let said = if said.is_empty() { format!("rsync: {status}") } else { said };
        Ok((status.success(), said))
    }

    /// Kills them, and waits for none of them.
    pub(crate) fn strike(&self) {
        if let Some(group) = self.group
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "rsync has gone already");
        }
    }

    /// Returns once none of its processes is left that could write anything: each of them holds the other end of standard error. The one that
    /// writes into the copy has closed its standard output.
    pub(crate) async fn kill(mut self) {
        self.strike();
        let _ = self.child.wait().await;
        let _ = self.said.await;
        // What it has started comes to the first process of the pod, which is the mover, and stays a zombie until that asks how it ended.
        if let Some(group) = self.group {
            let asked = spawn_blocking(move || while waitpgid(group, WaitOptions::empty()).is_ok() {});
            let _ = asked.await;
        }
    }
}

async fn last_lines(stderr: Option<impl AsyncRead + Unpin>) -> String {
    let Some(stderr) = stderr else { return String::new() };
    let mut reader = BufReader::new(stderr);
    let (mut kept, mut line) = (std::collections::VecDeque::new(), Vec::new());
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        tracing::warn!("rsync says: {text:?}");
        // What was wrong stands after the path.
        kept.push_back(text[text.ceil_char_boundary(text.len().saturating_sub(LONGEST))..].to_owned());
        if kept.len() > KEPT {
            kept.pop_front();
        }
        line.clear();
    }
    Vec::from(kept).join(BETWEEN)
}

/// Of how rsync has ended, at either end.
pub(crate) fn failure(said: &str) -> Failure {
    Failure::new(
        if said.split(BETWEEN).any(is_of_full_storage) { Reason::NoSpace } else { Reason::CopyFailed },
        format!("rsync failed: {said}"),
    )
}

/// The kernel says of space too that a filesystem takes no more attributes of one file, however much room it has.
fn is_of_full_storage(line: &str) -> bool {
    let is_of_attributes = ["setxattr(", "set_acl: "].iter().any(|text| line.contains(text));
    line.contains("Disk quota exceeded") || (line.contains("No space left on device") && !is_of_attributes)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use rustix::process::{getpid, set_child_subreaper};
    use tokio::io::AsyncReadExt;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_rsync_asks_for_is_passed_on_with_the_receivers_own_folder() {
        let asked =
            words("receiver rsync --server -lHogDtpAXrxSe.iLsfxCIvu --delete --super -@-1 --numeric-ids --inplace . /");
        let called = server_arguments(&asked, "/data").unwrap();
        assert_eq!(
            called,
            words("--server -lHogDtpAXrxSe.iLsfxCIvu --delete --super -@-1 --numeric-ids --inplace . /data/")
        );
    }

    #[test]
    fn what_would_lead_rsync_elsewhere_is_refused() {
        for asked in [
            "receiver rsync --server --sender -e.iLsfxCIvu . /",
            "receiver sh --server -e.iLsfxCIvu . /",
            "receiver rsync -e.iLsfxCIvu --server . /",
            "receiver rsync --server -e.iLsfxCIvu --log-file=/etc/passwd . /",
            "receiver rsync --server -e.iLsfxCIvu --temp-dir=/etc . /",
            "receiver rsync --server -e.iLsfxCIvu --backup-dir=/etc . /",
            "receiver rsync --server -e.iLsfxCIvu . /etc",
            "receiver rsync --server -e.iLsfxCIvu / /",
            "receiver rsync --server -e.iLsfxCIvu . / /",
            "receiver rsync --server -e/bin/sh . /",
            "receiver rsync --server",
            "receiver rsync --server - . /",
            "receiver rsync --server -T . /",
            "receiver rsync --server -lTe.iLsfxCIvu . /",
            "receiver rsync --server -le.iLsfx/Iv . /",
            "receiver rsync --server --daemon . /",
            "",
        ] {
            assert_eq!(server_arguments(&words(asked), "/data"), None, "{asked}");
        }
    }

    #[test]
    fn version_is_read_of_what_rsync_prints() {
        assert_eq!(version("rsync  version 3.5.0  protocol version 32"), Some((3, 5)));
        assert_eq!(version("rsync  version v3.2.7"), None);
        assert!(version("rsync  version 3.2.7  protocol version 31").unwrap() < OLDEST);
        assert!(version("rsync  version 3.10.0  protocol version 32").unwrap() > OLDEST);
    }

    #[test]
    fn progress_is_read_of_its_own_lines_alone() {
        assert_eq!(progress("     10485760  50%   10.00MB/s    0:00:01 (xfr#1, to-chk=1/3)"), Some(10_485_760));
        for other in ["", "receiving incremental file list", "10 files", "a/b", "12 12%x"] {
            assert_eq!(progress(other), None, "{other}");
        }
    }

    /// What is too long for a frame breaks the line, and each one after it.
    #[tokio::test]
    async fn of_what_rsync_says_the_last_lines_are_kept_and_the_end_of_each() {
        let path = "\\#033".repeat(4 << 10);
        let lines: Vec<String> =
            (0..30).map(|number| format!("{path}: No space left on device ({number})\n")).collect();
        let kept = last_lines(Some(lines.concat().as_bytes())).await;
        assert!(kept.contains("device (10); ") && kept.ends_with("device (29)") && !kept.contains("device (9)"));
        assert!(kept.len() < KEPT * (LONGEST + 2), "{} bytes", kept.len());
        assert_eq!(failure(&kept).reason(), Reason::NoSpace);
    }

    /// A call to the kernel that one of them is in comes to its end, whoever kills it.
    #[tokio::test]
    async fn rsync_that_is_killed_is_over_once_the_last_of_its_processes_is() {
        let folder = tempfile::tempdir().unwrap();
        let (program, written) = (folder.path().join("rsync"), folder.path().join("written"));
        // As in such a call, it goes on when all of its group are killed.
        let writes = "echo; exec > /dev/null; while kill -0 $0 2> /dev/null; do :; done; sleep 0.2; : > \"$1\"";
        let starts = format!("setsid sh -c '{writes}' $$ \"$1\" &");
        fs::write(&program, ["#!/bin/sh", &starts, "exec sleep 600", ""].join("\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let arguments = [written.to_str().unwrap().to_owned()];
        let mut running = Running::start(&arguments, &[("PATH", OsStr::new(&path))], Stdio::null()).unwrap();
        running.child.stdout.as_mut().unwrap().read_u8().await.unwrap();
        assert!(!written.exists());
        running.kill().await;
        assert!(written.exists());
    }

    /// A pod may have only so many processes, those counted too that have ended, and a line may break again and again.
    #[tokio::test]
    async fn nothing_is_left_of_what_an_rsync_has_started_once_it_is_killed() {
        // As the first process of a pod is.
        set_child_subreaper(Some(getpid())).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("rsync");
        fs::write(&program, "#!/bin/sh\nsleep 600 &\necho $!\nwait\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let mut running = Running::start(&[], &[("PATH", OsStr::new(&path))], Stdio::null()).unwrap();
        let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
        let started = lines.next_line().await.unwrap().unwrap();
        assert!(fs::exists(format!("/proc/{started}")).unwrap());
        running.kill().await;
        assert!(!fs::exists(format!("/proc/{started}")).unwrap());
    }

    #[test]
    fn full_destination_is_told_apart() {
        let full = "rsync: [receiver] write failed on \"/data/a\": No space left on device (28); rsync error: error in file IO";
        assert_eq!(failure(full).reason(), Reason::NoSpace);
        assert_eq!(failure("rsync: chown failed: Operation not permitted (1)").reason(), Reason::CopyFailed);
        let attribute =
            "rsync: [receiver] rsync_xal_set: fsetxattr(\"/data/a\",\"user.x\") failed: No space left on device (28)";
        assert_eq!(failure(attribute).reason(), Reason::CopyFailed);
        assert_eq!(failure(&format!("{full}; {attribute}")).reason(), Reason::NoSpace);
    }
}
