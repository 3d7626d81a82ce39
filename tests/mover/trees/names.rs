//! Names that people give, and names that nobody should.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use fastrand::Rng;

/// The kernel takes no longer one.
const LONGEST: usize = 255;

/// What shells, filters, terminals and rsync itself could take for something else.
const ODD: [&[u8]; 24] = [
    b"new\nline",
    b"\n",
    b" spaces around ",
    b"-rf",
    b"--delete",
    b"it's \"quoted\"",
    b"bad \xff\xfe bytes",
    b"cut short \xe2\x82",
    b"*",
    b"[a-z]?",
    b"back\\slash",
    b"\\012",
    b"$(true)",
    b"`true`",
    b"...",
    b"\x1b[2K",
    b"tab\there",
    b"#number#",
    b".hidden",
    b"~",
    b"host:path",
    b"\r",
    b"\x01",
    b"\xc3\xa9t\xc3\xa9",
];

pub fn path(rng: &mut Rng, folder: &Path) -> PathBuf {
    folder.join(OsString::from_vec(name(rng)))
}

fn name(rng: &mut Rng) -> Vec<u8> {
    let number = rng.u16(..);
    match rng.u8(..8) {
        0 | 1 => rng.choice(ODD).unwrap().to_vec(),
        2 => [rng.choice(ODD).unwrap(), number.to_string().as_bytes()].concat(),
        3 => [format!("{number:05}").as_bytes(), &vec![0xe9; LONGEST - 5]].concat(),
        4 => format!("{number}-{}", "long ".repeat(rng.usize(1..40))).into_bytes(),
        _ => format!("file-{number}").into_bytes(),
    }
}
