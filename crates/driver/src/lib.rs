//! A CSI driver that gives the pods of a host cluster volumes that live in member clusters.
//!
//! A volume's way through the code, top to bottom:
//!
//! ```text
//! external-provisioner ── CreateVolume ──► csi::layer       a span, a line in the log, metrics
//!  └► csi::controller ── csi::convert ───► volume::VolumeSpec        or INVALID_ARGUMENT
//!      └► csi::inflight                     one call per volume        or ABORTED
//!          └► provision::create             look, let the plan decide, act, again
//!              ├► host::claim               who waits for it, which member was chosen before
//!              ├► member::placement         which member
//!              ├► leaf::claim               POST the leaf claim; whose is it, if the name is taken?
//!              ├► leaf::rows, leaf::consumer   wait until it is bound; a pod where its class waits for one
//!              └► leaf::volume              label the leaf volume, read its handle
//!      └► csi::status                       the handle, or the code that makes the sidecar do the right thing
//! ```
//!
//! State lives in API objects alone: process memory holds what the watches saw, and a restart loses nothing.
//!
//! Who may know what: [`volume`] is pure. [`host`], [`leaf`] and [`cluster`] speak to clusters; [`member`] says which
//! there are; [`mount`] alone touches a machine's kernel; [`provision`] holds the use-cases; [`csi`] alone knows gRPC;
//! [`follow`] does what nobody asks for, on the replica that holds the [`lease`]; [`agent`] keeps virtual nodes and runs
//! their pods in the members; [`operator`] decides what commands do; [`run`] puts a role together. `error` holds the outcomes they all speak
//! of, [`printable`] what others say. `tests/layering.rs` keeps it so. The command is the package beside this one, and [`run`] is what it calls.

pub mod admin;
pub mod agent;
pub mod args;
pub mod attach;
pub mod cluster;
pub mod csi;
pub mod error;
pub mod follow;
pub mod host;
pub mod leaf;
pub mod lease;
pub mod member;
pub mod metrics;
pub mod mount;
pub mod operator;
pub mod printable;
pub mod provision;
pub mod run;
pub mod telemetry;
pub mod volume;
