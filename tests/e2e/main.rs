//! Real clusters: kube-apiserver, controller-manager, scheduler, kubelets, the sidecars, and real storage in the members.
//! Each test states a rule, and what it needs; `pool` gives it that. Give the binary more threads than it has tests.
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
mod alike;
mod binding;
mod capacity;
mod chain;
mod differential;
mod driver;
mod edges;
mod faults_real;
mod first_minutes;
mod fleet;
mod freed;
mod healing;
mod host_node;
mod install;
mod kosmos;
mod kubelet_api;
mod lives;
mod lost;
mod lost_host;
mod many;
mod members;
mod metrics;
mod minds;
mod narrow;
mod nodes;
mod objects;
mod operator;
mod operator_commands;
mod outage;
mod own_accounts;
mod placement;
mod pod_debug;
mod pod_events;
mod policies;
mod pool;
mod reasons;
mod reclaim;
mod replacement;
mod requests;
mod rig;
mod rights;
mod sanity;
mod snapshots;
mod suites;
mod tokens;
mod two_hosts;
mod usage;
mod volume_stats;
