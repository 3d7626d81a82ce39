//! The command line of `volume`: moves of volumes to other members.

use std::time::Duration;

use clap::Subcommand;

use super::{
    MembersAccess, Named, Output, Place, UserAccess, Within,
    values::{claim_of_host, keep_time, kept, move_of_host, object_name, place},
    with_examples,
};
use crate::args::{member_name, namespace};

#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Move a claim's volume to another member, and follow the move to its end
    ///
    /// Creates a VolumeMove beside the claim. It needs no right but `create` and `get` on `volumemoves.kosmos.csi.io` in the claim's
    /// namespace; with `list pods` it names the pods that have to end. Ctrl-C stops following, and the move goes on: `volume status`
    /// shows it, `volume cancel` calls it off.
    #[command(after_help = with_examples(&[
        "kosmos-csi volume move pvc/db -n shop --to cluster39",
        "kosmos-csi volume move shop/db --to cluster39 --manual",
        "kosmos-csi volume move shop/db --to cluster39 --delete-source-after 72h",
    ]))]
    Move(MoveVolume),
    /// Show moves: a table, or all that is known of one
    #[command(after_help = with_examples(&[
        "kosmos-csi volume status",
        "kosmos-csi volume status shop/db-to-cluster39",
    ]))]
    Status(MoveStatus),
    /// Approve the switch to the copy, where a move waits for that
    #[command(after_help = with_examples(&["kosmos-csi volume approve shop/db"]))]
    Approve(OneMove),
    /// Call off a move: the volume stays where it was
    ///
    /// From `Switching` on, you cannot call off a move.
    #[command(after_help = with_examples(&["kosmos-csi volume cancel shop/db"]))]
    Cancel(OneMove),
    /// List what moves have kept in the members they moved from, or delete one of these with its data
    ///
    /// For the host's administrator: the command uses the driver's own Secrets to ask the members.
    #[command(after_help = with_examples(&[
        "kosmos-csi volume discard",
        "kosmos-csi volume discard cluster38/pvc-7c1e --data-will-be-lost",
    ]))]
    Discard(Discard),
}

#[derive(Debug, clap::Args)]
pub struct MoveVolume {
    /// The claim in the host, as db, pvc/db or shop/db
    #[arg(value_parser = claim_of_host, value_name = "[NAMESPACE/]CLAIM")]
    pub claim: Named,

    #[command(flatten)]
    pub within: Within,

    /// The member to move the volume to
    #[arg(long, value_parser = member_name, value_name = "MEMBER")]
    pub to: String,

    #[command(flatten)]
    pub access: UserAccess,

    /// Copy, and wait for `volume approve` before switching to the copy
    #[arg(long)]
    pub manual: bool,

    /// Remove the source with its data this long after the move has succeeded, such as 72h; without it the source is kept
    ///
    /// You can change it later in the VolumeMove (`spec.deleteSourceAfter`); if you delete the VolumeMove, the source is kept.
    #[arg(long, value_parser = keep_time, value_name = "TIME")]
    pub delete_source_after: Option<Duration>,

    /// What the VolumeMove is called; without it <claim>-to-<member>
    #[arg(long, value_parser = object_name, value_name = "NAME")]
    pub name: Option<String>,

    /// Create the VolumeMove, and do not follow it
    #[arg(long)]
    pub no_wait: bool,

    /// Only print the VolumeMove; no cluster is asked
    #[arg(long, conflicts_with = "no_wait")]
    pub dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub struct MoveStatus {
    /// A namespace, or one move in it by its own name or its claim's; without it, all moves that you may see. With --namespace, a name alone
    #[arg(value_parser = place, value_name = "NAMESPACE[/NAME]")]
    pub which: Option<Place>,

    /// Only moves in this namespace
    #[arg(long, short, value_parser = namespace, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    #[command(flatten)]
    pub access: UserAccess,

    /// How it is printed
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub struct OneMove {
    /// The move, by its own name or by its claim's
    #[arg(value_parser = move_of_host, value_name = "[NAMESPACE/]NAME")]
    pub which: Named,

    #[command(flatten)]
    pub within: Within,

    #[command(flatten)]
    pub access: UserAccess,

    /// Do not follow the move
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, clap::Args)]
pub struct Discard {
    /// The kept volume, as this command lists it without one
    #[arg(value_parser = kept, value_name = "MEMBER/VOLUME", requires = "data_will_be_lost")]
    pub which: Option<Place>,

    #[command(flatten)]
    pub members: MembersAccess,

    /// Let the member remove the volume, and the data with it
    #[arg(long, requires = "which")]
    pub data_will_be_lost: bool,
}
