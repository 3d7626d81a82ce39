//! Fields of a pod that its member does not know, as an older API server or one whose feature is off leaves them out of what it makes,
//! without a word. A copy without them may be less confined than its pod asks for, or not do what it does.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};

use super::{
    super::object::{Place, text},
    Pods,
    rejection::PodRejection,
    step::copy_of,
};
use domain::some_of::some_of;

/// So many are named.
const NAMED: usize = 5;

/// What copies were asked to be, until what was made is seen: the answer to that may be lost. By the places of their pods.
#[derive(Debug, Default)]
pub(crate) struct Uncompared(Mutex<HashMap<Place, Asked>>);

#[derive(Debug)]
struct Asked {
    pod_uid: Box<str>,
    /// As text: a tree would take several times that.
    spec: Box<str>,
}

impl Uncompared {
    pub(super) fn keep(&self, pod: &Value, asked: &Value) {
        let asked = Asked { pod_uid: text(pod, "/metadata/uid").into(), spec: asked["spec"].to_string().into() };
        self.all().insert(Place::of(pod), asked);
    }

    pub(super) fn has(&self, pod: &Value) -> bool {
        self.all().get(&Place::of(pod)).is_some_and(|asked| *asked.pod_uid == *text(pod, "/metadata/uid"))
    }

    pub(super) fn forget(&self, place: &Place) {
        self.all().remove(place);
    }

    fn asked_of(&self, pod: &Value) -> Option<Value> {
        let all = self.all();
        let asked = all.get(&Place::of(pod)).filter(|asked| *asked.pod_uid == *text(pod, "/metadata/uid"))?;
        let spec: Value = serde_json::from_str(&asked.spec).ok()?;
        Some(json!({"spec": spec}))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Place, Asked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a pod once what its copy lacks. `made`: what the member has said just now that is there.
pub(super) async fn compare(pods: &Pods<'_>, pod: &Value, made: &Value) {
    let is_its = copy_of(made, &pods.host.id.0) == Some(text(pod, "/metadata/uid"));
    let Some(asked) = pods.uncompared.asked_of(pod) else { return };
    if let Some(why) = told(&pods.member.name, &asked, made).filter(|_| is_its) {
        pods.warn(pod, &why).await;
    }
    pods.uncompared.forget(&Place::of(pod));
}

/// What is told of them; none where all are there. `asked` and `made`: the copy as it was sent, and as it was made.
fn told(member: &str, asked: &Value, made: &Value) -> Option<PodRejection> {
    let lacking = lacking("spec", &asked["spec"], &made["spec"]);
    if lacking.is_empty() {
        return None;
    }
    Some(PodRejection::new(
        "FieldsDropped",
        format!(
            "member {member} created the pod's copy without {}, which its Kubernetes does not know or has switched off, or a webhook there \
             has removed. If the pod needs that, run it in another member",
            some_of(lacking, NAMED)
        ),
    ))
}

/// The fields that are missing, in all that is there of both.
fn lacking(path: &str, asked: &Value, made: &Value) -> Vec<String> {
    match (asked, made) {
        (Value::Object(asked), Value::Object(made)) => {
            let of = |(field, asked): (&String, &Value)| {
                let path = format!("{path}.{field}");
                match made.get(field) {
                    Some(made) => lacking(&path, asked, made),
                    None if says_something(asked) => vec![path],
                    None => Vec::new(),
                }
            };
            asked.iter().flat_map(of).collect()
        }
        (Value::Array(asked), Value::Array(made)) => {
            let place = |at: usize| made.get(at).filter(|_| asked.len() == made.len());
            let both = asked.iter().enumerate();
            let both = both.filter_map(|(at, asked)| Some((at, asked, item_of(asked, place(at), made)?)));
            both.flat_map(|(at, asked, made)| lacking(&format!("{path}[{}]", named(asked, at)), asked, made)).collect()
        }
        _ => Vec::new(),
    }
}

/// The one that was made of it, at its place or by its name: others may have been put beside it there. Of one without a name that is not told.
fn item_of<'a>(asked: &Value, at_its_place: Option<&'a Value>, made: &'a [Value]) -> Option<&'a Value> {
    let is_it = |made: &&Value| made["name"] == asked["name"] && made["mountPath"] == asked["mountPath"];
    at_its_place.filter(is_it).or_else(|| made.iter().find(|made| is_it(made) && !made["name"].is_null()))
}

fn named(item: &Value, at: usize) -> String {
    Some(text(item, "/name").to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| at.to_string())
}

/// What an API server leaves out because it says nothing. That something is not, or zero, stands in a pod only where it says something: the
/// host's own API server has left it out else.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(says_something),
        Value::Object(fields) => fields.values().any(says_something),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Value {
        json!({"spec": {
            "hostUsers": false, "terminationGracePeriodSeconds": 30, "volumes": [], "hostAliases": [{"ip": "10.0.0.1"}],
            "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}, "runAsUser": 7},
            "initContainers": [{"name": "beside", "image": "i", "restartPolicy": "Always", "env": [{"name": "a", "value": ""}]}],
            "containers": [{"name": "main", "image": "i", "volumeMounts": [
                {"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b", "recursiveReadOnly": "Enabled"}]}],
            "tolerations": [{"key": "gpu"}],
        }})
    }

    fn without(path: &str, field: &str) -> Value {
        let mut made = asked();
        made.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(field).unwrap();
        made
    }

    fn fields(made: &Value) -> Vec<String> {
        lacking("spec", &asked()["spec"], &made["spec"])
    }

    #[test]
    fn field_that_a_member_leaves_out_is_named_with_where_it_stands() {
        for (path, field, named) in [
            ("/spec/initContainers/0", "restartPolicy", "spec.initContainers[beside].restartPolicy"),
            ("/spec", "hostUsers", "spec.hostUsers"),
            ("/spec/securityContext", "appArmorProfile", "spec.securityContext.appArmorProfile"),
            (
                "/spec/containers/0/volumeMounts/1",
                "recursiveReadOnly",
                "spec.containers[main].volumeMounts[data].recursiveReadOnly",
            ),
            ("/spec/hostAliases/0", "ip", "spec.hostAliases[0].ip"),
        ] {
            let made = without(path, field);
            assert_eq!(fields(&made), [named]);
            let told = told("m", &asked(), &made).unwrap();
            assert!(told.message.contains(&format!("without {named},")), "{}", told.message);
        }
    }

    #[test]
    fn what_says_nothing_and_what_a_member_adds_or_changes_is_not_told() {
        let mut made = without("/spec", "volumes");
        made["spec"]["initContainers"][0]["env"][0].as_object_mut().unwrap().remove("value");
        made["spec"]["containers"] = json!([{"name": "mesh", "image": "m"}, made["spec"]["containers"][0]]);
        made["spec"]["containers"][1]["image"] = json!("mirror/i");
        made["spec"]["tolerations"] = json!([{"operator": "Exists"}, {"key": "gpu"}]);
        made["spec"]["dnsPolicy"] = json!("ClusterFirst");
        assert_eq!(fields(&made), [""; 0]);
        assert_eq!(told("m", &asked(), &made), None);
    }

    #[test]
    fn some_are_named_and_all_are_counted() {
        let asked = json!({"spec": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1}});
        let told = told("m", &asked, &json!({"spec": {}})).unwrap();
        assert!(
            told.message.contains("without spec.a, spec.b, spec.c, spec.d, spec.e and 2 more,"),
            "{}",
            told.message
        );
    }
}
