//! What the driver has of the machine: the same after a fault as before, or it would not last.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::rig::Rig;

/// What it takes for what it did not have to do before.
const MEBIBYTES: u64 = 64;
const FILES: usize = 64;

#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub process: i32,
    pub mebibytes: u64,
    pub files: usize,
}

impl Used {
    pub async fn by_driver(rig: &Rig) -> Result<Self> {
        let process = rig.driver.pid().await.context("the driver does not run")?;
        let status = fs::read_to_string(format!("/proc/{process}/status")).context("look at the driver's process")?;
        let files = fs::read_dir(format!("/proc/{process}/fd")).context("look at the driver's files")?.count();
        let mebibytes = resident(&status).context("its memory is not told")? >> 10;
        Ok(Self { process, mebibytes, files })
    }

    pub fn is_hardly_more_than(&self, before: &Self) -> Result<()> {
        let is_more = self.mebibytes > before.mebibytes + MEBIBYTES || self.files > before.files + FILES;
        ensure!(!is_more, "it had {before:?} and has {self:?}");
        Ok(())
    }
}

/// In KiB.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_more_is_no_growth() {
        let before = Used { process: 1, mebibytes: 50, files: 20 };
        for (mebibytes, files, is_little) in [(114, 84, true), (115, 20, false), (50, 85, false), (10, 5, true)] {
            let now = Used { process: 1, mebibytes, files };
            assert_eq!(now.is_hardly_more_than(&before).is_ok(), is_little, "{now:?}");
        }
    }

    #[test]
    fn memory_is_read_from_the_status_of_a_process() {
        assert_eq!(resident("Name:\tx\nVmHWM:\t  9 kB\nVmRSS:\t    51200 kB\n"), Some(51200));
        assert_eq!(resident("Name:\tx\n"), None);
    }
}
