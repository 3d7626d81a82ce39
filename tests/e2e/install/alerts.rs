//! The alerts, evaluated by Prometheus' own code: when they fire, and when they do not.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde_json::json;

use super::helm::{CHART, checkout, objects, rendered};
use crate::clusters::tools;

/// What is true of a host where all is well: 90 minutes of it.
const WELL: &str = r#"
kosmos_csi_build_info{version="0.1.0",component="controller"} 1x90
kosmos_csi_build_info{version="0.1.0",component="virtual-node"} 1x90
kosmos_csi_member_state{member="a",state="ok",component="controller"} 1x90
kosmos_csi_member_state{member="a",state="ok",component="virtual-node"} 1x90
kosmos_csi_member_state{member="a",state="starting",component="controller"} 1x20
kosmos_csi_member_breaker_open{member="a",component="controller"} 0x30 1x2 0x60
kosmos_csi_member_token_late{member="a",component="controller"} 0x90
kosmos_csi_member_requests_total{member="a",verb="list",resource="volumeattachments",code="403"} 0+1x90
kosmos_csi_member_requests_total{member="a",verb="create",resource="persistentvolumeclaims",code="403"} 0+1x90
kosmos_csi_member_requests_total{member="(host)",verb="get",resource="pods",code="401"} 0+1x90
kosmos_csi_member_requests_total{member="a",verb="patch",resource="persistentvolumeclaims",code="401"} 0x85 1x5
kosmos_csi_rpc_started_total{method="CreateVolume",component="controller"} 0+600x90
kosmos_csi_member_requests_total{member="a",verb="get",resource="pods",code="200"} 0+60x90
kosmos_csi_member_requests_total{member="a",verb="get",resource="pods",code="404"} 0+60x90
kosmos_csi_member_volumes{member="a",state="bound",component="controller"} 7x90
kosmos_csi_member_volumes{member="a",state="lost",component="controller"} 0x90
kosmos_csi_member_volumes{member="a",state="stray",component="controller"} 0x50 1x30 0x20
kosmos_csi_member_oldest_creation_seconds{member="a",component="controller"} 0+60x14 0x80
kosmos_csi_member_oldest_deletion_seconds{member="a",component="controller"} 0+60x59 0x40
kosmos_csi_oldest_waiting_claim_seconds{component="controller"} 0+60x14 0x80
kosmos_csi_member_requests_under_way{member="a",component="controller"} 31x3 4x90
kosmos_csi_rpc_handled_total{method="CreateVolume",code="Ok",component="controller"} 0+600x90
kosmos_csi_rpc_handled_total{method="CreateVolume",code="Aborted",component="controller"} 0+6000x90
kosmos_csi_rpc_handled_total{method="CreateVolume",code="Internal",component="controller"} 0+6x90
kosmos_csi_moves_longest_stall_seconds{component="controller"} 0+60x9 0x90
"#;

/// Series in place of those of the same name and labels above, and the alerts that fire in the end.
const SITUATIONS: [(&str, &[&str], &[&str]); 20] = [
    ("all is well", &[], &[]),
    (
        "the controller is gone, and the agent is scraped",
        &[r#"kosmos_csi_rpc_started_total{method="CreateVolume",component="controller"} 0+600x60"#],
        &["KosmosCsiDown"],
    ),
    (
        "a member does not answer the agent",
        &[r#"kosmos_csi_member_state{member="a",state="unreachable",component="virtual-node"} 1x90"#],
        &["KosmosCsiMemberDown"],
    ),
    (
        "a member is away",
        &[r#"kosmos_csi_member_state{member="a",state="unreachable",component="controller"} _x10 1x80"#],
        &["KosmosCsiMemberDown"],
    ),
    (
        "a member was away for a moment",
        &[r#"kosmos_csi_member_state{member="a",state="unreachable",component="controller"} _x80 1x4 _x5"#],
        &[],
    ),
    (
        "the leaves of a member are never listed to their end",
        &[r#"kosmos_csi_member_state{member="a",state="starting",component="controller"} 1x90"#],
        &["KosmosCsiMemberDown"],
    ),
    (
        "a member is another cluster than it was",
        &[r#"kosmos_csi_member_state{member="a",state="quarantined",component="controller"} 1x90"#],
        &["KosmosCsiMemberDown"],
    ),
    (
        "a member comes and goes",
        &[
            r#"kosmos_csi_member_breaker_open{member="a",component="controller"} 0x70 1x1 0x1 1x1 0x1 1x1 0x1 1x1 0x1 1x1 0x1"#,
        ],
        &["KosmosCsiMemberFlapping"],
    ),
    (
        "credentials are refused",
        &[r#"kosmos_csi_member_requests_total{member="a",verb="get",resource="pods",code="401"} 0x70 0+9x20"#],
        &["KosmosCsiCredentials"],
    ),
    (
        "a token is not renewed",
        &[r#"kosmos_csi_member_token_late{member="a",component="controller"} 1x90"#],
        &["KosmosCsiTokenLate"],
    ),
    (
        "a right is missing",
        &[r#"kosmos_csi_member_requests_total{member="a",verb="list",resource="pods",code="403"} 0x50 0+1x40"#],
        &["KosmosCsiDenied"],
    ),
    (
        "a leaf claim has lost its volume",
        &[r#"kosmos_csi_member_volumes{member="a",state="lost",component="controller"} 0x80 1x10"#],
        &["KosmosCsiVolumesLost"],
    ),
    (
        "a volume waits",
        &[r#"kosmos_csi_member_oldest_creation_seconds{member="a",component="controller"} 0+60x90"#],
        &["KosmosCsiCreationStuck"],
    ),
    (
        "a claim waits for its volume",
        &[r#"kosmos_csi_oldest_waiting_claim_seconds{component="controller"} 0+60x90"#],
        &["KosmosCsiClaimsWait"],
    ),
    (
        "a volume does not go",
        &[r#"kosmos_csi_member_oldest_deletion_seconds{member="a",component="controller"} 0+60x90"#],
        &["KosmosCsiDeletionStuck"],
    ),
    (
        "leaves are nobody's",
        &[r#"kosmos_csi_member_volumes{member="a",state="stray",component="controller"} 3x90"#],
        &["KosmosCsiStrays"],
    ),
    (
        "the driver fails",
        &[r#"kosmos_csi_rpc_handled_total{method="CreateVolume",code="Internal",component="controller"} 0+600x90"#],
        &["KosmosCsiFaults"],
    ),
    (
        "a member is asked too much",
        &[r#"kosmos_csi_member_requests_under_way{member="a",component="controller"} 32x90"#],
        &["KosmosCsiSaturated"],
    ),
    (
        "a move does not go on",
        &[r#"kosmos_csi_moves_longest_stall_seconds{component="controller"} 0+60x90"#],
        &["KosmosCsiMoveStalled"],
    ),
    (
        "a roll-out is stuck",
        &[r#"kosmos_csi_build_info{version="0.2.0",component="controller"} 1x90"#],
        &["KosmosCsiVersionsDiffer"],
    ),
];

fn rules() -> String {
    checkout().join(CHART).join("files/alerts.yaml").display().to_string()
}

/// Names and labels up to the values.
fn series(line: &str) -> &str {
    line.rsplit_once("} ").map_or(line, |(series, _)| series)
}

/// What fires at the end of each, with its summary.
fn firing(situations: &serde_json::Value) -> BTreeMap<String, Option<Vec<String>>> {
    let told = tools::fed(&tools::tool("alerts").unwrap(), &rules(), situations.to_string().as_bytes()).unwrap();
    serde_json::from_str(&told).unwrap()
}

fn alert_of(told: &str) -> &str {
    told.split("alertname=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap()
}

#[test]
fn alerts_fire_where_somebody_has_to_act_and_nowhere_else() {
    let told = SITUATIONS.map(|(name, others, _)| {
        let replaced: BTreeSet<&str> = others.iter().map(|line| series(line)).collect();
        let well = WELL.trim().lines().filter(|line| !replaced.contains(series(line)));
        let all: Vec<&str> = well.chain(others.iter().copied()).collect();
        json!({"name": name, "series": all, "minutes": 88})
    });
    let nothing = json!({"name": "nobody is scraped", "series": ["up 1x90"], "minutes": 88});
    let found = firing(&told.into_iter().chain([nothing]).collect());
    let mut fired = BTreeSet::new();
    for (name, _, expected) in SITUATIONS.into_iter().chain([("nobody is scraped", &[][..], &["KosmosCsiDown"][..])]) {
        let told = found[name].clone().unwrap_or_default();
        let names: Vec<&str> = told.iter().map(|told| alert_of(told)).collect();
        assert_eq!(names, expected, "{name}: {told:?}");
        assert!(told.iter().all(|told| !told.contains("no value") && !told.contains("{{")), "{told:?}");
        fired.extend(names.into_iter().map(str::to_owned));
    }
    let text = fs::read_to_string(rules()).unwrap();
    let all: BTreeSet<String> =
        text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ").map(str::to_owned)).collect();
    assert_eq!(fired, all, "each has a situation in which it fires");
}

/// As the page calls them.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let names = text.split(move |letter| !is_part(letter)).filter(|word| word.starts_with("kosmos_csi_"));
    names.map(|name| ["_total", "_info"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name))
}

#[test]
fn alerts_go_by_metrics_that_there_are_and_the_page_names_them_all() {
    let page = fs::read_to_string(checkout().join("docs/metrics.md")).unwrap();
    let text = fs::read_to_string(rules()).unwrap();
    let described: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next()).collect();
    for metric in metrics_in(&text) {
        assert!(described.contains(&metric), "{metric}");
    }
    for alert in text.split("- alert: ").skip(1) {
        let (name, rule) = alert.split_once('\n').unwrap();
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        let expression = rule.split("annotations:").next().unwrap();
        for metric in metrics_in(expression) {
            assert!(row.contains(&format!("`{metric}`")), "{name} goes by {metric}");
        }
    }
}

#[test]
fn rule_of_the_chart_has_all_alerts_but_those_that_are_changed() {
    let rule = rendered(&["prometheusRule.enabled=true,prometheusRule.labels.team=one"]).unwrap();
    let changed = rendered(&["prometheusRule.enabled=true,prometheusRule.rules.KosmosCsiStrays.enabled=false,prometheusRule.rules.KosmosCsiDown.for=9m,prometheusRule.rules.KosmosCsiDown.severity=info"]).unwrap();
    let alerts = |text: &str| {
        let all = objects(text).unwrap().into_iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
        all["spec"]["groups"][0]["rules"].as_array().unwrap().clone()
    };
    let (before, after) = (alerts(&rule), alerts(&changed));
    assert!(before.len() == after.len() + 1 && rule.contains("team: one"), "{changed}");
    assert_eq!((&before[0]["alert"], &before[0]["for"]), (&json!("KosmosCsiDown"), &json!("5m")));
    assert_eq!((&after[0]["for"], &after[0]["labels"]["severity"]), (&json!("9m"), &json!("info")));
    let refusal = rendered(&["prometheusRule.enabled=true,prometheusRule.rules.Other.enabled=false"]).unwrap_err();
    assert!(format!("{refusal:#}").contains("prometheusRule.rules.Other: there is no such alert"), "{refusal:#}");
    rendered(&["prometheusRule.enabled=true,prometheusRule.rules=null"]).unwrap();
    assert!(!rendered(&["image.tag=0.1.0"]).unwrap().contains("PrometheusRule"));
}
