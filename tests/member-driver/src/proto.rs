//! The generated messages and services, and nothing else.

/// The Container Storage Interface.
// Generated code follows the generator's taste, and this driver serves only a part of it.
#[allow(clippy::all, clippy::pedantic, dead_code, missing_debug_implementations, unreachable_pub)]
pub(crate) mod csi {
    tonic::include_proto!("csi.v1");
}
