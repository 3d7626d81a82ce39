//! Virtual machines of a member, of which nodes of the host are: a leaf claim becomes a disk of one, and is taken away again.
//! Two kinds of them are known, each by its API: those of vSphere's VM operator, and KubeVirt's.

pub mod disk;
mod kubevirt;
mod operator;

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    MemberClient,
    single::{self, WatchOutcome},
};
use cluster::unmanaged::Unmanaged;
use disk::{Disk, DiskName};
use domain::error::{Error, Result};

const OPERATOR: &str = "vmoperator.vmware.com";
const KUBEVIRT: &str = "kubevirt.io";
const SUBRESOURCES: &str = "subresources.kubevirt.io";

/// Which machines a member has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// vSphere's, in the version that is spoken.
    Operator { version: String },
    /// KubeVirt's; volumes are added by requests of their own where these are served.
    KubeVirt { version: String, by_request: bool },
}

impl Flavour {
    /// A disk that is to be plugged in must be bare there.
    pub fn wants_block(&self) -> bool {
        matches!(self, Self::KubeVirt { .. })
    }
}

/// The machines of one member's namespace.
#[derive(Clone, Debug)]
pub struct Machines<'a> {
    cluster: &'a MemberClient,
    pub flavour: Flavour,
    namespace: String,
}

/// A machine as it was seen, and with KubeVirt the instance that runs it.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: String,
    object: Option<DynamicObject>,
    instance: Option<DynamicObject>,
}

impl Machine {
    /// There is neither a machine nor anything that runs.
    pub fn is_gone(&self) -> bool {
        self.object.is_none() && self.instance.is_none()
    }

    pub fn is_defined(&self) -> bool {
        self.object.is_some()
    }

    /// What the machine's own system says it is; empty where nothing tells.
    pub fn uuid(&self) -> &str {
        text(self.object.as_ref(), "/status/biosUUID")
            .or_else(|| text(self.instance.as_ref(), "/spec/domain/firmware/uuid"))
            .or_else(|| text(self.object.as_ref(), "/spec/template/spec/domain/firmware/uuid"))
            .unwrap_or_default()
    }
}

fn text<'a>(object: Option<&'a DynamicObject>, pointer: &str) -> Option<&'a str> {
    object?.data.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
}

/// The items of a list; none where there is no such list.
fn items<'a>(object: Option<&'a DynamicObject>, pointer: &str) -> &'a [Value] {
    object.and_then(|object| object.data.pointer(pointer)?.as_array()).map_or(&[], Vec::as_slice)
}

fn word<'a>(item: &'a Value, pointer: &str) -> &'a str {
    item.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// None where it has no machines that this driver knows. Once known, it is not asked again.
pub async fn machines<'a>(client: &'a MemberClient, namespace: &str) -> Result<Option<Machines<'a>>> {
    let flavour = match client.flavour.get() {
        Some(flavour) => Some(flavour.clone()),
        None => discover(client).await?.inspect(|flavour| drop(client.flavour.set(flavour.clone()))),
    };
    Ok(flavour.map(|flavour| Machines { cluster: client, flavour, namespace: namespace.to_owned() }))
}

async fn discover(client: &MemberClient) -> Result<Option<Flavour>> {
    let served = client.client.list_api_groups().await;
    let served = served.map_err(|error| client.outcome("list API groups", &error))?;
    let versions = |name: &str| -> Vec<String> {
        let group = served.groups.iter().find(|group| group.name == name);
        group.into_iter().flat_map(|group| &group.versions).map(|version| version.version.clone()).collect()
    };
    let best = |name: &str, wanted: &str| {
        let versions = versions(name);
        versions.iter().find(|version| *version == wanted).or_else(|| versions.first()).cloned()
    };
    // The oldest one that can be applied to item by item: every release since has it.
    if let Some(version) = best(OPERATOR, "v1alpha2") {
        return Ok(Some(Flavour::Operator { version }));
    }
    let by_request = !versions(SUBRESOURCES).is_empty();
    Ok(best(KUBEVIRT, "v1").map(|version| Flavour::KubeVirt { version, by_request }))
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

impl Machines<'_> {
    fn machine_kind(&self) -> ApiResource {
        match &self.flavour {
            Flavour::Operator { version } => resource(OPERATOR, version, "VirtualMachine"),
            Flavour::KubeVirt { version, .. } => resource(KUBEVIRT, version, "VirtualMachine"),
        }
    }

    /// What runs a machine, where that is an object of its own.
    fn instance_kind(&self) -> Option<ApiResource> {
        match &self.flavour {
            Flavour::Operator { .. } => None,
            Flavour::KubeVirt { version, .. } => Some(resource(KUBEVIRT, version, "VirtualMachineInstance")),
        }
    }

    fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.cluster.client.clone(), &self.namespace, kind)
    }

    pub async fn read(&self, name: &str) -> Result<Machine> {
        let instance = match self.instance_kind() {
            Some(kind) => self.get(&kind, name).await?,
            None => None,
        };
        // Read last: what is not in it any more, the instance may still have had.
        let object = self.get(&self.machine_kind(), name).await?;
        Ok(Machine { name: name.to_owned(), object, instance })
    }

    async fn get(&self, kind: &ApiResource, name: &str) -> Result<Option<DynamicObject>> {
        let found = cluster::read(self.api(kind).get(name).await, name);
        found.map_err(|error| self.outcome("get", kind, name, &error))
    }

    fn outcome(&self, verb: &str, kind: &ApiResource, name: &str, error: &kube::Error) -> Error {
        let kind = kind.kind.to_lowercase();
        self.cluster.outcome(&format!("{verb} {kind} {}/{name}", self.namespace), error)
    }

    /// The machines that have a disk, or are losing it.
    pub async fn with(&self, disk: &DiskName) -> Result<Vec<String>> {
        let kind = self.machine_kind();
        // Whoever may write one of them is not to decide whether the others can be read.
        let all: Api<Unmanaged<DynamicObject>> =
            Api::namespaced_with(self.cluster.client.clone(), &self.namespace, &kind);
        let all = all.list(&ListParams::default()).await;
        let all = all.map_err(|error| self.outcome("list", &kind, "", &error))?;
        let machine = |object: DynamicObject| Machine { name: object.name_any(), object: Some(object), instance: None };
        let machines = all.items.into_iter().map(Unmanaged::into_object).map(machine);
        // That one does not run says nothing of the disk.
        let has_it = |machine: &Machine| Disk { trouble: None, ..self.disk(machine, disk) } != Disk::default();
        let having = machines.filter(has_it);
        Ok(having.map(|machine| machine.name).collect())
    }

    pub fn disk(&self, machine: &Machine, disk: &DiskName) -> Disk {
        match &self.flavour {
            Flavour::Operator { .. } => operator::disk(machine, disk),
            Flavour::KubeVirt { .. } => kubevirt::disk(machine, disk),
        }
    }

    /// Asks for the disk; what is known of the machine then.
    pub async fn add(&self, machine: &Machine, disk: &DiskName) -> Result<Machine> {
        let asked = match &self.flavour {
            Flavour::Operator { version } => self.add_by_operator(machine, disk, version).await,
            Flavour::KubeVirt { by_request, .. } => self.plug(machine, disk, *by_request).await,
        };
        self.then(machine, asked).await
    }

    pub async fn remove(&self, machine: &Machine, disk: &DiskName) -> Result<Machine> {
        let asked = match &self.flavour {
            Flavour::Operator { version } => self.remove_by_operator(machine, disk, version).await,
            Flavour::KubeVirt { by_request, .. } => self.unplug(machine, disk, *by_request).await,
        };
        self.then(machine, asked).await
    }

    /// A conflict is no answer: the machine is looked at again. Nor is a refusal, where it has changed meanwhile.
    async fn then(&self, before: &Machine, asked: Result<Option<DynamicObject>>) -> Result<Machine> {
        match asked {
            Ok(Some(object)) => Ok(Machine { object: Some(object), ..before.clone() }),
            Ok(None) | Err(Error::InProgress(_) | Error::NotFound(_)) => self.read(&before.name).await,
            Err(refusal @ Error::Refused(_)) => {
                let now = self.read(&before.name).await?;
                let version = |machine: &Machine| machine.object.as_ref().and_then(ResourceExt::resource_version);
                if version(&now) == version(before) { Err(refusal) } else { Ok(now) }
            }
            Err(error) => Err(error),
        }
    }

    /// Until the disk stands otherwise, or until a moment. Gone is what has to be read again.
    pub async fn next(&self, machine: &Machine, disk: &DiskName, moment: Instant) -> WatchOutcome<Machine> {
        let (kind, object) = match (&machine.instance, self.instance_kind()) {
            (Some(instance), Some(kind)) => (kind, instance),
            _ => match &machine.object {
                Some(object) => (self.machine_kind(), object),
                None => return WatchOutcome::Nothing,
            },
        };
        let version = object.resource_version().unwrap_or_default();
        let by_instance = machine.instance.is_some();
        let before = self.disk(machine, disk);
        let news = |object: &DynamicObject| {
            let mut now = machine.clone();
            let place = if by_instance { &mut now.instance } else { &mut now.object };
            *place = Some(object.clone());
            self.disk(&now, disk).tells_more_than(&before)
        };
        let seen = single::until(&self.api(&kind), (&machine.name, &version), moment, news).await;
        match seen {
            WatchOutcome::Nothing => WatchOutcome::Nothing,
            // Where two objects tell of a machine, the other one has most often changed as well.
            _ if by_instance => WatchOutcome::Gone,
            WatchOutcome::There(object) => WatchOutcome::There(Machine { object: Some(object), ..machine.clone() }),
            WatchOutcome::Gone => WatchOutcome::Gone,
        }
    }
}
