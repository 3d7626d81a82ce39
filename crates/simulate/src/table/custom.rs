//! Tables of kinds that definitions made: the columns these ask for, each found by a path into the object.

use serde_json::{Value, json};

use super::{
    super::resources::{Column, Kind},
    age, definition,
    view::View,
};

pub(super) fn columns(kind: &Kind, version: &str) -> Vec<Value> {
    let own = of_version(kind, version);
    let own = own
        .iter()
        .map(|column| definition(&column.name, &column.data, &column.format, &column.description, column.priority));
    std::iter::once(definition("Name", "string", "name", "", 0)).chain(own).collect()
}

pub(super) fn cells(kind: &Kind, version: &str, view: &View<'_>) -> Vec<Value> {
    let own = of_version(kind, version);
    std::iter::once(view.name()).chain(own.iter().map(|column| cell(column, view))).collect()
}

fn of_version(kind: &Kind, version: &str) -> Vec<Column> {
    let own: Vec<Column> = kind.columns.iter().filter(|column| column.version == version).cloned().collect();
    if !own.is_empty() {
        return own;
    }
    let (name, data, path) = ("Age".to_owned(), "date".to_owned(), ".metadata.creationTimestamp".to_owned());
    vec![Column { name, data, path, ..Column::default() }]
}

fn cell(column: &Column, view: &View<'_>) -> Value {
    let Some(found) = first(view.object, &column.path) else { return Value::Null };
    match (column.data.as_str(), found) {
        ("integer", Value::Number(number)) => {
            #[expect(clippy::cast_possible_truncation, reason = "what follows the point is not shown")]
            let whole = number.as_i64().or_else(|| number.as_f64().map(|float| float as i64));
            json!(whole)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => found.clone(),
        ("string", other) => json!(other.to_string()),
        ("date", Value::String(stamp)) => json!(age::since(stamp, view.now)),
        _ => Value::Null,
    }
}

/// The first value at a path such as `.spec.list[0].name` or `.status.conditions[?(@.type=="Ready")].status`.
fn first<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = vec![object];
    for step in steps(path) {
        found = found.into_iter().flat_map(|value| take(value, &step)).collect();
    }
    found.into_iter().find(|value| !value.is_null())
}

/// Splits a path before each point and bracket that stands outside of brackets.
fn steps(path: &str) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    let (mut depth, mut escaped) = (0_usize, false);
    for letter in path.trim_start_matches('{').trim_end_matches('}').chars() {
        match letter {
            '.' if depth == 0 && !escaped => steps.push(String::new()),
            '[' => {
                if depth == 0 {
                    steps.push(String::new());
                }
                depth += 1;
            }
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
        if let Some(step) = steps.last_mut() {
            if !escaped {
                step.push(letter);
            }
        } else {
            steps.push(letter.to_string());
        }
    }
    steps.retain(|step| step != ".");
    steps
}

fn take<'a>(value: &'a Value, step: &str) -> Vec<&'a Value> {
    let Some(inside) = step.strip_prefix('[').map(|step| step.trim_end_matches(']')) else {
        return value.get(step.trim_start_matches('.')).into_iter().collect();
    };
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if inside == "*" {
        return items.iter().collect();
    }
    if let Some(condition) = inside.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return items.iter().filter(|item| holds(item, condition)).collect();
    }
    match inside.parse::<usize>() {
        Ok(position) => items.get(position).into_iter().collect(),
        Err(_) => value.get(inside.trim_matches(['\'', '"'])).into_iter().collect(),
    }
}

/// `@.type=="Ready"`, with either kind of quotes.
fn holds(item: &Value, condition: &str) -> bool {
    let (path, wanted, equal) = match (condition.split_once("=="), condition.split_once("!=")) {
        (Some((path, wanted)), _) => (path, wanted, true),
        (None, Some((path, wanted))) => (path, wanted, false),
        (None, None) => return first(item, condition.trim().trim_start_matches('@')).is_some(),
    };
    let wanted = wanted.trim().trim_matches(['\'', '"']);
    let found = first(item, path.trim().trim_start_matches('@'));
    let same = found.is_some_and(|found| found.as_str().map_or_else(|| found.to_string(), str::to_owned) == wanted);
    same == equal
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn paths_lead_into_lists_and_past_conditions() {
        let object = json!({
            "spec": {"list": [{"b": "x"}, {"b": "y"}], "map": {"a": 1}},
            "metadata": {"annotations": {"example.org/a": "z"}},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        for (path, expected) in [
            (".spec.list[1].b", json!("y")),
            (".spec.list[*].b", json!("x")),
            ("{.spec.map}", json!({"a": 1})),
            (r".metadata.annotations.example\.org/a", json!("z")),
            (".metadata.annotations['example.org/a']", json!("z")),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (".status.conditions[?(@.type=='Other')].status", json!("False")),
            (".status.conditions[?(@.type!='Other')].status", json!("True")),
        ] {
            assert_eq!(first(&object, path), Some(&expected), "{path}");
        }
        assert_eq!(first(&object, ".spec.none[3].c"), None);
    }

    #[test]
    fn cell_is_of_the_type_of_its_column_or_empty() {
        let object = json!({"a": 40, "b": "text", "c": 1.5, "d": true, "e": "1970-01-01T00:00:00Z", "f": {"x": [1]}});
        let view = View { object: &object, now: SystemTime::UNIX_EPOCH + Duration::from_secs(5) };
        for (data, path, expected) in [
            ("integer", ".a", json!(40)),
            ("integer", ".c", json!(1)),
            ("integer", ".b", Value::Null),
            ("number", ".c", json!(1.5)),
            ("boolean", ".d", json!(true)),
            ("boolean", ".b", Value::Null),
            ("string", ".a", json!("40")),
            ("string", ".f", json!(r#"{"x":[1]}"#)),
            ("date", ".e", json!("5s")),
            ("date", ".b", json!("<invalid>")),
            ("string", ".z", Value::Null),
        ] {
            let column = Column { data: data.to_owned(), path: path.to_owned(), ..Column::default() };
            assert_eq!(cell(&column, &view), expected, "{data} {path}");
        }
    }

    #[test]
    fn versions_have_columns_of_their_own() {
        let column = Column { version: "v1".to_owned(), name: "Lit".to_owned(), ..Column::default() };
        let kind = Kind { columns: vec![column], custom: true, ..Kind::default() };
        let names = |version: &str| {
            columns(&kind, version).iter().map(|column| column["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!((names("v1"), names("v2")), (vec!["Name".into(), "Lit".into()], vec!["Name".into(), "Age".into()]));
    }
}
