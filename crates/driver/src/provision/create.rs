//! CreateVolume: find or choose the member, find or make the leaf claim, wait until it is bound, hand out its handle.

use std::{collections::BTreeMap, sync::Arc};

use tracing::Instrument;

use super::{
    Deadline, Provisioner, Volume,
    abandon::{self, holds, in_use, leaf_volume_is_left},
    attempt::{Attempt, NoCapacity},
    content_source::{self, beside_source},
    delete, kept,
    order::Order,
    place, refusal, sibling_claims,
    volume_creation::VolumeCreation,
};
use domain::{
    error::{Error, Result},
    volume::{
        Claim, VolumeHash, VolumeSpec,
        plan::{Binder, Creation},
        quantity,
    },
};
use host::claim::HostClaim;
use leaf::row::ClaimRow;
use member::{Member, traces::phase};

/// A claim for which no node is selected goes on to the next member after a refusal: no scheduler does it for it.
pub async fn create(provisioner: &Provisioner, spec: &VolumeSpec, deadline: &Deadline) -> Result<Volume> {
    let spec = match beside_source(provisioner.members.all()?.as_ref(), spec) {
        Err(refusal @ Error::NoPlace(_)) => {
            return Err(content_source::refused_beside(provisioner, spec, refusal, deadline).await);
        }
        narrowed => &*narrowed?,
    };
    let (hash, fingerprint) = (VolumeHash::new(&provisioner.host.id, &spec.name), spec.request.fingerprint());
    let mut refusals: BTreeMap<String, Error> = BTreeMap::new();
    let mut at_once = place::at_once(provisioner, spec, hash).instrument(phase("choose member", None)).await?;
    loop {
        let (owner, member) = match at_once.take() {
            Some((owner, member)) => (Some(owner), member),
            None => placed(provisioner, spec, hash, deadline).await?,
        };
        if let Some(refusal) = refusals.remove(&member.name) {
            return Err(refusal);
        }
        let leaf = member.leaf()?;
        abandon::is_listed(leaf, deadline).await?;
        let place = place::of_leaf(provisioner, leaf, spec, owner.as_ref(), hash).await?;
        let job = VolumeCreation { provisioner, spec, fingerprint, owner: owner.as_ref(), hash, leaf, place, deadline };
        match settle(provisioner, &job).await {
            Err(refusal @ Error::NoPlace(_)) if !job.node_selected() && deadline.caller_waits() => {
                refusals.insert(member.name.clone(), refusal);
            }
            answer => return answer,
        }
    }
}

/// The claim of the host as it is, where the call names one, and the member for its volume.
async fn placed(
    provisioner: &Provisioner,
    spec: &VolumeSpec,
    hash: VolumeHash,
    deadline: &Deadline,
) -> Result<(Option<HostClaim>, Arc<Member>)> {
    let owner = match &spec.claim {
        None => None,
        Some(claim) => match host::claim::read(&provisioner.host, claim, &spec.name).await? {
            Some(owner) => Some(owner),
            None => return Err(abandon::withdraw(provisioner, spec, claim, hash, deadline).await),
        },
    };
    let choice = place::place(provisioner, spec, owner.as_ref(), hash, deadline);
    let member = choice.instrument(phase("choose member", None)).await?;
    Ok((owner, member))
}

/// A request that is wrong in itself. The sidecar may forget the volume only where nothing was made before: its class may
/// have been recreated while the claim waits.
pub async fn refused_at_sight(
    provisioner: &Provisioner,
    name: &str,
    claim: Option<&Claim>,
    invalid: Error,
    deadline: &Deadline,
) -> Error {
    let member = match may_be_in(provisioner, name, claim).await {
        Ok(None) => return invalid,
        Ok(Some(member)) => member,
        Err(unsure) => return unsure,
    };
    match Box::pin(unwanted(provisioner, name, claim, &member, deadline)).await {
        Ok(Some(withdrawn)) => withdrawn,
        Ok(None) => Error::InProgress(format!(
            "{invalid}. Member {member} may already have a leaf that an earlier request made: it becomes the volume \
             once the request is right, and the driver removes it once the claim is deleted"
        )),
        Err(error) => error.while_a_leaf_may_exist(),
    }
}

/// What is answered where the host's claim has gone: its leaf is withdrawn by what that was asked for, as it says itself.
async fn unwanted(
    provisioner: &Provisioner,
    name: &str,
    claim: Option<&Claim>,
    member: &str,
    deadline: &Deadline,
) -> Result<Option<Error>> {
    let Some(claim) = claim else { return Ok(None) };
    if host::claim::read(&provisioner.host, claim, name).await?.is_some() {
        return Ok(None);
    }
    let (member, hash) = (provisioner.members.get(member).await?, VolumeHash::new(&provisioner.host.id, name));
    let leaf = member.leaf()?;
    let Some(row) = leaf.rows.row(hash).and_then(|row| row.claim) else { return Ok(None) };
    let Some((request, parameters)) = abandon::asked_for(leaf, hash, &row).await? else { return Ok(None) };
    let spec = VolumeSpec::of_leaf(name, request, parameters, claim);
    Ok(Some(abandon::withdraw(provisioner, &spec, claim, hash, deadline).await))
}

/// A member in which something may have been made for a volume. Nothing is before its name is on record.
async fn may_be_in(provisioner: &Provisioner, name: &str, claim: Option<&Claim>) -> Result<Option<String>> {
    let (members, hash) = (provisioner.members.all()?, VolumeHash::new(&provisioner.host.id, name));
    if let Some(holder) = seen_in(&members, hash) {
        return Ok(Some(holder));
    }
    if let Some(claim) = claim
        && let Some(owner) = host::claim::read(&provisioner.host, claim, name).await?
    {
        return place::recorded(provisioner, Some(&owner)).await;
    }
    let known = host::pins::known_members(&provisioner.host).await?.unwrap_or_default();
    let members = provisioner.members.all()?;
    place::all_listed(hash, members.values().filter(|member| known.contains(&member.name)))?;
    // Listed while the host was asked: the look before was one at nothing.
    Ok(seen_in(&members, hash))
}

async fn settle(provisioner: &Provisioner, job: &VolumeCreation<'_>) -> Result<Volume> {
    let (mut before, mut attempt) = (None, Attempt::default());
    loop {
        let row = job.row();
        may_go_on(job, row.as_ref())?;
        let binder = match job.binder(row.as_ref()) {
            Err(error) if error.is_final() => {
                job.refuse(error).await?;
                return Err(job.late().await);
            }
            binder => binder?,
        };
        let step = job.next_step(&job.leaf.rows, binder);
        tracing::debug!(member = job.leaf.member, claim = %job.place, step = ?step, "next step of CreateVolume");
        // Acted, and nothing has changed: looking on would be asking in circles.
        let circles = before.as_ref() == Some(&step) && matches!(step, Creation::Create | Creation::Release);
        // Whoever asked may have had it removed since.
        let unasked = matches!(step, Creation::Create) && !job.deadline.caller_waits();
        if circles || unasked {
            return Err(job.late().await);
        }
        if before.is_some() && job.deadline.passed() {
            job.deadline.tell(job.late().await)?;
        }
        match (&step, row) {
            (Creation::Create, _) => {
                never_had(provisioner, job).await?;
                job.make(binder, &mut attempt).instrument(job.phase("make leaf claim")).await?;
            }
            (Creation::Ready { volume }, Some(row)) => {
                if job.give_attributes(&row).await.map_err(Error::while_a_leaf_may_exist)? {
                    continue;
                }
                if before.is_some() {
                    job.leaf.capacity.disprove_refusal(&row.class, job.spec.request.required);
                }
                let finished = job.finish(&row, volume, binder).instrument(job.phase("mark")).await;
                return finished.map_err(Error::while_a_leaf_may_exist);
            }
            (Creation::Accepted, Some(row)) => {
                job.want_after_all(&row).await.map_err(Error::while_a_leaf_may_exist)?;
                return job.accepted(&row).map_err(Error::while_a_leaf_may_exist);
            }
            (Creation::TooLarge, Some(row)) => return Err(too_large(provisioner, job, &row).await),
            (Creation::Differs, _) => return Err(job.differs().await),
            (Creation::Lost, _) => return Err(job.lost()),
            (_, row) => {
                let gone_on = go_on(provisioner, job, &step, row, binder, &mut attempt);
                let gone_on = gone_on.instrument(job.phase("wait until bound")).await;
                if let Some(no_capacity) = gone_on.map_err(Error::while_a_leaf_may_exist)? {
                    return Err(refusal::give_up(provisioner, job, no_capacity).await);
                }
            }
        }
        before = Some(step);
    }
}

/// A leaf that a move has stands still, and nothing is made here while what it was is awaited elsewhere.
fn may_go_on(job: &VolumeCreation<'_>, row: Option<&ClaimRow>) -> Result<()> {
    if let Some(claim) = row {
        claim.stands_still(&job.leaf.member)?;
    }
    if row.is_none_or(|claim| claim.place != job.place) {
        kept::is_not_awaited_elsewhere(job)?;
    }
    Ok(())
}

/// A volume that the host has had a leaf, whatever is seen of that now: no empty one is made in its place. Where nothing
/// was tried before there is no volume either.
async fn never_had(provisioner: &Provisioner, job: &VolumeCreation<'_>) -> Result<()> {
    let is_anothers = kept::give_back(job).await?;
    let left = kept::left_of(job);
    abandon::is_known(job.leaf, job.hash)?;
    let first = job.owner.is_some_and(|owner| owner.member.is_none());
    if left.is_empty() && first {
        return Ok(());
    }
    match (left.first(), host::volume::exists(&provisioner.host, &job.spec.name).await?) {
        (None, false) => Ok(()),
        (Some(volume), false) if is_anothers || volume.claim_place != job.place => Err(kept::for_another(job, volume)),
        _ => Err(Error::InProgress(format!(
            "member {}: leaf claim {} is gone, and had a volume: the driver recreates it with its data, or not at all",
            job.leaf.member, job.place
        ))),
    }
}

/// The steps between making a leaf and having it: all of them may be met again.
async fn go_on(
    provisioner: &Provisioner,
    job: &VolumeCreation<'_>,
    step: &Creation,
    row: Option<ClaimRow>,
    binder: Binder,
    attempt: &mut Attempt,
) -> Result<Option<NoCapacity>> {
    match (step, row) {
        (Creation::Release, Some(row)) => leaf::claim::release(job.leaf, &row, job.hash).await.map(|()| None),
        // What the host has comes back by itself.
        (Creation::TakeBack, Some(row)) if remove_unused(provisioner, job, &row).await? => {
            let gone = "was deleted while its volume was being made, and the driver recreates it";
            Err(Error::InProgress(format!("member {}: leaf claim {} {gone}", job.leaf.member, row.place)))
        }
        (Creation::Select, Some(row)) => job.select(&row, attempt).await,
        (Creation::Consume, Some(row)) => {
            sibling_claims::consume(provisioner, job, &row).await?;
            job.wait(step, binder, attempt).await
        }
        (Creation::Label { volume }, Some(row)) => {
            // Whether it can be labelled is asked again once it is bound.
            if job.deadline.caller_waits()
                && let Err(error) = leaf::volume::label(job.leaf, volume, job.hash, &row.uid).await
            {
                tracing::debug!(member = %job.leaf.member, %volume, %error, "the leaf volume is not labelled yet");
            }
            job.wait(step, binder, attempt).await
        }
        _ => job.wait(step, binder, attempt).await,
    }
}

/// Removes the leaf with its volume. False: the host uses it, or has used it, and nothing is done: a host that was restored from a
/// backup may know of no volume.
async fn remove_unused(provisioner: &Provisioner, job: &VolumeCreation<'_>, row: &ClaimRow) -> Result<bool> {
    let id = job.spec.id(&job.leaf.member, &job.leaf.host, &row.place);
    // Who looks at the host is believed from before that look on.
    let order = Order::of_creation(&id);
    if row.was_had() || host::volume::uses(&provisioner.host, &job.spec.name, &id.to_string()).await? {
        return Ok(false);
    }
    delete::remove(provisioner, job.leaf, job.hash, &row.place, &order, job.deadline).await?;
    Ok(true)
}

async fn too_large(provisioner: &Provisioner, job: &VolumeCreation<'_>, row: &ClaimRow) -> Error {
    let (size, limit) = (quantity::print(row.observed().capacity), quantity::print(job.spec.request.limit));
    match remove_unused(provisioner, job, row).await {
        Ok(true) => {
            Error::OutOfRange(format!("member {} makes it {size}, and at most {limit} were allowed", job.leaf.member))
        }
        Ok(false) => in_use(job.spec, &job.leaf.member),
        Err(error) => error.while_a_leaf_may_exist(),
    }
}

fn seen_in(members: &BTreeMap<String, Arc<Member>>, hash: VolumeHash) -> Option<String> {
    let holder = members.values().find(|member| holds(member, hash) || leaf_volume_is_left(member, hash))?;
    Some(holder.name.clone())
}
