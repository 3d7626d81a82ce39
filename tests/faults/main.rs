//! The driver under faults: simulated clusters, the real driver in this process, a provisioner that behaves as the real one
//! does, and promises that are checked in the clusters' own stores.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "its helpers are part of tests")]

#[path = "../authority.rs"]
mod authority;
#[path = "../reclaim/table.rs"]
mod reclaim_table;

mod abandoned;
mod accounts;
mod adopted;
mod ask;
mod attach;
mod attributes;
mod bench;
mod bulkhead;
mod by_hand;
mod caller;
mod codes;
mod copies;
mod costs;
mod crash;
mod decisions;
mod detached;
mod elsewhere;
mod extent;
mod fixture;
mod forgotten;
mod found;
mod freed;
mod goes_on;
mod gone;
mod guard;
mod healing;
mod history;
mod host_restored;
mod imported;
mod invariants;
mod kosmos;
mod late;
mod late_changes;
mod late_snapshots;
mod leader;
mod leaves;
mod ledger;
mod lives;
mod long_names;
mod many;
mod minds;
mod moves;
mod moving;
mod narrow;
mod open_classes;
mod people;
mod pins;
mod placed;
mod process;
mod prompt;
mod reclaim;
mod refusals;
mod rejoined;
mod replaced;
mod restored;
mod rolled_back;
mod schedules;
mod second_names;
mod shared;
mod sidecar;
mod snapshotter;
mod steered;
mod strays;
mod stuck;
mod sweeps;
mod taken;
mod tokens;
mod untold;
mod virtual_time;
mod waiting;
mod watches;
mod weather;
