//! The archives of images that nodes import.

use std::path::PathBuf;

use anyhow::Result;

use super::tools::Tools;

pub fn images(tools: &Tools) -> Result<Vec<PathBuf>> {
    Ok(["pause.tar", "busybox.tar"]
        .map(|name| tools.path(name))
        .to_vec())
}
