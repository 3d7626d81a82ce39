//! Virtual machines of a member, played: vSphere's operator, and KubeVirt with its two ways to plug a volume in. Among the
//! disks of a machine there is always one of somebody else's, with fields that the driver does not know.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    Cluster,
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;

use super::double::Mood;
use crate::bench::{SHOP, lock};

pub const OPERATED: &str = "virtualmachines.vmoperator.vmware.com";
pub const PLUGGED: &str = "virtualmachines.kubevirt.io";
pub const INSTANCES: &str = "virtualmachineinstances.kubevirt.io";
const PLUGGING: &str = "virtualmachines.subresources.kubevirt.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const STEP: Duration = Duration::from_millis(100);
/// Of every machine here, whose name is `vm-1`.
pub const UUID: &str = "4237a5b3-1c2d-3e4f-5061-728394a5b6c7";
const PHASES: [&str; 5] = ["Pending", "Bound", "AttachedToNode", "MountedToPod", "Ready"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Operator(&'static str),
    /// Whether a volume is plugged by a request of its own.
    KubeVirt(bool),
}

/// Whoever serves the machines, for as long as the bench runs.
#[derive(Clone)]
pub struct Host {
    mood: Arc<Mutex<Mood>>,
}

impl Host {
    pub fn start(member: &Cluster, kind: Kind) -> Self {
        match kind {
            Kind::Operator(version) => {
                define(member, "vmoperator.vmware.com", "VirtualMachine", version);
                let boot = json!({"name": "boot", "type": "Classic", "attached": true, "diskUUID": "6000c29b"});
                // A server knows whose a field is that was there before anything was applied.
                let item =
                    json!({".": {}, "f:name": {}, "f:persistentVolumeClaim": {"f:claimName": {}}, "f:unitNumber": {}});
                let owned = json!({
                    "manager": "person", "operation": "Update", "apiVersion": format!("vmoperator.vmware.com/{version}"),
                    "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:volumes": {"k:{\"name\":\"theirs\"}": item}}},
                });
                let machine = json!({
                    "metadata": {"name": "vm-1", "namespace": SHOP, "managedFields": [owned]},
                    "spec": {"volumes": [theirs()]},
                });
                member.create(OPERATED, machine).unwrap();
                let status = json!({"biosUUID": UUID, "volumes": [boot]});
                member.change(OPERATED, SHOP, "vm-1", |machine| machine["status"] = status).unwrap();
            }
            Kind::KubeVirt(by_request) => {
                define(member, "kubevirt.io", "VirtualMachine", "v1");
                define(member, "kubevirt.io", "VirtualMachineInstance", "v1");
                if by_request {
                    define(member, "subresources.kubevirt.io", "Placeholder", "v1");
                }
                let template =
                    json!({"spec": {"volumes": [theirs()], "domain": {"devices": {"disks": [{"name": "theirs"}]}}}});
                let machine = json!({"metadata": {"name": "vm-1", "namespace": SHOP}, "spec": {"template": template}});
                member.create(PLUGGED, machine).unwrap();
                let instance = json!({
                    "metadata": {"name": "vm-1", "namespace": SHOP},
                    "spec": {"volumes": [theirs()], "domain": {"firmware": {"uuid": UUID}}},
                });
                member.create(INSTANCES, instance).unwrap();
            }
        }
        let host = Self { mood: Arc::new(Mutex::new(Mood::Well)) };
        let (member, mood) = (member.clone(), Arc::clone(&host.mood));
        tokio::spawn(async move {
            loop {
                sleep(STEP).await;
                let now = *lock(&mood);
                match kind {
                    _ if now == Mood::Silent => {}
                    Kind::Operator(_) => operate(&member, now),
                    Kind::KubeVirt(_) => run(&member, now),
                }
            }
        });
        host
    }

    pub fn is(&self, mood: Mood) {
        *lock(&self.mood) = mood;
    }
}

fn theirs() -> Value {
    json!({"name": "theirs", "persistentVolumeClaim": {"claimName": "theirs"}, "unitNumber": 3})
}

/// The machine's disks that are not boot disks, and whether that of somebody else's is as it was.
pub fn disks(machine: &Value) -> (Vec<String>, bool) {
    let paths = ["/spec/volumes", "/spec/template/spec/volumes"];
    let list = paths.iter().find_map(|path| machine.pointer(path)?.as_array()).unwrap();
    let names = list.iter().map(|disk| text(disk, "/name").to_owned()).filter(|name| name != "theirs").collect();
    (names, list.contains(&theirs()))
}

fn define(member: &Cluster, group: &str, kind: &str, version: &str) {
    let plural = format!("{}s", kind.to_lowercase());
    let definition = json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    member.create(DEFINITIONS, definition).unwrap();
}

/// Attaches what is asked for, and renames what is not before it goes.
fn operate(member: &Cluster, mood: Mood) {
    let _ = member.change(OPERATED, SHOP, "vm-1", |machine| {
        let asked: Vec<String> = disks(machine).0;
        let told = machine["status"]["volumes"].as_array().cloned().unwrap_or_default();
        let mut next = Vec::new();
        for mut entry in told {
            let name = text(&entry, "/name").to_owned();
            if entry["type"] == "Classic" {
                next.push(entry);
            } else if let Some(going) = name.strip_suffix(":detaching") {
                entry["error"] = json!(if mood == Mood::Failing { "the snapshot is in the way" } else { "" });
                if mood == Mood::Failing {
                    entry["name"] = json!(format!("{going}:detaching"));
                    next.push(entry);
                }
            } else if !asked.contains(&name) {
                entry["name"] = json!(format!("{name}:detaching"));
                next.push(entry);
            } else {
                let well = json!({"name": name, "attached": true, "diskUUID": "6000C29a-98d0-5e38-4a43-f0ef189aaf5a", "error": ""});
                let failing = json!({"name": name, "attached": false, "error": "no free slot"});
                next.push(if mood == Mood::Well { well } else { failing });
            }
        }
        for name in asked {
            let there = next.iter().any(|entry| text(entry, "/name").trim_end_matches(":detaching") == name);
            if !there {
                next.push(json!({"name": name, "attached": false}));
            }
        }
        machine["status"]["volumes"] = json!(next);
    });
}

/// Takes the machine's volumes over into the instance, a phase at a time.
fn run(member: &Cluster, mood: Mood) {
    let asked = member.get(PLUGGED, SHOP, "vm-1").map(|machine| disks(&machine).0).unwrap_or_default();
    let _ = member.change(INSTANCES, SHOP, "vm-1", |instance| {
        let told = instance["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
        let step = |entry: &Value| -> Option<Value> {
            let (name, phase) = (text(entry, "/name"), text(entry, "/phase"));
            let next = match (asked.iter().any(|asked| asked == name), phase) {
                (true, phase) if mood == Mood::Failing => {
                    return Some(json!({"name": name, "phase": phase, "message": "no node for it"}));
                }
                (true, phase) => {
                    let at = PHASES.iter().position(|one| *one == phase).unwrap_or_default();
                    PHASES[(at + 1).min(PHASES.len() - 1)]
                }
                (false, "UnMountedFromPod") => return None,
                (false, "Detaching") => "UnMountedFromPod",
                (false, _) => "Detaching",
            };
            Some(json!({"name": name, "phase": next}))
        };
        let mut next: Vec<Value> = told.iter().filter_map(step).collect();
        for name in &asked {
            if !told.iter().any(|entry| text(entry, "/name") == name) {
                next.push(json!({"name": name, "phase": "Pending"}));
            }
        }
        let volumes = std::iter::once(theirs()).chain(next.iter().map(|entry| json!({"name": entry["name"]})));
        instance["spec"]["volumes"] = volumes.collect();
        instance["status"]["volumeStatus"] = json!(next);
    });
}

/// KubeVirt's own API, which is no part of the cluster: what becomes of a request to it.
pub fn plugging(member: &Cluster, asked: &Asked, fate: &Action) -> Option<Action> {
    if asked.resource != PLUGGING || asked.verb != Verb::Update {
        return None;
    }
    let told = |code| Action::Answer { code, reason: if code == 202 { "Accepted" } else { "Conflict" } };
    let (answered, applied) = match fate {
        Action::Pass => (true, true),
        Action::ApplyThenHang => (false, true),
        other => return Some(other.clone()),
    };
    let mut code = 404;
    let _ = member.change(PLUGGED, SHOP, &asked.name, |machine| {
        let (names, _) = disks(machine);
        let name = text(&asked.body, "/name");
        let there = names.iter().any(|one| one == name);
        let adds = asked.subresource == "addvolume";
        code = if there == adds { 409 } else { 202 };
        if code == 202 && applied {
            let claim = asked.body.pointer("/volumeSource/persistentVolumeClaim").cloned().unwrap_or_default();
            let volumes = machine["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap();
            if adds {
                volumes.push(json!({"name": name, "persistentVolumeClaim": claim}));
            } else {
                volumes.retain(|volume| text(volume, "/name") != name);
            }
        }
    });
    Some(if answered { told(code) } else { Action::Hang })
}
