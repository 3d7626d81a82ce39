//! Watches: what they begin with, what enters and leaves, how they end. Each is read up to an object made for it.

use serde_json::json;

use super::objects::*;
use crate::differential::step::{JSON, MERGE, PARTIAL, Script, TABLE};

pub(crate) fn steps(script: &mut Script) {
    let maps = core("configmaps", "watch");
    script.post(NAMESPACES, namespace("watch"));
    script
        .post(&maps, config_map("one", json!({"a": "b"}), json!({"step": "1"})))
        .keep("first", "/metadata/resourceVersion");
    script.get(&maps).keep("listed", "/metadata/resourceVersion");
    script.open("all", &format!("{maps}?watch=true&resourceVersion=<listed>"));
    script.open("chosen", &format!("{maps}?watch=true&resourceVersion=<listed>&labelSelector=a=b"));
    script.open("named", &format!("{maps}?watch=1&resourceVersion=<listed>&fieldSelector=metadata.name=last"));
    script.open("everywhere", "/api/v1/configmaps?watch=true&resourceVersion=<listed>&labelSelector=a");
    script.post(&maps, config_map("two", json!({}), json!({})));
    script
        .patch(MERGE, &format!("{maps}/one"), json!({"data": {"step": "2"}}))
        .keep("second", "/metadata/resourceVersion");
    script.patch(MERGE, &format!("{maps}/one"), json!({"data": {"step": "2"}}));
    script.patch(MERGE, &format!("{maps}/one"), json!({"metadata": {"labels": {"a": "c"}}}));
    script.patch(MERGE, &format!("{maps}/two"), json!({"metadata": {"labels": {"a": "b"}}}));
    script.patch(JSON, &format!("{maps}/one"), json!([{"op": "remove", "path": "/metadata/labels"}]));
    script.delete(&format!("{maps}/two"));
    script.delete(&format!("{maps}/one"));
    script.post(&maps, config_map("three", json!({"a": "b"}), json!({})));
    script.post(&maps, config_map("last", json!({"a": "b"}), json!({}))).keep("last", "/metadata/resourceVersion");
    for watch in ["all", "chosen", "named", "everywhere"] {
        script.collect(watch, "last");
    }
    begins(script, &maps);
    finalizers(script);
}

/// From which version, with what first.
fn begins(script: &mut Script, maps: &str) {
    script.watch(&format!("{maps}?watch=true&resourceVersion=<first>"), "last");
    script.watch(&format!("{maps}?watch=true&resourceVersion=<second>"), "last");
    script.watch(&format!("{maps}?watch=true&resourceVersion=<second>&labelSelector=a=b"), "last");
    script.watch(&format!("{maps}?watch=true&resourceVersion=<second>&labelSelector=a!=b"), "two");
    script.watch(&format!("{maps}?watch=true&resourceVersion=0"), "three");
    script.watch(&format!("{maps}?watch=true"), "three");
    script.watch(&format!("{maps}?watch=true&allowWatchBookmarks=true"), "three");
    let initial = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    script.watch(&format!("{maps}?{initial}&allowWatchBookmarks=true"), "BOOKMARK");
    script.watch(&format!("{maps}?{initial}&allowWatchBookmarks=true&resourceVersion=0"), "BOOKMARK");
    script.watch(
        &format!("{maps}?{initial}&allowWatchBookmarks=true&resourceVersion=<last>&labelSelector=none"),
        "BOOKMARK",
    );
    script.watch(&format!("{maps}?{initial}&allowWatchBookmarks=true&limit=1"), "BOOKMARK");
    script.get(&format!("{maps}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true"));
    script.watch(&format!("{maps}?{initial}&allowWatchBookmarks=false"), "three");
    script.get(&format!("{maps}?sendInitialEvents=true"));
    script.watch(&format!("{maps}?watch=true&resourceVersion=1"), "last");
    script.watch(&format!("{maps}?watch=true&resourceVersion=nonsense"), "ERROR");
    script.watch(&format!("{maps}?watch=true&resourceVersion=<last>&timeoutSeconds=1"), "nothing");
    script.watch(&format!("{maps}?watch=true&timeoutSeconds=1"), "nothing");
    script.watch(&format!("{maps}?watch=true&timeoutSeconds=x"), "nothing");
    script.watch(&format!("{maps}?watch=nonsense&labelSelector=none&timeoutSeconds=1"), "nothing");
    script.get(&format!("{maps}/three?watch=true"));
    script.watch(&format!("{maps}?watch=true&labelSelector=a in ("), "nothing");
    script.watch(&format!("{maps}?watch=true&fieldSelector=data.a=b"), "nothing");
    script.watch(&format!("{maps}?watch=true&resourceVersion=<second>&limit=1"), "last");
    script.watch(&format!("{maps}?watch=true&resourceVersionMatch=Exact&resourceVersion=<last>"), "nothing");
    script.watch(&format!("{maps}?watch=true"), "three").accept(PARTIAL);
    script.watch(&format!("{maps}?watch=true"), "three").accept("text/html");
    script.watch(&format!("{maps}?watch=true&timeoutSeconds=1"), "nothing").accept(TABLE);
    script.watch("/api/v1/namespaces/nowhere/configmaps?watch=true&timeoutSeconds=1", "nothing");
    script.watch("/api/v1/nonsenses?watch=true", "nothing");
}

/// An object that stays until its finalizer is gone.
fn finalizers(script: &mut Script) {
    let maps = core("configmaps", "watch");
    script.open("held", &format!("{maps}?watch=true&resourceVersion=<last>&labelSelector=held"));
    let held = with(
        config_map("held", json!({"held": "yes"}), json!({})),
        "/metadata/finalizers",
        json!(["example.com/held"]),
    );
    script.post(&maps, held);
    script.delete(&format!("{maps}/held"));
    script.patch(JSON, &format!("{maps}/held"), json!([{"op": "remove", "path": "/metadata/finalizers/0"}]));
    script.post(&maps, config_map("after", json!({"held": "no"}), json!({})));
    script.collect("held", "after");
    let claims = core("persistentvolumeclaims", "watch");
    script.open("claims", "/api/v1/persistentvolumeclaims?watch=true&resourceVersion=<last>&labelSelector=ours=yes");
    script.post(&claims, with(claim("data", "fast", "1Gi"), "/metadata/labels", json!({"ours": "yes"})));
    script.patch(MERGE, &format!("{claims}/data/status"), json!({"status": {"phase": "Bound"}}));
    script.delete(&format!("{claims}/data"));
    script.patch(MERGE, &format!("{claims}/data"), json!({"metadata": {"finalizers": null}}));
    script.post(&claims, with(claim("end", "fast", "1Gi"), "/metadata/labels", json!({"ours": "yes"})));
    script.collect("claims", "end");
    script.watch(
        &format!("{VOLUMES}?watch=true&resourceVersion=<last>&timeoutSeconds=1&labelSelector=ours=never"),
        "nothing",
    );
}
