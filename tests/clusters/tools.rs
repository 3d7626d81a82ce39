//! Where the pinned tools are.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

#[derive(Debug)]
pub struct Tools {
    folder: PathBuf,
}

impl Tools {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

pub fn tools() -> Result<Tools> {
    let folder = env::var_os("KOSMOS_CSI_TOOLS")
        .context("set KOSMOS_CSI_TOOLS to the folder of the tools")?;
    Ok(Tools {
        folder: folder.into(),
    })
}
