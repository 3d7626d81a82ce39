//! A small CSI driver that plays a member cluster's storage in the tests.

fn main() {}
