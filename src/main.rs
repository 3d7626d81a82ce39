//! The `kosmos-csi` command.

fn main() {}
