//! CreateVolume: find or choose the member, find or make the leaf claim, wait until it is bound, hand out its handle.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{Provisioner, Volume, wait};
use crate::{
    error::{Error, Result},
    host::{claim::HostClaim, volume::LEAF_UID},
    leaf::{
        Cluster,
        claim::{Made, Wanted},
        consumer::{Constraints, Consumed},
        ownership,
        rows::{ClaimRow, Consumer},
    },
    member::{
        Member,
        placement::{Choice, Wish, choose},
    },
    volume::{
        Claim, LeafBinding, VolumeHash, VolumeSpec,
        plan::{self, Creation},
        quantity,
        spec::LeafPlace,
    },
};

/// One CreateVolume under way in the member it was decided for.
struct Job<'a> {
    spec: &'a VolumeSpec,
    owner: Option<&'a HostClaim>,
    hash: VolumeHash,
    leaf: &'a Cluster,
    place: LeafPlace,
    deadline: Instant,
}

impl Provisioner {
    pub async fn create(&self, spec: &VolumeSpec, deadline: Instant) -> Result<Volume> {
        let hash = VolumeHash::new(&self.host.id, &spec.name);
        let owner = match &spec.claim {
            None => None,
            Some(claim) => match self.host.read_claim(claim, &spec.name).await? {
                Some(owner) => Some(owner),
                None => return Err(self.withdraw(spec, claim, hash, deadline).await),
            },
        };
        let member = self.place(spec, owner.as_ref(), hash, deadline).await?;
        let leaf = member.leaf()?;
        let place = spec.place(&member.name, &self.host.id, &self.leaf_namespace)?;
        let job = Job { spec, owner: owner.as_ref(), hash, leaf, place, deadline };
        self.settle(&job).await
    }

    /// The member of before, or a new choice, written down before anything is made.
    async fn place(
        &self,
        spec: &VolumeSpec,
        owner: Option<&HostClaim>,
        hash: VolumeHash,
        deadline: Instant,
    ) -> Result<std::sync::Arc<Member>> {
        let members = self.members.all();
        let holder = members.values().find(|member| holds(member, hash)).map(|member| member.name.as_str());
        let recorded = owner.and_then(|owner| owner.member.as_deref());
        let candidates: Vec<_> = members.values().map(|member| member.candidate()).collect();
        let mut wish = Wish {
            earlier: holder.or(recorded),
            parameter: spec.parameters.member.as_ref(),
            preferred: &spec.preferred,
            requisite: &spec.requisite,
            node_selected: owner.is_some_and(|owner| owner.node_selected),
            seed: hash.seed(),
        };
        let mut choice = choose(&wish, &candidates)?;
        if let Choice::Leave(earlier) = &choice {
            let earlier = self.members.get(earlier).await?;
            self.clear(&earlier, spec, hash, deadline).await?;
            wish.earlier = None;
            choice = choose(&wish, &candidates)?;
        }
        let name = match choice {
            Choice::Stay(name) | Choice::Leave(name) => name,
            Choice::New(name) => {
                match (&spec.claim, owner) {
                    (Some(claim), Some(owner)) => self.host.record_member(claim, &owner.uid, &name).await?,
                    _ => all_listed(members.values().filter(|member| may_hold(member, spec, hash)))?,
                }
                name
            }
        };
        self.members.get(&name).await
    }

    async fn settle(&self, job: &Job<'_>) -> Result<Volume> {
        loop {
            let row = job.row();
            let waits = job.waits_for_pod(row.as_ref())?;
            let observed = row.as_ref().map(ClaimRow::observed);
            let step = plan::creation(&job.spec.request, observed.as_ref(), waits);
            match (step, row) {
                (Creation::Create, _) => job.make().await?,
                (Creation::Consume, Some(row)) => {
                    self.consume(job, &row).await?;
                    job.wait(&Creation::Consume, waits).await?;
                }
                (step @ (Creation::Await | Creation::AwaitRemoval), _) => job.wait(&step, waits).await?,
                (Creation::Ready { volume }, Some(row)) => {
                    return job.finish(&row, &volume, waits).await;
                }
                (Creation::Differs(difference), _) => {
                    return Err(Error::Exists(format!(
                        "volume {} exists and was asked for differently: {difference}",
                        job.spec.name
                    )));
                }
                (Creation::TooLarge, Some(row)) => {
                    let size = quantity::print(row.observed().capacity);
                    self.remove(job.leaf, job.hash, &row.place(), job.deadline).await?;
                    return Err(Error::OutOfRange(format!(
                        "member {} makes it {size}, and at most {} were allowed",
                        job.leaf.member,
                        quantity::print(job.spec.request.limit)
                    )));
                }
                (Creation::Lost, _) | (_, None) => return Err(job.lost()),
            }
        }
    }

    /// A pod for the claim, with the other claims of the same host pod that live here, so that they land on one node.
    async fn consume(&self, job: &Job<'_>, row: &ClaimRow) -> Result<()> {
        if job.leaf.rows.row(job.hash).is_some_and(|row| matches!(row.consumer, Consumer::Made(_))) {
            return Ok(());
        }
        let pod = match &job.spec.claim {
            Some(claim) => self.host.pod_of(claim).await?,
            None => None,
        };
        let wishes = pod.as_ref().map(|pod| Constraints::of(&pod.spec)).unwrap_or_default();
        let mut claims = vec![Consumed { claim: row.name.to_string(), block: row.mode.is_block() }];
        if let (Some(pod), Some(claim)) = (&pod, &job.spec.claim) {
            for name in pod.claims.iter().filter(|name| **name != claim.name) {
                let sibling = Claim { namespace: claim.namespace.clone(), name: name.clone() };
                claims.extend(self.leaf_of(job, &sibling, &row.namespace).await?);
            }
        }
        job.leaf.ensure_consumer(&row.namespace, job.hash, &claims, &wishes).await
    }

    /// The leaf claim of another host claim, where it has one beside this.
    async fn leaf_of(&self, job: &Job<'_>, claim: &Claim, namespace: &str) -> Result<Option<Consumed>> {
        let Some(found) = self.host.read_claim(claim, "").await? else {
            return Ok(None);
        };
        let hash = VolumeHash::new(&self.host.id, &format!("pvc-{}", found.uid));
        let row = job.leaf.rows.row(hash).and_then(|row| row.claim);
        Ok(row
            .filter(|row| *row.namespace == *namespace)
            .map(|row| Consumed { claim: row.name.to_string(), block: row.mode.is_block() }))
    }

    /// The host claim is gone: what was made for it goes as well, unless it has become a volume of the host.
    async fn withdraw(&self, spec: &VolumeSpec, claim: &Claim, hash: VolumeHash, deadline: Instant) -> Error {
        let claim = format!("claim {}/{}", claim.namespace, claim.name);
        match self.try_withdraw(spec, hash, deadline).await {
            Ok(true) => Error::Gone(format!("{claim} is gone; nothing is left of what was made for it")),
            Ok(false) => Error::Gone(format!("{claim} is gone, but it has had a volume: that is left untouched")),
            Err(error) => error,
        }
    }

    async fn try_withdraw(&self, spec: &VolumeSpec, hash: VolumeHash, deadline: Instant) -> Result<bool> {
        if self.host.has_volume(&spec.name).await? {
            return Ok(false);
        }
        for member in self.members.all().values().filter(|member| may_hold(member, spec, hash)) {
            let had_volume =
                member.last_known().and_then(|leaf| leaf.rows.row(hash)?.claim).is_some_and(|claim| claim.had_volume);
            if had_volume {
                return Ok(false);
            }
            self.clear(member, spec, hash, deadline).await?;
        }
        Ok(true)
    }

    /// Removes whatever this volume has in a member, and proves it gone.
    async fn clear(&self, member: &Member, spec: &VolumeSpec, hash: VolumeHash, deadline: Instant) -> Result<()> {
        let leaf = member.leaf()?;
        let place = match leaf.rows.row(hash).and_then(|row| row.claim) {
            Some(claim) => claim.place(),
            None => spec.place(&member.name, &self.host.id, &self.leaf_namespace)?,
        };
        self.remove(leaf, hash, &place, deadline).await
    }
}

impl Job<'_> {
    fn row(&self) -> Option<ClaimRow> {
        self.leaf.rows.row(self.hash).and_then(|row| row.claim)
    }

    fn class(&self) -> Result<String> {
        let named = self.spec.parameters.leaf_class.at(&self.leaf.member);
        named.cloned().or_else(|| self.leaf.rows.default_class()).ok_or_else(|| self.no_class("a default StorageClass"))
    }

    /// Whether the leaf claim stays unbound until a pod uses it.
    fn waits_for_pod(&self, row: Option<&ClaimRow>) -> Result<bool> {
        if self.spec.parameters.leaf_binding.at(&self.leaf.member) == Some(&LeafBinding::Consumer) {
            return Ok(true);
        }
        let name = match row {
            Some(row) => row.class.to_string(),
            None => self.class()?,
        };
        match (self.leaf.rows.class(&name), row) {
            (Some(class), _) => Ok(class.waits_for_pod),
            (None, Some(_)) => Ok(false),
            (None, None) => Err(self.no_class(&format!("StorageClass {name:?}"))),
        }
    }

    /// Never final: a class may still come.
    fn no_class(&self, what: &str) -> Error {
        let classes = self.leaf.rows.class_names();
        let there =
            if classes.is_empty() { "it has none".to_owned() } else { format!("it has {}", classes.join(", ")) };
        Error::InProgress(format!(
            "member {} lacks {what}; {there}. Make it there, or name another with the parameter leafStorageClass.{}",
            self.leaf.member, self.leaf.member
        ))
    }

    async fn make(&self) -> Result<()> {
        let wanted = Wanted {
            spec: self.spec,
            hash: self.hash,
            place: &self.place,
            class: &self.class()?,
            access: self.spec.leaf_access(&self.leaf.member),
            mode: self.spec.leaf_mode(&self.leaf.member),
            size: self.size(),
            claim_uid: self.owner.map(|owner| owner.uid.as_str()),
        };
        let mut made = self.leaf.create_claim(&wanted).await;
        if matches!(made, Err(Error::NotFound(_))) {
            self.leaf.create_namespace(&self.place.namespace).await?;
            made = self.leaf.create_claim(&wanted).await;
        }
        match made {
            Ok(Made::Now) => Ok(()),
            Ok(Made::Taken) => self.adopt().await,
            Err(error) if error.is_final() => self.refuse(error).await,
            Err(error) => Err(error),
        }
    }

    /// The name is taken: by our own leaf, whose row was not here yet, or by somebody else's claim.
    async fn adopt(&self) -> Result<()> {
        let Some(claim) = self.leaf.read_claim(&self.place).await? else {
            return Ok(());
        };
        if ownership::volume_of(&claim.metadata, &self.leaf.host) == Some(self.hash) {
            return Ok(());
        }
        Err(Error::Exists(format!(
            "member {} has a claim {}/{} already and {}; it is left untouched. Remove it there, or choose another name \
             for the leaf claims of this class with the parameter leafClaimName",
            self.leaf.member,
            self.place.namespace,
            self.place.claim,
            ownership::whose(&claim.metadata, &self.leaf.host)
        )))
    }

    /// The member refused. That is final only once a read has shown that no leaf of ours is there.
    async fn refuse(&self, error: Error) -> Result<()> {
        match self.leaf.read_claim(&self.place).await {
            Ok(Some(claim)) if ownership::volume_of(&claim.metadata, &self.leaf.host) == Some(self.hash) => Ok(()),
            Ok(_) => Err(error),
            Err(unsure) => Err(Error::Unreachable {
                member: self.leaf.member.clone(),
                reason: format!("{error}; and whether a claim is there cannot be read: {unsure}"),
            }),
        }
    }

    /// The size as the user wrote it where that is what the provisioner asks for, else the shortest exact form.
    fn size(&self) -> String {
        let required = self.spec.request.required;
        let written = self.owner.and_then(|owner| owner.size.clone());
        let written = written.filter(|size| quantity::parse(size) == Some(required));
        // Without any size asked for, the smallest that a claim can ask for: the member rounds up.
        written.unwrap_or_else(|| quantity::print(required.max(1)))
    }

    /// Waits until the next step is another one.
    async fn wait(&self, step: &Creation, waits: bool) -> Result<()> {
        let differs = |rows: &crate::leaf::Rows| {
            let claim = rows.row(self.hash).and_then(|row| row.claim).map(|claim| claim.observed());
            plan::creation(&self.spec.request, claim.as_ref(), waits) != *step
        };
        if !wait(self.leaf, self.deadline, differs, async || self.late().await).await? {
            self.look_again(*step == Creation::Consume).await?;
        }
        Ok(())
    }

    /// The watch said nothing for a while: it may be dead, or somebody has removed the consumer pod.
    async fn look_again(&self, consumed: bool) -> Result<()> {
        let place = self.row().map_or_else(|| self.place.clone(), |row| row.place());
        let found = self.leaf.read_claim(&place).await?;
        if let (None, Some(row)) = (found, self.row()) {
            self.leaf.rows.drop_claim(self.hash, &row.uid);
        }
        if consumed {
            self.leaf.find_consumer(&place.namespace, self.hash).await?;
        }
        Ok(())
    }

    /// Why it still waits, in the member's own words where it has any.
    async fn late(&self) -> Error {
        let Some(row) = self.leaf.rows.row(self.hash) else {
            return Error::InProgress(format!("member {}: the leaf claim is being made", self.leaf.member));
        };
        let mut reason = None;
        if let Some(claim) = &row.claim {
            reason = self.leaf.newest_warning(&claim.namespace, &claim.uid).await;
            if let (None, Consumer::Made(pod)) = (&reason, &row.consumer) {
                reason = self.leaf.newest_warning(&claim.namespace, pod).await;
            }
        }
        let place = row.claim.as_ref().map_or_else(|| self.place.clone(), ClaimRow::place);
        Error::InProgress(format!(
            "member {}: leaf claim {}/{} is not bound yet{}",
            self.leaf.member,
            place.namespace,
            place.claim,
            reason.map(|reason| format!(": {reason}")).unwrap_or_default()
        ))
    }

    fn lost(&self) -> Error {
        // Never made anew: an empty volume under the name of one that held data is a loss nobody would notice.
        Error::InProgress(format!(
            "member {}: leaf claim {}/{} has lost its volume; delete the claim here to begin anew",
            self.leaf.member, self.place.namespace, self.place.claim
        ))
    }

    async fn finish(&self, row: &ClaimRow, volume: &str, waits: bool) -> Result<Volume> {
        let leaf_volume = self.leaf.label_volume(volume, self.hash, &row.uid).await?;
        if waits {
            self.leaf.remove_consumer(&row.namespace, self.hash).await?;
        }
        let place = row.place();
        let context = [
            (LEAF_UID, row.uid.to_string()),
            ("leafVolume", leaf_volume.name.to_string()),
            ("leafDriver", leaf_volume.driver.to_string()),
            ("leafVolumeHandle", leaf_volume.handle.to_string()),
        ];
        let filled = context.into_iter().filter(|(_, value)| !value.is_empty());
        Ok(Volume {
            id: self.spec.id(&self.leaf.member, &self.leaf.host, &place),
            capacity: row.observed().capacity,
            context: filled.map(|(key, value)| (key.to_owned(), value)).collect::<BTreeMap<_, _>>(),
            member: self.leaf.member.clone(),
        })
    }
}

fn holds(member: &Member, hash: VolumeHash) -> bool {
    member.last_known().and_then(|leaf| leaf.rows.row(hash)).is_some_and(|row| row.claim.is_some())
}

/// Whether a volume may have been tried in a member: by what the requirement allows, or because a leaf is seen there.
fn may_hold(member: &Member, spec: &VolumeSpec, hash: VolumeHash) -> bool {
    let named = |list: &[String]| list.contains(&member.name);
    let anywhere = spec.preferred.is_empty() && spec.requisite.is_empty();
    let allowed = anywhere || named(&spec.preferred) || named(&spec.requisite);
    let class_allows = spec.parameters.member.as_ref().is_none_or(|only| *only == member.name);
    (allowed && class_allows) || holds(member, hash)
}

/// Without a host claim there is no place to write a choice down, so it may only be made by who has seen every member.
fn all_listed<'a>(mut members: impl Iterator<Item = &'a std::sync::Arc<Member>>) -> Result<()> {
    let unseen = members.find(|member| !member.last_known().is_some_and(|leaf| leaf.rows.synced()));
    unseen.map_or(Ok(()), |member| {
        Err(Error::Unreachable {
            member: member.name.clone(),
            reason: "whether this volume is there cannot be told yet, and no claim says where it was put".to_owned(),
        })
    })
}
