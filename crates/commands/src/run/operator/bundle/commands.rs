//! What the commands that look say.

use std::time::Duration;

use crate::{
    args::operator::{
        Check, ClaimName, Doctor, GetVolumes, Kind, List, Look, MembersAccess, Named, Output, Status, Subject,
        SupportBundle, Trace, Within,
    },
    run::operator::{Report, doctor, get, in_words, member, status, trace},
};
use ::member::source::MemberDefinitions;
use cluster::Dial;
use futures::{StreamExt, stream};
use operator::bundle::Bundle;

/// Members that are asked at once.
const AT_ONCE: usize = 8;
/// For each command: a member may keep its answers from ending.
const PATIENCE: Duration = Duration::from_mins(3);

pub(super) async fn outputs(flags: &SupportBundle, named: &MemberDefinitions, dial: &Dial, bundle: &mut Bundle) {
    let members = &flags.members;
    let (table, json) = (Output::Table, Output::Json);
    let access = || members.host.user.clone();
    let of_status = Status { members: members.clone(), output: table };
    put("status.txt", Box::pin(status::status(&of_status, dial)), bundle).await;
    let list = List { members: members.clone(), output: json };
    put("members.json", Box::pin(member::list::list(&list, dial)), bundle).await;
    let volumes = GetVolumes { namespace: None, member: None, state: None, access: access(), output: json };
    put("volumes.json", Box::pin(get::volumes(&volumes, dial)), bundle).await;
    let look = Look { members: members.clone(), interval: Duration::from_secs(2), older_than: Duration::from_hours(1) };
    let of_doctor = Doctor { remedy: None, look, output: json };
    put("doctor.json", Box::pin(doctor::doctor(&of_doctor, dial)), bundle).await;
    if let Some(claim) = &flags.claim {
        put("trace.txt", Box::pin(trace::trace(&traced(claim, members), dial)), bundle).await;
    }
    let mut checks = stream::iter(named.keys())
        .map(async |name| {
            let check = Check {
                name: name.clone(),
                members: members.clone(),
                attach: false,
                moves: false,
                volume_stats: false,
            };
            (format!("members/{name}/check.txt"), said(member::check::check(&check, dial)).await)
        })
        .buffered(AT_ONCE);
    while let Some((path, text)) = checks.next().await {
        bundle.put(path, text);
    }
}

async fn put(path: &str, command: impl Future<Output = anyhow::Result<Report>>, bundle: &mut Bundle) {
    bundle.put(path, said(command).await);
}

async fn said(command: impl Future<Output = anyhow::Result<Report>>) -> Result<String, String> {
    let said = tokio::time::timeout(PATIENCE, command).await.map_err(|_| "it did not end in time".to_owned())?;
    said.map(|report| report.text).map_err(|error| in_words(&error))
}

fn traced(claim: &ClaimName, members: &MembersAccess) -> Trace {
    let named = Named { namespace: Some(claim.namespace.clone()), name: claim.name.clone() };
    let subject = Subject { kind: Kind::Claim, named };
    Trace { subject, within: Within::default(), members: members.clone(), output: Output::Table }
}
