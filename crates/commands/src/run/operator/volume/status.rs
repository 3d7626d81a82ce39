//! How moves stand: a table, or all that is known of one.

use kube::ResourceExt;
use serde_json::json;

use super::{
    Report, find,
    follow::{copied, in_words},
    list, phase_in_words,
};
use crate::{
    args::operator::{MoveStatus, Named, Output, Place, Within, is_kind},
    run::{
        Misuse,
        operator::{
            connect::{self, now},
            look::age,
            print::listed,
        },
    },
};
use cluster::Dial;
use domain::volume::moving::Phase;
use host::moves::{self, Cutover, VolumeMove};
use operator::{
    kubeconfig::span,
    listing::{Item, Listing},
    table::Table,
};

pub(super) async fn status(flags: &MoveStatus, dial: &Dial) -> anyhow::Result<Report> {
    let client = connect::user(&flags.access, dial).await?;
    let within = Within { namespace: flags.namespace.clone() };
    let named = match &flags.which {
        Some(Place { within: kind, name: Some(name) }) if within.namespace.is_some() && is_kind(kind) => {
            Some(Named { namespace: None, name: name.clone() })
        }
        Some(Place { within: namespace, name: Some(name) }) => {
            Some(Named { namespace: Some(namespace.clone()), name: name.clone() })
        }
        Some(Place { within: name, name: None }) if within.namespace.is_some() => {
            Some(Named { namespace: None, name: name.clone() })
        }
        _ => None,
    };
    let (found, is_one) = match (named, &flags.which) {
        (Some(named), _) => {
            let which = named.within(&within, client.default_namespace()).map_err(Misuse)?;
            (vec![find(&client, &which).await?], true)
        }
        (None, which) => {
            let namespace = which.as_ref().map(|place| &place.within).or(within.namespace.as_ref());
            (list(&client, namespace.map(String::as_str)).await?, false)
        }
    };
    let text = match (flags.output, found.as_slice()) {
        (Output::Table, [one]) if is_one => details(one),
        (output, _) if is_one => listing(&found).print_one(output.into()),
        (output, _) => listed(&listing(&found), output, "There are no moves of volumes."),
    };
    Ok(Report::new(text, found.iter().all(|of| moves::stall(of).is_none())))
}

fn from_of(of: &VolumeMove) -> String {
    let from = of.status.as_ref().and_then(|status| status.from.as_ref());
    from.map(|from| from.member.clone()).unwrap_or_default()
}

/// What is waited for, or stands in its way.
fn message(of: &VolumeMove) -> String {
    let said = of.status.iter().flat_map(|status| &status.conditions).map(|one| one.message.clone()).next();
    match moves::phase_of(of) {
        Some(Phase::Succeeded | Phase::Cancelled) => String::new(),
        _ => said.unwrap_or_default(),
    }
}

fn listing(found: &[VolumeMove]) -> Listing {
    let head = ["MOVE", "CLAIM", "FROM", "TO", "PHASE", "AGE", "WAITS FOR"];
    let mut listing = Listing::new(moves::KIND, &head, &["VOLUME", "COPIED"]);
    for of in found {
        let stalls = if moves::stall(of).is_some() { "STALLED: " } else { "" };
        let status = of.status.clone().unwrap_or_default();
        listing.add(Item {
            name: format!("{}/{}", of.namespace().unwrap_or_default(), of.name_any()),
            cells: vec![
                format!("{}/{}", of.namespace().unwrap_or_default(), of.name_any()),
                of.spec.claim_name.clone(),
                from_of(of),
                of.spec.to.member.clone(),
                phase_in_words(of),
                span(age(&of.metadata, now())),
                format!("{stalls}{}", message(of)),
            ],
            wide: vec![
                status.volume.map(|volume| volume.name).unwrap_or_default(),
                status.progress.map(copied).unwrap_or_default(),
            ],
            object: json!(of),
        });
    }
    listing
}

fn details(of: &VolumeMove) -> String {
    let status = of.status.clone().unwrap_or_default();
    let mut table = Table::new(&["WHAT", "STATE"]);
    table.row(["move".to_owned(), format!("{}/{}", of.namespace().unwrap_or_default(), of.name_any())]);
    table.row(["claim", &of.spec.claim_name]);
    table.row(["volume", status.volume.as_ref().map(|volume| volume.name.as_str()).unwrap_or_default()]);
    table.row(["from", &from_of(of)]);
    table.row(["to", &of.spec.to.member]);
    let words = moves::phase_of(of).map(|phase| in_words(of, phase)).unwrap_or_default();
    table.row(["phase".to_owned(), format!("{}: {words}", phase_in_words(of)).trim_end_matches(": ").to_owned()]);
    table.row(["age", &span(age(&of.metadata, now()))]);
    if status.attempt > 0 {
        table.row(["attempt".to_owned(), (status.attempt + 1).to_string()]);
    }
    if let Some(progress) = status.progress {
        table.row(["copied", &copied(progress)]);
    }
    if let Some(sum) = &status.verified {
        let same = format!("source and copy are the same: {} files, {} bytes ({})", sum.files, sum.bytes, sum.digest);
        table.row(["verified", &same]);
    }
    if moves::phase_of(of) == Some(Phase::Succeeded) {
        table.row(["source", &moves::fate_of_source(of)]);
    }
    let stalls = moves::stall(of).is_some();
    table.row([if stalls { "stalled" } else { "waits for" }, &message(of)]);
    format!("{table}{}", next(of))
}

/// What its user can do.
fn next(of: &VolumeMove) -> String {
    let place = format!("{}/{}", of.namespace().unwrap_or_default(), of.name_any());
    let said = match moves::phase_of(of) {
        Some(Phase::Waiting) => format!(
            "End the pods that use the claim, for example by `kubectl delete pod`; pods that a StatefulSet or Deployment makes instead wait for \
             the move. `kosmos-csi volume cancel {place}` calls the move off."
        ),
        Some(Phase::Isolating) => format!(
            "End what holds the claim in the member, as named above. `kosmos-csi volume cancel {place}` calls the move off."
        ),
        Some(Phase::Ready) if of.spec.cutover == Cutover::Manual && !of.spec.approved => {
            format!(
                "`kosmos-csi volume approve {place}` switches to the copy, `kosmos-csi volume cancel {place}` calls the move off."
            )
        }
        Some(Phase::Succeeded) if moves::source_is_kept(of) => {
            format!("`kosmos-csi volume discard` lists what member {} keeps.", from_of(of))
        }
        Some(phase) if phase < Phase::Switching => format!("`kosmos-csi volume cancel {place}` calls the move off."),
        _ => return String::new(),
    };
    format!("\n{said}\n")
}
