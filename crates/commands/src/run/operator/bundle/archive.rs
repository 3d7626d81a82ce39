//! A compressed archive, as everybody can open it.

use std::io::{Error, Write as _};

use flate2::{Compression, write::GzEncoder};
use operator::bundle::File;
use tar::{Builder, Header};

pub(super) fn packed(files: &[File], folder: &str, now: i64) -> Result<Vec<u8>, Error> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for file in files {
        let mut header = Header::new_gnu();
        header.set_size(file.text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(now.try_into().unwrap_or_default());
        archive.append_data(&mut header, format!("{folder}/{}", file.path), file.text.as_bytes())?;
    }
    let mut packed = archive.into_inner()?;
    packed.flush()?;
    packed.finish()
}
