//! Which change of a pod its status is of, as a kubelet tells it since Kubernetes 1.34. Pure.

use serde_json::Value;

use super::{ephemeral, given};

/// Of a status and of each condition.
pub(super) const OBSERVED: &str = "observedGeneration";

/// The pod's generation; none where its copy is not up to it, or the host is told it already. A host that does not keep it drops it each time, so
/// it is told with something else, or where one is kept.
pub(super) fn to_tell<'a>(pod: &'a Value, copy: &Value, with_others: bool) -> Option<&'a Value> {
    let generation = pod["metadata"].get("generation")?;
    let is_due = match pod["status"].get(OBSERVED) {
        Some(told) => told != generation,
        None => with_others,
    };
    (is_due && is_up_to(pod, copy)).then_some(generation)
}

/// Whether the copy was given all that is new of its pod, and its own kubelet has seen all that is new of the copy.
fn is_up_to(pod: &Value, copy: &Value) -> bool {
    let seen = copy["status"].get(OBSERVED);
    !given::is_due(pod, copy)
        && ephemeral::missing(pod, copy).is_empty()
        && seen.is_none_or(|seen| *seen == copy["metadata"]["generation"])
}

/// A condition in the place of one before; where nothing says which generation it is of, it is of that one's.
pub(super) fn kept(mut condition: Value, before: &Value) -> Value {
    if let (None, Some(generation)) = (condition.get(OBSERVED), before.get(OBSERVED)) {
        condition[OBSERVED] = generation.clone();
    }
    condition
}

#[cfg(test)]
mod tests {
    use member::policy::PodNetworks;
    use serde_json::json;

    use super::{
        super::{
            super::object::items,
            status::{Source, mirrored},
        },
        *,
    };

    fn pod(generation: u64) -> Value {
        json!({"metadata": {"uid": "u", "resourceVersion": "7", "generation": generation},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}})
    }

    fn copy(pod: &Value, generation: u64, seen: u64) -> Value {
        json!({"metadata": {"uid": "c", "generation": generation, "annotations": {(given::GIVEN): given::given(pod)}},
            "status": {"phase": "Running", OBSERVED: seen,
                "conditions": [{"type": "Ready", "status": "True", OBSERVED: seen}]}})
    }

    /// What the host keeps of it.
    fn told(pod: &Value, copy: &Value, keeps: bool) -> Option<Value> {
        let who = Source { member: "m", networks: &PodNetworks::Any };
        let (change, mut told) = (mirrored(pod, copy, who, "1")?, pod.clone());
        for (field, value) in change["status"].as_object().unwrap() {
            told["status"][field] = value.clone();
        }
        if !keeps {
            told["status"].as_object_mut().unwrap().remove(OBSERVED);
            for one in told["status"]["conditions"].as_array_mut().unwrap() {
                one.as_object_mut().unwrap().remove(OBSERVED);
            }
        }
        Some(told)
    }

    fn of_conditions(pod: &Value) -> Vec<&Value> {
        items(pod, "/status/conditions").map(|one| &one[OBSERVED]).collect()
    }

    #[test]
    fn status_is_of_the_generation_of_the_hosts_pod_and_not_of_the_copys() {
        let (pod, copy) = (pod(3), copy(&pod(3), 1, 1));
        let told_once = told(&pod, &copy, true).unwrap();
        assert_eq!(told_once["status"][OBSERVED], 3);
        assert_eq!(of_conditions(&told_once), [&Value::Null, &json!(3), &json!(3)], "the first is the scheduler's own");
        assert_eq!(told(&told_once, &copy, true), None);
        let mut changed = told_once;
        changed["metadata"]["generation"] = json!(4);
        let changed = told(&changed, &copy, true).unwrap();
        assert_eq!((&changed["status"][OBSERVED], told(&changed, &copy, true)), (&json!(4), None));
    }

    #[test]
    fn host_that_does_not_keep_the_generation_is_told_it_no_second_time() {
        let (pod, copy) = (pod(1), copy(&pod(1), 1, 1));
        let told_once = told(&pod, &copy, false).unwrap();
        assert_eq!(told(&told_once, &copy, false), None);
    }

    #[test]
    fn generation_is_told_when_the_copy_was_given_what_is_new_and_its_kubelet_has_seen_it() {
        let mut changed = pod(2);
        changed["spec"]["containers"][0]["image"] = json!("i:2");
        for (copy, is_up_to) in
            [(copy(&pod(1), 1, 1), false), (copy(&changed, 2, 1), false), (copy(&changed, 2, 2), true)]
        {
            assert_eq!(told(&changed, &copy, true).unwrap()["status"].get(OBSERVED).is_some(), is_up_to, "{copy}");
        }
        let mut of_no_count = pod(1);
        of_no_count["metadata"].as_object_mut().unwrap().remove("generation");
        let told = told(&of_no_count, &copy(&of_no_count, 1, 1), true).unwrap();
        assert_eq!(told["status"].get(OBSERVED), None, "its host counts no changes of pods");
    }
}
