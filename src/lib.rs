//! A CSI driver that gives the pods of a host cluster volumes that live in member clusters.
