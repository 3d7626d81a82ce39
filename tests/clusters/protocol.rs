//! What the owner of a fleet and its guardian say to each other: one line of JSON each way per connection to the
//! guardian's socket. Only words here; `guard.rs` answers them, `guardian.rs` asks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The guardian's first line on its standard output.
#[derive(Debug, Serialize, Deserialize)]
pub enum Greeting {
    Ready(Started),
    Failed { reason: String },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    pub folder: PathBuf,
    /// The fleet's first process, as the machine numbers it: the way into its namespaces.
    pub init: i32,
    pub build: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spawn {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub log: PathBuf,
    /// A process, as the machine numbers it, whose namespaces the new one joins.
    pub namespaces_of: i32,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// What the guardian said when it was ready, for those who come later.
    About,
    Spawn(Spawn),
    Signal {
        process: i32,
        signal: i32,
    },
    Status {
        process: i32,
    },
    /// Listen on a free port of the machine's loopback and pass connections on to this address inside the fleet.
    Forward {
        address: SocketAddr,
    },
    /// Live on without an owner, until somebody asks for the end.
    Detach,
    End,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    About(Started),
    Spawned { process: i32 },
    Running,
    Exited(Exit),
    Forwarded { port: u16 },
    Done,
    Ending { processes: Vec<String> },
    Failed { reason: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

/// A test and the guardian's program are built apart; this tells whether they were built from the same sources.
pub fn build() -> u64 {
    let mut hasher = DefaultHasher::new();
    [include_str!("protocol.rs"), include_str!("guard.rs"), include_str!("namespaces.rs"), include_str!("remains.rs")]
        .hash(&mut hasher);
    hasher.finish()
}
