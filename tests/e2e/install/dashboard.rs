//! The dashboard: what it asks is there to be answered.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::helm::{CHART, checkout, objects, rendered};
use crate::clusters::tools;

/// So long a time is played.
const MINUTES: u32 = 60;

fn text() -> Result<String> {
    fs::read_to_string(checkout().join(CHART).join("files/dashboard.json")).context("read the dashboard")
}

/// Each panel's title, and what it asks as Grafana would.
fn queries() -> Result<Vec<(String, String)>> {
    let dashboard: Value = serde_json::from_str(&text()?)?;
    let panels = dashboard["panels"].as_array().context("it has panels")?;
    let asked = panels.iter().flat_map(|panel| {
        let title = panel["title"].as_str().unwrap_or_default().to_owned();
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (title.clone(), target["expr"].as_str().unwrap_or_default().to_owned()))
    });
    Ok(asked.map(|(title, query)| (title, query.replace("$__rate_interval", "5m").replace("$member", ".*"))).collect())
}

/// What a process has told, as if its counters had grown by that in each minute. `path` is that of the file in an archive for
/// who helps: `metrics/NAMESPACE/POD/PORT.txt`.
fn series(path: &str, told: &str) -> Vec<String> {
    let from = format!("pod=\"{path}\"");
    let samples = told.lines().filter(|line| line.starts_with("kosmos_csi_") || line.starts_with("csi_sidecar_"));
    let lasting = samples.filter_map(|line| {
        let (of, value) = line.rsplit_once(' ')?;
        let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite())?;
        let (name, labels) = of.split_once('{').unwrap_or((of, "}"));
        let grows = ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end));
        let labels = if labels == "}" { from.clone() + labels } else { format!("{from},{labels}") };
        let begin = if grows { format!("0+{value}") } else { format!("{value}+0") };
        Some(format!("{name}{{{labels} {begin}x{MINUTES}"))
    });
    lasting.collect()
}

/// Of what a release has told, every query finds something.
pub fn finds_data_for_every_query(told: &BTreeMap<String, String>) -> Result<()> {
    let queries = queries()?;
    ensure!(queries.len() > 20, "{queries:?}");
    let rules: Vec<Value> =
        queries.iter().enumerate().map(|(at, (_, query))| json!({"alert": format!("q{at}"), "expr": query})).collect();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rules.yaml");
    fs::write(&file, json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string())?;
    let metrics = told.iter().filter(|(path, _)| path.starts_with("metrics/"));
    let all: Vec<String> = metrics.flat_map(|(path, told)| series(path, told)).collect();
    let situation = json!([{"name": "fleet", "series": all, "minutes": MINUTES - 5}]);
    let found = tools::fed(&tools::tool("alerts")?, &file.display().to_string(), situation.to_string().as_bytes())?;
    let found: BTreeMap<String, Option<Vec<String>>> = serde_json::from_str(&found)?;
    let answered: BTreeSet<String> = found["fleet"]
        .iter()
        .flatten()
        .filter_map(|one| Some(one.split_once("alertname=\"")?.1.split_once('"')?.0.to_owned()))
        .collect();
    let silent: Vec<_> = queries.iter().enumerate().filter(|(at, _)| !answered.contains(&format!("q{at}"))).collect();
    ensure!(silent.is_empty(), "nothing is found by {silent:#?}");
    Ok(())
}

#[test]
fn dashboard_asks_for_metrics_that_there_are() {
    let page = fs::read_to_string(checkout().join("docs/metrics.md")).unwrap();
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    for (title, query) in queries().unwrap() {
        let metrics = query.split(|letter| !is_part(letter)).filter(|word| word.starts_with("kosmos_csi_"));
        for metric in metrics {
            let ends = ["_total", "_info", "_bucket"];
            let base = ends.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
            let is_told = [format!("`{base}{{"), format!("`{base}`")].iter().any(|word| page.contains(word));
            assert!(is_told, "{title}: {metric}");
        }
    }
}

#[test]
fn dashboard_is_one_that_grafana_takes() {
    let dashboard: Value = serde_json::from_str(&text().unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "panels have ids of their own");
    let place = |panel: &Value| ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
    for (at, panel) in panels.iter().enumerate() {
        let [x, y, w, h] = place(panel);
        assert!(x + w <= 24 && !panel["title"].as_str().unwrap().is_empty(), "{panel}");
        let over = panels[..at].iter().find(|other| {
            let [left, top, width, height] = place(other);
            x < left + width && left < x + w && y < top + height && top < y + h
        });
        assert!(over.is_none(), "{panel} lies over {over:?}");
        let sources = panel["targets"].as_array().into_iter().flatten().map(|target| &target["datasource"]["uid"]);
        assert!(sources.into_iter().all(|source| source == "${datasource}"), "{panel}");
    }
}

#[test]
fn dashboard_is_in_the_release_where_it_is_asked_for() {
    let wanted =
        rendered(&["grafana.dashboard.enabled=true,grafana.dashboard.annotations.grafana_folder=Storage"]).unwrap();
    let all = objects(&wanted).unwrap();
    let map = all.iter().find(|object| object["metadata"]["name"] == "kosmos-csi-dashboard").unwrap();
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(map["metadata"]["annotations"]["grafana_folder"], "Storage");
    let held: Value = serde_json::from_str(map["data"]["kosmos-csi.json"].as_str().unwrap()).unwrap();
    assert_eq!(held, serde_json::from_str::<Value>(&text().unwrap()).unwrap());
    assert!(!rendered(&["image.tag=0.1.0"]).unwrap().contains("kosmos-csi-dashboard"));
}
