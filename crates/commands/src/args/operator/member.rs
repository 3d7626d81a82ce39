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
    /// Close a member to new volumes; existing volumes go on, and its virtual node still takes pods
    #[command(after_help = with_examples(&["kosmos-csi member cordon cluster38", "kosmos-csi get volumes --member cluster38"]))]
    Cordon(Cordon),
    /// Open a member to new volumes again
    #[command(after_help = with_examples(&["kosmos-csi member uncordon cluster38"]))]
    Uncordon(Cordon),
    /// Take a member's kubeconfig away from the host
    ///
    /// The command refuses while the host has volumes, snapshots or leaves there, while moves are under way from or to it, while the host's pods
    /// run there or have ended and are not deleted, and while it has sources that moves have kept. It never touches data in the member.
    #[command(after_help = with_examples(&[
        "kosmos-csi member remove cluster38 --member-kubeconfig cluster38.kubeconfig",
    ]))]
    Remove(Remove),
    /// Forget which cluster a removed member was
    ///
    /// Afterwards the driver does not know its volumes and snapshots: DeleteVolume and DeleteSnapshot answer OK and look nowhere. A move that
    /// waits only for this member ends; the command names what the move has there, and it stays.
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

    /// The address by which the host's pods reach the member, if it is neither the one in --member-kubeconfig nor the former one
    #[arg(long, value_name = "https://ADDRESS")]
    pub server: Option<String>,

    /// How long the tokens last; the member may grant less, and the command says how much. Without it 720h, as driver and agent
    /// renew tokens at half of their life, or 8760h with --kubeconfig-only, as nobody renews a token in a file
    #[arg(long, value_parser = lifetime, value_name = "TIME")]
    pub token_lifetime: Option<Duration>,

    /// Create no account for pods, if the member has no virtual node, or if somebody else keeps it
    #[arg(long)]
    pub volumes_only: bool,

    /// Create an account for pods in a member that has joined without one. Without this and --volumes-only, the command keeps what the host
    /// already has there: the accounts, their namespaces and the address
    #[arg(long, conflicts_with = "volumes_only")]
    pub pods: bool,

    /// Give rights for volumes on real nodes of the host as well (deploy/member-attach.yaml), and print the commands that give those on
    /// virtual machines and Secrets where these are. If you type the command again without it, the host keeps such rights
    #[arg(long)]
    pub attach: bool,

    /// Create what moving volumes from and to the member needs as well: a namespace for movers, and rights in it
    /// (deploy/member-mover.yaml). If you type the command again without it, the host keeps them
    #[arg(long, conflicts_with = "namespace")]
    pub moves: bool,

    /// Also create a pod there that reports how full volumes are, for `kubelet_volume_stats_…` of virtual nodes: with an account of its
    /// own it reads what kubelets report of this host's pods (deploy/member-volume-stats.yaml)
    #[arg(long, conflicts_with = "volumes_only")]
    pub volume_stats: bool,

    /// The image of that pod, as the member pulls it; without it localhost/kosmos-csi of this version, which no registry serves
    #[arg(long, requires = "volume_stats", value_name = "IMAGE")]
    pub image: Option<String>,

    /// Let that pod accept any certificate of a kubelet, if the member's kubelets sign their own
    #[arg(long, requires = "volume_stats")]
    pub kubelet_insecure_tls: bool,

    /// Give the account rights only in this namespace of the member, which must exist: the driver makes volumes in no other namespace. May
    /// be repeated. There is no account for pods then, as the agent of virtual nodes has to see all pods of a member
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace, requires = "volumes_only")]
    pub namespace: Vec<String>,

    /// Let the host's pods run in this namespace, which the member already has, up to the Pod Security level baseline;
    /// may be repeated. Namespaces that the agent makes for the host need no such flag
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "volumes_only")]
    pub pods_in: Vec<String>,

    /// Write the kubeconfig to this new file, which only you can read, and nothing to the host; the kubeconfig of the account
    /// for pods goes beside it, as <file>.virtual-node.kubeconfig
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_only: Option<PathBuf>,

    /// Make this cluster the only one that is this host to the member, as after `host adopt`: replace the host's accounts there, so that all
    /// their tokens end, unless they are this cluster's already. Kubeconfigs given out by --kubeconfig-only or by hand stay valid
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

    /// Remove the member although the host has volumes, snapshots, moves, leaves or pods there: the driver answers UNAVAILABLE to calls for
    /// volumes and snapshots until the member is back, and pods run on with nobody to end them
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

    /// Forget the member although the host has volumes, snapshots or moves there, or no record of it: the driver does not know them from then
    /// on, and their data stays in the member
    #[arg(long)]
    pub force: bool,
}
