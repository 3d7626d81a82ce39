//! Those in a member who attach volumes, played.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{Cluster, text};
use tokio::time::sleep;

use crate::bench::lock;

pub const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
const FINALIZER: &str = "external-attacher/storage-simulated";
/// Between two looks.
const STEP: Duration = Duration::from_millis(100);

/// How it goes today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// It does nothing.
    Silent,
    /// It says so and tries again.
    Failing,
}

/// The external-attacher of the member's storage driver, for as long as the bench runs.
#[derive(Clone)]
pub struct Attacher(Arc<Mutex<Mood>>);

impl Attacher {
    pub fn start(member: &Cluster) -> Self {
        let attacher = Self(Arc::new(Mutex::new(Mood::Well)));
        let (member, mood) = (member.clone(), Arc::clone(&attacher.0));
        tokio::spawn(async move {
            loop {
                sleep(STEP).await;
                let now = *lock(&mood);
                for attachment in member.list(ATTACHMENTS) {
                    step(&member, &attachment, now);
                }
            }
        });
        attacher
    }

    pub fn is(&self, mood: Mood) {
        *lock(&self.0) = mood;
    }
}

fn step(member: &Cluster, attachment: &Value, mood: Mood) {
    let change = |edit: &dyn Fn(&mut Value)| {
        let _ = member.change(ATTACHMENTS, "", text(attachment, "/metadata/name"), edit);
    };
    let leaving = !text(attachment, "/metadata/deletionTimestamp").is_empty();
    let held = attachment["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    match (mood, leaving) {
        (Mood::Silent, _) => {}
        (_, false) if !held => change(&|one| one["metadata"]["finalizers"] = json!([FINALIZER])),
        (Mood::Well, false) => {
            let device = json!({"device": format!("/dev/{}", text(attachment, "/spec/nodeName"))});
            change(&|one| one["status"] = json!({"attached": true, "attachmentMetadata": device}));
        }
        (Mood::Well, true) => change(&|one| one["metadata"]["finalizers"] = json!([])),
        (Mood::Failing, _) => {
            let (field, attached) = if leaving { ("detachError", true) } else { ("attachError", false) };
            change(&|one| {
                one["status"]["attached"] = json!(attached);
                one["status"][field] = json!({"message": "the array is full"});
            });
        }
    }
}
