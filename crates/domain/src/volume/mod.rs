//! The pure domain: what a volume is, by which name it is known, and what follows from what was observed.
//! Knows neither gRPC nor Kubernetes clients, and does no I/O.

pub mod attributes;
pub mod backing;
pub mod growth;
pub mod healing;
pub mod id;
pub mod mode;
pub mod moving;
pub mod namespaces;
pub mod node;
pub mod parameters;
pub mod place;
pub mod plan;
pub mod published;
pub mod quantity;
pub mod replacement;
pub mod secrets;
pub mod snapshot;
pub mod spec;

pub use attributes::Attributes;
pub use id::{HostId, LeafName, LeafPlace, VolumeHash, VolumeId};
pub use mode::{AccessMode, VolumeMode};
pub use node::NodeId;
pub use parameters::{LeafBinding, NAMES as PARAMETERS, Parameters};
pub use place::{Claim, Placing};
pub use snapshot::SnapshotSpec;
pub use spec::{ClaimDigest, Request, Source, VolumeSpec};

/// The topology key whose value is a member's name.
pub const MEMBER_KEY: &str = "topology.kosmos.csi.io/member";

/// The one whose value is a member's own node, on hosts whose virtual nodes stand for single nodes.
pub const NODE_KEY: &str = "topology.kosmos.csi.io/node";

/// The driver's name.
pub const DRIVER: &str = "kosmos.csi.io";
