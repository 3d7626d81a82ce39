//! The command line of `member`.

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;

use super::{HostAccess, MemberAccess, MembersAccess, Output, values::lifetime, with_examples};
use crate::args::{member_name, namespace};

#[derive(Debug, Subcommand)]
pub enum Member {
    /// Make what the driver needs in a member, and give its kubeconfig to the host
    ///
    /// Makes the namespace, the accounts and the rights of deploy/member.yaml (volumes) and deploy/member-virtual-node.yaml
    /// (pods of the virtual node) with an administrator's kubeconfig, asks for a token of each account, checks as that
    /// account that every right is there, and writes the Secrets by which the driver and the agent of virtual nodes know the
    /// member. Objects that somebody else has made differently are left untouched. Typed again, it renews the tokens,
    /// brings what the host has there up to this version, but for the pod of --volume-stats, and changes nothing else that no flag names.
    #[command(after_help = with_examples(&[
        "kosmos-csi member add cluster38 --member-kubeconfig cluster38.kubeconfig --pods-in shop",
        "kosmos-csi member add cluster38 --member-kubeconfig cluster38.kubeconfig --volumes-only --dry-run",
    ]))]
    Add(Add),
    /// List the members: where they are named, which clusters they are, whether they answer
    #[command(after_help = with_examples(&["kosmos-csi member list", "kosmos-csi member list -o wide"]))]
    List(List),
    /// Check one member from its kubeconfig to its storage classes
    #[command(after_help = with_examples(&[
        "kosmos-csi member check cluster38",
        "kosmos-csi member check cluster38 --moves",
    ]))]
    Check(Check),
    /// Close a member to new volumes; those that are there go on, and its virtual node takes pods
    #[command(after_help = with_examples(&["kosmos-csi member cordon cluster38", "kosmos-csi get volumes --member cluster38"]))]
    Cordon(Cordon),
    /// Open a member to new volumes again
    #[command(after_help = with_examples(&["kosmos-csi member uncordon cluster38"]))]
    Uncordon(Cordon),
    /// Take a member's kubeconfig away from the host
    ///
    /// Refused while the host has volumes or snapshots there, moves are under way from or to it, its pods run there or have ended and are not
    /// deleted, and while leaves of the host, or sources that moves have kept, are there. Data in the member is never touched.
    #[command(after_help = with_examples(&[
        "kosmos-csi member remove cluster38 --member-kubeconfig cluster38.kubeconfig",
    ]))]
    Remove(Remove),
    /// Forget which cluster a removed member was
    ///
    /// Afterwards its volumes and snapshots are unknown: DeleteVolume and DeleteSnapshot answer OK to them and look nowhere. A move that waits
    /// for this member alone ends, and what it has there is named and stays.
    #[command(after_help = with_examples(&["kosmos-csi member forget cluster38"]))]
    Forget(Forget),
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct Add {
    /// The member's name: a DNS label of at most 40 characters. The handle of every volume there has it
    #[arg(value_parser = member_name)]
    pub name: String,

    #[command(flatten)]
    pub member: MemberAccess,

    #[command(flatten)]
    pub host: HostAccess,

    /// The address by which the host's pods reach the member, where that is neither the one in --member-kubeconfig nor the former one
    #[arg(long, value_name = "https://ADDRESS")]
    pub server: Option<String>,

    /// How long the tokens last; the member may grant less, and this says how much. Without it 720h, as driver and agent renew
    /// them at half of their life, or 8760h with --kubeconfig-only, as nobody renews what is in a file
    #[arg(long, value_parser = lifetime, value_name = "TIME")]
    pub token_lifetime: Option<Duration>,

    /// Create no account for pods: for a member whose virtual node somebody else keeps, or nobody
    #[arg(long)]
    pub volumes_only: bool,

    /// Create an account for pods in a member that has joined without one. Typed again without this and --volumes-only, it keeps to what the
    /// host has there: which accounts, in which namespaces, and by which address
    #[arg(long, conflicts_with = "volumes_only")]
    pub pods: bool,

    /// Give rights for volumes on real nodes of the host as well (deploy/member-attach.yaml), and print the commands that give those on
    /// virtual machines and Secrets where these are. Typed again without it, what the host has of them is kept
    #[arg(long)]
    pub attach: bool,

    /// Create what moving volumes from and to the member needs as well: a namespace for movers, and rights in it
    /// (deploy/member-mover.yaml). Typed again without it, what the host has of them is kept
    #[arg(long, conflicts_with = "namespace")]
    pub moves: bool,

    /// Create a pod there as well that reports how full volumes are, for `kubelet_volume_stats_…` of virtual nodes: by an account of its
    /// own it reads what kubelets say of this host's pods (deploy/member-volume-stats.yaml)
    #[arg(long, conflicts_with = "volumes_only")]
    pub volume_stats: bool,

    /// The image of that pod, as the member pulls it; without it localhost/kosmos-csi of this version, which no registry serves
    #[arg(long, requires = "volume_stats", value_name = "IMAGE")]
    pub image: Option<String>,

    /// Let that pod accept any certificate of a kubelet: for members whose kubelets sign their own
    #[arg(long, requires = "volume_stats")]
    pub kubelet_insecure_tls: bool,

    /// Give the account rights in this namespace of the member alone, which must be there: volumes are made in no other one; may be
    /// repeated. There is no account for pods then, as the agent of virtual nodes has to see all pods of a member
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace, requires = "volumes_only")]
    pub namespace: Vec<String>,

    /// Let the host's pods be run in this namespace, which the member has already, up to the Pod Security level baseline;
    /// may be repeated. Namespaces that are made for the host need no such flag
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "volumes_only")]
    pub pods_in: Vec<String>,

    /// Write the kubeconfig to this new file, which only you can read, and nothing to the host; that of the account for
    /// pods goes beside it, as <file>.virtual-node.kubeconfig
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_only: Option<PathBuf>,

    /// Let no other cluster be this host to the member any more, as after `host adopt`: the host's accounts there are replaced, and all
    /// their tokens end, unless they are this cluster's already. What was given out by --kubeconfig-only or by hand does not end
    #[arg(long, conflicts_with = "kubeconfig_only")]
    pub take_over: bool,

    /// Only say what would be made
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub struct List {
    #[command(flatten)]
    pub members: MembersAccess,

    /// How it is printed
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub struct Check {
    /// The member's name
    #[arg(value_parser = member_name)]
    pub name: String,

    #[command(flatten)]
    pub members: MembersAccess,

    /// Check the rights for volumes on real nodes of the host as well (deploy/member-attach.yaml)
    #[arg(long)]
    pub attach: bool,

    /// Check the rights for moving volumes from and to the member as well (deploy/member-mover.yaml)
    #[arg(long)]
    pub moves: bool,

    /// Check the pod that reports how full volumes are as well (deploy/member-volume-stats.yaml)
    #[arg(long)]
    pub volume_stats: bool,
}

#[derive(Debug, clap::Args)]
pub struct Cordon {
    /// The member's name
    #[arg(value_parser = member_name)]
    pub name: String,

    #[command(flatten)]
    pub members: MembersAccess,
}

#[derive(Debug, clap::Args)]
pub struct Remove {
    /// The member's name
    #[arg(value_parser = member_name)]
    pub name: String,

    #[command(flatten)]
    pub members: MembersAccess,

    /// An administrator's kubeconfig of the member, to delete the accounts and rights that `member add` made there as well
    #[arg(long, value_name = "FILE")]
    pub member_kubeconfig: Option<PathBuf>,

    /// Context of the member's kubeconfig; without it the current one
    #[arg(long, value_name = "CONTEXT", requires = "member_kubeconfig")]
    pub member_context: Option<String>,

    /// Remove it although the host has volumes, snapshots, moves, leaves or pods there: calls for volumes and snapshots answer UNAVAILABLE
    /// until the member is back, and pods run on with nobody to end them
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, clap::Args)]
pub struct Forget {
    /// The member's name
    #[arg(value_parser = member_name)]
    pub name: String,

    #[command(flatten)]
    pub members: MembersAccess,

    /// Forget it although the host has volumes, snapshots or moves there, or no record of it: they are unknown from then on, and what is
    /// behind them stays in the member
    #[arg(long)]
    pub force: bool,
}
