//! The objects that a member needs, as `deploy/` has them, and what is to be done about each: what somebody else has made
//! differently is never overwritten.

use serde_json::{Value, json};

/// Under this name our objects are applied, and by this annotation they are known: who else writes a field takes its place
/// in the record of writers.
pub const MANAGER: &str = "kosmos-csi";
const MADE_BY: &str = "kosmos.csi.io/made-by";
const ADDING: &str = "member-add";
pub const NAMESPACE: &str = "kosmos-csi";
pub const ACCOUNT: &str = "kosmos-csi";

const MEMBER: &str = include_str!("../../deploy/member.yaml");
const ATTACH: &str = include_str!("../../deploy/member-attach.yaml");

/// What an account for the driver needs in a member, in the order in which it is made.
pub fn of_member(attach: bool) -> Result<Vec<Value>, String> {
    let mut objects = parse(MEMBER)?;
    if attach {
        objects.append(&mut parse(ATTACH)?);
    }
    Ok(objects)
}

fn parse(text: &str) -> Result<Vec<Value>, String> {
    serde_saphyr::from_multiple(text).map_err(|error| format!("an object of this program cannot be read: {error}"))
}

/// What is to be done about one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Make,
    /// It says all that it has to say.
    Leave,
    /// It is ours, and says something else.
    Update,
    /// Somebody else has made it, differently.
    Refuse,
}

pub fn step(live: Option<&Value>, wanted: &Value) -> Step {
    match live {
        None => Step::Make,
        Some(live) if covers(live, wanted) => Step::Leave,
        Some(live) if is_ours(live) => Step::Update,
        Some(_) => Step::Refuse,
    }
}

/// Whether this command has made it.
pub fn is_ours(live: &Value) -> bool {
    live["metadata"]["annotations"][MADE_BY] == ADDING
}

/// The object with the mark by which it is known as ours.
pub fn marked(object: &Value) -> Value {
    let mut marked = object.clone();
    marked["metadata"]["annotations"][MADE_BY] = json!(ADDING);
    marked
}

/// Whether an object says all that another one says; it may say more.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| covers(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| covers(live, wanted))
        }
        _ => live == wanted,
    }
}

/// How people call it.
pub fn title(object: &Value) -> String {
    let kind = word(object, "/kind");
    match (word(object, "/metadata/namespace"), word(object, "/metadata/name")) {
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

pub fn word<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_those_that_are_published() {
        let titles: Vec<String> = of_member(false).unwrap().iter().map(title).collect();
        let bare = ["Namespace kosmos-csi", "ServiceAccount kosmos-csi/kosmos-csi", "ClusterRole kosmos-csi"];
        assert_eq!(titles[..3], bare);
        assert_eq!(titles[3..], ["ClusterRoleBinding kosmos-csi"]);
        let more = of_member(true).unwrap();
        assert!(more.iter().any(|object| title(object) == "ClusterRole kosmos-csi-attach"));
        assert!(more.iter().all(|object| !word(object, "/apiVersion").is_empty() && !word(object, "/kind").is_empty()));
    }

    #[test]
    fn what_somebody_else_has_made_differently_is_refused() {
        let wanted = json!({"metadata": {"name": "a"}, "rules": [{"verbs": ["get", "list"]}]});
        let theirs =
            |verbs: Value| json!({"metadata": {"name": "a", "uid": "u"}, "rules": [{"verbs": verbs, "apiGroups": []}]});
        for (live, expected) in [
            (None, Step::Make),
            (Some(theirs(json!(["get", "list"]))), Step::Leave),
            (Some(theirs(json!(["get"]))), Step::Refuse),
            (Some(theirs(json!(["get", "list", "delete"]))), Step::Refuse),
            (Some(marked(&theirs(json!(["get"])))), Step::Update),
            (Some(marked(&theirs(json!(["get", "list"])))), Step::Leave),
        ] {
            assert_eq!(step(live.as_ref(), &wanted), expected, "{live:?}");
        }
    }
}
