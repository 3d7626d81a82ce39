//! ControllerPublishVolume and ControllerUnpublishVolume: one node more or less for a volume. For a real node of the host,
//! what its own service there has to know, and what the class's `attachMode` asks of the member.
//!
//! First comes what may be refused, then the record on the leaf claim, then what is attached; back again, the record goes
//! last. So nothing is attached of which nobody knows.

mod attach_path;
mod attachment;
mod machine;
mod secrets;

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{
    Deadline, Provisioner,
    find::{self, FoundLeaf, Sought},
    validate, wait_for,
};
use crate::attach;
use attach_path::AttachPath;
use domain::{
    error::{Error, Result},
    volume::{
        AccessMode, NodeId, VolumeId, VolumeMode,
        backing::{self, AttachMode, Attached},
        published::{Attachment, Publication, host_attachment_name},
    },
};
use host::volume::GivenOut;
use leaf::{MemberClient, single::WatchOutcome};
pub(super) use machine::wants_block;

/// A volume that is wanted on a node.
#[derive(Clone, Debug)]
pub struct Publishing {
    pub volume: String,
    pub node: String,
    pub access: AccessMode,
    pub mode: VolumeMode,
    pub readonly: bool,
    /// What the host keeps with the volume.
    pub context: BTreeMap<String, String>,
}

/// What the node is to be told.
pub async fn publish(
    provisioner: &Provisioner,
    wanted: &Publishing,
    deadline: &Deadline,
) -> Result<BTreeMap<String, String>> {
    let mut found = find::to_change(provisioner, &wanted.volume).await?;
    let told = GivenOut::read(&wanted.context);
    if !found.imported {
        let row = (found.hash, &found.claim);
        find::is_since_its_move(provisioner, found.leaf()?, row, &wanted.volume, told.as_ref()).await?;
    }
    if found.claim.is_copy_of_a_move() && is_led_to(provisioner, &found, &wanted.volume).await? {
        // Its mark goes soon, and the pod waits for nothing else.
        found.claim.moving = None;
    }
    let unknown = || Error::NotFound(format!("there is no node {:?}", wanted.node));
    let node = NodeId::parse(&wanted.node).ok_or_else(unknown)?;
    if !found.claim.life.published.is_on(&wanted.node) {
        attach::check(&node, &found.member.name, &provisioner.members, &provisioner.host).await?;
        attach::is_usable(&found.member.name, &found.claim)?;
    }
    if let Some(obstacle) = validate::refused_use(&found.claim, wanted.access, wanted.mode) {
        return Err(Error::Refused(obstacle));
    }
    match node {
        NodeId::Virtual { .. } => {
            fence(&found, wanted, None, deadline).await?;
            Ok(backing::context_of_virtual_node())
        }
        NodeId::Real(node) => bring(provisioner, &found, &node, wanted, deadline).await?.context(),
    }
}

async fn bring(
    provisioner: &Provisioner,
    found: &FoundLeaf,
    node: &str,
    wanted: &Publishing,
    deadline: &Deadline,
) -> Result<Attached> {
    let mode = AttachMode::of_volume(&wanted.context)?;
    let leaf = found.leaf()?;
    let volume = leaf::backing::describe_volume(leaf, bound(found)?, &found.claim).await?;
    let way = attach_path::way(provisioner, found, &volume, mode, node).await?;
    let secrets = match &way {
        AttachPath::Direct(_) | AttachPath::Attachment { .. } => {
            secrets::secrets(provisioner, found, &volume, &wanted.volume).await?
        }
        // The node sees a disk, and nothing of the driver.
        AttachPath::Machine(_) => None,
    };
    let backing = match way {
        AttachPath::Direct(backing) => {
            fence(found, wanted, None, deadline).await?;
            backing
        }
        AttachPath::Attachment { csi, member_node } => {
            let (hash, handle) = (found.hash, wanted.volume.as_str());
            let (place, record) = (&found.claim.place, &found.claim.life.published);
            let volume = &volume;
            let job = attachment::AttachCall { leaf, hash, place, handle, volume, record, csi, member_node, deadline };
            let own = job.alone().await?;
            fence(found, wanted, Some(Attachment::MemberNode(job.member_node.clone())), deadline).await?;
            job.attach(own, &wanted.node).await?
        }
        AttachPath::Machine(plan) => {
            only_for_one_node(wanted.access)?;
            fence(found, wanted, Some(Attachment::VirtualMachine(plan.name().to_owned())), deadline).await?;
            plan.attach(leaf, &found.claim.place.namespace, volume.filesystem(), deadline).await?
        }
    };
    if let Some(secrets) = secrets {
        secrets::hand_over(provisioner, found, &secrets).await?;
    }
    let (options, readonly) = (volume.options, volume.readonly);
    Ok(Attached { volume: wanted.volume.clone(), mode, backing, options, readonly })
}

/// Of a volume or a node that is not there, nothing is attached.
pub async fn unpublish(provisioner: &Provisioner, handle: &str, node: &str, deadline: &Deadline) -> Result<()> {
    let found = match find::seek(provisioner, handle).await? {
        Sought::FoundLeaf(found) => found,
        Sought::Stripped(error) => return Err(error),
        // It may have been attached by that name, when that served.
        Sought::LetGo(_) | Sought::Misnamed(_) | Sought::Unknown => {
            unpublish_unknown(provisioner, handle, node, deadline).await?;
            return unpublish_kept(provisioner, handle, node).await;
        }
    };
    if found.imported {
        return detach_unrecorded(provisioner, found.leaf()?, &found.id, node, deadline).await;
    }
    let leaf = found.leaf()?;
    if find::is_copy(provisioner, leaf, &found.id, found.hash, &found.claim).await? {
        return Ok(());
    }
    let node = (!node.is_empty()).then_some(node);
    let (hash, namespace) = (found.hash, found.claim.place.namespace.as_str());
    let detach = |attached| async move {
        match attached {
            Attachment::MemberNode(name) => {
                let unwanted = Box::pin(is_unwanted(provisioner, handle, node));
                attachment::detach(leaf, hash, &name, unwanted, deadline).await
            }
            Attachment::VirtualMachine(name) => {
                let unwanted = || is_unwanted(provisioner, handle, node);
                machine::detach(leaf, hash, namespace, &name, unwanted, deadline).await
            }
        }
    };
    attach::unpublish(leaf, hash, &found.claim, node, detach).await
}

/// A call that comes late, or from an external-attacher that has stood still, is of a pod that has left a real node. Another one may have come
/// there since, and its attachment has the same name. Whoever asks for all nodes means what is there now.
async fn is_unwanted(provisioner: &Provisioner, handle: &str, node: Option<&str>) -> Result<()> {
    let Some(NodeId::Real(name)) = node.and_then(NodeId::parse) else { return Ok(()) };
    if !host::attachments::is_wanted(&provisioner.host, handle, &name).await? {
        return Ok(());
    }
    Err(Error::InProgress(format!(
        "volume {handle} stays attached to node {name}: VolumeAttachment {} of the host, which nobody deletes, wants it \
         there",
        host_attachment_name(handle, &name)
    )))
}

/// What the volume keeps of the claim is read: another replica may have written it just now.
async fn unpublish_kept(provisioner: &Provisioner, handle: &str, node: &str) -> Result<()> {
    let Some((id, member)) = find::member_of(provisioner, handle).await? else { return Ok(()) };
    let leaf = member.leaf()?;
    let Some((hash, Some(volume))) = leaf.rows.find(&id).map(|(hash, row)| (hash, row.volume)) else {
        return Ok(());
    };
    let node = (!node.is_empty()).then_some(node);
    match attach::unpublish_gone(leaf, hash, Some(&volume.name), node, &volume.claim_place).await? {
        None => Ok(()),
        Some(_) => Err(Error::InProgress(format!(
            "member {}: leaf claim {} was recreated while its volume was detached: the driver takes the node off its \
             record with the next call",
            leaf.member, volume.claim_place
        ))),
    }
}

/// The leaf claim has gone, and with it the record.
async fn unpublish_unknown(provisioner: &Provisioner, handle: &str, node: &str, deadline: &Deadline) -> Result<()> {
    let Some((id, member)) = find::member_of(provisioner, handle).await? else { return Ok(()) };
    detach_unrecorded(provisioner, member.leaf()?, &id, node, deadline).await?;
    machine::unplug_unrecorded(provisioner, member.leaf()?, &id, node, deadline).await
}

fn only_for_one_node(access: AccessMode) -> Result<()> {
    if access.is_for_one_node() {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "a disk of a virtual machine is for one node at a time, and access mode {} is for several: use ReadWriteOnce or \
         ReadWriteOncePod",
        access.as_str()
    )))
}

/// Nothing is written on an imported claim, and a claim that has gone tells nothing: what was attached is looked for in the
/// member. No real node, nothing to look for.
async fn detach_unrecorded(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    id: &VolumeId,
    node: &str,
    deadline: &Deadline,
) -> Result<()> {
    if !node.is_empty() && !NodeId::parse(node).is_some_and(|node| node.is_real()) {
        return Ok(());
    }
    attachment::detach_all(provisioner, leaf, id, node, deadline).await
}

/// The account may not see what is attached in this way. Where no volume of the host with that handle is to be, it has attached nothing; else
/// the right was taken since, and the node may have the volume still.
async fn was_never_attached(provisioner: &Provisioner, id: &VolumeId, mode: AttachMode, reason: &str) -> Result<()> {
    if host::volume::has_attach_mode(&provisioner.host, &id.to_string(), mode).await? {
        return Err(Error::Denied(format!(
            "{reason}. Volume {id} has attachMode {mode} and may still be attached there, so the driver cannot say \
             that it is detached: `kosmos-csi member add --attach` gives the right, or for machines says how their \
             administrator gives it"
        )));
    }
    tracing::info!(
        volume = %id,
        %mode,
        reason,
        "the driver takes the volume for detached: none of the host's is attached in this way, and the member does not \
         let the driver look"
    );
    Ok(())
}

/// Whether the host's volume leads to a move's copy by now.
async fn is_led_to(provisioner: &Provisioner, found: &FoundLeaf, handle: &str) -> Result<bool> {
    let told = host::volume::leaf_of(&provisioner.host, handle).await?;
    Ok(told.is_some_and(|told| found.claim.is_or_was(&told.claim_uid)))
}

async fn fence(
    found: &FoundLeaf,
    wanted: &Publishing,
    attached: Option<Attachment>,
    deadline: &Deadline,
) -> Result<()> {
    if found.imported {
        // Nothing is ever written on it, so nothing fences it but the host's own attach controller.
        return Ok(());
    }
    let publication = Publication { access: wanted.access, readonly: wanted.readonly, attached };
    let told = GivenOut::read(&wanted.context);
    let (leaf, told) = (found.leaf()?, told.as_ref());
    let caller_waits = || deadline.caller_waits_still();
    attach::publish(leaf, found.hash, &found.claim, &wanted.node, &publication, told, caller_waits).await
}

/// What a watch of one object shows, within what is left of the call.
async fn watch<K, W: Future<Output = WatchOutcome<K>>>(
    deadline: &Deadline,
    look: impl FnOnce(Instant) -> W,
    late: impl Fn() -> Error,
) -> Result<WatchOutcome<K>> {
    let mut seen = WatchOutcome::Nothing;
    let shown = &mut seen;
    let come = move |moment| {
        let looking = look(moment);
        async move {
            *shown = looking.await;
            !matches!(shown, WatchOutcome::Nothing)
        }
    };
    wait_for(deadline, come, async move || late()).await?;
    Ok(seen)
}

/// A real node needs to know what the volume is made of; a virtual one has a pod in the member that waits for it.
fn bound(found: &FoundLeaf) -> Result<&str> {
    let volume = found.claim.volume().filter(|_| found.claim.unusable().is_none());
    volume.ok_or_else(|| {
        Error::InProgress(format!(
            "member {}: leaf claim {} {}: a real node can use it once it is bound to a volume; with leafBinding \
             deferred, that takes a pod in the member",
            found.member.name,
            found.claim.place,
            found.claim.unusable().unwrap_or("names no volume")
        ))
    })
}
