//! What a volume may be mounted from: which servers, folders and options make sense. Pure.

use std::{net::Ipv6Addr, path::Path};

use super::{
    disk::Filesystem,
    options::{Flag, OF_A_MOUNT, Options, name_of},
    paths,
    records::Record,
};
use domain::{
    error::{Error, Result},
    volume::backing::Backing,
};

/// What is checked of a request before anything is touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub options: Options,
    /// Of a disk, where somebody says it.
    pub filesystem: Option<Filesystem>,
}

pub fn check(record: &Record) -> Result<Checked> {
    let attached = &record.attached;
    let block = record.way.mode.is_block();
    let mut options = Options::parse(attached.options.iter().chain(&record.way.flags))?;
    if record.only_reads() {
        options.flags.insert(Flag::ReadOnly);
    }
    let mut filesystem = None;
    match &attached.backing {
        Backing::Nfs { server, path } => {
            if block {
                return Err(Error::Invalid("an NFS volume has no device: use volumeMode Filesystem".to_owned()));
            }
            if !is_server(server) {
                let error = format!("publish_context backing: {server:?} is neither a host's name nor an address");
                return Err(Error::Invalid(error));
            }
            paths::check("publish_context backing: NFS path", Path::new(path)).or_else(|error| {
                // All that a server shows may be a volume too.
                if path == "/" { Ok(()) } else { Err(error) }
            })?;
        }
        Backing::Local { path } => {
            paths::check("publish_context backing: path", Path::new(path))?;
            let foreign = options.flags.iter().find(|flag| !OF_A_MOUNT.contains(flag) && **flag != Flag::RelAtime);
            if let Some(option) =
                options.data.first().map(String::as_str).or_else(|| foreign.map(|flag| name_of(*flag)))
            {
                return Err(Error::Invalid(format!(
                    "mount option {option:?} means nothing to a folder of this node: remove it from the volume"
                )));
            }
        }
        Backing::Device { filesystem: leaf, .. } if !block => {
            filesystem = Filesystem::wanted(leaf, &record.way.filesystem)?;
        }
        Backing::Device { .. } | Backing::Csi(_) => {}
    }
    Ok(Checked { options, filesystem })
}

/// Whether a mount may name it: a host's name or an address.
pub fn is_server(server: &str) -> bool {
    let label = |label: &str| {
        let letters = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        (1..=63).contains(&label.len()) && letters && !label.starts_with('-')
    };
    let name = server.len() <= 253 && server.trim_end_matches('.').split('.').all(label);
    name || server.parse::<Ipv6Addr>().is_ok()
}

/// As the kernel takes it, and tells it.
pub fn nfs(server: &str, path: &str) -> String {
    if server.parse::<Ipv6Addr>().is_ok() { format!("[{server}]:{path}") } else { format!("{server}:{path}") }
}

/// What NFS is mounted with, unless somebody has said it otherwise. All that is mounted of one filesystem of a server would have one number
/// and one root in the table of mounts, and a kubelet would unstage no volume while any other of it is mounted.
pub fn nfs_option_of_ours(said: &[String]) -> Option<&'static str> {
    Some("nosharecache").filter(|ours| !said.iter().any(|option| option == ours || option == "sharecache"))
}

pub fn nfs_type(options: &Options) -> &'static str {
    let version = options.value(&["vers", "nfsvers"]);
    if version.is_some_and(|version| version.starts_with('4')) { "nfs4" } else { "nfs" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_a_name_or_an_address() {
        for good in ["nfs.example.org", "10.0.0.1", "filer_1", "fd00::1", "a."] {
            assert!(is_server(good), "{good}");
        }
        for bad in ["", "-o", "a b", "a:/b", "a/../b", "a,b", "a..b", "[::1]", "a\nb"] {
            assert!(!is_server(bad), "{bad:?}");
        }
    }

    #[test]
    fn caches_of_nfs_are_shared_only_where_somebody_says_so() {
        let ours = |said: &[&str]| nfs_option_of_ours(&said.iter().map(|said| (*said).to_owned()).collect::<Vec<_>>());
        assert_eq!(ours(&["hard", "vers=4.1"]), Some("nosharecache"));
        assert!(ours(&["sharecache"]).is_none() && ours(&["hard", "nosharecache"]).is_none());
    }

    #[test]
    fn source_and_type_are_the_kernels() {
        assert_eq!(nfs("a.example", "/x"), "a.example:/x");
        assert_eq!(nfs("fd00::1", "/x"), "[fd00::1]:/x");
        for (options, expected) in
            [("hard", "nfs"), ("vers=3", "nfs"), ("nfsvers=4.1,hard", "nfs4"), ("vers=3,vers=4", "nfs4")]
        {
            assert_eq!(nfs_type(&Options::parse(&[options.to_owned()]).unwrap()), expected, "{options}");
        }
    }
}
