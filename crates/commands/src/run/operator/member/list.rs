//! `member list`: every member that is named, and every one that was.

use futures::future::join_all;
use serde_json::{Value, json};

use super::volumes_by_member;
use crate::{
    args::operator::{List, Output},
    run::operator::{
        Report,
        connect::{self, now},
        print::patiently,
    },
};
use cluster::Dial;
use operator::{
    kubeconfig::{self, Told, until},
    table::Table,
};

/// One line.
struct Row {
    name: String,
    /// Empty: nobody names it any more.
    source: String,
    /// The cluster that the name means; empty before the first meeting.
    pinned: String,
    told: Told,
    cordoned: bool,
    /// Why it does not answer as it should.
    problem: Option<String>,
    volumes: usize,
}

pub(in crate::run::operator) async fn list(flags: &List, dial: &Dial) -> anyhow::Result<Report> {
    let rows = rows(flags, dial).await?;
    let well = rows.iter().all(|row| row.source.is_empty() || row.problem.is_none());
    let text = match flags.output {
        Output::Table if rows.is_empty() => "There is no member yet: kosmos-csi member add --help\n".to_owned(),
        Output::Table => table(&rows).to_string(),
        Output::Json => format!("{:#}\n", rows.iter().map(as_json).collect::<Value>()),
    };
    Ok(Report::new(text, well))
}

async fn rows(flags: &List, dial: &Dial) -> anyhow::Result<Vec<Row>> {
    let host = connect::host(&flags.members.host, dial).await?;
    let named = connect::members(&host, &flags.members).await?;
    let pins = host::pins::pins(&host).await?;
    let volumes = volumes_by_member(&host).await?;
    let count = |name: &String| volumes.get(name).map_or(0, Vec::len);
    let asking = named.iter().map(async |(name, definition)| Row {
        name: name.clone(),
        source: definition.origin.clone(),
        pinned: pins.get(name).cloned().unwrap_or_default(),
        told: kubeconfig::read(&definition.kubeconfig),
        cordoned: definition.policy.cordoned,
        problem: connect::known(&host, name, definition, &pins, dial).await.err(),
        volumes: count(name),
    });
    let mut rows = patiently("asking the members who they are", join_all(asking)).await;
    let gone = pins.iter().filter(|(name, _)| !named.contains_key(*name));
    rows.extend(gone.map(|(name, identity)| Row {
        name: name.clone(),
        source: String::new(),
        pinned: identity.clone(),
        told: Told::default(),
        cordoned: false,
        problem: Some("removed, and not forgotten".to_owned()),
        volumes: count(name),
    }));
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
}

fn table(rows: &[Row]) -> Table {
    let mut table =
        Table::new(&["NAME", "SOURCE", "CLUSTER", "SERVER", "TOKEN ENDS IN", "CORDONED", "VOLUMES", "ANSWERS"]);
    for row in rows {
        let ends = row.told.token.as_ref().map(|token| until(token.ends, now())).unwrap_or_default();
        let answers = row.problem.as_ref().map_or_else(|| "yes".to_owned(), |problem| format!("no: {problem}"));
        let cordoned = if row.cordoned { "yes" } else { "no" };
        let volumes = row.volumes.to_string();
        let Row { name, source, pinned, told, .. } = row;
        table.row([name.as_str(), source, pinned, &told.server, &ends, cordoned, &volumes, &answers]);
    }
    table
}

fn as_json(row: &Row) -> Value {
    json!({
        "name": row.name, "source": row.source, "cluster": row.pinned, "server": row.told.server,
        "tokenEnds": row.told.token.as_ref().map(|token| token.ends), "cordoned": row.cordoned, "volumes": row.volumes,
        "answers": row.problem.is_none(), "problem": row.problem,
    })
}
