//! attachMode `virtual-machine`: the leaf claim becomes a disk of the virtual machine that the host's node is.

use super::{
    super::{Provisioner, find::FoundLeaf},
    Deadline, is_unwanted, was_never_attached, watch,
};
use crate::attach;
use domain::{
    error::{Error, Result},
    volume::{
        NodeId, VolumeHash, VolumeId,
        backing::{AttachMode, Backing},
        id::LeafName,
    },
};
use leaf::{
    MemberClient,
    backing::LeafVolume,
    machine::{
        Machine, Machines,
        disk::{Attaching, Detaching, DiskName},
    },
    single::WatchOutcome,
};

/// Which disk goes to which machine.
#[derive(Debug)]
pub(super) struct Plan {
    machine: Machine,
    disk: DiskName,
}

/// Nothing is decided on a machine that is not proved to be the node.
pub(super) async fn way(provisioner: &Provisioner, found: &FoundLeaf, volume: &LeafVolume, node: &str) -> Result<Plan> {
    let leaf = found.leaf()?;
    if found.imported {
        return Err(Error::Refused(format!(
            "member {}: claim {} was imported, and the driver writes nothing on such a claim, so it could not remember \
             which machine has leaf volume {}: use attachMode virtual-machine only for volumes that this driver has \
             made",
            leaf.member, found.claim.place, volume.name
        )));
    }
    let namespace = &found.claim.place.namespace;
    let machines = machines(leaf, namespace).await?;
    let (name, host_node) = attach::virtual_machine(&provisioner.host, node).await?;
    let machine = machines.read(&name).await?;
    if !machine.is_defined() {
        return Err(Error::Refused(format!(
            "member {}: there is no virtual machine {namespace}/{name}, which node {node} of the host should be: if it has \
             another name there, label the host's node kosmos.node-restriction.kubernetes.io/virtual-machine=<that name>",
            leaf.member
        )));
    }
    let place = format!("{namespace}/{name} of member {}", leaf.member);
    attach::machine::check(&host_node, &machines.flavour, &place, &name, machine.uuid())?;
    let disk = DiskName { claim: found.claim.place.claim.clone(), ..DiskName::new(found.hash) };
    Ok(Plan { machine, disk })
}

/// Without a record, the machines themselves tell which has the disk. Leaf claims of this mode have a name of ours.
pub(super) async fn unplug_unrecorded(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    id: &VolumeId,
    node: &str,
    deadline: &Deadline,
) -> Result<()> {
    let LeafName::Readable { namespace, claim, .. } = &id.leaf else { return Ok(()) };
    let hash = claim.strip_prefix("v-").and_then(VolumeHash::parse).filter(|hash| id.names(*hash));
    let (Some(hash), real) = (hash, NodeId::parse(node)) else { return Ok(()) };
    let named = match real {
        Some(NodeId::Real(node)) => attach::machine::name_of(&provisioner.host, &node).await?,
        Some(NodeId::Virtual { .. }) => return Ok(()),
        None => None,
    };
    let Some(machines) = leaf::machine::machines(leaf, namespace).await? else { return Ok(()) };
    let having = match machines.with(&DiskName::new(hash)).await {
        Err(Error::Denied(reason)) => {
            return was_never_attached(provisioner, id, AttachMode::VirtualMachine, &reason).await;
        }
        having => having?,
    };
    let handle = id.to_string();
    let unwanted = || is_unwanted(provisioner, &handle, Some(node));
    for name in having.iter().filter(|name| named.as_ref().is_none_or(|named| named == *name)) {
        detach(leaf, hash, namespace, name, unwanted, deadline).await?;
        tracing::info!(member = %leaf.member, volume = %id, machine = name, "the volume is detached without a record of its node");
    }
    Ok(())
}

/// Whether a leaf claim that is to become a disk must be a bare device.
pub(in super::super) async fn wants_block(leaf: &MemberClient, namespace: &str) -> Result<bool> {
    Ok(machines(leaf, namespace).await?.flavour.wants_block())
}

async fn machines<'a>(leaf: &'a MemberClient, namespace: &str) -> Result<Machines<'a>> {
    leaf::machine::machines(leaf, namespace).await?.ok_or_else(|| {
        Error::Refused(format!(
            "member {} has no virtual machines that this driver knows: attachMode virtual-machine needs vmoperator.vmware.com or \
             kubevirt.io there",
            leaf.member
        ))
    })
}

impl Plan {
    pub(super) fn name(&self) -> &str {
        &self.machine.name
    }

    pub(super) async fn attach(
        self,
        leaf: &MemberClient,
        namespace: &str,
        filesystem: &str,
        deadline: &Deadline,
    ) -> Result<Backing> {
        let machines = machines(leaf, namespace).await?;
        let (mut machine, mut asked) = (self.machine, false);
        loop {
            if !machine.is_defined() {
                return Err(Error::InProgress(about(leaf, namespace, &machine, "is gone")));
            }
            let disk = machines.disk(&machine, &self.disk);
            match disk.attaching(&self.disk) {
                Attaching::Done(names) => return Ok(Backing::Device { names, filesystem: filesystem.to_owned() }),
                Attaching::Taken(claim) => {
                    let what = format!("has a volume {} of claim {claim}: remove that", self.disk.name);
                    return Err(Error::Refused(about(leaf, namespace, &machine, &what)));
                }
                // Whoever asked may have given it up since.
                Attaching::Add if !asked && !deadline.caller_waits_still() => {
                    return Err(Error::InProgress(about(leaf, namespace, &machine, "has lost the volume")));
                }
                Attaching::Add if !asked => {
                    only_there(leaf, namespace, &machines, &machine, &self.disk).await?;
                    machine = machines.add(&machine, &self.disk).await?;
                    asked = true;
                }
                Attaching::Add | Attaching::Await => {
                    let why = disk.trouble.map(|why| format!(": {why}")).unwrap_or_default();
                    let what = format!("does not have volume {} yet{why}", self.disk.name);
                    machine = next(&machines, (&machine, &self.disk), deadline, || {
                        Error::InProgress(about(leaf, namespace, &machine, &what))
                    })
                    .await?;
                    asked = false;
                }
            }
        }
    }
}

/// The record says that no other machine has the disk. One may have it all the same, plugged by a request that came late, and
/// two machines must never write to it. Nobody can tell whether one that no record names is in use.
async fn only_there(
    leaf: &MemberClient,
    namespace: &str,
    machines: &Machines<'_>,
    machine: &Machine,
    disk: &DiskName,
) -> Result<()> {
    match machines.with(disk).await?.into_iter().find(|other| *other != machine.name) {
        None => Ok(()),
        Some(other) => Err(Error::Refused(format!(
            "member {}: virtual machine {namespace}/{other} also has volume {}, by no record of the driver: unplug the \
             volume there once nothing on that machine uses it",
            leaf.member, disk.name
        ))),
    }
}

/// Detached is what neither the machine asks for nor its status names in any way. Whether it is wanted is asked once the machine was read,
/// and again before a further removal: the machine may have got it for the next pod since.
pub(super) async fn detach<U: Future<Output = Result<()>>>(
    leaf: &MemberClient,
    hash: VolumeHash,
    namespace: &str,
    name: &str,
    unwanted: impl Fn() -> U,
    deadline: &Deadline,
) -> Result<()> {
    let machines = machines(leaf, namespace).await?;
    let wanted = DiskName::new(hash);
    let (mut machine, mut asked, mut again) = (machines.read(name).await?, false, false);
    unwanted().await?;
    loop {
        if machine.is_gone() {
            tracing::info!(member = %leaf.member, namespace, machine = name, disk = wanted.name, "the driver takes the disk for detached: the machine is gone");
            return Ok(());
        }
        let disk = machines.disk(&machine, &wanted);
        match disk.detaching(&wanted) {
            Detaching::Done => return Ok(()),
            Detaching::Remove if !asked => {
                if again {
                    unwanted().await?;
                }
                machine = machines.remove(&machine, &wanted).await?;
                asked = true;
            }
            Detaching::Remove | Detaching::Await => {
                let why = disk.trouble.map(|why| format!(": {why}")).unwrap_or_default();
                let what = format!("still has volume {}{why}", wanted.name);
                machine = next(&machines, (&machine, &wanted), deadline, || {
                    Error::InProgress(about(leaf, namespace, &machine, &what))
                })
                .await?;
                (asked, again) = (false, true);
            }
        }
    }
}

async fn next(
    machines: &Machines<'_>,
    (machine, disk): (&Machine, &DiskName),
    deadline: &Deadline,
    late: impl Fn() -> Error,
) -> Result<Machine> {
    let seen = watch(deadline, |moment| machines.next(machine, disk, moment), late).await?;
    match seen {
        WatchOutcome::There(machine) => Ok(machine),
        WatchOutcome::Gone | WatchOutcome::Nothing => machines.read(&machine.name).await,
    }
}

fn about(leaf: &MemberClient, namespace: &str, machine: &Machine, what: &str) -> String {
    format!("member {}: virtual machine {namespace}/{} {what}", leaf.member, machine.name)
}
