//! What the server says of itself.

use crate::differential::step::Script;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(crate) fn steps(script: &mut Script) {
    for path in [
        "/",
        "/version",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/storage.k8s.io",
        "/apis/storage.k8s.io/v1",
        "/apis/coordination.k8s.io/v1",
        "/apis/events.k8s.io/v1",
        "/apis/rbac.authorization.k8s.io/v1",
        "/apis/apiextensions.k8s.io/v1",
        "/apis/test.example.com",
        "/apis/test.example.com/v1",
        "/apis/snapshot.storage.k8s.io/v1",
        "/apis/nonsense.io",
        "/readyz",
        "/healthz",
        "/livez",
        "/healthz/nonsense",
    ] {
        script.get(path);
    }
    script.get("/api").accept(AGGREGATED);
    script.get("/apis").accept(AGGREGATED);
    script.get("/apis").accept("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json");
}
