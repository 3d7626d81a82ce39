//! By which way a real node of the host gets at a leaf volume, or why it cannot.

use super::{
    super::{Provisioner, find::FoundLeaf},
    machine,
};
use crate::attach;
use domain::{
    error::{Error, Result},
    volume::backing::{AttachMode, Backing, CsiLeaf},
};
use leaf::backing::{LeafDriver, LeafVolume, Source};

/// The way, as far as it is decided before anything is done.
pub(super) enum AttachPath {
    /// The node can use it as it is.
    Direct(Backing),
    /// The member has to attach it to a node of its own first.
    Attachment { csi: CsiLeaf, member_node: String },
    /// The member has to give it to a virtual machine first.
    Machine(Box<machine::Plan>),
}

pub(super) async fn way(
    provisioner: &Provisioner,
    found: &FoundLeaf,
    volume: &LeafVolume,
    mode: AttachMode,
    node: &str,
) -> Result<AttachPath> {
    let leaf = found.leaf()?;
    let about = format!("member {}: leaf volume {}", leaf.member, volume.name);
    if mode == AttachMode::VirtualMachine {
        return machine::way(provisioner, found, volume, node).await.map(|plan| AttachPath::Machine(Box::new(plan)));
    }
    match &volume.source {
        Source::Nfs { server, path } => {
            Ok(AttachPath::Direct(Backing::Nfs { server: server.clone(), path: path.clone() }))
        }
        Source::Local { path } => {
            let member_node = attach::member_node(&provisioner.host, leaf, node).await?;
            is_there(volume, volume.is_on(&member_node), &about, &member_node.name)?;
            Ok(AttachPath::Direct(Backing::Local { path: path.clone() }))
        }
        Source::Csi(csi) => {
            let driver = leaf::backing::leaf_driver(leaf, &csi.driver).await?;
            let LeafDriver { attach_required, group_policy } = driver.unwrap_or_default();
            let csi = CsiLeaf { group_policy, ..csi.clone() };
            match mode {
                AttachMode::VolumeAttachment if attach_required => {
                    let member_node = attach::member_node(&provisioner.host, leaf, node).await?.name;
                    Ok(AttachPath::Attachment { csi, member_node })
                }
                // One that says nothing of itself may well need nothing.
                AttachMode::None if driver.is_some_and(|driver| driver.attach_required) => {
                    Err(Error::Refused(format!(
                        "{about} is of driver {}, whose CSIDriver says attachRequired, but its attachMode is none: set \
                         parameter attachMode of its class to volume-attachment or virtual-machine",
                        csi.driver
                    )))
                }
                _ => Ok(AttachPath::Direct(Backing::Csi(csi))),
            }
        }
        Source::Other(kind) => Err(Error::Refused(format!(
            "{about} is of kind {kind}, which a real node of the host cannot use: take a leaf class whose volumes are of a \
             CSI driver, NFS or local, or let pods use it on a virtual node of the member"
        ))),
    }
}

fn is_there(volume: &LeafVolume, is_on: bool, about: &str, member_node: &str) -> Result<()> {
    let why = match () {
        () if is_on => return Ok(()),
        () if volume.is_bound_to_nodes() => format!("its nodeAffinity does not name node {member_node}"),
        () => "it has no nodeAffinity that says on which node".to_owned(),
    };
    Err(Error::Refused(format!(
        "{about} is a folder or disk of one machine, and {why}: the pod must run where its data is"
    )))
}
