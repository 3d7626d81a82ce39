//! The command line of `ui`.

use super::{UserAccess, object_name, with_examples};
use crate::args::namespace;

#[derive(Debug, clap::Args)]
#[command(after_help = with_examples(&["kosmos-csi ui", "kosmos-csi ui --port 0"]))]
pub struct Ui {
    #[command(flatten)]
    pub access: UserAccess,

    /// The driver's namespace in the host
    #[arg(long, env = "KOSMOS_CSI_MEMBERS_NAMESPACE", default_value = "kosmos-csi", value_parser = namespace, value_name = "NAMESPACE")]
    pub members_namespace: String,

    /// The port of this machine to show it on; 0: any that is free
    #[arg(long, default_value_t = 9813, value_name = "PORT")]
    pub port: u16,

    /// The controller's pod to look into; without it, the one that leads
    #[arg(long, value_parser = object_name, value_name = "POD")]
    pub pod: Option<String>,
}
