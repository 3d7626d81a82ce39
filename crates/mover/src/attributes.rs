//! Extended attributes: which of them are carried, and how they are read.

use std::{ffi::CStr, io};

use rustix::{
    fs::{lgetxattr, llistxattr},
    io::Errno,
};
use sha2::{Digest, Sha256};

use crate::entry::Attribute;

/// The kernel lets no list and no value be longer.
const LONGEST: usize = 64 << 10;

/// What belongs to the user of a volume. Everything else is of a machine or of its filesystem: labels of SELinux, signatures,
/// what overlays and network filesystems keep there; and `trusted.*` is for those alone who may do anything to a machine.
pub fn is_carried(name: &[u8]) -> bool {
    const WHOLE: [&[u8]; 3] = [b"security.capability", b"system.posix_acl_access", b"system.posix_acl_default"];
    name.starts_with(b"user.") || WHOLE.contains(&name)
}

/// What rsync is told of the same; lists of access are its own. One star alone would leave out names with a slash.
pub const FILTERS: [&str; 3] = ["--filter=+x user.**", "--filter=+x security.capability", "--filter=-x *"];

/// Those that are carried, by name.
pub fn read(path: &CStr) -> io::Result<Vec<Attribute>> {
    let mut names = vec![0_u8; LONGEST];
    let length = match llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let carried = names[..length].split_inclusive(|byte| *byte == 0).filter_map(|name| {
        let name = CStr::from_bytes_with_nul(name).ok()?;
        is_carried(name.to_bytes()).then_some(name)
    });
    let mut attributes = carried.map(|name| attribute(path, name)).collect::<io::Result<Vec<_>>>()?;
    attributes.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(attributes)
}

fn attribute(path: &CStr, name: &CStr) -> io::Result<Attribute> {
    let mut value = vec![0_u8; LONGEST];
    let length = lgetxattr(path, name, &mut value[..])?;
    Ok(Attribute { name: name.to_bytes().to_vec(), digest: Sha256::digest(&value[..length]).to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_users_own_is_carried_and_what_is_a_machines_is_not() {
        for name in ["user.mime", "security.capability", "system.posix_acl_access", "system.posix_acl_default"] {
            assert!(is_carried(name.as_bytes()), "{name}");
        }
        for name in ["security.selinux", "security.ima", "trusted.overlay.opaque", "system.nfs4_acl", "userx"] {
            assert!(!is_carried(name.as_bytes()), "{name}");
        }
    }
}
