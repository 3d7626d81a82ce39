//! API priority and fairness, as far as clients see it: an answer names by their UIDs the FlowSchema and the PriorityLevelConfiguration under
//! which its request was taken. A cluster makes its own when it begins, and keeps them.

use http::{HeaderValue, Response};

use super::{Cluster, object::uid};

/// The FlowSchema under which requests are taken unless a fault says otherwise.
pub(super) const USUAL: u8 = 0;

/// Each FlowSchema, known here by a number, has a priority level of its own. Nothing else in the cluster has their UIDs, which are made of that
/// of its namespace `kube-system`: so the cluster has them also once it was restored.
pub(super) fn note<B>(cluster: &Cluster, schema: u8, answer: &mut Response<B>) {
    let Some(namespace) = cluster.get("namespaces", "", "kube-system") else { return };
    let Some(rest) = uid(&namespace).get(8..36) else { return };
    for (header, kind) in [("x-kubernetes-pf-flowschema-uid", 'f'), ("x-kubernetes-pf-prioritylevel-uid", 'a')] {
        if let Ok(value) = HeaderValue::try_from(format!("{kind}{schema:02x}00000{rest}")) {
            answer.headers_mut().insert(header, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(cluster: &Cluster, schema: u8) -> Vec<String> {
        let mut answer = Response::new(());
        note(cluster, schema, &mut answer);
        answer.headers().values().map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn answers_of_one_cluster_name_the_same_uids_and_those_of_another_one_or_under_another_schema_none_of_them() {
        let (one, other) = (Cluster::new("a", 1), Cluster::new("b", 2));
        let usual = told(&one, USUAL);
        assert_eq!(usual.len(), 2);
        assert_eq!(told(&one, USUAL), usual);
        for others in [told(&other, USUAL), told(&one, 1)] {
            assert!(others.len() == 2 && others.iter().all(|uid| !usual.contains(uid)), "{others:?} {usual:?}");
        }
    }
}
