//! What can be typed: the driver's roles and commands, and `dev` where it is compiled in.

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use commands::args::Role;

/// Gives the pods of a host cluster volumes that live in member clusters.
#[derive(Debug, Parser)]
#[command(name = "kosmos-csi", version, about, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a process has one of it")]
pub(crate) enum Command {
    #[command(flatten)]
    Role(Role),
    /// Print what a shell needs to complete commands and flags, as `source <(kosmos-csi completion bash)`
    Completion { shell: Shell },
    /// Try the driver without a cluster: a host and members are simulated in this process (never for production)
    ///
    /// kubectl works on them, the driver between them is the real one, and their volumes are plain folders. There are no
    /// credentials: whoever may use this machine may use the clusters.
    #[cfg(all(feature = "dev", target_os = "linux"))]
    Dev(dev::Arguments),
    /// Try the driver without a cluster: not in this program
    #[cfg(not(all(feature = "dev", target_os = "linux")))]
    #[command(hide = true)]
    Dev {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        anything: Vec<String>,
    },
}

impl Command {
    /// For as long as its pod lives, on a node that it shares with others.
    pub(crate) fn serves(&self) -> bool {
        let Self::Role(role) = self else { return false };
        matches!(role, Role::Controller(_) | Role::VirtualNode(_) | Role::Node(_) | Role::VolumeStats(_))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// A command that ends is typed whole.
    const GOES_ON: [&str; 5] = ["controller", "virtual-node", "node", "volume-stats", "dev"];

    #[test]
    fn command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_flag_of_what_goes_on_has_a_twin_in_the_environment() {
        let command = Arguments::command();
        let roles = command.get_subcommands().filter(|role| GOES_ON.contains(&role.get_name()));
        let flags = roles.flat_map(clap::Command::get_arguments);
        for flag in flags.filter(|flag| flag.get_long().is_some_and(|long| long != "help")) {
            let twin = format!("KOSMOS_CSI_{}", flag.get_long().unwrap().to_uppercase().replace('-', "_"));
            assert_eq!(flag.get_env().unwrap().to_str().unwrap(), twin);
        }
    }
}
