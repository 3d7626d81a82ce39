//! `member cordon` and `member uncordon`: a member gets no new volumes, or gets them again.

use anyhow::bail;

use super::secret;
use crate::{
    args::operator::Cordon,
    run::operator::{Report, connect},
};
use cluster::Dial;
use member::policy::CORDON;

pub(in crate::run::operator) async fn cordon(flags: &Cordon, dial: &Dial) -> anyhow::Result<Report> {
    write(flags, true, dial).await
}

pub(in crate::run::operator) async fn uncordon(flags: &Cordon, dial: &Dial) -> anyhow::Result<Report> {
    write(flags, false, dial).await
}

async fn write(flags: &Cordon, is_closed: bool, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.members.host, dial).await?;
    let (name, named) = (&flags.name, connect::members(&host, &flags.members).await?);
    let Some(definition) = named.get(name) else {
        bail!("no member is called {name}: `kosmos-csi get members` lists all members")
    };
    if definition.secret.is_none() {
        let how = match definition.clustertree {
            true if is_closed => format!("`kubectl annotate clusters.kosmos.io {name} {CORDON}=true` closes it"),
            true => format!("`kubectl annotate clusters.kosmos.io {name} {CORDON}-` opens it"),
            false if is_closed => format!("a file {name}.cordon beside it closes it"),
            false => format!("it is open once there is no file {name}.cordon beside it"),
        };
        bail!("member {name} is named by {}, which this command does not change: {how}", definition.origin)
    }
    let state = if is_closed { "closed to new volumes" } else { "open to new volumes" };
    if definition.policy.cordoned == is_closed {
        return Ok(Report::well(format!("Member {name} is {state} already.\n")));
    }
    // Each of them counts once the one before it is gone. The first one, which says now that there is nothing to do, is written last, so
    // that whoever types this again after an error has the rest done.
    for secret in secret::of_member(&host, name).await?.into_iter().rev() {
        secret::cordon(&host, &secret, is_closed).await?;
    }
    let rest = if is_closed { ": existing volumes go on, and its virtual node still takes pods" } else { "" };
    Ok(Report::well(format!("Member {name} is {state} ({}){rest}.\n", definition.origin)))
}
