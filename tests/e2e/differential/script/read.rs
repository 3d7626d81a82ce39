//! GET: one object, lists, pages, versions.

use serde_json::json;

use super::objects::*;
use crate::differential::step::{PARTIAL, PARTIAL_LIST, Script};

pub(crate) fn steps(script: &mut Script) {
    let maps = core("configmaps", "read");
    script.get(NAMESPACES_OF_NOTHING);
    script.get(&maps);
    script.post(NAMESPACES, namespace("read"));
    script.get(&maps);
    for name in ["d", "b", "e", "a", "c"] {
        script.post(&maps, config_map(name, json!({"all": "yes"}), json!({"name": name})));
    }
    script.get(&format!("{maps}/a")).keep("old", "/metadata/resourceVersion");
    script.get(&format!("{maps}/none"));
    script.get(&maps).keep("version", "/metadata/resourceVersion");
    script.get("/api/v1/configmaps?labelSelector=all=yes");
    pages(script, &maps);
    versions(script, &maps);
    // forms
    script.get(&format!("{maps}/a")).accept(PARTIAL);
    script.get(&maps).accept(PARTIAL_LIST);
    script.get(&format!("{maps}/a")).accept("*/*");
    script.get(&format!("{maps}/a")).accept("application/*");
    script.get(&format!("{maps}/a")).accept("text/html");
    script.get(&format!("{maps}/none")).accept("text/html");
    script.get(&maps).accept("text/html");
    script.get(&format!("{maps}/a")).accept("text/html, application/json;q=0.5");
    script.get(&format!("{maps}?pretty=false&limit=1"));
    // cluster scope
    script.get("/api/v1/namespaces/read");
    script.get("/api/v1/namespaces/none");
    script.get("/api/v1/nodes");
    script.get("/api/v1/nodes/none");
    script.get(VOLUMES);
    script.get("/apis/storage.k8s.io/v1/csinodes");
    script.get("/apis/storage.k8s.io/v1/volumeattachments");
    script.get("/api/v1/namespaces/read/persistentvolumeclaims");
    script.get("/api/v1/namespaces/read/events");
    script.get("/apis/apps/v1/namespaces/read/deployments");
    script.get("/apis/coordination.k8s.io/v1/namespaces/read/leases/none");
    // paths
    script.get("/api/v1/namespaces/read/persistentvolumes");
    script.get("/api/v1/nonsenses");
    script.get("/api/v1/namespaces/read/nonsenses/a");
    script.get("/api/v7/pods");
    script.get("/apis/nonsense.io/v1/things");
    script.get("/apis/apps/v7/deployments");
    script.get("/nonsense");
    script.get(&format!("{maps}/a/nonsense"));
    script.get(&format!("{maps}/a/status"));
    script.put(&maps, config_map("a", json!({}), json!({})));
    script.odd("PATCH", &maps, "application/merge-patch+json", "{}");
    script.odd("OPTIONS", &maps, "application/json", "");
}

const NAMESPACES_OF_NOTHING: &str = "/api/v1/namespaces/read";

fn pages(script: &mut Script, maps: &str) {
    script.get(&format!("{maps}?limit=2")).keep("next", "/metadata/continue");
    script.get(&format!("{maps}?limit=2&continue=<next>")).keep("last", "/metadata/continue");
    script.post(maps, config_map("aa", json!({}), json!({})));
    script.get(&format!("{maps}?limit=2&continue=<last>"));
    script.get(&format!("{maps}?limit=2&continue=<next>"));
    script.get(&format!("{maps}?limit=0"));
    script.get(&format!("{maps}?limit=5")).keep("five", "/metadata/continue");
    script.get(&format!("{maps}?limit=5&continue=<five>"));
    script.get(&format!("{maps}?limit=6"));
    script.get(&format!("{maps}?limit=100"));
    script.get(&format!("{maps}?limit=-1"));
    script.get(&format!("{maps}?limit=x"));
    script.get(&format!("{maps}?continue=garbage"));
    script.get(&format!("{maps}?limit=2&continue=<next>&resourceVersion=<version>"));
    script.get(&format!("{maps}?limit=2&labelSelector=all=yes")).keep("chosen", "/metadata/continue");
    script.get(&format!("{maps}?limit=2&labelSelector=all=yes&continue=<chosen>"));
    script.delete(&format!("{maps}/aa"));
}

fn versions(script: &mut Script, maps: &str) {
    script.get(&format!("{maps}/a?resourceVersion=0"));
    script.get(&format!("{maps}/a?resourceVersion=<old>"));
    // version 0 is whatever the watch cache has, which may not know yet that `aa` is gone
    script.get(&format!("{maps}?resourceVersion=0")).until("/body/items/1/metadata/name", "b");
    script.get(&format!("{maps}?resourceVersion=<version>"));
    script.get(&format!("{maps}?resourceVersion=<version>&resourceVersionMatch=NotOlderThan"));
    script.get(&format!("{maps}?resourceVersion=<version>&resourceVersionMatch=Exact"));
    script
        .get(&format!("{maps}?resourceVersion=<version>&resourceVersionMatch=Exact&limit=2"))
        .keep("exact", "/metadata/continue");
    script.get(&format!("{maps}?limit=9&continue=<exact>"));
    script.get(&format!("{maps}?resourceVersionMatch=Exact"));
    script.get(&format!("{maps}?resourceVersion=0&resourceVersionMatch=Exact"));
    script.get(&format!("{maps}?resourceVersion=0&resourceVersionMatch=NotOlderThan"));
    script.get(&format!("{maps}?resourceVersion=<version>&resourceVersionMatch=Nonsense"));
    script.get(&format!("{maps}?resourceVersion=nonsense"));
    script.get(&format!("{maps}/a?resourceVersion=nonsense"));
}
