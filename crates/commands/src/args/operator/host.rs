//! The command line of `host`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{HostAccess, MembersAccess, with_examples};

#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Write what the host knows of its volumes into a file, without secrets
    ///
    /// Volumes with their claims and namespaces, snapshots, classes, which member is which cluster, and who this host is to them. The data stays
    /// in the members, and pods, Secrets and the chart's values are not in the file. It is what `host adopt` needs once this cluster is lost: keep
    /// it outside of the cluster, and write a new one often.
    #[command(after_help = with_examples(&["kosmos-csi host backup -o host.json"]))]
    Backup(BackupHost),
    /// Give this cluster the volumes of a former one, by its backup
    ///
    /// For a cluster in which the chart is installed and nobody has made claims of this driver yet. Members take it for the former one from then
    /// on, and the claims of the backup are bound to their volumes again, with their data. Controller and agent are restarted, and pods of the
    /// former cluster that still run in members end. Then type member add --take-over for each member. Typed again, the command makes what is
    /// still missing, says what else there is to do, and ends with 0 once all is done. It trusts the file: keep the file where nobody else
    /// writes.
    #[command(after_help = with_examples(&["kosmos-csi host adopt host.json --dry-run", "kosmos-csi host adopt host.json", "kosmos-csi host adopt host.json --former-cluster-is-off"]))]
    Adopt(AdoptHost),
}

#[derive(Debug, clap::Args)]
pub struct BackupHost {
    #[command(flatten)]
    pub host: HostAccess,

    /// The file, which only you can read; without it kosmos-csi-host-<time>.json in this folder. An existing file is never overwritten
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct AdoptHost {
    /// The file that `host backup` has written
    #[arg(value_name = "FILE")]
    pub backup: PathBuf,

    #[command(flatten)]
    pub members: MembersAccess,

    /// Assure that the former cluster and its machines are off: the command detaches volumes from them, and uses members whose
    /// accounts may be any host's. Two clusters that write to one volume destroy its data
    #[arg(long)]
    pub former_cluster_is_off: bool,

    /// Only say what would be made
    #[arg(long)]
    pub dry_run: bool,
}
