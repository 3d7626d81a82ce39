//! What processes have of the machine: the same after a fault as before, or they would not last.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{fault::CONTROLLER, row::Memory};

pub const AGENT: &str = "agent";
pub const NODE_PLUGIN: &str = "node plugin";
/// Of ours: of these a test knows what they may need.
pub const PROGRAMS: [&str; 3] = [CONTROLLER, AGENT, NODE_PLUGIN];
/// What one takes for what it did not have to do before.
const MEBIBYTES: u64 = 64;
const FILES: usize = 64;
/// To a process's `clear_refs`: what it has had at most is what it has now.
const FORGET_PEAK: &str = "5";

/// By one process.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub process: i32,
    pub mebibytes: u64,
    /// Of these, what is no page of its program: of that it has more with everything that it does for the first time.
    pub own: u64,
    pub files: usize,
}

impl Used {
    pub fn by(process: i32) -> Result<Self> {
        let files = fs::read_dir(format!("/proc/{process}/fd")).context("look at a process's files")?.count();
        let status = status(process)?;
        Ok(Self { process, mebibytes: memory(&status, "VmRSS:")?, own: memory(&status, "RssAnon:")?, files })
    }

    pub fn is_hardly_more_than(&self, before: &Self) -> Result<()> {
        let is_more = self.own > before.own + MEBIBYTES || self.files > before.files + FILES;
        ensure!(!is_more, "it had {before:?} and has {self:?}");
        Ok(())
    }
}

impl Memory {
    /// Of a process that had so much when it was looked at first.
    pub fn of(process: i32, began: Option<u64>) -> Result<Self> {
        let status = status(process)?;
        Ok(Self { process, began, peak: memory(&status, "VmHWM:")?, ended: memory(&status, "VmRSS:")? })
    }
}

/// From now on its peak is that of what comes.
pub fn forget_peak(process: i32) -> Result<()> {
    fs::write(format!("/proc/{process}/clear_refs"), FORGET_PEAK).context("forget what a process had at most")
}

fn status(process: i32) -> Result<String> {
    fs::read_to_string(format!("/proc/{process}/status")).context("look at a process")
}

/// In MiB, of a line that has KiB.
fn memory(status: &str, line: &str) -> Result<u64> {
    let line = status.lines().find_map(|text| text.strip_prefix(line));
    let kibibytes: Option<u64> = line.and_then(|text| text.split_whitespace().next()?.parse().ok());
    Ok(kibibytes.context("its memory is not told")? >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_more_is_no_growth() {
        let before = Used { process: 1, mebibytes: 90, own: 50, files: 20 };
        for (own, files, is_little) in [(114, 84, true), (115, 20, false), (50, 85, false), (10, 5, true)] {
            let now = Used { process: 1, mebibytes: 200, own, files };
            assert_eq!(now.is_hardly_more_than(&before).is_ok(), is_little, "{now:?}");
        }
    }

    #[test]
    fn memory_is_read_from_the_status_of_a_process() {
        let status = "Name:\tx\nVmHWM:\t  61440 kB\nVmRSS:\t    51200 kB\nRssAnon:\t   30720 kB\n";
        assert_eq!(memory(status, "VmRSS:").unwrap(), 50);
        assert_eq!(memory(status, "RssAnon:").unwrap(), 30);
        assert_eq!(memory(status, "VmHWM:").unwrap(), 60);
        assert!(memory("Name:\tx\n", "VmRSS:").is_err());
    }

    #[test]
    fn peak_of_a_process_is_never_less_than_what_it_has() {
        let this = i32::try_from(std::process::id()).unwrap();
        forget_peak(this).unwrap();
        let memory = Memory::of(this, Some(1)).unwrap();
        assert!(memory.peak >= memory.ended && memory.began == Some(1), "{memory:?}");
    }
}
