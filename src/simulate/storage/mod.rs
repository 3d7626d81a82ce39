//! Simulated storage in a member.
