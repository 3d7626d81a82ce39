//! Files that a command leaves behind.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::anyhow;

use crate::run::{Misuse, Signals};

/// What `--output` names, made before anybody is asked anything, as that takes its time; and not left there where that fails, or is
/// ended by a signal.
pub(super) async fn output<T>(
    path: &Path,
    write: impl AsyncFnOnce(&mut File) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut signals = Signals::new()?;
    let mut file = create_new(path).map_err(|error| Misuse(format!("--output {}: {error}", path.display())))?;
    let written = tokio::select! {
        written = write(&mut file) => written,
        signal = signals.next() => Err(anyhow!("{signal} ended this command before it had asked everything: it wrote no {}", path.display())),
    };
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

/// Nobody else may read it, from the first byte on; and none that is there is written over.
pub(super) fn create_new(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
