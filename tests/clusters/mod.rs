//! Real Kubernetes clusters on one machine, for tests and for persons.
//!
//! `Fleet::start` gives a test a host and members, each with etcd, API server, controller-manager, scheduler and, where
//! asked, a node with containerd and kubelet. A *guardian*, a process apart (`clusters guard`), owns everything:
//! however the test ends, nothing is left. Read `fleet.rs` first, then `guard.rs` and `namespaces.rs`.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    reason = "each test uses a part of it, and the command speaks to a person"
)]

pub mod audit;
pub mod between;
pub mod bill;
pub mod certificates;
pub mod cluster;
pub mod control_plane;
pub mod fleet;
pub mod forward;
pub mod guard;
pub mod guardian;
pub mod images;
pub mod kubernetes;
pub mod local_path;
pub mod logs;
pub mod member_driver;
pub mod metrics_server;
pub mod namespaces;
pub mod node;
pub mod pack;
pub mod packages;
pub mod person;
pub mod process;
pub mod product;
pub mod progress;
pub mod protocol;
pub mod remains;
pub mod sidecars;
pub mod suites;
pub mod tools;
pub mod tools_build;
pub mod tools_table;
pub mod virtual_node;
pub mod wait;

#[allow(unused_imports, reason = "each test uses a part of it")]
pub use {
    audit::{AuditEntry, AuditMark},
    cluster::Cluster,
    fleet::{Fleet, Spec},
    process::Process,
    virtual_node::{NodeDriver, VirtualNode},
    wait::{wait_blocking, wait_for},
};
