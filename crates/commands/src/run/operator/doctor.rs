//! `doctor`: two looks some time apart, and what both have found.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use super::{
    Report,
    connect::{self, now},
    look::{Seen, age, driver_and_lease, host_claims, look, waits},
    print::patiently,
    trace::newest_warning,
    volume,
};
use crate::args::operator::{Doctor, Look, Output};
use cluster::{Dial, with_causes};
use domain::volume::{DRIVER, Parameters};
use host::{Host, moves};
use operator::{
    compare::{Compared, Finding, compare, twice},
    doctor::{SeenClass, SeenHost, WaitingClaim, judge},
    listing::{Item, Listing},
};

/// Claims that are named where many wait.
const TOLD: usize = 20;

/// What both looks came to.
pub(super) struct Looked {
    pub(super) findings: Vec<Finding>,
    young: usize,
    pub(super) seen: Seen,
}

pub(super) async fn doctor(flags: &Doctor, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.look.members.host, dial).await?;
    let looked = look_twice(&flags.look, &host, dial).await?;
    let mut findings = judge(&see(&host).await?, &looked.seen.members, now());
    findings.extend(looked.findings.iter().cloned());
    let listing = listing(&findings, &looked);
    let text = match flags.output {
        Output::Table | Output::Wide if findings.is_empty() => {
            format!("Nothing is wrong.\n{}", summary(&flags.look, &looked))
        }
        Output::Table | Output::Wide => {
            format!("{}\n{}", listing.print(flags.output.into()), summary(&flags.look, &looked))
        }
        form => listing.print(form.into()),
    };
    Ok(Report::new(text, findings.is_empty()))
}

/// Nothing that is under way is the same in both.
pub(super) async fn look_twice(flags: &Look, host: &Host, dial: &Dial) -> anyhow::Result<Looked> {
    let older_than = i64::try_from(flags.older_than.as_secs()).unwrap_or(i64::MAX);
    let looking = async {
        let first = look(host, &flags.members, dial).await?;
        tokio::time::sleep(flags.interval).await;
        let seen = look(host, &flags.members, dial).await?;
        let first = compare(&first.host, &first.sides, older_than);
        let Compared { findings, young } = compare(&seen.host, &seen.sides, older_than);
        Ok(Looked { findings: twice(&first.findings, findings), young, seen })
    };
    patiently("looking at host and members, twice", looking).await
}

async fn see(host: &Host) -> anyhow::Result<SeenHost> {
    let told = |error: kube::Error| anyhow::anyhow!("the host cannot be looked at: {}", with_causes(&error));
    let (has_driver_object, lease) = driver_and_lease(host).await.map_err(told)?;
    let classes = Api::<StorageClass>::all(host.client.clone()).list(&ListParams::default()).await.map_err(told)?;
    let renewed = lease.and_then(|lease| lease.renew_time);
    let ours: Vec<StorageClass> = classes.items.into_iter().filter(|class| class.provisioner == DRIVER).collect();
    Ok(SeenHost {
        driver_object: has_driver_object,
        waiting: waiting(host, &ours).await?,
        stalled: stalled(host).await?,
        classes: ours.iter().map(seen_class).collect(),
        lease_age: renewed.map(|renewed| now() - renewed.0.as_second()),
    })
}

/// Moves that do not go on, and why; none where volumes are not moved.
async fn stalled(host: &Host) -> anyhow::Result<Vec<(String, String)>> {
    let moves = volume::list_known(&host.client, None).await?.unwrap_or_default();
    let stalled = moves.iter().filter_map(|of| {
        let stall = moves::stall(of)?;
        Some((format!("{}/{}", of.namespace().unwrap_or_default(), of.name_any()), stall.message.clone()))
    });
    Ok(stalled.collect())
}

/// The oldest of those that have no volume, with what was last said of each.
async fn waiting(host: &Host, classes: &[StorageClass]) -> anyhow::Result<Vec<WaitingClaim>> {
    let mut claims = host_claims(host).await?;
    claims.retain(|claim| waits(claim, classes));
    claims.sort_by(|left, right| left.metadata.creation_timestamp.cmp(&right.metadata.creation_timestamp));
    let mut waiting = Vec::new();
    for claim in claims.iter().take(TOLD) {
        let namespace = claim.namespace().unwrap_or_default();
        let warning = newest_warning(&host.client, &namespace, &claim.uid().unwrap_or_default()).await;
        let warning = warning.ok().flatten().and_then(|event| event.message);
        waiting.push(WaitingClaim {
            place: format!("{namespace}/{}", claim.name_any()),
            age: age(&claim.metadata, now()),
            warning,
        });
    }
    Ok(waiting)
}

fn seen_class(class: &StorageClass) -> SeenClass {
    let parameters: BTreeMap<String, String> = class.parameters.clone().unwrap_or_default();
    SeenClass { name: class.name_any(), parameters: Parameters::parse(&parameters).map_err(|error| error.to_string()) }
}

fn listing(findings: &[Finding], looked: &Looked) -> Listing {
    let mut listing = Listing::new("Finding", &["FINDING", "WHAT"], &[]);
    for Finding { name, message, .. } in findings {
        listing.add(Item {
            name: name.clone(),
            cells: vec![name.clone(), message.clone()],
            wide: Vec::new(),
            object: json!({"name": name, "message": message}),
        });
    }
    let compared: Vec<&str> = looked.seen.sides.iter().map(|side| side.member.as_str()).collect();
    listing.say("comparedMembers", json!(compared));
    listing.say("hostVolumes", json!(looked.seen.host.volumes.len()));
    listing.say("notJudgedYet", json!(looked.young));
    listing
}

fn summary(flags: &Look, looked: &Looked) -> String {
    let leaves: usize = looked.seen.sides.iter().map(|side| side.leaves.len()).sum();
    let (judged, named) = (looked.seen.sides.len(), looked.seen.members.iter().filter(|member| member.named).count());
    let young = match looked.young {
        0 => String::new(),
        some => format!(
            " {some} without a volume of the host are younger than {} and not judged.",
            humantime::format_duration(flags.older_than)
        ),
    };
    format!(
        "Compared twice: {} volumes of the host and {leaves} leaf claims in {judged} of {named} members.{young}\n",
        looked.seen.host.volumes.len()
    )
}
