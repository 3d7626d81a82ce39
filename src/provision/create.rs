//! CreateVolume: find or choose the member, find or make the leaf claim, wait until it is bound, hand out its handle.

use std::{collections::BTreeMap, sync::Arc};

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
        registry,
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
        let place = self.leaf_place(leaf, spec, owner.as_ref(), hash).await?;
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
    ) -> Result<Arc<Member>> {
        let members = self.members.all()?;
        let holder = members.values().find(|member| holds(member, hash)).map(|member| member.name.as_str());
        let recorded = self.recorded(owner).await?;
        let candidates: Vec<_> = members.values().map(|member| member.candidate()).collect();
        let mut wish = Wish {
            earlier: holder.or(recorded),
            held: holder.is_some(),
            parameter: spec.parameters.member.as_ref(),
            preferred: &spec.preferred,
            requisite: &spec.requisite,
            node_selected: owner.is_some_and(|owner| owner.node_selected),
            seed: hash.seed(),
        };
        let mut choice = choose(&wish, &candidates)?;
        if let Choice::Leave(earlier) = &choice {
            let earlier = self.members.get(earlier).await?;
            if !self.clear(&earlier, spec, hash, deadline).await? {
                return Err(in_use(spec, &earlier.name));
            }
            wish.earlier = None;
            choice = choose(&wish, &candidates)?;
        }
        let name = match choice {
            Choice::Stay(name) | Choice::Leave(name) => name,
            Choice::New(name) => {
                match (&spec.claim, owner) {
                    (Some(claim), Some(owner)) => self.host.record_member(claim, owner, &spec.name, &name).await?,
                    _ => all_listed(members.values().filter(|member| may_hold(member, spec, hash)))?,
                }
                name
            }
        };
        self.members.get(&name).await
    }

    /// The member on record. A name that no member ever had came with a copied claim: nothing can be there.
    async fn recorded<'a>(&self, owner: Option<&'a HostClaim>) -> Result<Option<&'a str>> {
        let Some(name) = owner.and_then(|owner| owner.member.as_deref()) else { return Ok(None) };
        match self.members.get(name).await {
            Ok(_) => Ok(Some(name)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where the leaf is or will be. One that is seen elsewhere than the class says now is for a person to judge.
    async fn leaf_place(
        &self,
        leaf: &Cluster,
        spec: &VolumeSpec,
        owner: Option<&HostClaim>,
        hash: VolumeHash,
    ) -> Result<LeafPlace> {
        let tried = owner.is_some_and(|owner| owner.member.is_some());
        let unless_tried = |error: Error| if tried { error.while_a_leaf_may_exist() } else { error };
        let place = spec.place(&leaf.member, &leaf.host, &self.leaf_namespace).map_err(unless_tried)?;
        let Some(seen) = leaf.rows.row(hash).and_then(|row| row.claim).filter(|claim| !claim.is_at(&place)) else {
            return Ok(place);
        };
        let there = leaf.read_claim(&place).await.map_err(Error::while_a_leaf_may_exist)?;
        if there.is_some_and(|claim| ownership::volume_of(&claim.metadata, &leaf.host) == Some(hash)) {
            return Ok(place);
        }
        Err(Error::InProgress(format!(
            "member {}: claim {}/{} carries the labels of this volume, whose place is {}/{}: remove it, or give the class \
             its former parameters back",
            leaf.member, seen.namespace, seen.name, place.namespace, place.claim
        )))
    }

    async fn settle(&self, job: &Job<'_>) -> Result<Volume> {
        let mut before = None;
        loop {
            let row = job.row();
            let waits = job.waits_for_pod(row.as_ref())?;
            let observed = row.as_ref().map(ClaimRow::observed);
            let step = plan::creation(&job.spec.request, observed.as_ref(), waits);
            // Acted, and nothing has changed: looking on would be asking in circles.
            let circles = before.as_ref() == Some(&step) && matches!(step, Creation::Create | Creation::Release);
            if circles || (before.is_some() && Instant::now() >= job.deadline) {
                return Err(job.late().await);
            }
            match (&step, row) {
                (Creation::Create, _) => job.make().await?,
                (Creation::Ready { volume }, Some(row)) => {
                    return job.finish(&row, volume, waits).await.map_err(Error::while_a_leaf_may_exist);
                }
                (Creation::TooLarge, Some(row)) => return Err(self.too_large(job, &row).await),
                (Creation::Differs(difference), _) => return Err(job.differs(difference)),
                (Creation::Lost, _) => return Err(job.lost()),
                (_, row) => self.go_on(job, &step, row, waits).await.map_err(Error::while_a_leaf_may_exist)?,
            }
            before = Some(step);
        }
    }

    /// The steps between making a leaf and having it: all of them may be met again.
    async fn go_on(&self, job: &Job<'_>, step: &Creation, row: Option<ClaimRow>, waits: bool) -> Result<()> {
        match (step, row) {
            (Creation::Release, Some(row)) => job.leaf.release_claim(&row, job.hash).await,
            (Creation::Consume, Some(row)) => {
                self.consume(job, &row).await?;
                job.wait(step, waits).await
            }
            _ => job.wait(step, waits).await,
        }
    }

    async fn too_large(&self, job: &Job<'_>, row: &ClaimRow) -> Error {
        let (size, limit) = (quantity::print(row.observed().capacity), quantity::print(job.spec.request.limit));
        let id = job.spec.id(&job.leaf.member, &job.leaf.host, &row.place()).to_string();
        let removed = match self.host.uses(&job.spec.name, &id).await {
            Ok(true) => return in_use(job.spec, &job.leaf.member),
            Ok(false) => self.remove(job.leaf, job.hash, &row.place(), job.deadline).await,
            Err(error) => Err(error),
        };
        let refusal = format!("member {} makes it {size}, and at most {limit} were allowed", job.leaf.member);
        removed.map_or_else(Error::while_a_leaf_may_exist, |()| Error::OutOfRange(refusal))
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
            Err(error) => error.while_a_leaf_may_exist(),
        }
    }

    /// Every member that may hold something is cleared, whatever the others say.
    async fn try_withdraw(&self, spec: &VolumeSpec, hash: VolumeHash, deadline: Instant) -> Result<bool> {
        if self.host.has_volume(&spec.name).await? {
            return Ok(false);
        }
        let departed = self.members.departed().await?;
        let mut unseen = departed.into_iter().find(|name| allows(spec, name)).map(|name| registry::departed(&name));
        let members = self.members.all()?;
        let (holders, others): (Vec<_>, Vec<_>) = members.values().partition(|member| holds(member, hash));
        let others = others.into_iter().filter(|member| may_hold(member, spec, hash));
        for member in holders.into_iter().chain(others) {
            match self.clear(member, spec, hash, deadline).await {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => drop(unseen.get_or_insert(error)),
            }
        }
        unseen.map_or(Ok(true), Err)
    }

    /// Removes whatever this volume has in a member, and proves it gone. False: it is in use, and left as it is.
    async fn clear(&self, member: &Member, spec: &VolumeSpec, hash: VolumeHash, deadline: Instant) -> Result<bool> {
        let leaf = member.leaf()?;
        let seen = leaf.rows.row(hash).and_then(|row| row.claim);
        let had_volume = seen.as_ref().is_some_and(|claim| claim.had_volume);
        let place = match seen {
            Some(claim) => claim.place(),
            None => {
                spec.place(&member.name, &leaf.host, &self.leaf_namespace).map_err(Error::while_a_leaf_may_exist)?
            }
        };
        let id = spec.id(&member.name, &leaf.host, &place).to_string();
        if had_volume || self.host.uses(&spec.name, &id).await? {
            return Ok(false);
        }
        let removed = async {
            leaf.remove_consumer(&place.namespace, hash).await?;
            self.remove(leaf, hash, &place, deadline).await
        };
        removed.await.map_err(Error::while_a_leaf_may_exist)?;
        Ok(true)
    }
}

impl Job<'_> {
    fn row(&self) -> Option<ClaimRow> {
        self.leaf.rows.row_at(self.hash, &self.place).claim
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
        let found = self.leaf.read_claim(&self.place).await.map_err(Error::while_a_leaf_may_exist)?;
        let Some(claim) = found else { return Ok(()) };
        if ownership::volume_of(&claim.metadata, &self.leaf.host) == Some(self.hash) {
            return Ok(());
        }
        let taken = format!("member {}: claim {}/{}", self.leaf.member, self.place.namespace, self.place.claim);
        if ownership::was_ours(&claim.metadata, &self.leaf.host) {
            return Err(Error::InProgress(format!(
                "{taken} was made for a volume of this driver and its labels were removed: put them back, or remove it there"
            )));
        }
        Err(Error::Exists(format!(
            "{taken} is there already and {}; it is left untouched. Remove it there, or choose another name for the leaf \
             claims of this class with the parameter leafClaimName",
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
            let claim = rows.row_at(self.hash, &self.place).claim.map(|claim| claim.observed());
            plan::creation(&self.spec.request, claim.as_ref(), waits) != *step
        };
        if !wait(self.leaf, self.deadline, differs, async || self.late().await).await? {
            self.look_again(*step == Creation::Consume).await?;
        }
        Ok(())
    }

    /// The watch said nothing for a while: it may be dead, or somebody has removed the consumer pod.
    async fn look_again(&self, consumed: bool) -> Result<()> {
        let found = self.leaf.read_claim(&self.place).await?;
        if let (None, Some(row)) = (found, self.row()) {
            self.leaf.rows.drop_claim(self.hash, &row.uid, u64::MAX);
        }
        if consumed {
            self.leaf.find_consumer(&self.place.namespace, self.hash).await?;
        }
        Ok(())
    }

    /// Why it still waits, in the member's own words where it has any.
    async fn late(&self) -> Error {
        let row = self.leaf.rows.row_at(self.hash, &self.place);
        let Some(claim) = &row.claim else {
            return Error::InProgress(format!("member {}: the leaf claim is being made", self.leaf.member));
        };
        let mut reason = self.leaf.newest_warning(&claim.namespace, &claim.uid).await;
        if let (None, Consumer::Made(pod)) = (&reason, &row.consumer) {
            reason = self.leaf.newest_warning(&claim.namespace, pod).await;
        }
        let state = if claim.observed().terminating { "is being removed in the member" } else { "is not bound yet" };
        Error::InProgress(format!(
            "member {}: leaf claim {}/{} {state}{}",
            self.leaf.member,
            claim.namespace,
            claim.name,
            reason.map(|reason| format!(": {reason}")).unwrap_or_default()
        ))
    }

    /// With a host claim, what was made is withdrawn once that is gone, so the sidecar must keep calling until then.
    fn differs(&self, difference: &str) -> Error {
        let reason = format!("volume {} exists and was asked for differently: {difference}", self.spec.name);
        match self.owner {
            Some(_) => Error::InProgress(format!("{reason}. Delete the claim to begin anew")),
            None => Error::Exists(reason),
        }
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
        let made = matches!(self.leaf.rows.row_at(self.hash, &self.place).consumer, Consumer::Made(_));
        if waits || made {
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

fn in_use(spec: &VolumeSpec, member: &str) -> Error {
    Error::InProgress(format!("volume {} is in use by the host, and stays in member {member}", spec.name))
}

fn holds(member: &Member, hash: VolumeHash) -> bool {
    member.last_known().and_then(|leaf| leaf.rows.row(hash)).is_some_and(|row| row.claim.is_some())
}

/// Whether a volume may have been tried in a member: by what the requirement allows, because a leaf is seen there, or
/// because nothing is seen there yet.
fn may_hold(member: &Member, spec: &VolumeSpec, hash: VolumeHash) -> bool {
    let unseen = spec.claim.is_some() && !member.last_known().is_some_and(|leaf| leaf.rows.synced());
    unseen || allows(spec, &member.name) || holds(member, hash)
}

fn allows(spec: &VolumeSpec, member: &str) -> bool {
    let named = |list: &[String]| list.iter().any(|name| name == member);
    let anywhere = spec.preferred.is_empty() && spec.requisite.is_empty();
    let class_allows = spec.parameters.member.as_ref().is_none_or(|only| *only == member);
    class_allows && (anywhere || named(&spec.preferred) || named(&spec.requisite))
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
