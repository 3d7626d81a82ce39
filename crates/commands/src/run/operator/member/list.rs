//! `member list`: every member that is named, and every one that was.

use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::volumes_by_member;
use crate::{
    args::operator::{List, MembersAccess},
    run::operator::{
        Report,
        connect::{self, now},
        print::{listed, patiently},
    },
};
use cluster::Dial;
use host::Host;
use operator::{
    kubeconfig::{self, KubeconfigSummary, until},
    listing::{Item, Listing},
};

/// One line.
pub(in crate::run::operator) struct Row {
    pub(in crate::run::operator) name: String,
    /// Empty: nobody names it any more.
    pub(in crate::run::operator) source: String,
    /// The cluster that the name means; empty before the first meeting.
    pinned: String,
    told: KubeconfigSummary,
    pub(in crate::run::operator) cordoned: bool,
    /// Why it does not answer as it should.
    pub(in crate::run::operator) problem: Option<String>,
    volumes: usize,
}

pub(in crate::run::operator) async fn list(flags: &List, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.members.host, dial).await?;
    let rows = rows(&host, &flags.members, dial).await?;
    let well = rows.iter().all(|row| row.source.is_empty() || row.problem.is_none());
    let mut listing = Listing::new(
        "Member",
        &["NAME", "CORDONED", "VOLUMES", "TOKEN ENDS IN", "STATUS"],
        &["CLUSTER", "SERVER", "SOURCE"],
    );
    for row in &rows {
        listing.add(item(row));
    }
    Ok(Report::new(listed(&listing, flags.output, "There is no member yet: kosmos-csi member add --help"), well))
}

pub(in crate::run::operator) async fn rows(
    host: &Host,
    access: &MembersAccess,
    dial: &Dial,
) -> anyhow::Result<Vec<Row>> {
    let named = connect::members(host, access).await?;
    let pins = host::pins::pins(host).await?;
    let volumes = volumes_by_member(host).await?;
    let count = |name: &String| volumes.get(name).map_or(0, Vec::len);
    let asking = named.iter().map(async |(name, definition)| Row {
        name: name.clone(),
        source: definition.origin.clone(),
        pinned: pins.get(name).cloned().unwrap_or_default(),
        told: kubeconfig::read(&definition.kubeconfig),
        cordoned: definition.policy.cordoned,
        problem: connect::known(host, name, definition, &pins, dial).await.err(),
        volumes: count(name),
    });
    let mut rows = patiently("asking the members who they are", join_all(asking)).await;
    let gone = pins.iter().filter(|(name, _)| !named.contains_key(*name));
    rows.extend(gone.map(|(name, identity)| Row {
        name: name.clone(),
        source: String::new(),
        pinned: identity.clone(),
        told: KubeconfigSummary::default(),
        cordoned: false,
        problem: Some("removed, and not forgotten".to_owned()),
        volumes: count(name),
    }));
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
}

fn item(row: &Row) -> Item {
    let token = row.told.token.as_ref();
    let ends = token.map(|token| until(token.ends, now())).unwrap_or_default();
    let status = row.problem.as_ref().map_or_else(|| "answers".to_owned(), |problem| format!("NO: {problem}"));
    let cordoned = if row.cordoned { "yes" } else { "no" };
    let rfc3339 = token.and_then(|token| Timestamp::from_second(token.ends).ok()).map(|ends| ends.to_string());
    Item {
        name: row.name.clone(),
        cells: vec![row.name.clone(), cordoned.to_owned(), row.volumes.to_string(), ends, status],
        wide: vec![row.pinned.clone(), row.told.server.clone(), row.source.clone()],
        object: json!({
            "name": row.name, "source": row.source, "cluster": row.pinned, "server": row.told.server, "tokenEnds": rfc3339,
            "cordoned": row.cordoned, "volumes": row.volumes, "answers": row.problem.is_none(), "problem": row.problem,
        }),
    }
}
