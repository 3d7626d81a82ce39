//! One CreateVolume in the member it was decided for: each step towards a leaf that can be used.

use tracing::Span;

use super::{
    Deadline, Provisioner, Volume,
    attempt::Attempt,
    content_source::{self, ContentSource},
    modify::{Modification, check_class},
    publish::wants_block,
    taken::{self, Elsewhere},
};
use crate::attach;
use domain::{
    error::{Error, Result},
    printable::short,
    volume::{
        LeafPlace, VolumeHash, VolumeMode, VolumeSpec,
        attributes::differs,
        backing::AttachMode,
        plan::{Binder, Phase},
        quantity,
        spec::Fingerprint,
    },
};
use host::{claim::HostClaim, volume::LeafAttributes};
use leaf::{
    MemberClient,
    claim::{LeafSpec, Made},
    identity::{Identity, Meant, judge, labels_of},
    marks, ownership,
    row::{ClaimRow, Consumer},
};
use member::traces::phase;

/// In bytes: names and values of parameters are as long as people like.
const LONGEST_DIFFERENCE: usize = 300;

/// One CreateVolume under way in the member it was decided for.
pub(super) struct VolumeCreation<'a> {
    pub(super) provisioner: &'a Provisioner,
    pub(super) spec: &'a VolumeSpec,
    /// Of its request: compared at each look.
    pub(super) fingerprint: Fingerprint,
    pub(super) owner: Option<&'a HostClaim>,
    pub(super) hash: VolumeHash,
    pub(super) leaf: &'a MemberClient,
    pub(super) place: LeafPlace,
    pub(super) deadline: &'a Deadline,
}

impl VolumeCreation<'_> {
    pub(super) fn row(&self) -> Option<ClaimRow> {
        self.leaf.rows.row_at(self.hash, &self.place).claim
    }

    pub(super) fn phase(&self, name: &'static str) -> Span {
        phase(name, Some(&self.leaf.member))
    }

    /// Makes the leaf claim, where nothing is.
    pub(super) async fn make(&self, binder: Binder, attempt: &mut Attempt) -> Result<()> {
        if let Some(verdict) = self.leaf.capacity.take_verdict(self.hash) {
            return self.refuse(Error::NoPlace(verdict)).await;
        }
        let class = self.class()?;
        let node = match binder {
            Binder::Node => match self.pick(attempt).await {
                Ok(Some(node)) => Some(node),
                Ok(None) => return self.refuse(self.no_room_on_a_node(&class)).await,
                Err(error) if error.is_final() => return self.refuse(error).await,
                Err(error) => return Err(error),
            },
            _ => None,
        };
        let made = self.post(&class, node.as_deref()).await;
        attempt.tried.extend(node);
        match made {
            Ok(Made::Now) => Ok(()),
            Ok(Made::Taken) => self.adopt().await,
            Err(Error::NoPlace(quota)) => self.refuse(Error::NoPlace(quota)).await.inspect_err(|refused| {
                if matches!(refused, Error::NoPlace(_)) {
                    self.leaf.capacity.refuse_by_quota(&class, self.spec.request.required.max(1));
                }
            }),
            Err(error) if error.is_final() => self.refuse(error).await,
            Err(error) => Err(error),
        }
    }

    async fn post(&self, class: &str, node: Option<&str>) -> Result<Made> {
        let filling = self.filling().await?;
        let wanted = LeafSpec {
            spec: self.spec,
            hash: self.hash,
            place: &self.place,
            class,
            access: self.spec.leaf_access(&self.leaf.member),
            mode: self.leaf_mode().await?,
            attributes: self.spec.attributes.at(&self.leaf.member),
            size: self.size(filling.as_ref().map_or(0, |filling| filling.size)),
            claim_uid: self.owner.map(|owner| owner.uid.as_str()),
            node,
            source: filling.as_ref().map(|filling| &filling.source),
        };
        if let Some(class) = wanted.attributes {
            check_class(self.leaf, class, None).await?;
        }
        leaf::claim::create(self.leaf, &wanted).await
    }

    /// A disk that a machine gets while it runs must be bare, whatever the host makes of it.
    async fn leaf_mode(&self) -> Result<VolumeMode> {
        if self.spec.attach_mode(&self.leaf.member) == AttachMode::VirtualMachine
            && wants_block(self.leaf, &self.place.namespace).await?
        {
            return Ok(VolumeMode::Block);
        }
        Ok(self.spec.leaf_mode(&self.leaf.member))
    }

    fn no_room_on_a_node(&self, class: &str) -> Error {
        Error::NoPlace(format!("member {}: no node has that much room left for class {class}", self.leaf.member))
    }

    /// The name is taken: by our own leaf, whose row was not here yet, or by somebody else's claim.
    pub(super) async fn adopt(&self) -> Result<()> {
        let found = leaf::claim::read(self.leaf, &self.place).await.map_err(Error::while_a_leaf_may_exist)?;
        let Some(claim) = found else { return Ok(()) };
        let taken = format!("member {}: claim {}", self.leaf.member, self.place);
        let whose = ownership::whose(&claim.metadata, &self.leaf.host);
        let meant = Meant::Volume(self.hash);
        let way_out = match judge(&claim.metadata, &self.leaf.host, meant) {
            Identity::Leaf(_) => return Ok(()),
            Identity::Stripped if ownership::is_named(&claim.metadata, &self.spec.name) => {
                return Err(self.stripped(&labels_of(&claim.metadata, &self.leaf.host, meant)));
            }
            Identity::Stripped => {
                return Err(Error::InProgress(format!("{taken} is there already, and {}", taken::STRIPPED)));
            }
            Identity::OtherVolume(_) if claim.metadata.deletion_timestamp.is_some() => {
                return Err(Error::InProgress(format!(
                    "{taken} is there still and is being removed: it had this name before. If the host has or removes \
                     its volume, the claim goes by itself. If the host does not know that volume, finalizer {} holds \
                     the claim for its data, and `kosmos-csi doctor` names it",
                    ownership::FINALIZER
                )));
            }
            // Its data is somebody's, and nobody is told to remove it.
            Identity::OtherHost(_) => "Choose".to_owned(),
            Identity::OtherVolume(other) => match self.elsewhere(other).await {
                Some(it @ Elsewhere::UntilItGoes) => {
                    let way_out = it.way_out();
                    return Err(Error::InProgress(format!("{taken} is there already and {whose}. {way_out}")));
                }
                Some(elsewhere) => format!("{}. Choose", elsewhere.way_out()),
                // What a host that was restored knows nothing of may be wanted.
                None => "Delete that volume in the host, if it is there (if not, `kosmos-csi doctor` names the claim, \
                         whose data may be wanted), or choose"
                    .to_owned(),
            },
            Identity::Consents | Identity::Foreign => "Remove it there, or choose".to_owned(),
        };
        Err(Error::Exists(format!(
            "{taken} is there already and {whose}; it is left untouched. {way_out} another name for the leaf claims of this class \
             with the parameter leafClaimName"
        )))
    }

    async fn elsewhere(&self, other: VolumeHash) -> Option<Elsewhere> {
        let Provisioner { host, members, .. } = self.provisioner;
        Box::pin(taken::elsewhere(host, members, self.leaf, other, &self.place)).await
    }

    /// The member refused. That is final only once a read has shown that no leaf of ours is there.
    pub(super) async fn refuse(&self, error: Error) -> Result<()> {
        let meant = Meant::Volume(self.hash);
        match leaf::claim::read(self.leaf, &self.place).await {
            Ok(Some(claim)) => match judge(&claim.metadata, &self.leaf.host, meant) {
                Identity::Leaf(_) => Ok(()),
                Identity::Stripped if ownership::is_named(&claim.metadata, &self.spec.name) => {
                    Err(self.stripped(&labels_of(&claim.metadata, &self.leaf.host, meant)))
                }
                _ => Err(error),
            },
            Ok(None) => Err(error),
            Err(unsure) => Err(Error::Unreachable {
                member: self.leaf.member.clone(),
                reason: format!("{error}; and whether a claim is there cannot be read: {unsure}"),
            }),
        }
    }

    /// The provisioner forgets what it is given a final answer for, and the member would keep it.
    fn stripped(&self, labels: &str) -> Error {
        attach::stripped(self.leaf, &self.place, labels).while_a_leaf_may_exist()
    }

    /// The size as the user wrote it where that is what the provisioner asks for, else the shortest exact form.
    pub(super) fn size(&self, source: u64) -> String {
        let required = match self.spec.request.required {
            0 => source,
            asked => asked,
        };
        let written = self.owner.and_then(|owner| owner.size.clone());
        let written = written.filter(|size| quantity::parse(size) == Some(required));
        // Without any size asked for, the smallest that a claim can ask for: the member rounds up.
        written.unwrap_or_else(|| quantity::print(required.max(1)))
    }

    /// The watch said nothing for a while: it may be dead.
    pub(super) async fn look_again(&self) -> Result<()> {
        let seen = self.row();
        let place = seen.as_ref().map_or(&self.place, |row| &row.place);
        if let (None, Some(row)) = (leaf::claim::read(self.leaf, place).await?, &seen) {
            self.leaf.rows.drop_claim(self.hash, &row.uid, u64::MAX);
        }
        Ok(())
    }

    /// Why it still waits, in the member's own words where it has any.
    pub(super) async fn late(&self) -> Error {
        let row = self.leaf.rows.row_at(self.hash, &self.place);
        let Some(claim) = &row.claim else {
            return Error::InProgress(format!("member {}: the leaf claim is being made", self.leaf.member));
        };
        let mut reason = leaf::events::newest_warning(self.leaf, &claim.place.namespace, &claim.uid).await;
        if let (None, Consumer::Made(pod)) = (&reason, &row.consumer) {
            reason = leaf::events::newest_warning(self.leaf, &claim.place.namespace, pod).await;
        }
        let (observed, required) = (claim.observed(), self.spec.request.required);
        let state = match observed.phase {
            _ if observed.terminating => "is being removed in the member".to_owned(),
            Phase::Bound if observed.capacity < required => format!(
                "has {}, and {} was asked for: the storage there makes it smaller, or a webhook has it ask for less",
                quantity::print(observed.capacity),
                quantity::print(required)
            ),
            _ => "is not bound yet".to_owned(),
        };
        Error::InProgress(format!(
            "member {}: leaf claim {} {state}{}",
            self.leaf.member,
            claim.place,
            reason.map(|reason| format!(": {reason}")).unwrap_or_default()
        ))
    }

    /// With a host claim, what was made is withdrawn once that is gone, so the sidecar must keep calling until then.
    pub(super) async fn differs(&self) -> Error {
        let there = leaf::claim::read(self.leaf, &self.place).await.ok().flatten();
        let earlier = there.as_ref().and_then(marks::request_of);
        let difference = earlier.and_then(|earlier| self.spec.request.difference(&earlier));
        // What there is to do comes after it.
        let how =
            difference.map(|difference| format!(": {}", short(&difference, LONGEST_DIFFERENCE))).unwrap_or_default();
        let reason = format!("volume {} exists and was asked for differently{how}", self.spec.name);
        match self.owner {
            Some(_) => Error::InProgress(format!("{reason}. Delete the claim to begin again")),
            None => Error::Exists(reason),
        }
    }

    pub(super) fn lost(&self) -> Error {
        // Never recreated: an empty volume under the name of one that held data is a loss nobody would notice.
        Error::InProgress(format!(
            "member {}: leaf claim {}/{} has lost its volume; delete the claim here to begin again",
            self.leaf.member, self.place.namespace, self.place.claim
        ))
    }

    /// The claim is there; its volume comes with its first pod, and is not known yet.
    pub(super) fn accepted(&self, row: &ClaimRow) -> Result<Volume> {
        let attach_mode = self.spec.attach_mode(&self.leaf.member);
        let told = LeafAttributes { claim_uid: &row.uid, attach_mode, ..LeafAttributes::default() };
        Ok(Volume {
            id: row.id(&self.leaf.member, self.hash),
            capacity: self.spec.request.required,
            context: told.checked(&self.leaf.member)?.into(),
            member: self.leaf.member.clone(),
            node: None,
            source: self.spec.request.source.clone(),
        })
    }

    /// Its removal had begun, and is not to be taken up again by anybody.
    pub(super) async fn want_after_all(&self, row: &ClaimRow) -> Result<()> {
        if row.is_withdrawn() {
            leaf::forgotten::mark_withdrawn(self.leaf, row, self.hash, false).await
        } else {
            Ok(())
        }
    }

    /// Gives a leaf of which the host has no volume yet the class that it asks for now: its own may have been recreated while the claim
    /// waited, and nobody would ask for that later. False: there is nothing to change.
    pub(super) async fn give_attributes(&self, row: &ClaimRow) -> Result<bool> {
        let target = self.spec.attributes.at(&self.leaf.member).filter(|target| differs(target, &row.life.attributes));
        let Some(target) = target.filter(|_| self.owner.is_some()) else { return Ok(false) };
        // A provisioner with an old cache asks for the class of then.
        if host::volume::exists(&self.provisioner.host, &self.spec.name).await? {
            return Ok(false);
        }
        let change = Modification { leaf: self.leaf, hash: self.hash, place: &row.place, target };
        Box::pin(change.make(self.deadline)).await.map(|()| true)
    }

    pub(super) async fn finish(&self, row: &ClaimRow, volume: &str, binder: Binder) -> Result<Volume> {
        // The labels say that somebody may have been told of it. Where nobody waits any more, nobody is.
        let labelled = if self.deadline.caller_waits() {
            self.want_after_all(row).await?;
            Some(leaf::volume::label(self.leaf, volume, self.hash, &row.uid).await?.ours(&self.leaf.member)?)
        } else {
            None
        };
        let made = matches!(self.leaf.rows.consumer(self.hash), Consumer::Made(_));
        if binder == Binder::Consumer || made {
            leaf::consumer::remove(self.leaf, &row.place.namespace, self.hash).await?;
        }
        let Some(leaf_volume) = labelled else { return Err(self.late().await) };
        let told = LeafAttributes {
            claim_uid: &row.uid,
            volume: &leaf_volume.name,
            driver: &leaf_volume.driver,
            handle: &leaf_volume.handle,
            attach_mode: self.spec.attach_mode(&self.leaf.member),
        };
        Ok(Volume {
            id: row.id(&self.leaf.member, self.hash),
            capacity: row.observed().capacity,
            context: told.checked(&self.leaf.member)?.into(),
            member: self.leaf.member.clone(),
            node: Some(leaf_volume.node.to_string()).filter(|node| !node.is_empty() && !self.spec.nodes.is_empty()),
            source: self.spec.request.source.clone(),
        })
    }

    async fn filling(&self) -> Result<Option<ContentSource>> {
        match &self.spec.request.source {
            Some(source) => {
                let (class, namespace) = (self.class()?, &self.place.namespace);
                content_source::filling(self.provisioner, self.leaf, namespace, &class, &self.spec.request, source)
                    .await
                    .map(Some)
            }
            None => Ok(None),
        }
    }
}
