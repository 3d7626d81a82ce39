//! The command line. Every flag has a twin in the environment, and whatever can be wrong with a value alone is found
//! here, before anything starts.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::quantity::Quantity;

/// A small CSI driver that plays a member cluster's storage in the tests.
///
/// It keeps volumes as sparse files on loop devices or as folders, on the one machine it runs on, and serves the
/// identity, controller, group controller and node services of CSI 1.13 on one unix socket. It needs root.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Socket on which CSI is served. A stale socket there is replaced; any other file is not.
    #[arg(long, env = "MEMBER_DRIVER_ENDPOINT", value_name = "PATH", value_parser = socket_path)]
    pub(crate) endpoint: PathBuf,

    /// Socket in the kubelet's `plugins_registry` folder on which the driver registers itself. Without it, nobody is told.
    #[arg(long, env = "MEMBER_DRIVER_REGISTRATION", value_name = "PATH", value_parser = socket_path)]
    pub(crate) registration: Option<PathBuf>,

    /// Path of the CSI socket as the kubelet sees it, where that differs from --endpoint.
    #[arg(long, env = "MEMBER_DRIVER_REGISTRATION_ENDPOINT", value_name = "PATH", value_parser = socket_path)]
    pub(crate) registration_endpoint: Option<PathBuf>,

    /// Name of the driver; also the prefix of its topology key, NAME/node.
    #[arg(
        long,
        env = "MEMBER_DRIVER_DRIVER_NAME",
        value_name = "NAME",
        default_value = "storage.kosmos-csi.test",
        value_parser = driver_name
    )]
    pub(crate) driver_name: String,

    /// Name of the node this process runs on: its node id and the value of its topology key.
    #[arg(long, env = "MEMBER_DRIVER_NODE_NAME", value_name = "NAME", value_parser = node_name)]
    pub(crate) node_name: String,

    /// Folder for records and data. A restarted driver finds everything there again.
    #[arg(long, env = "MEMBER_DRIVER_STATE", value_name = "FOLDER")]
    pub(crate) state: PathBuf,

    /// Sum of the sizes of all volumes that may exist at once.
    #[arg(
        long,
        env = "MEMBER_DRIVER_CAPACITY",
        value_name = "QUANTITY",
        default_value = "10Gi"
    )]
    pub(crate) capacity: Quantity,

    /// Whether volumes are attached to a node before they are staged.
    #[arg(long, env = "MEMBER_DRIVER_ATTACH", value_enum, default_value_t = Switch::On)]
    pub(crate) attach: Switch,

    /// Volumes that may be attached to the node at once; 0 sets no limit.
    #[arg(
        long,
        env = "MEMBER_DRIVER_MAX_VOLUMES",
        value_name = "COUNT",
        default_value_t = 0
    )]
    pub(crate) max_volumes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Sidecars write the socket with a scheme, people without.
fn socket_path(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").unwrap_or(text);
    if path.starts_with('/') {
        Ok(path.into())
    } else {
        Err("not an absolute path".to_owned())
    }
}

/// The name doubles as the prefix of a topology key, which is lower-case DNS of at most 63 characters.
fn driver_name(text: &str) -> Result<String, String> {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    if text.len() <= 63 && text.split('.').all(label) {
        Ok(text.to_owned())
    } else {
        Err("not a lower-case domain name of at most 63 characters".to_owned())
    }
}

/// The name is the value of a node label.
fn node_name(text: &str) -> Result<String, String> {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    if bytes.len() <= 63 && end(bytes.first()) && end(bytes.last()) && text.bytes().all(inside) {
        Ok(text.to_owned())
    } else {
        Err("not a label value: at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_flag_has_its_twin_in_the_environment() {
        for argument in Args::command().get_arguments() {
            let Some(long) = argument.get_long() else {
                continue;
            };
            let twin = format!("MEMBER_DRIVER_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(
                argument.get_env().and_then(|name| name.to_str()),
                Some(twin.as_str()),
                "--{long}"
            );
        }
    }

    #[test]
    fn a_socket_may_carry_its_scheme() {
        assert_eq!(
            socket_path("unix:///run/csi.sock"),
            Ok("/run/csi.sock".into())
        );
        assert_eq!(socket_path("/run/csi.sock"), Ok("/run/csi.sock".into()));
        assert!(socket_path("csi.sock").is_err());
    }

    #[test]
    fn names_that_kubernetes_would_refuse_are_refused() {
        assert!(driver_name("storage.kosmos-csi.test").is_ok());
        for name in ["", ".", "a..b", "Storage.test", "-a.test", "a_b.test"] {
            assert!(driver_name(name).is_err(), "{name}");
        }
        assert!(node_name("member-1.node_2").is_ok());
        for name in ["", "-a", "a/b", "a."] {
            assert!(node_name(name).is_err(), "{name}");
        }
    }
}
