//! The command line of `verify`.

use std::time::Duration;

use super::{Output, UserAccess, with_examples};
use crate::args::namespace;

#[derive(Debug, clap::Args)]
#[command(after_help = with_examples(&["kosmos-csi verify", "kosmos-csi verify --wait 2m"]))]
pub struct Verify {
    #[command(flatten)]
    pub access: UserAccess,

    /// The driver's namespace in the host
    #[arg(long, env = "KOSMOS_CSI_MEMBERS_NAMESPACE", default_value = "kosmos-csi", value_parser = namespace, value_name = "NAMESPACE")]
    pub members_namespace: String,

    /// Look again and again until all is well, for so long at most
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub wait: Duration,

    /// Do not look for csi-provisioner: the host makes no volumes of claims by it
    #[arg(long)]
    pub without_provisioner: bool,

    /// How it is printed
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Output,
}
