//! Attaching as a fence: on which nodes of the host a volume may be at once, kept where every process sees it, on the leaf
//! claim. What an attachment does in a member comes with the service on the nodes.

mod fence;
mod node;

pub use fence::{is_nowhere, publish, stripped, unpublish};
pub use node::check;
