//! Group snapshots: of several volumes of one member and one namespace at one moment, made by the member's own group.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Deadline, Provisioner,
    delete_group::{are_marked, check, remove_group, remove_outlived},
    find::{self, Sought},
    found_group::{find, marked, marked_rows},
    group_volumes::{Volume, one_member, one_namespace, paired, volumes_of},
    snapshot::Snapshot,
    wait_for,
};
use domain::{
    error::{Error, Result},
    volume::{
        LeafName, LeafPlace, SnapshotSpec, VolumeHash, VolumeId,
        snapshot::{Cutting, cutting, group_id, leaf_group_name},
    },
};
use host::snapshot::ContentKind;
use leaf::{
    MemberClient, ownership,
    snapshot::{
        group::{Groups, LeafGroup, PartMark, SEPARATOR, WantedGroup},
        kinds::VolumeSnapshot,
        row::SnapshotRow,
    },
};

/// Between two looks at the snapshots of a group, which the member makes one after another.
const PAUSE: Duration = Duration::from_millis(200);
/// One of them may have been removed, so that they never are all there.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A group that is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub id: VolumeId,
    pub snapshots: Vec<Snapshot>,
    /// In seconds since 1970.
    pub cut: i64,
    pub ready: bool,
}

/// One CreateVolumeGroupSnapshot under way.
struct GroupCreation<'a> {
    spec: &'a SnapshotSpec,
    hash: VolumeHash,
    leaf: &'a MemberClient,
    groups: Groups<'a>,
    /// The host has its handle.
    given_out: bool,
    deadline: &'a Deadline,
}

pub async fn group(provisioner: &Provisioner, spec: &SnapshotSpec, deadline: &Deadline) -> Result<Group> {
    let hash = VolumeHash::of_group(&provisioner.host.id, &spec.name);
    let member = provisioner.members.get(&one_member(spec)?).await?;
    let leaf = member.leaf()?;
    leaf.snapshots.want();
    let content = match &spec.content {
        Some(name) => host::snapshot::read_content(&provisioner.host, ContentKind::Group, name).await?,
        None => None,
    };
    // An earlier call may have made it.
    let groups = leaf::snapshot::served::groups(leaf).await.map_err(Error::while_a_leaf_may_exist)?;
    let Some(groups) = groups else { return Err(no_groups(&member.name)) };
    let given_out = content.as_ref().is_some_and(|content| content.given_out);
    let job = GroupCreation { spec, hash, leaf, groups, given_out, deadline };
    let unwanted = content.as_ref().is_none_or(|content| content.terminating && !content.given_out);
    // The host was restored from a backup, and its sidecar has not heard so yet.
    let forgotten =
        spec.content.is_some() && content.is_none() && job.is_marked().await.map_err(Error::while_a_leaf_may_exist)?;
    if spec.content.is_some() && unwanted && !forgotten {
        let gone = Error::Gone(format!("group {} is no longer wanted in the host; nothing is left of it", spec.name));
        let removed = withdraw_group(provisioner, &job, content.is_some()).await;
        return Err(removed.map_or_else(Error::while_a_leaf_may_exist, |()| gone));
    }
    settle_group(provisioner, &job, forgotten).await
}

async fn settle_group(provisioner: &Provisioner, job: &GroupCreation<'_>, forgotten: bool) -> Result<Group> {
    let mut created = false;
    loop {
        let found = job.found().await.map_err(Error::while_a_leaf_may_exist)?;
        match (cutting(&job.spec.sources, found.as_ref().map(LeafGroup::observed).as_ref()), found) {
            (Cutting::Create, _) if job.given_out || forgotten => return Err(job.lost("the leaf group")),
            (Cutting::Create, _) if created || !job.deadline.caller_waits() => {
                return Err(job.late("is being made"));
            }
            (Cutting::Create, _) => {
                make_group(provisioner, job).await?;
                created = true;
            }
            (Cutting::Cut, Some(group)) => {
                let finished = finish_group(provisioner, job, group).await;
                // Whoever has its handle has it removed by that, whatever he is answered here.
                return if job.given_out { finished } else { finished.map_err(Error::while_a_leaf_may_exist) };
            }
            (Cutting::Differs(difference), group) => return Err(job.differs(&difference, group.as_ref())),
            (Cutting::Failing(trouble), _) => return Err(job.late(&format!("is not cut yet: {trouble}"))),
            (step, group) => {
                let place = group.map_or_else(|| job.place(""), |group| group.place);
                let changed = |now: Option<LeafGroup>| {
                    cutting(&job.spec.sources, now.map(|group| group.observed()).as_ref()) != step
                };
                let come = |pause| job.groups.until(&place, pause, changed);
                wait_for(job.deadline, come, async || job.late("is not cut yet")).await?;
            }
        }
    }
}

/// What stands in the way is final once nothing is left of an earlier attempt.
async fn make_group(provisioner: &Provisioner, job: &GroupCreation<'_>) -> Result<()> {
    match post_group(provisioner, job).await {
        Err(error) if error.is_final() => {
            if job.found().await.map_err(Error::while_a_leaf_may_exist)?.is_some() {
                return Ok(());
            }
            unlabel(provisioner, job).await?;
            Err(error)
        }
        posted => posted,
    }
}

/// The claims are labelled first: a group without any is an error to the member.
async fn post_group(provisioner: &Provisioner, job: &GroupCreation<'_>) -> Result<()> {
    let classes = job.spec.leaf_class.as_ref().map_err(Error::clone)?;
    let volumes = volumes_of(provisioner, job.leaf, job.spec).await?;
    let namespace = one_namespace(job.leaf, &volumes)?;
    for volume in &volumes {
        volume.claim.stands_still(&job.leaf.member)?;
        super::found_snapshot::is_where_its_handle_says(job.leaf, &volume.handle, &volume.claim.place)?;
    }
    for volume in &volumes {
        leaf::snapshot::chosen::label_for_group(job.leaf, &volume.claim, job.hash, true).await?;
    }
    let wanted = WantedGroup {
        name: &job.spec.name,
        hash: job.hash,
        namespace,
        sources: &job.spec.sources,
        class: classes.at(&job.leaf.member).map(String::as_str),
        content: job.spec.content.as_deref(),
    };
    // The next look tells whose it is, if the name is taken.
    job.groups.create(&wanted).await.map(drop)
}

/// Also where some of the volumes are gone: the others may carry the label.
async fn unlabel(provisioner: &Provisioner, job: &GroupCreation<'_>) -> Result<()> {
    for handle in &job.spec.sources {
        match find::seek(provisioner, handle).await? {
            Sought::FoundLeaf(found) if found.imported => {}
            Sought::FoundLeaf(found) => {
                leaf::snapshot::chosen::label_for_group(job.leaf, &found.claim, job.hash, false).await?;
            }
            // Recreated, a claim is of no group.
            Sought::LetGo(_) | Sought::Misnamed(_) | Sought::Unknown => {}
            Sought::Stripped(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for the snapshots in it, and marks each as ours. Where an earlier call has, their volumes may have gone since.
async fn finish_group(provisioner: &Provisioner, job: &GroupCreation<'_>, group: LeafGroup) -> Result<Group> {
    let mut parts = leaf::snapshot::group::parts(job.leaf, &group).await?;
    let marked = marked_rows(job.leaf, &parts, job.hash);
    if job.are_all(&marked) {
        return job.give_out_again(&group, &marked).await;
    }
    if job.given_out && parts.len() < job.spec.sources.len() {
        return Err(job.lost("a leaf snapshot"));
    }
    let volumes = volumes_of(provisioner, job.leaf, job.spec).await?;
    let cut = |part: &&VolumeSnapshot| {
        part.status
            .as_ref()
            .is_some_and(|status| status.creation_time.is_some() && status.bound_volume_snapshot_content_name.is_some())
    };
    let mut pause = PAUSE;
    while parts.iter().filter(cut).count() < volumes.len() {
        job.deadline.pause(pause, || job.late("is cut, and its snapshots are being made")).await?;
        pause = (pause * 2).min(LONGEST_PAUSE);
        parts = leaf::snapshot::group::parts(job.leaf, &group).await?;
    }
    // All are known before one is marked, as a marked one of each volume is taken for the whole group.
    let pairs = paired(&parts, &volumes).map_err(|claim| {
        job.late(&format!(
            "holds a snapshot of claim {claim}, which has the driver's labels, but is of no volume of the group"
        ))
    })?;
    let mut rows = Vec::new();
    for (part, volume) in pairs {
        rows.push(job.mark(part, volume).await?);
    }
    job.mark_what_stays(&group, &rows).await?;
    unlabel(provisioner, job).await?;
    Ok(job.told(&group, &rows))
}

/// The group goes, and what its class has kept of one that people of the member have deleted before the host was told of it. A host that has
/// nothing on record of it may have been restored from a backup, and have had it.
async fn withdraw_group(provisioner: &Provisioner, job: &GroupCreation<'_>, is_on_record: bool) -> Result<()> {
    let group = job.found().await?;
    if let Some(group) = &group {
        let parts = leaf::snapshot::group::parts(job.leaf, group).await?;
        remove_group(job.leaf, &job.groups, group, &parts, job.hash, job.deadline).await?;
    }
    if is_on_record {
        let (id, parts) = job.handles(group.as_ref());
        remove_outlived(job.leaf, Some(&job.groups), &id, job.hash, &parts, job.deadline).await?;
    }
    unlabel(provisioner, job).await
}

pub async fn get(provisioner: &Provisioner, text: &str, snapshots: &[String]) -> Result<Group> {
    let unknown = || Error::NotFound(format!("no group of snapshots has the handle {text:?}"));
    let id = VolumeId::parse(text).ok_or_else(unknown)?;
    let member = provisioner.members.get(&id.member).await?;
    let leaf = member.leaf()?;
    let groups = leaf::snapshot::served::groups(leaf).await?.ok_or_else(unknown)?;
    let (hash, group) = find(leaf, &groups, &id).await?.ok_or_else(unknown)?;
    let all = leaf::snapshot::group::parts(leaf, &group).await?;
    let parts = marked(leaf, &id, &all, hash);
    are_marked(leaf, hash, &all, &parts, snapshots, "")?;
    check(&parts, &[], snapshots)?;
    let ready = group.ready && parts.iter().all(|part| part.ready);
    Ok(Group { id, cut: group.cut.unwrap_or_default(), ready, snapshots: parts })
}

impl GroupCreation<'_> {
    /// Where the group is or would be: beside its volumes, which are in one namespace.
    fn place(&self, fallback: &str) -> LeafPlace {
        let volume = self.spec.sources.iter().find_map(|handle| VolumeId::parse(handle)?.place());
        let namespace = volume.map_or_else(|| fallback.to_owned(), |place| place.namespace);
        LeafPlace { namespace, claim: leaf_group_name(self.hash) }
    }

    fn hashed(&self, hash: VolumeHash) -> VolumeId {
        VolumeId { member: self.leaf.member.clone(), leaf: LeafName::Hashed(hash) }
    }

    /// By which what has outlived it is known: its own and, where that says no place, those of its snapshots.
    fn handles(&self, group: Option<&LeafGroup>) -> (VolumeId, Vec<String>) {
        let namespace = group.map_or_else(|| self.place("").namespace, |group| group.place.namespace.clone());
        if !namespace.is_empty() {
            return (group_id(&self.leaf.member, &namespace, self.hash), Vec::new());
        }
        let volumes = self.spec.sources.iter().filter_map(|handle| VolumeId::parse(handle));
        let part = |volume: VolumeHash| VolumeHash::of_part(&self.leaf.host, &self.spec.name, volume);
        let parts = volumes.map(|volume| self.hashed(part(*volume.hashes().start())).to_string());
        (self.hashed(self.hash), parts.collect())
    }

    async fn found(&self) -> Result<Option<LeafGroup>> {
        let place = self.place("");
        if place.namespace.is_empty() {
            let found = find(self.leaf, &self.groups, &self.hashed(self.hash)).await?;
            return Ok(found.map(|(_, group)| group));
        }
        match self.groups.read(&place, self.hash).await? {
            None => Ok(None),
            Some(Ok(group)) => Ok(Some(group)),
            Some(Err(whose)) => Err(Error::Exists(format!(
                "member {}: group {place} is there already and {whose}; it is left untouched. Remove it there",
                self.leaf.member
            ))),
        }
    }

    /// As of a snapshot: its sidecar forgets for good what it has no handle of.
    fn differs(&self, difference: &str, group: Option<&LeafGroup>) -> Error {
        let record = self.spec.content.as_deref();
        match group.filter(|group| record.is_some() && group.asked_by.as_deref() == record) {
            Some(group) => Error::InProgress(format!(
                "member {}: group {} was made for this group, but somebody there has changed which volumes it names: \
                 put back annotation {}={}",
                self.leaf.member,
                group.place,
                ownership::SOURCE,
                self.spec.sources.join(SEPARATOR)
            )),
            None => Error::Exists(format!("group {} exists: {difference}", self.spec.name)),
        }
    }

    /// Whether a snapshot of it carries our labels, as all do before anybody is told of it.
    async fn is_marked(&self) -> Result<bool> {
        let Some(group) = self.found().await? else { return Ok(false) };
        let parts = leaf::snapshot::group::parts(self.leaf, &group).await?;
        Ok(parts.iter().any(|part| leaf::snapshot::group::is_marked_part(self.leaf, part, self.hash)))
    }

    /// Whether there is a marked snapshot of each volume.
    fn are_all(&self, marked: &[SnapshotRow]) -> bool {
        let own = marked.iter().filter(|row| self.says_its_own(row));
        let sources: BTreeSet<&str> = own.map(|row| &*row.source).collect();
        sources == self.spec.sources.iter().map(String::as_str).collect()
    }

    /// Whether it says to be of the volume that it was marked for. Its hash is made of that one's.
    fn says_its_own(&self, row: &SnapshotRow) -> bool {
        let is_made_of = |volume| VolumeHash::of_part(&self.leaf.host, &self.spec.name, volume) == row.hash;
        let source = VolumeId::parse(&row.source);
        row.volume.is_some_and(|volume| is_made_of(volume) && source.is_some_and(|source| source.names(volume)))
    }

    /// Marks a snapshot as ours, if it is not, or says to be of another volume by now.
    async fn mark(&self, part: &VolumeSnapshot, volume: &Volume) -> Result<SnapshotRow> {
        let hash = VolumeHash::of_part(&self.leaf.host, &self.spec.name, volume.hash);
        let known = self.leaf.snapshots.row(hash).filter(|row| Some(&*row.uid) == part.metadata.uid.as_deref());
        if let Some(row) = known.filter(|row| row.is_there() && *row.source == *volume.handle) {
            return Ok(row);
        }
        let mark = PartMark {
            hash,
            group: self.hash,
            volume: volume.hash,
            source: &volume.handle,
            driver: &volume.driver,
            content: self.spec.content.as_deref(),
        };
        let row = leaf::snapshot::group::mark_part(self.leaf, part, &mark).await?;
        row.ok_or_else(|| self.late("has a snapshot that does not take the driver's labels"))
    }

    /// The call that marked them may have been cut off before the rest of it.
    async fn give_out_again(&self, group: &LeafGroup, marked: &[SnapshotRow]) -> Result<Group> {
        self.mark_what_stays(group, marked).await?;
        for (hash, claim) in self.leaf.rows.chosen_for_groups() {
            if marked.iter().any(|row| row.volume == Some(hash)) {
                leaf::snapshot::chosen::label_for_group(self.leaf, &claim, self.hash, false).await?;
            }
        }
        Ok(self.told(group, marked))
    }

    fn told(&self, group: &LeafGroup, rows: &[SnapshotRow]) -> Group {
        let mut snapshots: Vec<Snapshot> = rows.iter().map(|row| Snapshot::new(self.leaf, row)).collect();
        snapshots.sort_by_key(|snapshot| snapshot.id.to_string());
        Group {
            id: group_id(&self.leaf.member, &group.place.namespace, self.hash),
            ready: group.ready && snapshots.iter().all(|snapshot| snapshot.ready),
            cut: group.cut.unwrap_or_default(),
            snapshots,
        }
    }

    /// What would outlive the group is marked as ours, so that it is found also when that has gone.
    async fn mark_what_stays(&self, group: &LeafGroup, parts: &[SnapshotRow]) -> Result<()> {
        let Some(name) = &group.content else { return Ok(()) };
        let Some(content) = self.groups.content(name, &group.uid).await?.filter(|content| content.retained) else {
            return Ok(());
        };
        for part in parts.iter().filter(|part| !self.leaf.snapshots.is_marked(part.hash, &part.uid)) {
            if let Some(content) = &part.content {
                leaf::snapshot::mark_content(self.leaf, part, content, None).await?;
            }
        }
        self.groups.mark(&content, self.hash).await
    }

    fn late(&self, state: &str) -> Error {
        Error::InProgress(format!("member {}: leaf group {} {state}", self.leaf.member, leaf_group_name(self.hash)))
    }

    fn lost(&self, what: &str) -> Error {
        Error::Refused(format!(
            "member {}: {what} of {} was removed there; delete the group here",
            self.leaf.member, self.spec.name
        ))
    }
}

fn no_groups(member: &str) -> Error {
    Error::Refused(format!(
        "member {member} has no group snapshots: install the CRDs of groupsnapshot.storage.k8s.io there, and run its snapshot \
         controller with the feature CSIVolumeGroupSnapshot"
    ))
}
