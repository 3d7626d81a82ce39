//! The command line of `host`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{HostAccess, MembersAccess, with_examples};

#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Write what the host knows of its volumes into a file, without secrets
    ///
    /// Volumes with their claims and namespaces, snapshots, classes, which member is which cluster, and who this host is to them. The data stays
    /// in the members, and pods, Secrets and the chart's values are not in it. It is what `host adopt` needs once this cluster is lost: keep it
    /// outside of it, and make it anew often.
    #[command(after_help = with_examples(&["kosmos-csi host backup -o host.json"]))]
    Backup(BackupHost),
    /// Give this cluster the volumes of a former one, by its backup
    ///
    /// For a cluster in which the chart is installed and nothing else has made claims of this driver yet. It is to the members who the former one
    /// was from then on, and the claims of the backup are bound to their volumes again, with their data. Controller and agent are started anew, and
    /// what still runs of the former cluster's pods in members ends. Each member has to be told as well: member add --take-over. Typed again,
    /// it makes what is still missing, and says what else there is to do; it ends with 0 once that is nothing. The file is believed: keep it where nobody
    /// else writes.
    #[command(after_help = with_examples(&["kosmos-csi host adopt host.json --dry-run", "kosmos-csi host adopt host.json", "kosmos-csi host adopt host.json --former-cluster-is-off"]))]
    Adopt(AdoptHost),
}

#[derive(Debug, clap::Args)]
pub struct BackupHost {
    #[command(flatten)]
    pub host: HostAccess,

    /// The file, which only you can read; without it kosmos-csi-host-<time>.json in this folder. No file that is there is written over
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct AdoptHost {
    /// What `host backup` has written
    #[arg(value_name = "FILE")]
    pub backup: PathBuf,

    #[command(flatten)]
    pub members: MembersAccess,

    /// The former cluster does nothing any more, nor do its machines: what they have of volumes is detached from them, and members are used
    /// whose accounts may be any host's. Two clusters that write on one volume destroy what is on it
    #[arg(long)]
    pub former_cluster_is_off: bool,

    /// Only say what would be made
    #[arg(long)]
    pub dry_run: bool,
}
