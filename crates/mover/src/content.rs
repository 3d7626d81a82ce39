//! What a file holds, as one number that knows nothing of where its holes are.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{Advice, SeekFrom, fadvise, seek},
    io::Errno,
};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

/// Two copies of a file may have their holes at other places, so what is counted are blocks that are not all zeros.
const BLOCK: usize = 64 << 10;
const READ_AT_ONCE: usize = 1 << 20;

/// Reads files one after the other into the same memory.
#[derive(Debug)]
pub struct Reader {
    buffer: Vec<u8>,
    stop: CancellationToken,
}

impl Default for Reader {
    fn default() -> Self {
        Self { buffer: vec![0; READ_AT_ONCE], stop: CancellationToken::new() }
    }
}

impl Reader {
    /// Reads no further once nobody waits for it: a file may take hours, and is read anew over the next line.
    #[must_use]
    pub fn until(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// From the disk, as far as the kernel lets go of what it has in memory; counts the bytes of the file as it goes.
    pub fn digest(&mut self, file: &File, size: u64, done: &AtomicU64) -> io::Result<Vec<u8>> {
        fadvise(file, 0, None, Advice::DontNeed)?;
        let mut digest = Sha256::new();
        let mut position = 0;
        while let Some((begin, end)) = next_data(file, position, size)? {
            done.fetch_add(begin.saturating_sub(position), Ordering::Relaxed);
            position = begin;
            while position < end {
                let length = self.read(file, position, end)?;
                self.add_blocks(&mut digest, position, length);
                position += length as u64;
                done.fetch_add(length as u64, Ordering::Relaxed);
            }
        }
        done.fetch_add(size - position, Ordering::Relaxed);
        Ok(digest.finalize().to_vec())
    }

    fn read(&mut self, file: &File, position: u64, end: u64) -> io::Result<usize> {
        if self.stop.is_cancelled() {
            return Err(io::Error::other("nobody waits for its content any more"));
        }
        let length = usize::try_from(end - position).unwrap_or(usize::MAX).min(self.buffer.len());
        file.read_exact_at(&mut self.buffer[..length], position)?;
        Ok(length)
    }

    fn add_blocks(&self, digest: &mut Sha256, position: u64, length: usize) {
        for (block, start) in self.buffer[..length].chunks(BLOCK).zip((position..).step_by(BLOCK)) {
            if block.iter().any(|byte| *byte != 0) {
                digest.update(start.to_be_bytes());
                digest.update(block);
            }
        }
    }
}

/// Whole blocks around the next part of a file that is no hole, within its size.
fn next_data(file: &File, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if from >= size {
        return Ok(None);
    }
    let begin = match seek(file, SeekFrom::Data(from)) {
        Ok(begin) => begin,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let end = seek(file, SeekFrom::Hole(begin))?;
    let block = BLOCK as u64;
    let whole_end = end.next_multiple_of(block).min(size);
    // A file that shrinks while it is read is told as what it is: it ends too early.
    Ok((begin < size).then_some((begin / block * block, whole_end)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn digest(file: &File) -> (Vec<u8>, u64) {
        let done = AtomicU64::new(0);
        let size = file.metadata().unwrap().len();
        let digest = Reader::default().digest(file, size, &done).unwrap();
        (digest, done.into_inner())
    }

    fn file(parts: &[(u64, &[u8])], size: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        for (position, bytes) in parts {
            file.write_all_at(bytes, *position).unwrap();
        }
        file
    }

    #[test]
    fn holes_and_zeros_are_the_same() {
        let (with_holes, counted) = digest(&file(&[(3 << 20, b"data")], 5 << 20));
        assert_eq!(counted, 5 << 20);
        let mut full = file(&[], 0);
        full.write_all(&vec![0; 5 << 20]).unwrap();
        full.write_all_at(b"data", 3 << 20).unwrap();
        assert_eq!(digest(&full), (with_holes, 5 << 20));
    }

    #[test]
    fn file_is_read_no_further_once_nobody_waits_for_it() {
        let stop = CancellationToken::new();
        let mut reader = Reader::default().until(stop.clone());
        let (data, done) = (file(&[(0, b"data")], 4), AtomicU64::new(0));
        reader.digest(&data, 4, &done).unwrap();
        stop.cancel();
        assert!(reader.digest(&data, 4, &done).is_err());
    }

    #[test]
    fn a_byte_elsewhere_or_another_is_another_content() {
        let (original, _) = digest(&file(&[(70_000, b"data")], 1 << 20));
        for (position, bytes) in [(70_001, b"data"), (5_000, b"data"), (70_000, b"dato"), (700_000, b"data")] {
            assert_ne!(digest(&file(&[(position, bytes)], 1 << 20)).0, original, "{position} {bytes:?}");
        }
    }

    #[test]
    fn hundred_gibibytes_of_nothing_are_read_in_no_time() {
        let (nothing, counted) = digest(&file(&[], 100 << 30));
        assert_eq!((nothing, counted), (Sha256::digest([]).to_vec(), 100 << 30));
        assert_ne!(digest(&file(&[((100 << 30) - 1, b"!")], 100 << 30)).0, Sha256::digest([]).to_vec());
    }
}
