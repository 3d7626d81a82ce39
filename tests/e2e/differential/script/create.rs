//! POST: what is taken, what is filled in, what is refused.

use serde_json::json;

use super::objects::*;
use crate::differential::step::Script;

pub(crate) fn steps(script: &mut Script) {
    let maps = core("configmaps", "create");
    script.post(NAMESPACES, namespace("create"));
    script.post(NAMESPACES, namespace("create"));
    script.post(&maps, config_map("one", json!({"a": "b"}), json!({"key": "value"}))).keep("uid", "/metadata/uid");
    script.post(&maps, config_map("one", json!({}), json!({})));
    // names
    script.post(&maps, config_map("Upper", json!({}), json!({})));
    script.post(&maps, config_map("under_score", json!({}), json!({})));
    script.post(&maps, config_map("-dash", json!({}), json!({})));
    script.post(&maps, config_map(&"a".repeat(254), json!({}), json!({})));
    script.post(&maps, config_map("", json!({}), json!({})));
    script.post(NAMESPACES, namespace("dotted.name"));
    script.post(NAMESPACES, namespace("UPPER"));
    script.post(
        &core("services", "create"),
        json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "1digit"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}),
    );
    script
        .post(&maps, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}))
        .keep("made", "/metadata/name");
    script.get(&format!("{maps}/<made>"));
    // metadata
    script.post(&maps, config_map("bad-label", json!({"a/b/c": "x"}), json!({})));
    script.post(&maps, config_map("bad-value", json!({"a": "-x"}), json!({})));
    script.post(&maps, config_map("long-value", json!({"a": "x".repeat(64)}), json!({})));
    script.post(&maps, config_map("number", json!({"a": 1}), json!({})));
    script.post(&maps, config_map("data-number", json!({}), json!({"a": 1})));
    script.post(&maps, config_map("data-key", json!({}), json!({"a b": "x"})));
    script.post(&maps, with(config_map("note", json!({}), json!({})), "/metadata/annotations", json!({"a b": "x"})));
    script.post(&maps, with(config_map("finalizer", json!({}), json!({})), "/metadata/finalizers", json!(["plain"])));
    script.post(&maps, with(config_map("finalizer", json!({}), json!({})), "/metadata/finalizers", json!(["a b/c"])));
    script.post(
        &maps,
        with(
            config_map("owner", json!({}), json!({})),
            "/metadata/ownerReferences",
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "one"}]),
        ),
    );
    script.post(
        &maps,
        with(
            config_map("owned", json!({}), json!({})),
            "/metadata/ownerReferences",
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "<uid>"}]),
        ),
    );
    script.post(&maps, with(config_map("versioned", json!({}), json!({})), "/metadata/resourceVersion", json!("1")));
    script.post(
        &maps,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "system",
        "uid": "00000000-0000-0000-0000-000000000001", "creationTimestamp": "2020-01-01T00:00:00Z",
        "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "generation": 7,
        "selfLink": "/x"}}),
    );
    bodies(script, &maps);
}

fn bodies(script: &mut Script, maps: &str) {
    script.post(maps, with(config_map("elsewhere", json!({}), json!({})), "/metadata/namespace", json!("default")));
    script.post(maps, with(config_map("kind", json!({}), json!({})), "/kind", json!("Secret")));
    script.post(maps, with(config_map("kind", json!({}), json!({})), "/kind", json!("Nonsense")));
    script.post(maps, with(config_map("version", json!({}), json!({})), "/apiVersion", json!("v2")));
    script.post(maps, json!({"metadata": {"name": "untyped"}}));
    script.post(maps, json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    script.post(maps, "");
    script.post(maps, "{");
    script.post(maps, "nonsense");
    script.post(maps, "[]");
    script.post(maps, "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"a\",}}");
    script.post(maps, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": "text"}));
    script.odd("POST", maps, "text/plain", &config_map("plain", json!({}), json!({})).to_string());
    script.odd("POST", maps, "application/xml", "<a/>");
    // places
    script.post(&core("configmaps", "nowhere"), config_map("a", json!({}), json!({})));
    script.post("/api/v1/configmaps", config_map("a", json!({}), json!({})));
    script.post(&format!("{maps}/one"), config_map("one", json!({}), json!({})));
    script.post(&core("nonsenses", "create"), json!({}));
    options(script, maps);
}

fn options(script: &mut Script, maps: &str) {
    script.post(&format!("{maps}?dryRun=All"), config_map("dry", json!({}), json!({})));
    script.get(&format!("{maps}/dry"));
    script.post(&format!("{maps}?dryRun=Some"), config_map("dry", json!({}), json!({})));
    script.post(&format!("{maps}?dryRun=All"), config_map("one", json!({}), json!({})));
    let unknown = with(config_map("strict", json!({}), json!({})), "/nonsense", json!(1));
    script.post(&format!("{maps}?fieldValidation=Strict"), &unknown);
    script.post(&format!("{maps}?fieldValidation=Warn"), &unknown);
    script.post(&format!("{maps}?fieldValidation=Ignore&dryRun=All"), with(unknown, "/metadata/name", json!("ignore")));
    script.post(&format!("{maps}?fieldValidation=Nonsense"), config_map("validation", json!({}), json!({})));
    let twice = "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"twice\"},\
        \"data\":{\"a\":\"1\",\"a\":\"2\"}}";
    script.post(&format!("{maps}?fieldValidation=Strict"), twice);
    script.post(&format!("{maps}?fieldValidation=Warn"), twice);
    script.post(&format!("{maps}?fieldManager={}", "x".repeat(129)), config_map("manager", json!({}), json!({})));
}
