//! The command line of an operator: commands that do one thing and end.

mod bundle;
mod get;
mod host;
mod member;
mod ui;
mod values;
mod verify;
mod volume;

use std::{path::PathBuf, time::Duration};

use clap::{Subcommand, ValueEnum};

use super::{member_name, namespace};
pub use bundle::SupportBundle;
pub use get::{Get, GetVolumes};
pub use host::{AdoptHost, BackupHost, HostCommand};
pub use member::{Add, Check, Cordon, Forget, List, Member, Remove};
use operator::listing::Form;
pub use ui::Ui;
pub use values::{ClaimName, Kind, Named, Place, Subject, is_kind};
use values::{claim, finding, object_name, subject};
pub use verify::Verify;
pub use volume::{Discard, MoveStatus, MoveVolume, OneMove, Volume};

const EXIT_CODES: &str = "Exit code: 0 when all is well, 1 when something is wrong or was refused, 2 when a command that only looks could not, 64 when what was typed is wrong.";

/// What follows the help of a command.
fn with_examples(examples: &[&str]) -> String {
    format!("Examples:\n  {}\n\n{EXIT_CODES}", examples.join("\n  "))
}

/// How the host is reached, by whoever has any right in it.
#[derive(Clone, Debug, clap::Args)]
pub struct UserAccess {
    /// Kubeconfig of the host; without it KUBECONFIG or ~/.kube/config, and in a pod its service account
    #[arg(long, env = "KOSMOS_CSI_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the host's kubeconfig; without it the current one
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
}

/// How the host is reached by its administrator.
#[derive(Clone, Debug, clap::Args)]
pub struct HostAccess {
    #[command(flatten)]
    pub user: UserAccess,

    /// The driver's namespace in the host
    #[arg(long, env = "KOSMOS_CSI_MEMBERS_NAMESPACE", default_value = "kosmos-csi", value_parser = namespace, value_name = "NAMESPACE")]
    pub members_namespace: String,

    /// The namespace of the virtual nodes' agent in the host
    #[arg(long, env = "KOSMOS_CSI_PODS_NAMESPACE", default_value = "kosmos-csi-pods", value_parser = namespace, value_name = "NAMESPACE")]
    pub pods_namespace: String,
}

/// Where the members are named.
#[derive(Clone, Debug, clap::Args)]
pub struct MembersAccess {
    #[command(flatten)]
    pub host: HostAccess,

    /// Folder of <name>.kubeconfig files, if the controller has one; the command always reads Secrets in the host
    #[arg(long, env = "KOSMOS_CSI_MEMBERS_DIR", value_name = "FOLDER")]
    pub members_dir: Option<PathBuf>,
}

/// How a member is reached by its administrator.
#[derive(Clone, Debug, clap::Args)]
pub struct MemberAccess {
    /// An administrator's kubeconfig of the member; the command uses it now and keeps it nowhere
    #[arg(long, value_name = "FILE")]
    pub member_kubeconfig: PathBuf,

    /// Context of the member's kubeconfig; without it the current one
    #[arg(long, value_name = "CONTEXT")]
    pub member_context: Option<String>,
}

/// Where what is named without a namespace is looked for.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Within {
    /// The namespace, if the name does not have it; without either, that of the kubeconfig's context
    #[arg(long, short, value_parser = namespace, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Table,
    /// A table with more columns
    Wide,
    Json,
    Yaml,
    /// Only names, one in a line
    Name,
}

impl From<Output> for Form {
    fn from(output: Output) -> Self {
        match output {
            Output::Table => Self::Table,
            Output::Wide => Self::Wide,
            Output::Json => Self::Json,
            Output::Yaml => Self::Yaml,
            Output::Name => Self::Name,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show on one screen how driver, members and volumes stand
    Status(Status),
    /// Verify, by asking only the host, that volumes can be made: the driver, its sidecars, the classes, and the room in members
    ///
    /// It asks no member and reads no Secret, so an account with few rights is enough: `helm test` has one. `status` and `doctor`
    /// ask the members themselves.
    Verify(Verify),
    /// List volumes, with the members they are in, or members
    #[command(subcommand)]
    Get(Get),
    /// Add, list, check, cordon, remove and forget members
    #[command(subcommand)]
    Member(Member),
    /// Check everything: the host, the members, and whether each volume has its leaf and each leaf its volume
    Doctor(Doctor),
    /// Give the host an existing claim of a member as a volume
    Import(Import),
    /// Show everything behind a claim, a pod or a volume of the host, down to the member's volume
    Trace(Trace),
    /// Move a claim's volume to another member; show, approve or cancel a move; list and discard what moves have kept
    #[command(subcommand)]
    Volume(Volume),
    /// Back up what a host knows of its volumes, and give it to a new host
    #[command(subcommand)]
    Host(HostCommand),
    /// Retain a leaf claim's volume, and take the driver's finalizer off the claim: the forced way out for a member's administrator
    Release(Release),
    /// Write everything that helps to find out what is wrong into one archive, without secrets
    ///
    /// How driver, members and volumes stand, what doctor finds, the objects and events of this driver and of its volumes, logs
    /// and metrics of its pods, and the leaves in each member. The archive names what the command could not read.
    SupportBundle(SupportBundle),
    /// Show members and volumes as pages in a browser of this machine, read-only, until Ctrl-C
    ///
    /// The leading controller serves them only inside its pod, and the command gets them through the host's API server: whoever may
    /// forward ports of pods in the driver's namespace may see them.
    Ui(Ui),
}

impl Command {
    /// Nothing is changed by it, and what it says is what it has found.
    pub fn only_looks(&self) -> bool {
        match self {
            Self::Member(member) => matches!(member, Member::List(_) | Member::Check(_)),
            Self::Doctor(doctor) => doctor.remedy.is_none(),
            Self::Volume(volume) => matches!(volume, Volume::Status(_)),
            Self::Host(host) => matches!(host, HostCommand::Backup(_)),
            Self::Get(_)
            | Self::Status(_)
            | Self::Verify(_)
            | Self::Trace(_)
            | Self::SupportBundle(_)
            | Self::Ui(_) => true,
            Self::Import(_) | Self::Release(_) => false,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = with_examples(&["kosmos-csi status", "kosmos-csi status -o json"]))]
pub struct Status {
    #[command(flatten)]
    pub members: MembersAccess,

    /// How it is printed
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
#[command(after_help = with_examples(&["kosmos-csi doctor", "kosmos-csi doctor --older-than 24h -o json"]), args_conflicts_with_subcommands = true)]
pub struct Doctor {
    #[command(subcommand)]
    pub remedy: Option<Remedy>,

    #[command(flatten)]
    pub look: Look,

    /// How it is printed
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Output,
}

/// How everything is looked at.
#[derive(Clone, Debug, clap::Args)]
pub struct Look {
    #[command(flatten)]
    pub members: MembersAccess,

    /// Look twice, with this time in between, and report only what is there both times
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub interval: Duration,

    /// A leaf without a host volume is an orphan once it is as old as this
    #[arg(long, default_value = "1h", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub older_than: Duration,
}

#[derive(Debug, Subcommand)]
pub enum Remedy {
    /// Remove one orphan leaf claim that `doctor` has named; its data stays unless you say otherwise
    Remove(RemoveOrphan),
}

#[derive(Debug, clap::Args)]
#[command(after_help = with_examples(&[
    "kosmos-csi doctor remove leaf:cluster38/shop/db --dry-run",
    "kosmos-csi doctor remove leaf:cluster38/shop/db",
]))]
pub struct RemoveOrphan {
    /// The finding, as `doctor` names it, such as leaf:cluster38/shop/db
    #[arg(value_parser = finding, value_name = "FINDING")]
    pub finding: String,

    #[command(flatten)]
    pub look: Look,

    /// Do not retain its volume: if its policy is Delete, the data is deleted. A leaf that once had a host volume needs this flag
    #[arg(long)]
    pub data_will_be_lost: bool,

    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = with_examples(&[
    "kosmos-csi import shop/archive --member cluster38 --member-kubeconfig cluster38.kubeconfig",
    "kosmos-csi import shop/archive --member cluster38 --member-kubeconfig cluster38.kubeconfig --apply",
]))]
pub struct Import {
    /// The claim in the member
    #[arg(value_parser = claim, value_name = "NAMESPACE/CLAIM")]
    pub claim: ClaimName,

    /// The member's name
    #[arg(long, value_parser = member_name, value_name = "NAME")]
    pub member: String,

    #[command(flatten)]
    pub access: MemberAccess,

    #[command(flatten)]
    pub host: HostAccess,

    /// The name of the host's volume; without it, <member>-<namespace>-<claim>
    #[arg(long, value_parser = object_name, value_name = "NAME")]
    pub volume: Option<String>,

    /// The host's claim; without it, the same namespace and name as in the member
    #[arg(long, value_parser = claim, value_name = "NAMESPACE/CLAIM")]
    pub host_claim: Option<ClaimName>,

    /// Create the volume and the claim in the host, rather than print them
    #[arg(long)]
    pub apply: bool,

    /// Only print: write neither the consent in the member nor anything in the host
    #[arg(long, conflicts_with = "apply")]
    pub dry_run: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = with_examples(&["kosmos-csi trace pvc/db -n shop", "kosmos-csi trace pod/db-0 -n shop", "kosmos-csi trace pv/pvc-7c1e"]))]
pub struct Trace {
    /// In the host: a claim, as db, pvc/db or shop/db; a pod with all its claims, as pod/db-0; or a volume, as pv/pvc-7c1e
    #[arg(value_parser = subject, value_name = "[KIND/]NAME")]
    pub subject: Subject,

    #[command(flatten)]
    pub within: Within,

    #[command(flatten)]
    pub members: MembersAccess,

    /// How it is printed
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
#[command(after_help = with_examples(&[
    "kosmos-csi release shop/db --member-kubeconfig cluster38.kubeconfig --dry-run",
    "kosmos-csi release shop/db --member-kubeconfig cluster38.kubeconfig",
]))]
pub struct Release {
    /// The leaf claim in the member
    #[arg(value_parser = claim, value_name = "NAMESPACE/LEAFCLAIM")]
    pub claim: ClaimName,

    #[command(flatten)]
    pub access: MemberAccess,

    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(subcommand)]
        command: Command,
    }

    fn typed(words: &str) -> Result<Command, String> {
        Typed::try_parse_from(words.split(' ')).map(|typed| typed.command).map_err(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_it_must_be() {
        for (words, said) in [
            ("kosmos-csi member add Big --member-kubeconfig=f", "DNS label"),
            ("kosmos-csi member add a", "--member-kubeconfig"),
            ("kosmos-csi member add a --member-kubeconfig=f --token-lifetime=1m", "ten minutes"),
            ("kosmos-csi member add a --member-kubeconfig=f --namespace=shop", "--volumes-only"),
            ("kosmos-csi member add a --member-kubeconfig=f --volumes-only --namespace=Shop", "not a namespace"),
            ("kosmos-csi member remove a --member-context=x", "--member-kubeconfig"),
            ("kosmos-csi import db --member=a --member-kubeconfig=f", "such as shop/db"),
            ("kosmos-csi import shop/db --member-kubeconfig=f", "--member"),
            ("kosmos-csi import shop/db --member=a --member-kubeconfig=f --apply --dry-run", "cannot be used with"),
            ("kosmos-csi doctor remove db", "column FINDING"),
            ("kosmos-csi trace pod/Db", "such as pvc/db"),
            ("kosmos-csi trace a/b/c", "such as pvc/db"),
            ("kosmos-csi get volumes -o csv", "possible values"),
            ("kosmos-csi volume move shop/db", "--to"),
            ("kosmos-csi volume move pod/db --to=a", "such as db, pvc/db or shop/db"),
            ("kosmos-csi volume approve pv/db", "such as db or shop/db"),
            ("kosmos-csi volume move shop/db --to=a --dry-run --no-wait", "cannot be used with"),
            ("kosmos-csi volume discard db --data-will-be-lost", "such as cluster38/pvc-"),
            ("kosmos-csi volume discard a/db", "--data-will-be-lost"),
        ] {
            let refusal = typed(words).unwrap_err();
            assert!(refusal.contains(said), "{words}: {refusal}");
        }
    }

    #[test]
    fn what_is_traced_is_a_claim_unless_its_kind_is_said() {
        for (word, kind, namespace, name) in [
            ("db", Kind::Claim, None, "db"),
            ("shop/db", Kind::Claim, Some("shop"), "db"),
            ("pvc/db", Kind::Claim, None, "db"),
            ("persistentvolumeclaims/db", Kind::Claim, None, "db"),
            ("pod/db-0", Kind::Pod, None, "db-0"),
            ("pv/pvc-7c1e", Kind::Volume, None, "pvc-7c1e"),
        ] {
            let Command::Trace(trace) = typed(&format!("kosmos-csi trace {word}")).unwrap() else { panic!() };
            let Subject { kind: said, named } = trace.subject;
            assert_eq!((said, named.namespace.as_deref(), named.name.as_str()), (kind, namespace, name), "{word}");
        }
        let named = |namespace: Option<&str>| Named { namespace: namespace.map(str::to_owned), name: "db".to_owned() };
        let within = |namespace: &str| Within { namespace: Some(namespace.to_owned()) };
        let place = |of: Named, within: &Within| of.within(within, "default").map(|place| place.to_string());
        assert_eq!(place(named(None), &Within::default()).unwrap(), "default/db");
        assert_eq!(place(named(None), &within("shop")).unwrap(), "shop/db");
        assert_eq!(place(named(Some("shop")), &within("shop")).unwrap(), "shop/db");
        assert!(place(named(Some("shop")), &within("books")).unwrap_err().contains("--namespace books"));
    }

    #[test]
    fn help_of_release_says_that_the_claim_is_still_to_be_deleted() {
        let help = typed("kosmos-csi release --help").unwrap_err();
        assert!(help.contains("finalizer off the claim") && !help.contains("Delete"), "{help}");
    }

    #[test]
    fn doctor_looks_and_removes() {
        let Command::Doctor(doctor) = typed("kosmos-csi doctor -o json").unwrap() else { panic!() };
        assert!(doctor.remedy.is_none() && doctor.output == Output::Json);
        let words = "kosmos-csi doctor remove leaf:a/b/c --older-than=1s";
        let Command::Doctor(doctor) = typed(words).unwrap() else { panic!() };
        let Some(Remedy::Remove(remove)) = doctor.remedy else { panic!() };
        assert_eq!((remove.finding.as_str(), remove.look.older_than), ("leaf:a/b/c", Duration::from_secs(1)));
    }
}
