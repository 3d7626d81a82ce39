//! Ephemeral containers, by which `kubectl debug` looks into a pod that runs: which of a pod's its copy has, and what is said of them. Pure.

use std::borrow::Cow;

use serde_json::Value;

use super::super::object::items;

pub(super) const LIST: &str = "/spec/ephemeralContainers";
pub(super) const STATUSES: &str = "/status/ephemeralContainerStatuses";

/// Those of a pod that its copy has not, and of which nothing was said yet.
pub(super) fn missing<'a>(pod: &'a Value, copy: &Value) -> Vec<&'a Value> {
    let has = |object: &Value, list: &str, wanted: &Value| items(object, list).any(|one| one["name"] == wanted["name"]);
    items(pod, LIST).filter(|one| !has(copy, LIST, one) && !has(pod, STATUSES, one)).collect()
}

/// What is said of a pod's: by its copy, and by the host of those that the copy was not given.
pub(super) fn statuses(pod: &Value, copy: &Value) -> Option<Value> {
    let is_there =
        |one: &Value| [LIST, STATUSES].iter().any(|list| items(copy, list).any(|there| there["name"] == one["name"]));
    let refused = items(pod, STATUSES).filter(|one| !is_there(one));
    let all: Vec<Value> = items(copy, STATUSES).chain(refused).cloned().collect();
    (!all.is_empty()).then_some(Value::Array(all))
}

/// The pod as its copy is made. None can be taken off a pod again, and what one of them asks for is not to keep the pod itself away.
pub(super) fn without(pod: &Value) -> Cow<'_, Value> {
    if items(pod, LIST).next().is_none() {
        return Cow::Borrowed(pod);
    }
    let mut without = pod.clone();
    without["spec"].as_object_mut().map(|spec| spec.remove("ephemeralContainers"));
    Cow::Owned(without)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::super::object::text, *};

    fn named(name: &str) -> Value {
        json!({"name": name})
    }

    fn pod(containers: &[Value], statuses: &[Value]) -> Value {
        json!({"spec": {"ephemeralContainers": containers}, "status": {"ephemeralContainerStatuses": statuses}})
    }

    #[test]
    fn what_the_copy_has_not_is_missing_until_something_was_said_of_it() {
        let asked = pod(&["a", "b", "c"].map(named), &[named("c")]);
        let copy = pod(&[named("a")], &[]);
        let names: Vec<&str> = missing(&asked, &copy).into_iter().map(|one| text(one, "/name")).collect();
        assert_eq!(names, ["b"]);
        assert!(missing(&pod(&[], &[]), &copy).is_empty());
    }

    #[test]
    fn copy_says_what_became_of_one_and_the_host_why_one_was_refused() {
        let (running, refused) = (json!({"name": "a", "state": {"running": {}}}), json!({"name": "b", "state": {}}));
        let asked = pod(&["a", "b"].map(named), &[named("a"), refused.clone()]);
        let copy = pod(&[named("a")], std::slice::from_ref(&running));
        assert_eq!(statuses(&asked, &copy), Some(json!([running, refused])));
        assert_eq!(statuses(&pod(&[], &[]), &pod(&[], &[])), None);
        // The copy has it, and says nothing of it yet.
        assert_eq!(statuses(&pod(&[named("a")], &[named("a")]), &pod(&[named("a")], &[])), None);
    }

    #[test]
    fn copy_is_made_without_them() {
        let asked = pod(&[named("a")], &[]);
        assert_eq!(without(&asked)["spec"], json!({}));
        let plain = json!({"spec": {"containers": []}});
        assert!(matches!(without(&plain), Cow::Borrowed(_)));
    }
}
