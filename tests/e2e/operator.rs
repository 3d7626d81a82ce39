//! Plays a member's VM operator for one machine, the host's node: a claim in its spec becomes a disk, which is a loop device
//! with a link under the name that its guest would see. Nothing is done at once, and nothing succeeds until it is mended.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{process::Command, time::interval};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    clusters::{Cluster, wait_for},
    rig::{DRIVER_NAMESPACE, PATIENCE},
};

/// What attaching a disk ends with until then.
pub const TROUBLE: &str = "no free slot on the controller";
const PACE: Duration = Duration::from_millis(300);
const SIZE: u64 = 400 << 20;

const DEFINITION: &str = r#"{
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "virtualmachines.vmoperator.vmware.com"},
    "spec": {
        "group": "vmoperator.vmware.com", "scope": "Namespaced",
        "names": {"kind": "VirtualMachine", "listKind": "VirtualMachineList", "plural": "virtualmachines", "singular": "virtualmachine"},
        "versions": [{"name": "v1alpha2", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"volumes": {"type": "array",
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"name": {"type": "string"}}}}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}
}"#;

/// Works until it is dropped.
pub struct Operator {
    machines: Api<DynamicObject>,
    name: String,
    disks: PathBuf,
    well: Arc<AtomicBool>,
    _work: AbortOnDropHandle<()>,
}

impl Operator {
    /// `disks` is the folder in which the guest finds its disks; `identity` the machine's own.
    pub async fn start(member: &Cluster, machine: &str, identity: &str, disks: &Path) -> Result<Self> {
        member.apply(DEFINITION).await?;
        std::fs::create_dir_all(disks).context("make the folder of disks")?;
        let machines = machines(member.client().await?);
        let object = json!({
            "apiVersion": "vmoperator.vmware.com/v1alpha2", "kind": "VirtualMachine",
            "metadata": {"name": machine}, "spec": {"className": "small"},
        });
        let object: DynamicObject = serde_json::from_value(object)?;
        wait_for("the machine is made", PATIENCE, || async {
            Ok(Some(machines.create(&PostParams::default(), &object).await?))
        })
        .await?;
        let status = Patch::Merge(json!({"status": {"biosUUID": identity, "powerState": "PoweredOn"}}));
        machines.patch_status(machine, &PatchParams::default(), &status).await?;
        let (api, name, folder) = (machines.clone(), machine.to_owned(), disks.to_owned());
        let well = Arc::new(AtomicBool::new(false));
        let is_well = Arc::clone(&well);
        let work = tokio::spawn(async move {
            let mut pace = interval(PACE);
            loop {
                pace.tick().await;
                if let Err(error) = look(&api, &name, &folder, is_well.load(Relaxed)).await {
                    eprintln!("the played VM operator: {error:#}");
                }
            }
        });
        let work = AbortOnDropHandle::new(work);
        Ok(Self { machines, name: machine.to_owned(), disks: disks.to_owned(), well, _work: work })
    }

    pub fn is_well(&self, well: bool) {
        self.well.store(well, Relaxed);
    }

    /// The machine is as it was before, and then no more.
    pub async fn end(self) -> Result<()> {
        let left = std::fs::read_dir(&self.disks)?.count();
        ensure!(left == 0, "{left} files are left in {}", self.disks.display());
        self.machines.delete(&self.name, &kube::api::DeleteParams::default()).await?;
        Ok(())
    }
}

fn machines(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("vmoperator.vmware.com", "v1alpha2", "VirtualMachine");
    Api::namespaced_with(client, DRIVER_NAMESPACE, &ApiResource::from_gvk(&kind))
}

/// One step for each disk.
async fn look(machines: &Api<DynamicObject>, machine: &str, disks: &Path, well: bool) -> Result<()> {
    let object = machines.get(machine).await?;
    let before: Vec<Value> = list(&object.data["status"]["volumes"]);
    let wanted: Vec<String> = names(&object.data["spec"]["volumes"]);
    let mut after = Vec::new();
    for name in &wanted {
        let now = before.iter().find(|volume| volume["name"] == **name);
        after.push(match now {
            Some(volume) if volume["attached"] == true => volume.clone(),
            Some(_) if well => {
                json!({"name": name, "attached": true, "diskUUID": plug(disks, name).await?, "error": ""})
            }
            Some(_) => json!({"name": name, "attached": false, "diskUUID": "", "error": TROUBLE}),
            None => json!({"name": name, "attached": false, "diskUUID": "", "error": ""}),
        });
    }
    for volume in &before {
        let name = volume["name"].as_str().unwrap_or_default();
        match name.strip_suffix(":detaching") {
            Some(name) if volume["attached"] == true => unplug(disks, name, &volume["diskUUID"]).await?,
            None if !wanted.iter().any(|wanted| wanted == name) => {
                let mut leaving = volume.clone();
                leaving["name"] = json!(format!("{name}:detaching"));
                after.push(leaving);
            }
            _ => {}
        }
    }
    if after != before {
        let status = Patch::Merge(json!({"status": {"volumes": after}}));
        machines.patch_status(machine, &PatchParams::default(), &status).await?;
    }
    Ok(())
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn names(volumes: &Value) -> Vec<String> {
    list(volumes).iter().filter_map(|volume| Some(volume["name"].as_str()?.to_owned())).collect()
}

/// The disk's content outlives its being plugged in.
async fn plug(disks: &Path, name: &str) -> Result<String> {
    let file = content(disks, name);
    if !file.exists() {
        std::fs::File::create(&file)?.set_len(SIZE)?;
    }
    let device = run("losetup", &["--find", "--show", &file.display().to_string()]).await?;
    let digits: String = name.chars().filter(char::is_ascii_hexdigit).collect();
    let uuid = format!("6000c29a-{}", &digits[..24.min(digits.len())]);
    let link = disks.join(link_name(&uuid));
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(device.trim(), link)?;
    Ok(uuid)
}

async fn unplug(disks: &Path, name: &str, uuid: &Value) -> Result<()> {
    let link = disks.join(link_name(uuid.as_str().unwrap_or_default()));
    let device = std::fs::read_link(&link).with_context(|| format!("the link of {name}"))?;
    run("losetup", &["--detach", &device.display().to_string()]).await?;
    std::fs::remove_file(link)?;
    Ok(())
}

fn link_name(uuid: &str) -> String {
    format!("wwn-0x{}", uuid.replace('-', "").to_lowercase())
}

fn content(disks: &Path, name: &str) -> PathBuf {
    disks.with_file_name(format!("{name}.disk"))
}

async fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().await.with_context(|| program.to_owned())?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
