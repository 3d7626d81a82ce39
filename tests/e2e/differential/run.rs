//! Sends the steps of the script to one server, in order, and notes every answer.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::{
    normal::Normal,
    step::{Reading, Step},
};

const PATIENCE: Duration = Duration::from_secs(5);

/// What one server said to one step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer(pub(crate) Value);

pub(crate) struct Runner {
    client: Client,
    variables: BTreeMap<String, String>,
    watches: BTreeMap<String, (Value, Events)>,
    normal: Normal,
}

impl Runner {
    /// With what steps may use from the beginning.
    pub(crate) fn new(client: Client, variables: BTreeMap<String, String>) -> Self {
        Self { client, variables, watches: BTreeMap::new(), normal: Normal::default() }
    }

    pub(crate) async fn run(&mut self, steps: &[Step]) -> Result<Vec<Answer>> {
        let mut answers = Vec::with_capacity(steps.len());
        for (number, step) in steps.iter().enumerate() {
            let answer = tokio::time::timeout(PATIENCE, self.answer(step)).await;
            let answer = answer.map_err(anyhow::Error::from).and_then(|answer| answer);
            let answer = answer.unwrap_or_else(|error| json!({"failed": format!("{error:#}")}));
            let what = || format!("step {number}: {} {}", step.method, step.path);
            self.keep(step, &answer).with_context(what)?;
            answers.push(Answer(self.normal.answer(answer)));
        }
        Ok(answers)
    }

    async fn answer(&mut self, step: &Step) -> Result<Value> {
        match &step.reading {
            Reading::Collect { watch, until } => {
                let (head, mut events) = self.watches.remove(watch).context("no such watch is open")?;
                let events = events.read(until).await?;
                Ok(json!({"head": head, "events": events}))
            }
            Reading::Events(until) => {
                let answer = self.send(step).await?;
                if !answer.status().is_success() {
                    return whole(answer).await;
                }
                let head = head(&answer);
                let events = Events::new(answer).read(until).await?;
                Ok(json!({"head": head, "events": events}))
            }
            Reading::Open(name) => {
                let answer = self.send(step).await?;
                let head = head(&answer);
                self.watches.insert(name.clone(), (head.clone(), Events::new(answer)));
                Ok(json!({"head": head}))
            }
            Reading::Whole => whole(self.send(step).await?).await,
            Reading::Until { pointer, value } => loop {
                let answer = whole(self.send(step).await?).await?;
                if answer.pointer(pointer).unwrap_or(&Value::Null) == value {
                    return Ok(answer);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            },
        }
    }

    async fn send(&self, step: &Step) -> Result<Response<Body>> {
        // The others that a path here contains may stand in it as they are.
        let path = self.filled(&step.path).replace(' ', "%20").replace('>', "%3E");
        let mut request = Request::builder().method(step.method).uri(path).header("User-Agent", "differential/1");
        request = request.header("Accept", step.accept.unwrap_or("application/json"));
        if let Some(content_type) = step.content_type {
            request = request.header("Content-Type", content_type);
        }
        let body = step.body.as_deref().map(|body| self.filled(body)).unwrap_or_default();
        Ok(self.client.send(request.body(Body::from(body.into_bytes()))?).await?)
    }

    fn filled(&self, text: &str) -> String {
        let fill = |text: String, (name, value): (&String, &String)| text.replace(&format!("<{name}>"), value);
        self.variables.iter().fold(text.to_owned(), fill)
    }

    fn keep(&mut self, step: &Step, answer: &Value) -> Result<()> {
        for (name, pointer) in &step.keep {
            let value = answer.pointer(&format!("/body{pointer}"));
            let value = value.with_context(|| format!("nothing at {pointer} to keep: {answer}"))?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.variables.insert((*name).to_owned(), text);
        }
        Ok(())
    }
}

/// The status and the headers that clients look at.
fn head(answer: &Response<Body>) -> Value {
    let texts = |name: &str| -> Vec<String> {
        let values = answer.headers().get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let mut head = json!({"status": answer.status().as_u16()});
    for name in ["content-type", "warning", "allow", "location"] {
        let values = texts(name);
        if !values.is_empty() {
            head[name] = values.into();
        }
    }
    head
}

async fn whole(answer: Response<Body>) -> Result<Value> {
    let head = head(&answer);
    let bytes = answer.into_body().collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
    Ok(json!({"head": head, "body": body}))
}

/// The events of a watch, one line each.
struct Events {
    body: Body,
    read: Vec<u8>,
}

impl Events {
    fn new(answer: Response<Body>) -> Self {
        Self { body: answer.into_body(), read: Vec::new() }
    }

    async fn read(&mut self, until: &str) -> Result<Vec<Value>> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            let last = event["type"] == until || event.pointer("/object/metadata/name") == Some(&json!(until));
            events.push(event);
            if last {
                break;
            }
        }
        Ok(events)
    }

    async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).context("read an event")?));
            }
            let Some(frame) = self.body.frame().await else {
                ensure!(self.read.is_empty(), "a watch ended within an event: {}", String::from_utf8_lossy(&self.read));
                return Ok(None);
            };
            self.read.extend_from_slice(&frame?.into_data().unwrap_or_default());
        }
    }
}
