//! LimitRanges: how much one claim of a namespace may ask for. Those of pods and containers are not judged.

use serde_json::Value;

use super::{
    object::is_terminating,
    quantity::parse,
    status_error::StatusError,
    store::{Store, Table, text},
};

const RANGES: &str = "limitranges";
const CLAIMS: &str = "persistentvolumeclaims";

/// Refuses a claim that asks for more or for less than it may, whatever of it is changed; one that is on its way out may go on.
pub fn admit(store: &Store, resource: &str, object: &Value, live: Option<&Value>) -> Result<(), StatusError> {
    if resource != CLAIMS || live.is_some_and(is_terminating) {
        return Ok(());
    }
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let asked = text(object, "/spec/resources/requests/storage");
    let ranges = store.table(RANGES).into_iter().flat_map(Table::objects).filter(|(key, _)| key.0 == namespace);
    for (_, range) in ranges {
        let limits = range["spec"]["limits"].as_array().into_iter().flatten();
        let of_claims = limits.filter(|limit| text(limit, "/type") == "PersistentVolumeClaim");
        let problems: Vec<String> = of_claims.flat_map(|limit| problems(limit, asked)).collect();
        match problems.as_slice() {
            [] => {}
            [one] => return Err(StatusError::forbidden(resource, name, one)),
            several => {
                return Err(StatusError::forbidden(resource, name, &format!("[{}]", several.join(", "))));
            }
        }
    }
    Ok(())
}

fn problems(limit: &Value, asked: &str) -> Vec<String> {
    let size = parse(asked).unwrap_or(0);
    let (least, most) = (text(limit, "/min/storage"), text(limit, "/max/storage"));
    let told = |which: &str, bound: &str| {
        format!("{which} storage usage per PersistentVolumeClaim is {bound}, but request is {asked}")
    };
    let too_small = parse(least).is_some_and(|least| size < least).then(|| told("minimum", least));
    let too_large = parse(most).is_some_and(|most| size > most).then(|| told("maximum", most));
    too_small.into_iter().chain(too_large).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Cluster;

    #[test]
    fn claim_that_asks_for_more_or_less_than_it_may_is_refused() {
        let cluster = Cluster::new("test", 1);
        let limits = json!([{"type": "Container", "max": {"storage": "1"}},
            {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "4Gi"}}]);
        let range = json!({"metadata": {"name": "few", "namespace": "default"}, "spec": {"limits": limits}});
        cluster.create(RANGES, range).unwrap();
        let claim = |name: &str, namespace: &str, size: &str| {
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}}}})
        };
        for (size, words) in [
            ("512Mi", Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi")),
            ("5Gi", Some("maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi")),
            ("2Gi", None),
        ] {
            let made = cluster.create(CLAIMS, claim(&size.to_lowercase(), "default", size));
            let refused =
                words.map(|words| format!("persistentvolumeclaims \"{}\" is forbidden: {words}", size.to_lowercase()));
            assert_eq!(made.err().map(|refusal| refusal.message), refused, "{size}");
        }
        cluster.create(CLAIMS, claim("elsewhere", "kube-system", "5Gi")).unwrap();
    }
}
