//! An operator's commands: each does one thing, says what it did, and ends.

mod bundle;
mod connect;
mod doctor;
mod files;
mod get;
mod host;
mod import;
mod look;
mod member;
mod objects;
mod orphan;
mod pods;
mod print;
mod release;
mod snapshots;
mod status;
mod trace;
mod ui;
mod verify;
mod volume;
mod whole;

use crate::args::operator::{Command, Get, HostCommand, Member, Remedy};
use cluster::{Dial, with_causes};
pub use print::out;

/// What a command comes to.
#[derive(Debug)]
pub struct Report {
    /// For standard output.
    pub text: String,
    /// Nothing is wrong, and nothing was refused.
    pub well: bool,
}

impl Report {
    fn well(text: String) -> Self {
        Self { text, well: true }
    }

    fn new(text: String, well: bool) -> Self {
        Self { text, well }
    }
}

/// An error for a person: what was to be done, and why it could not.
pub fn in_words(error: &anyhow::Error) -> String {
    let is_kubes = <dyn std::error::Error>::is::<kube::Error>;
    let told = |error: &(dyn std::error::Error + 'static)| {
        if is_kubes(error) { with_causes(error) } else { error.to_string() }
    };
    let kubes_own = error.chain().position(is_kubes);
    let chain = error.chain().take(kubes_own.map_or(usize::MAX, |at| at + 1));
    chain.map(told).collect::<Vec<_>>().join(": ")
}

/// Does it and prints; whether all is well.
pub async fn operate(command: &Command) -> anyhow::Result<bool> {
    let report = report(command, &Dial::Network).await?;
    out(&report.text)?;
    Ok(report.well)
}

/// Does it.
pub async fn report(command: &Command, dial: &Dial) -> anyhow::Result<Report> {
    match command {
        Command::Member(Member::Add(add)) => Box::pin(member::add::add(add, dial)).await,
        Command::Get(Get::Volumes(volumes)) => get::volumes(volumes, dial).await,
        Command::Get(Get::Members(list)) | Command::Member(Member::List(list)) => member::list::list(list, dial).await,
        Command::Member(Member::Check(check)) => member::check::check(check, dial).await,
        Command::Member(Member::Cordon(flags)) => member::cordon::cordon(flags, dial).await,
        Command::Member(Member::Uncordon(flags)) => member::cordon::uncordon(flags, dial).await,
        Command::Member(Member::Remove(remove)) => Box::pin(member::remove::remove(remove, dial)).await,
        Command::Member(Member::Forget(forget)) => Box::pin(member::forget::forget(forget, dial)).await,
        Command::Doctor(doctor) => match &doctor.remedy {
            None => doctor::doctor(doctor, dial).await,
            Some(Remedy::Remove(remove)) => Box::pin(orphan::remove(remove, dial)).await,
        },
        Command::Status(flags) => Box::pin(status::status(flags, dial)).await,
        Command::Verify(flags) => Box::pin(verify::verify(flags, dial)).await,
        Command::Import(import) => import::import(import, dial).await,
        Command::Trace(trace) => trace::trace(trace, dial).await,
        Command::Volume(command) => Box::pin(volume::volume(command, dial)).await,
        Command::Host(HostCommand::Backup(flags)) => host::backup::backup(flags, dial).await,
        Command::Host(HostCommand::Adopt(flags)) => Box::pin(host::adopt::adopt(flags, dial)).await,
        Command::Release(release) => release::release(release, dial).await,
        Command::SupportBundle(flags) => Box::pin(bundle::bundle(flags, dial)).await,
        Command::Ui(flags) => Box::pin(ui::ui(flags, dial)).await,
    }
}
