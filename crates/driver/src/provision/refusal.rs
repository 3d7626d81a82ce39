//! No room in a member: how that is noticed, and what follows. The leaf is removed and proved gone, the refusal is
//! remembered for GetCapacity, and only then is it told: the host's scheduler moves the pod only if the capacity it reads
//! says less than what was asked for.
//!
//! Only a leaf that was never bound is removed for it.

use tokio::time::Instant;

use super::{
    Provisioner,
    abandon::in_use,
    attempt::{Attempt, Evidence, NoCapacity},
    delete,
    order::Order,
    volume_creation::VolumeCreation,
};
use domain::{
    error::{Error, Result},
    volume::plan::{Binder, Creation, Phase},
};
use leaf::row::ClaimRow;

impl VolumeCreation<'_> {
    /// Waits until the next step is another one, and looks closer when nothing is heard for a while.
    pub(super) async fn wait(
        &self,
        step: &Creation,
        binder: Binder,
        attempt: &mut Attempt,
    ) -> Result<Option<NoCapacity>> {
        let pause = self.deadline.next().min(Instant::now() + attempt.next_look());
        if self.leaf.rows.until(self.hash, pause, |rows| self.next_step(rows, binder) != *step).await {
            return Ok(None);
        }
        if self.deadline.passed() {
            self.deadline.tell(self.late().await)?;
        }
        self.look_again().await?;
        match self.row() {
            Some(row) if is_unbound(&row) => self.look_for_no_capacity(&row, binder, attempt).await,
            _ => Ok(None),
        }
    }

    /// Why it waits, if that is for want of room.
    async fn look_for_no_capacity(
        &self,
        row: &ClaimRow,
        binder: Binder,
        attempt: &mut Attempt,
    ) -> Result<Option<NoCapacity>> {
        let node = self.only_node();
        if binder == Binder::Consumer {
            let pod = leaf::consumer::look_at(self.leaf, &row.place.namespace, self.hash).await?;
            let has_node = pod.as_ref().is_some_and(|pod| pod.has_node);
            let reason = pod.and_then(|pod| pod.obstacle).unwrap_or_default();
            if reason.contains("did not have enough free storage") {
                return Ok(Some(NoCapacity { reason, node, by: Evidence::Scheduler }));
            }
            if names_a_claim_that_is_gone(&reason) {
                leaf::consumer::remove(self.leaf, &row.place.namespace, self.hash).await?;
                let no_capacity = NoCapacity { reason, node: None, by: Evidence::Former };
                return Ok(self.node_selected().then_some(no_capacity));
            }
            if has_node {
                self.end_stranded_consumer(row).await?;
            }
        }
        let Some(reason) = leaf::events::lack_of_room(self.leaf, &row.place.namespace, &row.uid).await else {
            return Ok(None);
        };
        let sure = binder == Binder::Member || std::mem::replace(&mut attempt.suspected, true);
        Ok(sure.then_some(NoCapacity { reason, node, by: Evidence::Event }))
    }

    /// The member's scheduler gives a pod its node when all of its claims have their volumes. One that went by a claim which had the
    /// same name, and is gone, has done all it ever will.
    async fn end_stranded_consumer(&self, row: &ClaimRow) -> Result<()> {
        self.look_again().await?;
        if self.row().is_some_and(|now| now.uid == row.uid && is_unbound(&now)) {
            tracing::info!(
                member = self.leaf.member,
                claim = %row.place,
                "the consumer pod of a leaf claim has a node, but the claim has no volume: the driver recreates the pod"
            );
            leaf::consumer::remove(self.leaf, &row.place.namespace, self.hash).await?;
        }
        Ok(())
    }

    /// What is remembered for the capacity of this member.
    pub(super) fn remember(&self, class: &str, node: Option<&str>, by: Evidence) {
        let (capacity, size) = (&self.leaf.capacity, self.spec.request.required.max(1));
        match by {
            Evidence::Former => {}
            Evidence::Scheduler => capacity.refuse(class, node, size),
            Evidence::Event => capacity.refuse_by_event(class, node, &self.place.namespace, size),
        }
    }
}

/// Takes the leaf back, remembers, and says so.
pub(super) async fn give_up(provisioner: &Provisioner, job: &VolumeCreation<'_>, no_capacity: NoCapacity) -> Error {
    match take_back(provisioner, job).await {
        Ok(class) => {
            job.remember(&class, no_capacity.node.as_deref(), no_capacity.by);
            let refusal = format!("member {} has no room for it: {}", job.leaf.member, no_capacity.reason);
            if !job.deadline.caller_waits() {
                job.leaf.capacity.keep_verdict(job.hash, &refusal);
            }
            Error::NoPlace(refusal)
        }
        Err(error) => error.while_a_leaf_may_exist(),
    }
}

/// Removes a leaf that was never bound, and tells its class.
async fn take_back(provisioner: &Provisioner, job: &VolumeCreation<'_>) -> Result<String> {
    let id = job.spec.id(&job.leaf.member, &job.leaf.host, &job.place);
    let order = Order::of_creation(&id);
    if host::volume::uses(&provisioner.host, &job.spec.name, &id.to_string()).await? {
        return Err(in_use(job.spec, &job.leaf.member));
    }
    leaf::claim::read(job.leaf, &job.place).await?;
    let Some(row) = job.row() else { return job.class() };
    if !is_unbound(&row) || row.had_volume() {
        let changed = format!("member {}: leaf claim {} has changed meanwhile", job.leaf.member, row.place);
        return Err(Error::InProgress(changed));
    }
    leaf::consumer::remove(job.leaf, &row.place.namespace, job.hash).await?;
    if !row.observed().terminating {
        leaf::claim::delete(job.leaf, &row, job.hash).await?;
    }
    delete::remove(provisioner, job.leaf, job.hash, &job.place, &order, job.deadline).await?;
    Ok(row.class.to_string())
}

fn is_unbound(row: &ClaimRow) -> bool {
    row.observed().phase == Phase::Pending && row.volume().is_none()
}

/// As the scheduler says it of a pod whose claim was deleted.
fn names_a_claim_that_is_gone(reason: &str) -> bool {
    reason.contains("persistentvolumeclaim \"")
        && (reason.contains("\" not found") || reason.contains("\" is being deleted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_words_on_a_claim_that_is_gone_are_known() {
        for (reason, gone) in [
            ("0/1 nodes are available: persistentvolumeclaim \"log\" not found. not found", true),
            ("0/1 nodes are available: persistentvolumeclaim \"log\" is being deleted.", true),
            ("0/1 nodes are available: persistentvolumeclaim \"log\" bound to non-existent persistentvolume", false),
            ("0/1 nodes are available: 1 Insufficient cpu.", false),
        ] {
            assert_eq!(names_a_claim_that_is_gone(reason), gone, "{reason}");
        }
    }

    #[test]
    fn looks_are_further_and_further_apart() {
        let mut attempt = Attempt::default();
        let seconds: Vec<u64> = (0..5).map(|_| attempt.next_look().as_secs()).collect();
        assert_eq!(seconds, [4, 4, 8, 15, 15]);
    }
}
