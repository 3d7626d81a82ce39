//! The driver on real clusters: kube-apiserver, controller-manager, scheduler, external-provisioner, real storage in the
//! members, and real nodes there. Each test states a rule. They share one fleet, and `turns.rs` says
//! which run side by side: give the binary more threads than it has tests that want the fleet for themselves.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "../sanity/attributes.rs"]
mod attributes;
#[path = "../clusters/mod.rs"]
mod clusters;
#[path = "../rights/rare.rs"]
mod rare;
#[path = "../reclaim/table.rs"]
mod reclaim_table;
#[path = "../sanity/suite.rs"]
mod suite;

mod agent;
mod binding;
mod capacity;
mod chain;
mod door;
mod driver;
mod edges;
mod healing;
mod host_node;
mod kosmos;
mod lives;
mod many;
mod members;
mod nodes;
mod objects;
mod operator;
mod operator_commands;
mod outage;
mod placement;
mod reasons;
mod reclaim;
mod requests;
mod rig;
mod rights;
mod sanity;
mod snapshots;
mod turns;
