//! KubeVirt's machines: a volume is plugged into one that runs, and the instance tells when it is there. The machine and its
//! instance are two objects, and an instance may outlive its machine.
//!
//! Plugging is a request of its own (`addvolume`), which every version serves; where that API is not served, the volume is
//! written into the machine itself.

use kube::{
    Resource, ResourceExt,
    api::{DynamicObject, PostParams},
    core::Request,
};
use serde_json::{Value, json};

use super::{
    Machine, Machines, SUBRESOURCES,
    disk::{Disk, DiskName},
    items, resource, word,
};
use domain::error::{Error, Result};

const VOLUMES: &str = "/spec/template/spec/volumes";
const DEVICES: &str = "/spec/template/spec/domain/devices";

pub(super) fn disk(machine: &Machine, wanted: &DiskName) -> Disk {
    let named = |item: &&Value| word(item, "/name") == wanted.name;
    let (object, instance) = (machine.object.as_ref(), machine.instance.as_ref());
    let asked = items(object, VOLUMES).iter().find(named);
    let status = items(instance, "/status/volumeStatus").iter().find(named);
    let queued = items(object, "/status/volumeRequests").iter().any(|request| {
        let options = ["/addVolumeOptions/name", "/removeVolumeOptions/name"];
        options.iter().any(|name| word(request, name) == wanted.name)
    });
    let ready = status.is_some_and(|status| word(status, "/phase") == "Ready");
    let told = status.map(|status| word(status, "/message")).filter(|message| !message.is_empty());
    let idle = (instance.is_none() && object.is_some()).then_some("the machine does not run");
    Disk {
        asked: asked.map(|item| word(item, "/persistentVolumeClaim/claimName").to_owned()),
        left: status.is_some() || items(instance, "/spec/volumes").iter().any(|item| named(&item)),
        queued,
        there: (ready && !queued).then(|| names(&wanted.serial)),
        trouble: told.or(idle).map(str::to_owned),
    }
}

/// What the guest calls a disk with this serial number.
fn names(serial: &str) -> Vec<String> {
    ["scsi-0QEMU_QEMU_HARDDISK_", "scsi-SQEMU_QEMU_HARDDISK_", "virtio-"].map(|kind| format!("{kind}{serial}")).into()
}

impl Machines<'_> {
    pub(super) async fn plug(
        &self,
        machine: &Machine,
        disk: &DiskName,
        by_request: bool,
    ) -> Result<Option<DynamicObject>> {
        let Some(object) = &machine.object else { return Ok(None) };
        let device = json!({"serial": disk.serial, "disk": {"bus": "scsi"}});
        if by_request {
            let source = json!({"persistentVolumeClaim": {"claimName": disk.claim}});
            let wish = json!({"name": disk.name, "disk": device, "volumeSource": source});
            return self.request(&object.name_any(), "addvolume", &wish).await.map(|()| None);
        }
        let claim = json!({"claimName": disk.claim, "hotpluggable": true});
        let volume = json!({"name": disk.name, "persistentVolumeClaim": claim});
        let mut device = device;
        device["name"] = json!(disk.name);
        let disks = format!("{DEVICES}/disks");
        let mut changes = Vec::new();
        for (path, item) in [(VOLUMES, volume), (disks.as_str(), device)] {
            if !object.data.pointer(path).is_some_and(Value::is_array) {
                changes.push(json!({"op": "add", "path": path, "value": []}));
            }
            changes.push(json!({"op": "add", "path": format!("{path}/-"), "value": item}));
        }
        self.change(object, changes).await.map(Some)
    }

    pub(super) async fn unplug(
        &self,
        machine: &Machine,
        disk: &DiskName,
        by_request: bool,
    ) -> Result<Option<DynamicObject>> {
        let Some(object) = &machine.object else { return Ok(None) };
        if by_request {
            return self.request(&object.name_any(), "removevolume", &json!({"name": disk.name})).await.map(|()| None);
        }
        let mut changes = Vec::new();
        for path in [VOLUMES, &format!("{DEVICES}/disks")] {
            let there = items(Some(object), path);
            if let Some(at) = there.iter().position(|item| word(item, "/name") == disk.name) {
                changes.push(json!({"op": "test", "path": format!("{path}/{at}/name"), "value": disk.name}));
                changes.push(json!({"op": "remove", "path": format!("{path}/{at}")}));
            }
        }
        self.change(object, changes).await.map(Some)
    }

    /// The answer holds nothing: the machine is to be looked at.
    async fn request(&self, machine: &str, what: &str, wish: &Value) -> Result<()> {
        let kind = resource(SUBRESOURCES, "v1", "VirtualMachine");
        let path = DynamicObject::url_path(&kind, Some(&self.namespace));
        let body = wish.to_string().into_bytes();
        let request = Request::new(path).replace_subresource(what, machine, &PostParams::default(), body);
        let request = request.map_err(|error| Error::Refused(format!("a request cannot be written: {error}")))?;
        let answer = self.cluster.client.request_text(request).await;
        answer.map(drop).map_err(|error| self.outcome(what, &kind, machine, &error))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::from_value;

    use super::*;
    use domain::volume::{HostId, VolumeHash};

    fn wanted() -> DiskName {
        DiskName::new(VolumeHash::new(&HostId("h".to_owned()), "pvc-1"))
    }

    fn seen(asked: bool, queued: bool, instance: Option<&Value>) -> Disk {
        let name = wanted().name;
        let volumes =
            if asked { json!([{"name": name, "persistentVolumeClaim": {"claimName": name}}]) } else { json!([]) };
        let requests = if queued { json!([{"addVolumeOptions": {"name": name}}]) } else { json!([]) };
        let object = json!({
            "metadata": {"name": "vm"}, "spec": {"template": {"spec": {"volumes": volumes}}},
            "status": {"volumeRequests": requests},
        });
        let parsed = |object: Value| from_value::<DynamicObject>(object).unwrap();
        disk(
            &Machine { name: "vm".to_owned(), object: Some(parsed(object)), instance: instance.cloned().map(parsed) },
            &wanted(),
        )
    }

    fn instance(phase: &str) -> Value {
        let status = json!([{"name": wanted().name, "phase": phase, "message": "why"}]);
        json!({"metadata": {"name": "vm"}, "status": {"volumeStatus": status}})
    }

    #[test]
    fn disk_is_there_when_the_instance_says_ready() {
        let names = seen(true, false, Some(&instance("Ready"))).there.unwrap();
        assert!(names.contains(&format!("virtio-{}", wanted().serial)), "{names:?}");
        for phase in ["Pending", "Bound", "AttachedToNode", "MountedToPod"] {
            let disk = seen(true, false, Some(&instance(phase)));
            assert!(disk.there.is_none() && disk.left && disk.trouble.as_deref() == Some("why"), "{phase}");
        }
        assert_eq!(seen(true, true, Some(&instance("Ready"))).there, None, "a request is still to be looked at");
    }

    #[test]
    fn machine_that_does_not_run_and_what_is_left_in_an_instance_are_told() {
        assert_eq!(seen(true, false, None).trouble.as_deref(), Some("the machine does not run"));
        assert!(seen(false, false, Some(&instance("Detaching"))).left);
        let spec = json!({"metadata": {"name": "vm"}, "spec": {"volumes": [{"name": wanted().name}]}});
        assert!(seen(false, false, Some(&spec)).left);
        assert!(seen(false, true, None).queued);
    }
}
