//! Machines of vSphere's VM operator: disks are items of `spec.volumes`, and `status.volumes` tells what became of them.
//!
//! The list holds other people's disks, with fields that this driver does not know. So nothing but one item is ever
//! written: by server-side apply, with a manager of the disk's own; in the oldest version, whose list is one value to the
//! server, by a JSON patch over the version that was read.

use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    Machine, Machines,
    disk::{Disk, DiskName},
    items, word,
};
use cluster::json_patch;
use domain::error::Result;

/// Its list of volumes is one value.
const OLDEST: &str = "v1alpha1";
/// After the name of a disk that is on its way out.
const DETACHING: &str = ":detaching";

pub(super) fn disk(machine: &Machine, wanted: &DiskName) -> Disk {
    let object = machine.object.as_ref();
    let asked = items(object, "/spec/volumes").iter().find(|item| word(item, "/name") == wanted.name);
    let told = items(object, "/status/volumes");
    let of_it = |item: &&Value| {
        let name = word(item, "/name");
        name.strip_suffix(DETACHING).unwrap_or(name) == wanted.name
    };
    let status = told.iter().find(|item| word(item, "/name") == wanted.name);
    let going = told.iter().filter(of_it).any(|item| word(item, "/name").ends_with(DETACHING));
    let error = told.iter().filter(of_it).map(|item| word(item, "/error")).find(|error| !error.is_empty());
    let uuid = status.map(|item| word(item, "/diskUUID")).unwrap_or_default();
    let attached = status.is_some_and(|item| item["attached"] == true);
    let there = attached && !uuid.is_empty() && error.is_none() && !going;
    Disk {
        asked: asked.map(|item| word(item, "/persistentVolumeClaim/claimName").to_owned()),
        left: told.iter().any(|item| of_it(&item)),
        queued: false,
        there: there.then(|| vec![format!("wwn-0x{}", bare(uuid))]),
        trouble: error.map(str::to_owned),
    }
}

/// As the guest writes it.
fn bare(uuid: &str) -> String {
    uuid.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_ascii_lowercase()
}

impl Machines<'_> {
    pub(super) async fn add_by_operator(
        &self,
        machine: &Machine,
        disk: &DiskName,
        version: &str,
    ) -> Result<Option<DynamicObject>> {
        let Some(object) = &machine.object else { return Ok(None) };
        let item = json!({"name": disk.name, "persistentVolumeClaim": {"claimName": disk.claim}});
        if version != OLDEST {
            return self.apply(object, disk, json!({"volumes": [item]})).await.map(Some);
        }
        let list = object.data.pointer("/spec/volumes").is_some_and(Value::is_array);
        let change = if list {
            json!({"op": "add", "path": "/spec/volumes/-", "value": item})
        } else {
            json!({"op": "add", "path": "/spec/volumes", "value": [item]})
        };
        self.change(object, vec![change]).await.map(Some)
    }

    pub(super) async fn remove_by_operator(
        &self,
        machine: &Machine,
        disk: &DiskName,
        version: &str,
    ) -> Result<Option<DynamicObject>> {
        let Some(object) = &machine.object else { return Ok(None) };
        let mut object = object.clone();
        if version != OLDEST {
            object = self.apply(&object, disk, json!({})).await?;
        }
        // Others may own a part of the item, which then stays.
        let Some(at) = items(Some(&object), "/spec/volumes").iter().position(|item| word(item, "/name") == disk.name)
        else {
            return Ok(Some(object));
        };
        let named = json!({"op": "test", "path": format!("/spec/volumes/{at}/name"), "value": disk.name});
        let gone = json!({"op": "remove", "path": format!("/spec/volumes/{at}")});
        self.change(&object, vec![named, gone]).await.map(Some)
    }

    /// With the machine's UID: an apply to one that has gone meanwhile would recreate it.
    async fn apply(&self, object: &DynamicObject, disk: &DiskName, spec: Value) -> Result<DynamicObject> {
        let (kind, name) = (self.machine_kind(), object.name_any());
        let mut wanted = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"uid": object.uid()}});
        if spec != json!({}) {
            wanted["spec"] = spec;
        }
        let applied = self.api(&kind).patch(&name, &PatchParams::apply(&disk.manager), &Patch::Apply(&wanted)).await;
        applied.map_err(|error| self.outcome("apply", &kind, &name, &error))
    }

    pub(super) async fn change(&self, object: &DynamicObject, changes: Vec<Value>) -> Result<DynamicObject> {
        let (kind, name) = (self.machine_kind(), object.name_any());
        let seen = json!({"op": "test", "path": "/metadata/resourceVersion", "value": object.resource_version()});
        let operations: Vec<Value> = std::iter::once(seen).chain(changes).collect();
        let patched = json_patch::send(self.api(&kind), &name, &operations).await;
        patched.map_err(|error| self.outcome("patch", &kind, &name, &error))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::from_value;

    use super::*;
    use domain::volume::{HostId, VolumeHash};

    fn seen(claim: &str, told: &[Value]) -> Disk {
        let wanted = DiskName::new(VolumeHash::new(&HostId("h".to_owned()), "pvc-1"));
        let rename = |item: &Value| {
            let mut item = item.clone();
            item["name"] = json!(word(&item, "/name").replace("ours", &wanted.name));
            item
        };
        let asked = match claim {
            "" => json!([]),
            claim => json!([{"name": wanted.name, "persistentVolumeClaim": {"claimName": claim}}]),
        };
        let told: Vec<Value> = told.iter().map(rename).collect();
        let object = json!({"metadata": {"name": "vm"}, "spec": {"volumes": asked}, "status": {"volumes": told}});
        let machine = Machine { name: "vm".to_owned(), object: Some(from_value(object).unwrap()), instance: None };
        disk(&machine, &wanted)
    }

    #[test]
    fn disk_is_there_when_it_is_attached_and_has_a_uuid_and_no_trouble() {
        let uuid = "6000C29a-98d0-5e38-4a43-f0ef189aaf5a";
        let attached = json!({"name": "ours", "attached": true, "diskUUID": uuid, "error": ""});
        let there = seen("c", std::slice::from_ref(&attached));
        assert_eq!(there.there.unwrap(), ["wwn-0x6000c29a98d05e384a43f0ef189aaf5a"]);
        assert_eq!(there.asked.as_deref(), Some("c"));
        for not_yet in [
            json!({"name": "ours", "attached": false}),
            json!({"name": "ours", "attached": true}),
            json!({"name": "ours", "attached": true, "diskUUID": uuid, "error": "no slot"}),
            json!({"name": "boot", "attached": true, "diskUUID": uuid, "type": "Classic"}),
        ] {
            assert_eq!(seen("c", std::slice::from_ref(&not_yet)).there, None, "{not_yet}");
        }
        let again = seen("c", &[json!({"name": "ours:detaching", "attached": true}), attached]);
        assert!(again.there.is_none() && again.left, "the one of before is still going");
    }

    #[test]
    fn disk_is_left_until_the_status_does_not_name_it_in_any_way() {
        assert!(seen("", &[json!({"name": "ours:detaching", "attached": true})]).left);
        assert!(seen("", &[json!({"name": "ours"})]).left);
        assert_eq!(seen("", &[json!({"name": "other:detaching"})]), Disk::default());
        let trouble = seen("c", &[json!({"name": "ours", "attached": false, "error": "no slot"})]).trouble;
        assert_eq!(trouble.as_deref(), Some("no slot"));
    }
}
