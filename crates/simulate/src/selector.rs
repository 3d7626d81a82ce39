//! Label and field selectors, as query parameters spell them.

use serde_json::Value;

use super::{labels, status_error::StatusError};

/// What a list or a watch is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<Term>,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
pub struct Term {
    pub key: String,
    pub rule: Rule,
}

#[derive(Clone, Debug)]
pub enum Rule {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

#[derive(Clone, Debug)]
struct Field {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    pub fn parse(labels: &str, fields: &str, resource: &str) -> Result<Self, StatusError> {
        let labels = labels::parse(labels).map_err(|problem| StatusError::bad_request(&problem))?;
        let fields = fields
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| field(part, resource))
            .collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        self.labels.iter().all(|term| term.rule.holds(label(&term.key)))
            && self.fields.iter().all(|field| (value_at(object, &field.path) == field.value) == field.equal)
    }

    /// The one name that a field selector asks for: an object of its own, to a watch or a list.
    pub fn name(&self) -> Option<&str> {
        let named = |field: &&Field| field.equal && field.path == "metadata.name";
        self.fields.iter().find(named).map(|field| field.value.as_str())
    }
}

impl Rule {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Self::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// The fields that can be selected by, besides name and namespace.
fn selectable(resource: &str) -> &'static [&'static str] {
    match resource {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "secrets" => &["type"],
        "namespaces" => &["status.phase"],
        "nodes" => &["spec.unschedulable"],
        "replicasets.apps" => &["status.replicas"],
        "jobs.batch" => &["status.successful"],
        _ => &[],
    }
}

fn field(part: &str, resource: &str) -> Result<Field, StatusError> {
    let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (path, value, true)
    } else {
        return Err(StatusError::bad_request(&format!("invalid selector: '{part}'; can't understand '{part}'")));
    };
    let (path, value) = (path.trim(), value.trim());
    if !["metadata.name", "metadata.namespace"].contains(&path) && !selectable(resource).contains(&path) {
        // Kinds with fields of their own and those of definitions say it in one way, the others in another.
        let own = !selectable(resource).is_empty() || !is_core(resource);
        return Err(StatusError::bad_request(&if own {
            format!("field label not supported: {path}")
        } else {
            format!("\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }));
    }
    Ok(Field { path: path.to_owned(), value: value.to_owned(), equal })
}

fn is_core(resource: &str) -> bool {
    super::resources::builtin().any(|kind| kind.resource() == resource)
}

fn value_at(object: &Value, path: &str) -> String {
    // Events are told by their source's component, or by who reports them.
    if path == "source" {
        let component = value_at(object, "source.component");
        return if component.is_empty() { value_at(object, "reportingComponent") } else { component };
    }
    let found = path.split('.').try_fold(object, |inner, part| inner.get(part));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_selected_in_every_notation() {
        let object = json!({"metadata": {"name": "x", "labels": {"app": "web", "tier": "2"}}});
        for (text, expected) in [
            ("app=web", true),
            ("app==web,tier=2", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (web,db)", true),
            ("app notin (web),tier", false),
            ("!app", false),
            ("!other", true),
            ("tier>1", true),
            ("tier<2", false),
        ] {
            assert_eq!(Selector::parse(text, "", "pods").unwrap().matches(&object), expected, "{text}");
        }
        assert!(Selector::parse("a b", "", "pods").is_err());
    }

    #[test]
    fn fields_that_cannot_be_selected_are_refused() {
        let object = json!({"metadata": {"name": "x"}, "status": {"phase": "Running"}});
        let matches = |text: &str| Selector::parse("", text, "pods").map(|selector| selector.matches(&object));
        assert!(matches("metadata.name=x,status.phase!=Pending").unwrap());
        assert!(!matches("metadata.name!=x").unwrap());
        assert!(matches("spec.containers=x").is_err());
    }
}
