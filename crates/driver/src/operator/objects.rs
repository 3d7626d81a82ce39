//! The objects that a member needs, as `deploy/` has them, and what is to be done about each: what somebody else has made
//! differently is never overwritten.

use serde_json::{Value, json};

/// Under this name our objects are applied, and by this annotation they are known: who else writes a field takes its place
/// in the record of writers.
pub const MANAGER: &str = "kosmos-csi";
const MADE_BY: &str = "kosmos.csi.io/made-by";
const ADDING: &str = "member-add";
pub const NAMESPACE: &str = "kosmos-csi";
/// The account of the driver in a member.
pub const ACCOUNT: &str = "kosmos-csi";
/// That of the agent, which runs the host's pods there.
pub const PODS_ACCOUNT: &str = "kosmos-csi-virtual-node";

const MEMBER: &str = include_str!("../../../../deploy/member.yaml");
const PODS: &str = include_str!("../../../../deploy/member-virtual-node.yaml");
const ATTACH: &str = include_str!("../../../../deploy/member-attach.yaml");

/// What a member is for, besides volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Pods of the host run there, on its virtual node.
    pub pods: bool,
    /// Real nodes of the host use its volumes.
    pub attach: bool,
}

impl Uses {
    pub const ALL: Self = Self { pods: true, attach: true };

    /// What is needed in the member, in the order in which it is made.
    pub fn objects(self) -> Result<Vec<Value>, String> {
        let mut objects = parse(MEMBER)?;
        for (wanted, text) in [(self.pods, PODS), (self.attach, ATTACH)] {
            if wanted {
                objects.append(&mut parse(text)?);
            }
        }
        Ok(objects)
    }
}

/// The Secret with which all tokens end that were given to one host, or into files.
pub fn tokens(host: Option<&str>) -> Value {
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("kosmos-csi-tokens-{}", host.unwrap_or("files")), "namespace": NAMESPACE},
    });
    if let Some(host) = host {
        secret["metadata"]["labels"] = json!({"kosmos.csi.io/host": host});
    }
    secret
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
        let titles: Vec<String> = Uses::default().objects().unwrap().iter().map(title).collect();
        let bare = ["Namespace kosmos-csi", "ServiceAccount kosmos-csi/kosmos-csi", "ClusterRole kosmos-csi"];
        assert_eq!(titles[..3], bare);
        // The account has no right before it is held to its own.
        assert_eq!(
            titles[3..],
            [
                "ValidatingAdmissionPolicy kosmos-csi",
                "ValidatingAdmissionPolicyBinding kosmos-csi",
                "ClusterRoleBinding kosmos-csi",
                "Role kosmos-csi/kosmos-csi-token",
                "RoleBinding kosmos-csi/kosmos-csi-token",
            ]
        );
        let more = Uses::ALL.objects().unwrap();
        for role in ["ClusterRole kosmos-csi-attach", "ClusterRole kosmos-csi-virtual-node"] {
            assert!(more.iter().any(|object| title(object) == role));
        }
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
