//! The command line of `get`.

use clap::Subcommand;

use super::{List, Output, UserAccess, with_examples};
use crate::args::{member_name, namespace};
use operator::volumes::STATES;

#[derive(Debug, Subcommand)]
pub enum Get {
    /// List the host's volumes and the claims that wait for one: which member has the data, how large it is, which pods name it
    ///
    /// The host alone is asked. `kosmos-csi trace` shows what a member has behind one.
    #[command(alias = "volume", after_help = with_examples(&[
        "kosmos-csi get volumes -n shop",
        "kosmos-csi get volumes --member cluster38 --state Pending -o wide",
        "kosmos-csi get volumes -o json | jq -r '.items[] | select(.pods == []) | .volume'",
    ]))]
    Volumes(GetVolumes),
    /// List the members: where they are named, which clusters they are, whether they answer
    #[command(alias = "member", after_help = with_examples(&["kosmos-csi get members", "kosmos-csi get members -o wide"]))]
    Members(List),
}

#[derive(Debug, clap::Args)]
pub struct GetVolumes {
    /// Only those of claims in this namespace
    #[arg(long, short, value_parser = namespace, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Only those in this member
    #[arg(long, value_parser = member_name, value_name = "MEMBER")]
    pub member: Option<String>,

    /// Only those in this state
    #[arg(long, ignore_case = true, value_parser = STATES, value_name = "STATE")]
    pub state: Option<String>,

    #[command(flatten)]
    pub access: UserAccess,

    /// How it is printed
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Output,
}
