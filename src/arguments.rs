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
    Completion {
        /// The shell
        shell: Shell,
    },
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

    /// Of no operator's: pods call the one, and a shell the other.
    const NOT_TYPED: [&str; 2] = ["mover", "completion"];

    /// All commands that are shown below one, by the words that are typed.
    fn below<'a>(command: &'a clap::Command, words: &str) -> Vec<(String, &'a clap::Command)> {
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        let with_own = |one: &'a clap::Command| {
            let words = format!("{words} {}", one.get_name());
            let own = below(one, &words);
            std::iter::once((words, one)).chain(own)
        };
        shown.flat_map(with_own).collect()
    }

    /// A sentence without its full stop.
    fn is_a_sentence(text: &str) -> bool {
        text.starts_with(|first: char| first.is_uppercase()) && !text.ends_with('.')
    }

    /// Of a command that somebody types, each can be typed as it stands, and the first is of that command.
    fn examples(words: &str, command: &clap::Command) {
        let told = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = told.strip_prefix("Examples:\n").and_then(|rest| rest.split_once("\n\nExit code: 0 when"));
        let (examples, _) = examples.unwrap_or_else(|| panic!("{words} ends its help with {told:?}"));
        assert!(examples.trim_start().starts_with(words), "{words}: {examples}");
        for example in examples.lines() {
            let typed = example.split(" | ").next().unwrap_or_default();
            let refusal = Arguments::try_parse_from(typed.split_whitespace()).err();
            assert!(refusal.is_none(), "{example}: {refusal:?}");
        }
    }

    #[test]
    fn help_of_every_command_is_in_one_style_and_its_examples_can_be_typed() {
        let whole = Arguments::command();
        for (words, command) in below(&whole, "kosmos-csi") {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(is_a_sentence(&about), "{words}: {about:?}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let (id, help) = (argument.get_id(), argument.get_help().map(ToString::to_string).unwrap_or_default());
                assert!(is_a_sentence(&help), "{words}: {id}: {help:?}");
                let values = argument.get_value_names().unwrap_or_default();
                // A scheme, and a choice of words, are typed as they stand.
                let is_named =
                    |value: &str| value == value.to_uppercase() || value.contains("://") || value.contains('|');
                assert!(values.iter().all(|value| is_named(value.as_str())), "{words}: {id}: {values:?}");
            }
            let first = words.split(' ').nth(1).unwrap();
            let ends = !GOES_ON.contains(&first) && !NOT_TYPED.contains(&first);
            if ends && (!command.has_subcommands() || command.is_args_conflicts_with_subcommands_set()) {
                examples(&words, command);
            }
        }
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
