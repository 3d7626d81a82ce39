//! What the process has of the machine's.

use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use rustix::process::{Resource, getrlimit};

/// Where Linux lists what a process has open.
const OPEN: &str = "/proc/self/fd";

#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    open_files: Gauge,
    limit: Gauge,
}

impl Process {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("open_files", "Files and connections that are open", self.open_files.clone());
        registry.register("open_files_limit", "How many files and connections may be open", self.limit.clone());
    }

    pub(super) fn refresh(&self) {
        let open = std::fs::read_dir(OPEN).map_or(0, Iterator::count);
        self.open_files.set(i64::try_from(open).unwrap_or(i64::MAX));
        let limit =
            getrlimit(Resource::Nofile).current.map_or(i64::MAX, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        self.limit.set(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_opened_counts() {
        let process = Process::default();
        process.refresh();
        let before = process.open_files.get();
        // More than other tests are likely to close meanwhile.
        let opened: Vec<_> = (0..50).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        process.refresh();
        assert!(process.open_files.get() >= before + 25, "{before}, and {} then", process.open_files.get());
        assert!(process.limit.get() > process.open_files.get());
        drop(opened);
    }
}
