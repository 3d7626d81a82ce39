//! What of its member's a node uses. A leaf volume says what the member wants of the node: another driver that is there, a server
//! in the node's network, a folder of the machine. Only the node's own configuration, which no member can write, agrees. Pure.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::records::Record;
use domain::{
    error::{Error, Result},
    volume::backing::Backing,
};

#[derive(Clone, Debug, Default)]
pub struct Permitted {
    /// Whose node service on this node is called.
    pub leaf_drivers: Vec<String>,
    pub nfs_servers: Vec<String>,
    /// A volume is a folder below one of them, or a device right in one.
    pub local_folders: Vec<PathBuf>,
}

impl Permitted {
    pub fn is_empty(&self) -> bool {
        self.leaf_drivers.is_empty() && self.nfs_servers.is_empty() && self.local_folders.is_empty()
    }

    pub(super) fn check(&self, wanted: &Record) -> Result<()> {
        let (is_permitted, what, name, flag, value) = match &wanted.attached.backing {
            // It was given to this machine, and is found by its own id.
            Backing::Device { .. } => return Ok(()),
            Backing::Csi(leaf) => {
                let is_permitted = self.leaf_drivers.contains(&leaf.driver);
                (is_permitted, "of storage driver", &leaf.driver, "--leaf-driver", "leafDrivers")
            }
            Backing::Nfs { server, .. } => {
                let is_permitted = self.nfs_servers.iter().any(|known| is_same_server(known, server));
                (is_permitted, "on NFS server", server, "--nfs-server", "nfsServers")
            }
            Backing::Local { path } => {
                let is_permitted = self.has(Path::new(path), wanted.way.mode.is_block());
                (is_permitted, "at local path", path, "--local-folder", "localFolders")
            }
        };
        if is_permitted {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "volume {} is {what} {name:?}, which this node does not use for a member: if the node's administrator agrees, name it \
             for this node by {flag} of kosmos-csi node (in the chart: node.members[].{value})",
            wanted.volume()
        )))
    }

    fn has(&self, path: &Path, is_device: bool) -> bool {
        let is_right_in = |folder: &PathBuf| path.parent() == Some(folder);
        let is_below = |folder: &PathBuf| path != folder && path.starts_with(folder);
        self.local_folders.iter().any(|folder| if is_device { is_right_in(folder) } else { is_below(folder) })
    }
}

fn is_same_server(known: &str, server: &str) -> bool {
    match (known.parse::<IpAddr>(), server.parse::<IpAddr>()) {
        (Ok(known), Ok(server)) => known == server,
        (Err(_), Err(_)) => known.trim_end_matches('.').eq_ignore_ascii_case(server.trim_end_matches('.')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_known_by_its_name_or_its_address_in_any_form() {
        for (known, server, is_same) in [
            ("filer.example", "Filer.Example.", true),
            ("filer.example", "filer.example.org", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.10", false),
            ("fd00::1", "fd00:0:0::1", true),
            ("10.0.0.1", "filer.example", false),
        ] {
            assert_eq!(is_same_server(known, server), is_same, "{known} {server}");
        }
    }

    #[test]
    fn folder_is_permitted_with_what_is_below_it_and_a_device_right_in_it() {
        let permitted = Permitted { local_folders: vec!["/mnt/disks".into()], ..Permitted::default() };
        for (path, as_folder, as_device) in [
            ("/mnt/disks/a", true, true),
            ("/mnt/disks/a/b", true, false),
            ("/mnt/disks", false, false),
            ("/mnt/disks2/a", false, false),
            ("/mnt", false, false),
        ] {
            let found = (permitted.has(Path::new(path), false), permitted.has(Path::new(path), true));
            assert_eq!(found, (as_folder, as_device), "{path}");
        }
    }
}
