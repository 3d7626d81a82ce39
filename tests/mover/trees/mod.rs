//! Whether the judge finds copies equal exactly where they are: trees of all that a filesystem holds, on the real kernel,
//! copied by the real rsync, in mount namespaces of their own (which needs root).

mod copies;
mod dress;
mod ends;
pub mod ground;
mod huge;
mod left_out;
mod make;
mod names;
mod plants;
mod refused;
pub mod rsync;
mod tree;
mod undisturbed;
mod witness;
mod wrong;
