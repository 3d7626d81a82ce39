//! The command line of `support-bundle`.

use std::{path::PathBuf, time::Duration};

use super::{ClaimName, MembersAccess, values::claim, with_examples};
use crate::args::namespace;

#[derive(Debug, clap::Args)]
#[command(after_help = with_examples(&["kosmos-csi support-bundle", "kosmos-csi support-bundle --claim shop/db --since 30m -o db.tar.gz"]))]
pub struct SupportBundle {
    #[command(flatten)]
    pub members: MembersAccess,

    /// The namespace of the plugin on real nodes in the host
    #[arg(long, default_value = "kosmos-csi-node", value_parser = namespace, value_name = "NAMESPACE")]
    pub node_namespace: String,

    /// The archive; without it kosmos-csi-support-<time>.tar.gz in this folder. An existing file is never overwritten
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// A claim of the host: what stands behind it is traced as well
    #[arg(long, value_parser = claim, value_name = "NAMESPACE/CLAIM")]
    pub claim: Option<ClaimName>,

    /// How far back logs go
    #[arg(long, default_value = "2h", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub since: Duration,
}
