//! Attaching as a fence: on which nodes of the host a volume may be at once, kept where every process sees it, on the leaf
//! claim; and which machine of its member a node of the host is.

mod fence;
pub mod machine;
mod node;

pub use fence::{
    is_unpublished, is_unpublished_in_what_is_kept, is_usable, of_a_node_that_is_gone, publish, stripped, unpublish,
    unpublish_gone,
};
pub use machine::{member_node, virtual_machine};
pub use node::check;
