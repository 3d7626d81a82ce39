//! What a node does with volumes: on a model of a machine, where a process dies at every call, and on the real kernel, in
//! mount namespaces of its own (which needs root).
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

mod attackers;
mod crashes;
mod fake;
mod folders;
mod full;
mod growth;
mod kept;
mod kinds;
#[path = "../namespace.rs"]
mod namespace;
mod nfs;
mod raw;
mod real;
mod rules;
mod silent;
