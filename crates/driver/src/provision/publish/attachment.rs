//! attachMode `volume-attachment`: the leaf driver's own attacher in the member attaches the volume to the member node that
//! the host's node is, and says what that node's service has to know.

use super::{super::Provisioner, Deadline, is_unwanted, was_never_attached, watch};
use crate::attach;
use domain::{
    error::{Error, Result},
    volume::{
        LeafPlace, VolumeHash, VolumeId,
        backing::{AttachMode, Backing, CsiLeaf},
        published::{Attachment, Published, attachment_name},
    },
};
use leaf::{
    MemberClient,
    attachment::{LeafAttachment, WantedAttachment},
    backing::LeafVolume,
    ownership,
    single::WatchOutcome,
};

pub(super) struct AttachCall<'a> {
    pub(super) leaf: &'a MemberClient,
    pub(super) hash: VolumeHash,
    pub(super) place: &'a LeafPlace,
    pub(super) handle: &'a str,
    pub(super) volume: &'a LeafVolume,
    pub(super) record: &'a Published,
    pub(super) csi: CsiLeaf,
    pub(super) member_node: String,
    pub(super) deadline: &'a Deadline,
}

impl AttachCall<'_> {
    /// The member's own attach controller does not count ours, so it is for us to see that nobody else there has a volume
    /// for one node. What there is of our own already.
    pub(super) async fn alone(&self) -> Result<Option<LeafAttachment>> {
        if !self.volume.for_one_node {
            return Ok(None);
        }
        let name = attachment_name(self.hash, &self.member_node);
        let there = leaf::attachment::of(self.leaf, &self.volume.name).await?;
        let (own, others): (Vec<_>, Vec<_>) = there.into_iter().partition(|attachment| attachment.name == name);
        match others.first() {
            Some(other) => {
                let on_record = self.record.is_attached(&Attachment::MemberNode(other.member_node.clone()));
                let gone = || attach::of_a_node_that_is_gone(ownership::PUBLISHED, "the leaf claim", true);
                let way_out = if on_record { format!(". {}", gone()) } else { String::new() };
                Err(Error::Refused(format!(
                    "member {}: leaf volume {} is for one node, and VolumeAttachment {} there is for node {}: end what uses it on \
                     that node{way_out}",
                    self.leaf.member, self.volume.name, other.name, other.member_node
                )))
            }
            None => Ok(own.into_iter().next()),
        }
    }

    /// What there was already is looked at again: whoever takes back attachments that nobody wants marks them, and then looks
    /// at the record, which names this one by now.
    pub(super) async fn attach(&self, own: Option<LeafAttachment>, node: &str) -> Result<Backing> {
        let wanted = WantedAttachment {
            hash: self.hash,
            volume: &self.volume.name,
            driver: &self.csi.driver,
            member_node: &self.member_node,
            node,
            handle: self.handle,
        };
        let mut seen = match own {
            Some(own) => leaf::attachment::read(self.leaf, &own.name).await?,
            None => None,
        };
        loop {
            let Some(attachment) = seen else {
                // Whoever asked may have given it up since.
                if !self.deadline.caller_waits_still() {
                    return Err(Error::InProgress(format!("member {}: it is not attached any more", self.leaf.member)));
                }
                seen = leaf::attachment::create(self.leaf, &wanted).await?;
                if seen.is_none() {
                    seen = leaf::attachment::read(self.leaf, &wanted.name()).await?;
                }
                continue;
            };
            is_ours(self.leaf, &attachment, self.hash)?;
            if attachment.volume != self.volume.name && !attachment.terminating {
                seen = self.take_back(&attachment).await?;
                continue;
            }
            if attachment.attached && !attachment.terminating && !attachment.withdrawn {
                return Ok(Backing::Csi(CsiLeaf { context: attachment.context, ..self.csi.clone() }));
            }
            seen = next(self.leaf, &attachment, self.deadline, || self.late(&attachment)).await?;
        }
    }

    /// It was made for the leaf volume that the claim had before, of which the member's attacher says nothing that is true of this one.
    /// Whoever asked before the claim got this one, and goes on only now, sees the attachment of this one as that of another: so the claim
    /// is read after the attachment, and what is taken back is the one that was read.
    async fn take_back(&self, former: &LeafAttachment) -> Result<Option<LeafAttachment>> {
        let claim = leaf::claim::read(self.leaf, self.place).await?;
        let has = claim.as_ref().and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref());
        if has != Some(&self.volume.name) {
            return Err(Error::InProgress(format!(
                "member {}: leaf claim {} has another volume than {} by now: the next call attaches that",
                self.leaf.member, self.place, self.volume.name
            )));
        }
        tracing::info!(
            member = self.leaf.member,
            attachment = former.name,
            former = former.volume,
            volume = self.volume.name,
            node = self.member_node,
            "the driver deletes the VolumeAttachment of the leaf claim's former volume, so that its present volume can \
             be attached"
        );
        leaf::attachment::delete(self.leaf, former).await
    }

    fn late(&self, attachment: &LeafAttachment) -> Error {
        if attachment.volume != self.volume.name {
            let why = attachment.trouble.as_ref().map(|trouble| format!(". Its attacher says: {trouble}"));
            return Error::InProgress(format!(
                "member {}: VolumeAttachment {} for node {} is of leaf volume {}, which the leaf claim had before leaf volume {}, and has to be \
                 detached first{}",
                self.leaf.member,
                attachment.name,
                self.member_node,
                attachment.volume,
                self.volume.name,
                why.unwrap_or_default()
            ));
        }
        let what = match &attachment.trouble {
            Some(trouble) => format!("is not attached: {trouble}"),
            None if attachment.terminating => "is being detached, and then attached again".to_owned(),
            None if attachment.withdrawn => "was about to be deleted, because no node needed it".to_owned(),
            None => format!("waits for the attacher of driver {}", self.csi.driver),
        };
        Error::InProgress(format!(
            "member {}: VolumeAttachment {} of leaf volume {} for node {} {what}",
            self.leaf.member, attachment.name, self.volume.name, self.member_node
        ))
    }
}

/// Detached is what the member has no VolumeAttachment of any more. Whether it is wanted is asked once it was read, so that no later one is
/// deleted on that answer.
pub(super) async fn detach(
    leaf: &MemberClient,
    hash: VolumeHash,
    member_node: &str,
    unwanted: impl Future<Output = Result<()>>,
    deadline: &Deadline,
) -> Result<()> {
    let seen = leaf::attachment::read(leaf, &attachment_name(hash, member_node)).await?;
    if let Some(attachment) = &seen {
        is_ours(leaf, attachment, hash)?;
    }
    unwanted.await?;
    end(leaf, seen, deadline).await
}

/// What was made for a volume and a node, or for all nodes, found by its labels.
pub(super) async fn detach_all(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    id: &VolumeId,
    node: &str,
    deadline: &Deadline,
) -> Result<()> {
    let ours = match leaf::attachment::ours(leaf).await {
        Err(Error::Denied(reason)) => {
            return was_never_attached(provisioner, id, AttachMode::VolumeAttachment, &reason).await;
        }
        ours => ours?,
    };
    let handle = id.to_string();
    let wanted = |one: &LeafAttachment| {
        one.hash.is_some()
            && (one.handle == handle || is_of_same_leaf(one, id))
            && (node.is_empty() || one.node == node)
    };
    for attachment in ours.into_iter().filter(wanted) {
        is_unwanted(provisioner, &handle, Some(node)).await?;
        tracing::info!(member = %leaf.member, volume = %id, attachment = attachment.name, "the volume is detached without a record of its node");
        end(leaf, Some(attachment), deadline).await?;
    }
    Ok(())
}

/// It was made by another handle of that leaf, as people write them: with a second name of the member, or with the hash alone.
fn is_of_same_leaf(one: &LeafAttachment, id: &VolumeId) -> bool {
    let (Some(hash), Some(other)) = (one.hash, VolumeId::parse(&one.handle)) else { return false };
    let is_there = match (other.place(), id.place()) {
        (Some(other), Some(place)) => other == place,
        _ => true,
    };
    is_there && other.names(hash) && id.names(hash)
}

/// One that was made since, for the next pod, is no affair of this call.
async fn end(leaf: &MemberClient, mut seen: Option<LeafAttachment>, deadline: &Deadline) -> Result<()> {
    while let Some(attachment) = seen {
        seen = if attachment.terminating {
            next(leaf, &attachment, deadline, || detaching(leaf, &attachment)).await?
        } else {
            leaf::attachment::delete(leaf, &attachment).await?
        };
        if seen.as_ref().is_some_and(|now| now.uid != attachment.uid) {
            return Err(Error::InProgress(format!(
                "member {}: leaf volume {} was detached from node {}, and has been attached to it again since: the next call decides on that",
                leaf.member, attachment.volume, attachment.member_node
            )));
        }
    }
    Ok(())
}

fn detaching(leaf: &MemberClient, attachment: &LeafAttachment) -> Error {
    let why = attachment.trouble.as_ref().map(|trouble| format!(": {trouble}")).unwrap_or_default();
    Error::InProgress(format!(
        "member {}: leaf volume {} is being detached from node {}{why}",
        leaf.member, attachment.volume, attachment.member_node
    ))
}

/// The attachment once it has changed; none once it is gone.
async fn next(
    leaf: &MemberClient,
    attachment: &LeafAttachment,
    deadline: &Deadline,
    late: impl Fn() -> Error,
) -> Result<Option<LeafAttachment>> {
    let seen = watch(deadline, |moment| leaf::attachment::wait(leaf, attachment, moment), late).await?;
    match seen {
        WatchOutcome::There(attachment) => Ok(Some(attachment)),
        WatchOutcome::Gone => Ok(None),
        WatchOutcome::Nothing => leaf::attachment::read(leaf, &attachment.name).await,
    }
}

fn is_ours(leaf: &MemberClient, attachment: &LeafAttachment, hash: VolumeHash) -> Result<()> {
    if attachment.hash == Some(hash) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "member {}: VolumeAttachment {} is there and does not carry the labels of this volume: delete it, or put back {},{}={hash}",
        leaf.member,
        attachment.name,
        ownership::selector(&leaf.host),
        ownership::VOLUME
    )))
}
