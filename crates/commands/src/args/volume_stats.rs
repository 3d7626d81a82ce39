//! The command line of the reader in a member. `member add` writes it; nobody types it.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct VolumeStats {
    /// The id of the host whose pods' volumes to report; without it, those of all hosts
    #[arg(long, env = "KOSMOS_CSI_HOST", value_name = "ID")]
    pub host: Option<String>,

    /// Certificates (PEM) of the authority that signs the kubelets' own; without it, that of the cluster
    #[arg(
        long,
        env = "KOSMOS_CSI_KUBELET_CERTIFICATE_AUTHORITY",
        conflicts_with = "kubelet_insecure_tls",
        value_name = "FILE"
    )]
    pub kubelet_certificate_authority: Option<PathBuf>,

    /// Accept any certificate of a kubelet, as where each signs its own: whoever answers in a kubelet's place then gets the
    /// token of this account, which may read such figures and list pods
    #[arg(long, env = "KOSMOS_CSI_KUBELET_INSECURE_TLS")]
    pub kubelet_insecure_tls: bool,
}
