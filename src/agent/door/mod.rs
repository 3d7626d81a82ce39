//! Where the host's API server finds this process when it wants of a virtual node what it wants of a kubelet.

use std::net::SocketAddr;

/// The address that virtual nodes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    pub address: SocketAddr,
}
