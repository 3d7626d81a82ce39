//! PUT: versions, names, what may not change.

use serde_json::json;

use super::objects::*;
use crate::differential::step::Script;

pub(crate) fn steps(script: &mut Script) {
    let maps = core("configmaps", "update");
    let one = format!("{maps}/one");
    script.post(NAMESPACES, namespace("update"));
    script
        .post(&maps, config_map("one", json!({"a": "b"}), json!({"key": "1"})))
        .keep("first", "/metadata/resourceVersion")
        .keep("uid", "/metadata/uid");
    let versioned = |version: &str, value: &str| {
        with(config_map("one", json!({"a": "b"}), json!({"key": value})), "/metadata/resourceVersion", json!(version))
    };
    script.put(&one, versioned("<first>", "2")).keep("second", "/metadata/resourceVersion");
    script.put(&one, versioned("<first>", "3"));
    script.put(&one, versioned("<second>", "2"));
    script.put(&one, config_map("one", json!({}), json!({"key": "4"})));
    script.put(&one, config_map("one", json!({}), json!({"key": "4"})));
    script.put(&one, versioned("0", "5"));
    script.put(&one, versioned("nonsense", "5"));
    script.put(&one, versioned("99999999", "5"));
    script.put(&one, with(config_map("one", json!({}), json!({})), "/metadata/uid", json!("<uid>")));
    script.put(
        &one,
        with(config_map("one", json!({}), json!({})), "/metadata/uid", json!("00000000-0000-0000-0000-000000000001")),
    );
    script.put(&one, config_map("two", json!({}), json!({})));
    script.put(&one, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}));
    script.put(&one, with(config_map("one", json!({}), json!({})), "/metadata/namespace", json!("default")));
    script.put(&one, with(config_map("one", json!({}), json!({})), "/kind", json!("Secret")));
    script.put(&format!("{maps}/none"), config_map("none", json!({}), json!({})));
    script.put(
        &format!("{maps}/none"),
        with(config_map("none", json!({}), json!({})), "/metadata/resourceVersion", json!("1")),
    );
    script.put(&one, "{");
    script.put(&format!("{one}?dryRun=All"), config_map("one", json!({}), json!({"dry": "yes"})));
    script.get(&one);
    script.put(
        &one,
        with(config_map("one", json!({}), json!({})), "/metadata/creationTimestamp", json!("2020-01-01T00:00:00Z")),
    );
    script.put(&one, with(config_map("one", json!({}), json!({})), "/metadata/generation", json!(7)));
    script.put(
        &one,
        with(config_map("one", json!({"a": "-"}), json!({})), "/metadata/annotations", json!({"a/b/c": ""})),
    );
    script.put(&one, with(config_map("one", json!({}), json!({"key": "kept"})), "/immutable", json!(true)));
    script.put(&one, config_map("one", json!({}), json!({"key": "other"})));
    script.put(&one, with(config_map("one", json!({}), json!({"key": "kept"})), "/immutable", json!(false)));
    script
        .put(&one, with(config_map("one", json!({"new": "label"}), json!({"key": "kept"})), "/immutable", json!(true)));
    secrets(script);
}

fn secrets(script: &mut Script) {
    let secrets = core("secrets", "update");
    let secret = |fields: serde_json::Value| {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}});
        for (key, value) in fields.as_object().into_iter().flatten() {
            secret[key] = value.clone();
        }
        secret
    };
    script.post(&secrets, secret(json!({"stringData": {"key": "value"}, "data": {"other": "dmFsdWU="}})));
    script.put(&format!("{secrets}/one"), secret(json!({"stringData": {"key": "changed"}})));
    script.put(&format!("{secrets}/one"), secret(json!({"type": "example.com/other"})));
    script.put(&format!("{secrets}/one"), secret(json!({"data": {"key": "not base64!"}})));
    script.post(&secrets, with(secret(json!({"type": "kubernetes.io/tls"})), "/metadata/name", json!("tls")));
    script.delete(&format!("{secrets}/one"));
    script.post(&core("serviceaccounts", "update"), account("robot"));
    script.put(
        &core("serviceaccounts", "update").replace("serviceaccounts", "serviceaccounts/robot"),
        with(account("robot"), "/imagePullSecrets", json!([{"name": "a"}])),
    );
}
