//! csi-sanity on the embedded default: `kosmos-csi dev`, its controller's own socket, and volumes that are directories.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "its helpers are part of tests")]

mod attributes;
#[path = "../dev/process.rs"]
#[allow(dead_code, reason = "the tests of dev use the rest")]
mod process;
mod suite;
#[path = "../clusters/tools.rs"]
#[allow(dead_code, reason = "the fleet uses the rest")]
mod tools;
#[path = "../clusters/tools_table.rs"]
#[allow(dead_code, reason = "the fleet uses the rest")]
mod tools_table;

use nix::sys::signal::Signal;
use process::Dev;
use serde_json::{Value, json};
use suite::Suite;

#[tokio::test]
async fn csi_sanity_passes_every_spec_listed() {
    let folder = tempfile::Builder::new().prefix("sanity-").tempdir_in("/tmp").unwrap();
    let dev = Dev::start(folder.path()).await;
    let member = dev.cluster("cluster38").await;
    // A namespace that the driver makes itself takes no pod for a moment, and the suite asks but once.
    member.create("/api/v1/namespaces", &json!({"metadata": {"name": "kosmos-csi"}})).await;
    member.until("/api/v1/namespaces/kosmos-csi/serviceaccounts/default", "there", Value::is_object).await;
    let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    member.create(classes, &attributes::attributes_class(attributes::CLASS, "storage.simulated")).await;
    let suite = Suite {
        program: tools::tool("csi-sanity").unwrap(),
        controller: folder.path().join("csi.sock"),
        node: folder.path().join("node.sock"),
        mounts: nix::unistd::geteuid().is_root(),
        parameters: "member: cluster38\nleafStorageClass: openebs-hostpath\n",
        attributes: attributes::ATTRIBUTES,
        folder: folder.path().to_owned(),
    };
    let outcome = suite.run().await;
    let left: Vec<_> = std::fs::read_dir(folder.path().join("volumes/cluster38")).unwrap().collect();
    let (_, said) = dev.end(Signal::SIGINT).await;
    assert!(outcome.is_ok(), "{outcome:?}\n{said}");
    assert!(left.is_empty(), "volumes are left: {left:?}");
}
