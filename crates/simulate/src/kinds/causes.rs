//! What is wrong with an object, gathered in the order an API server tells it in.

use serde_json::Value;

use crate::status_error::{Cause, StatusError};

#[derive(Debug, Default)]
pub struct Causes(Vec<Cause>);

impl Causes {
    fn add(&mut self, reason: &str, field: &str, message: String) {
        self.0.push(Cause { reason: reason.to_owned(), message, field: field.to_owned() });
    }

    pub fn required(&mut self, field: &str, detail: &str) {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        self.add("FieldValueRequired", field, format!("Required value{detail}"));
    }

    pub fn invalid(&mut self, field: &str, value: &Value, detail: &str) {
        self.add("FieldValueInvalid", field, format!("Invalid value: {value}: {detail}"));
    }

    pub fn unsupported(&mut self, field: &str, value: &Value, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        self.add("FieldValueNotSupported", field, message);
    }

    pub fn forbidden(&mut self, field: &str, detail: &str) {
        self.add("FieldValueForbidden", field, format!("Forbidden: {detail}"));
    }

    /// Everything that is wrong with one value.
    pub fn all(&mut self, field: &str, value: &str, problems: &[String]) {
        for problem in problems {
            self.invalid(field, &value.into(), problem);
        }
    }

    /// Where the value is printed in a form that JSON does not have.
    pub fn invalid_text(&mut self, field: &str, value: &str, detail: &str) {
        self.add("FieldValueInvalid", field, format!("Invalid value: {value}: {detail}"));
    }

    pub fn too_long(&mut self, field: &str, longest: usize) {
        self.add("FieldValueTooLong", field, format!("Too long: may not be more than {longest} bytes"));
    }

    pub fn not_found(&mut self, field: &str, value: &Value) {
        self.add("FieldValueNotFound", field, format!("Not found: {value}"));
    }

    /// Of schemas: one says the whole place, of a status only its end.
    pub fn wrong_type(&mut self, field: &str, given: &str, wanted: &str) {
        let place = field.strip_prefix("status.").unwrap_or(field);
        let message = format!("Invalid value: \"{given}\": {place} in body must be of type {wanted}: \"{given}\"");
        self.add("FieldValueTypeInvalid", field, message);
    }

    /// Refuses a value that is none of these; one that is not there is fine.
    pub fn one_of(&mut self, field: &str, value: Option<&Value>, supported: &[&str]) {
        if let Some(value) = value
            && !supported.iter().any(|one| value == one)
        {
            self.unsupported(field, value, supported);
        }
    }

    /// Refuses a change of one field.
    pub fn immutable(&mut self, field: &str, old: Option<&Value>, new: Option<&Value>) {
        if old != new {
            self.invalid(field, new.unwrap_or(&Value::Null), "field is immutable");
        }
    }

    /// The first of them as one text.
    pub fn first(&self) -> Option<String> {
        self.0.first().map(|cause| format!("{}: {}", cause.field, cause.message))
    }

    /// `kind` with its group, such as `Deployment.apps`.
    pub fn into_result(self, kind: &str, name: &str) -> Result<(), StatusError> {
        if self.0.is_empty() { Ok(()) } else { Err(StatusError::invalid(kind, name, &self.0)) }
    }
}
