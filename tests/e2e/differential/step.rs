//! One request of the script, and how the script is written down.
//!
//! A step may use what an earlier answer said: `keep` takes a value out of an answer, `<name>` in a path or a body puts
//! it in.

use serde_json::Value;

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
pub(crate) const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
pub(crate) const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// What the answer of a step is read as.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Reading {
    #[default]
    Whole,
    /// A watch, read until an event is of this type or about an object of this name, or until the server ends it.
    Events(String),
    /// A watch that stays open under this name, to be read later.
    Open(String),
    /// Nothing is asked: the open watch of this name is read, as `Events` is.
    Collect { watch: String, until: String },
    /// Asked again and again until the value at this place of the answer is this one; null, until there is none.
    Until { pointer: String, value: Value },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub(crate) topic: &'static str,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) accept: Option<&'static str>,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Option<String>,
    pub(crate) keep: Vec<(&'static str, &'static str)>,
    pub(crate) reading: Reading,
}

impl Step {
    pub(crate) fn keep(&mut self, name: &'static str, pointer: &'static str) -> &mut Self {
        self.keep.push((name, pointer));
        self
    }

    pub(crate) fn accept(&mut self, accept: &'static str) -> &mut Self {
        self.accept = Some(accept);
        self
    }

    pub(crate) fn until(&mut self, pointer: &str, value: impl Into<Value>) -> &mut Self {
        self.reading = Reading::Until { pointer: pointer.to_owned(), value: value.into() };
        self
    }

    fn body(&mut self, content_type: &'static str, body: impl ToString) -> &mut Self {
        self.content_type = Some(content_type);
        self.body = Some(body.to_string());
        self
    }
}

/// The steps of one topic, in order.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) topic: &'static str,
    pub(crate) steps: Vec<Step>,
}

impl Script {
    fn ask(&mut self, method: &'static str, path: &str) -> &mut Step {
        let index = self.steps.len();
        self.steps.push(Step { topic: self.topic, method, path: path.to_owned(), ..Step::default() });
        &mut self.steps[index]
    }

    pub(crate) fn get(&mut self, path: &str) -> &mut Step {
        self.ask("GET", path)
    }

    pub(crate) fn post(&mut self, path: &str, body: impl ToString) -> &mut Step {
        self.ask("POST", path).body("application/json", body)
    }

    pub(crate) fn put(&mut self, path: &str, body: impl ToString) -> &mut Step {
        self.ask("PUT", path).body("application/json", body)
    }

    pub(crate) fn patch(&mut self, content_type: &'static str, path: &str, body: impl ToString) -> &mut Step {
        self.ask("PATCH", path).body(content_type, body)
    }

    pub(crate) fn delete(&mut self, path: &str) -> &mut Step {
        self.ask("DELETE", path)
    }

    pub(crate) fn delete_with(&mut self, path: &str, options: impl ToString) -> &mut Step {
        self.ask("DELETE", path).body("application/json", options)
    }

    /// Any request, however odd.
    pub(crate) fn odd(
        &mut self,
        method: &'static str,
        path: &str,
        content_type: &'static str,
        body: &str,
    ) -> &mut Step {
        self.ask(method, path).body(content_type, body)
    }

    /// Reads a watch until an event is of this type or about this object.
    pub(crate) fn watch(&mut self, path: &str, until: &str) -> &mut Step {
        let step = self.ask("GET", path);
        step.reading = Reading::Events(until.to_owned());
        step
    }

    pub(crate) fn open(&mut self, watch: &str, path: &str) -> &mut Step {
        let step = self.ask("GET", path);
        step.reading = Reading::Open(watch.to_owned());
        step
    }

    pub(crate) fn collect(&mut self, watch: &str, until: &str) -> &mut Step {
        let step = self.ask("READ", watch);
        step.reading = Reading::Collect { watch: watch.to_owned(), until: until.to_owned() };
        step
    }
}
