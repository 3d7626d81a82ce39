//! The driver on real clusters: kube-apiserver, controller-manager, scheduler, external-provisioner, real storage in the
//! members, and real nodes there. Each test states a rule; they share one fleet and run one after another.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "../sanity/attributes.rs"]
mod attributes;
#[path = "../clusters/mod.rs"]
mod clusters;
#[path = "../sanity/suite.rs"]
mod suite;

mod binding;
mod capacity;
mod chain;
mod driver;
mod edges;
mod healing;
mod host_node;
mod lives;
mod many;
mod members;
mod nodes;
mod objects;
mod operator;
mod outage;
mod placement;
mod reclaim;
mod requests;
mod rig;
mod sanity;
mod snapshots;
