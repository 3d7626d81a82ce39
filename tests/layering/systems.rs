//! The commands are built for other systems than Linux too, and no test builds them there: what only Linux has is called where only
//! Linux builds it.

use std::fs;

use super::{circles::code, files, root};

const ON_LINUX: &str = "#[cfg(target_os = \"linux\")]\n";
const USED_ON_LINUX: &str = "[target.'cfg(target_os = \"linux\")'.dependencies]\n";

/// Where a module or a name is for Linux alone, and how it is declared there.
const GATES: [(&str, &str); 7] = [
    ("crates/commands/src/run/mod.rs", "pub mod mover;"),
    ("crates/commands/src/run/mod.rs", "pub mod node;"),
    ("crates/commands/src/run/mod.rs", "pub use mover::mover;"),
    ("crates/commands/src/run/mod.rs", "pub use node::node;"),
    ("crates/csi/src/lib.rs", "pub mod node;"),
    ("crates/mount/src/lib.rs", "mod linux;"),
    ("crates/mount/src/lib.rs", "pub use self::linux::Linux;"),
];
/// Likewise a crate, and by which manifest.
const CRATES: [(&str, &str); 4] = [
    ("Cargo.toml", "dev = { workspace = true, optional = true }"),
    ("crates/commands/Cargo.toml", "mover.workspace = true"),
    ("crates/csi/Cargo.toml", "mount.workspace = true"),
    ("crates/mount/Cargo.toml", "nix = { workspace = true, features = [\"fs\", \"mount\"] }"),
];
/// Built for Linux alone by the above. Who uses `simulate` is.
const BUILT_ON_LINUX: [&str; 8] = [
    "crates/commands/src/run/mover.rs",
    "crates/commands/src/run/node.rs",
    "crates/csi/src/node/",
    "crates/dev/",
    "crates/mount/src/linux.rs",
    "crates/mount/src/linux/",
    "crates/mover/",
    "crates/simulate/",
];
/// What nobody else calls. Of `mover` each name: that of its arguments is everywhere.
const OF_LINUX: [&str; 11] = [
    "nix::",
    "rustix::fs",
    "os::linux",
    "csi::node",
    "mount::Linux",
    "mount::{Linux",
    "mover::{",
    "mover::Places",
    "mover::pipe",
    "mover::receive",
    "mover::send",
];

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// Whether a path begins there with these words: `unix::` is not `nix::`.
fn calls(text: &str, words: &str) -> bool {
    let goes_on = |before: &str| before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
    text.match_indices(words).any(|(at, _)| !goes_on(&text[..at]))
}

#[test]
fn what_only_linux_has_is_called_where_only_linux_builds_it() {
    for (file, declared) in GATES {
        let text = read(file);
        assert!(text.contains(&format!("{ON_LINUX}{declared}\n")), "{file}: {declared} is built for every system");
        assert_eq!(text.lines().filter(|line| *line == declared).count(), 1, "{file}: {declared}");
    }
    for (file, used) in CRATES {
        let text = read(file);
        let (everywhere, on_linux) = text.split_once(USED_ON_LINUX).unwrap();
        assert!(!everywhere.contains(&format!("\n{used}\n")), "{file}: {used} is built for every system");
        assert!(on_linux.starts_with(&format!("{used}\n")), "{file}: {used} is not used on Linux");
    }
    let all =
        ["crates", "src"].into_iter().flat_map(|folder| files(folder).into_iter().map(move |file| (folder, file)));
    let all = all.map(|(folder, file)| format!("{folder}/{}", file.display()));
    let everywhere: Vec<String> = all.filter(|file| !BUILT_ON_LINUX.iter().any(|of| file.starts_with(of))).collect();
    assert!(everywhere.len() > 200, "{}", everywhere.len());
    for file in everywhere {
        let text = code(&read(&file));
        let called: Vec<_> = OF_LINUX.iter().filter(|words| calls(&text, words)).collect();
        assert!(called.is_empty(), "{file} calls {called:?}, which is built for Linux alone");
    }
    assert!(calls("use nix::sys;", "nix::") && !calls("use std::os::unix::fs;", "nix::"));
}
