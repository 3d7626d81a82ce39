//! csi-sanity on the embedded default: `kosmos-csi dev`, its controller's own socket, and volumes that are directories.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

mod node;
mod suite;
#[path = "../clusters/tools.rs"]
#[allow(dead_code, reason = "the fleet uses the rest")]
mod tools;
#[path = "../clusters/tools_table.rs"]
#[allow(dead_code, reason = "the fleet uses the rest")]
mod tools_table;

use std::{path::Path, process::Stdio, time::Duration};

use suite::Suite;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn csi_sanity_passes_every_spec_listed() {
    let folder = tempfile::Builder::new().prefix("sanity-").tempdir_in("/tmp").unwrap();
    let node = folder.path().join("node.sock");
    let _serving = node::serve(&node).unwrap();
    let dev = start(folder.path()).await;
    let suite = Suite {
        program: tools::tool("csi-sanity").unwrap(),
        controller: folder.path().join("csi.sock"),
        node,
        parameters: "member: cluster38\nleafStorageClass: openebs-hostpath\n",
        folder: folder.path().to_owned(),
    };
    let outcome = suite.run().await;
    let left: Vec<_> = std::fs::read_dir(folder.path().join("volumes/cluster38")).unwrap().collect();
    drop(dev);
    let said = std::fs::read_to_string(folder.path().join("dev.log")).unwrap();
    assert!(outcome.is_ok(), "{outcome:?}\n{said}");
    assert!(left.is_empty(), "volumes are left: {left:?}");
}

/// Until it says that it is ready.
async fn start(folder: &Path) -> Child {
    let mut dev = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"))
        .args(["dev", "--dir"])
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(folder.join("dev.log")).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let ready = async { while lines.next_line().await.unwrap().unwrap() != "ready" {} };
    timeout(PATIENCE, ready).await.unwrap();
    dev
}
