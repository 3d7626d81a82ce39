//! CreateSnapshot: find or make the leaf snapshot beside its volume's claim, wait until it is cut, hand out its handle.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Deadline, Provisioner, delete_snapshot,
    find::{self, FoundLeaf},
    found_snapshot::{beside, is_cut, is_told_from_copies, is_where_its_handle_says, was_given_out},
    wait_for,
};
use domain::{
    error::{Error, Result},
    volume::{
        LeafPlace, SnapshotSpec, VolumeHash, VolumeId,
        snapshot::{Cutting, cutting, group_id, leaf_name},
    },
};
use host::snapshot::ContentKind;
use leaf::{
    MemberClient,
    claim::Made,
    ownership,
    snapshot::{Content, WantedSnapshot, kinds::VolumeSnapshot, row::SnapshotRow},
};

/// How long a complaint of the member may stand before the caller hears it. The sidecar has few workers.
const PATIENCE_WITH_TROUBLE: Duration = Duration::from_secs(2);

/// A snapshot that is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub id: VolumeId,
    pub source: String,
    pub size: u64,
    /// In seconds since 1970.
    pub cut: i64,
    pub ready: bool,
    pub member: String,
    /// The handle of its group.
    pub group: Option<String>,
}

impl Snapshot {
    pub(super) fn new(leaf: &MemberClient, row: &SnapshotRow) -> Self {
        Self::known_as(&leaf.member, leaf, row)
    }

    /// With the handle that it has by this name of its member: when it was given out, another name may have served.
    pub(super) fn known_as(name: &str, leaf: &MemberClient, row: &SnapshotRow) -> Self {
        Self {
            id: row.id(name),
            source: row.source.to_string(),
            size: row.size,
            cut: row.cut.unwrap_or_default(),
            ready: row.ready,
            member: leaf.member.clone(),
            group: row.group.map(|group| group_id(name, &row.place.namespace, group).to_string()),
        }
    }
}

/// One CreateSnapshot under way.
struct SnapshotCreation<'a> {
    spec: &'a SnapshotSpec,
    source: &'a str,
    hash: VolumeHash,
    leaf: &'a MemberClient,
    /// To the host, whatever that knows of it now: it is never cut again.
    given_out: bool,
    deadline: &'a Deadline,
}

pub async fn snapshot(provisioner: &Provisioner, spec: &SnapshotSpec, deadline: &Deadline) -> Result<Snapshot> {
    let source = spec.sources.first().map(String::as_str).unwrap_or_default();
    let volume = VolumeId::parse(source).ok_or_else(|| no_volume(source))?;
    let hash = VolumeHash::of_snapshot(&provisioner.host.id, &spec.name);
    let member = provisioner.members.get(&volume.member).await?;
    is_not_elsewhere(provisioner, spec, &member.name, hash)?;
    let leaf = member.leaf()?;
    spec.check_place(&member.name)?;
    leaf.snapshots.want();
    let mut job = SnapshotCreation { spec, source, hash, leaf, given_out: false, deadline };
    if let Some(name) = &spec.content {
        job.given_out = match host::snapshot::read_content(&provisioner.host, ContentKind::Snapshot, name).await? {
            Some(content) if content.given_out || !content.terminating => content.given_out,
            // The host was restored from a backup, and its sidecar has not heard so yet.
            None if job.is_marked().await.map_err(Error::while_a_leaf_may_exist)? => true,
            // The host's user has removed it before it was given out.
            _ => return Err(withdraw_snapshot(&job).await),
        };
    }
    settle_snapshot(provisioner, &job).await
}

/// The same name of a volume in another member. Only what is known is asked: the sidecar's names are unique.
fn is_not_elsewhere(provisioner: &Provisioner, spec: &SnapshotSpec, member: &str, hash: VolumeHash) -> Result<()> {
    let members = provisioner.members.all()?;
    let others = members.values().filter(|other| other.name != member);
    let mut found = others.filter_map(|other| other.last_known()?.snapshots.row(hash));
    found.next().map_or(Ok(()), |row| Err(exists(spec, &format!("it is a snapshot of {}", row.source))))
}

async fn settle_snapshot(provisioner: &Provisioner, job: &SnapshotCreation<'_>) -> Result<Snapshot> {
    let mut before = None;
    let mut troubled: Option<Instant> = None;
    loop {
        let row = job.row();
        let step = job.step(row.as_ref());
        // Acted, and nothing has changed: looking on would be asking in circles. And whoever asked may have had it
        // removed since.
        let circles = before.as_ref() == Some(&step) || !job.deadline.caller_waits();
        if circles && step == Cutting::Create {
            return Err(job.late(row.as_ref()).await);
        }
        if before.is_some() && job.deadline.passed() && step != Cutting::Cut {
            job.deadline.tell(job.late(row.as_ref()).await)?;
        }
        match (&step, &row) {
            (Cutting::Create, _) => make_snapshot(provisioner, job).await?,
            (Cutting::Cut, Some(row)) => {
                is_told_from_copies(job.leaf, row)?;
                if job.given_out {
                    was_given_out(job.leaf, row, &format!("snapshot {}", job.spec.name)).await?;
                }
                return job.finish(row).await.map_err(Error::while_a_leaf_may_exist);
            }
            (Cutting::Differs(difference), row) => return Err(job.differs(difference, row.as_ref())),
            (Cutting::Failing(_), row) => {
                let until = *troubled.get_or_insert_with(|| Instant::now() + PATIENCE_WITH_TROUBLE);
                if Instant::now() >= until {
                    return Err(job.late(row.as_ref()).await);
                }
                job.leaf.snapshots.until(until.min(job.deadline.next()), |_| job.changed(&step)).await;
            }
            _ => job.wait(&step).await.map_err(Error::while_a_leaf_may_exist)?,
        }
        before = Some(step);
    }
}

/// Nothing is there. What stands in the way is final only once a read has shown that it still is so.
async fn make_snapshot(provisioner: &Provisioner, job: &SnapshotCreation<'_>) -> Result<()> {
    if job.given_out {
        return job.nothing_is_there(job.lost()).await;
    }
    let classes = match &job.spec.leaf_class {
        Ok(classes) => classes,
        Err(slip) => return job.nothing_is_there(slip.clone()).await,
    };
    let volume = match find::find(provisioner, job.source).await {
        Err(error) if error.is_final() => return job.nothing_is_there(error).await,
        found => found?,
    };
    if volume.claim.observed().terminating {
        let refusal = format!("volume {} is being deleted, and snapshots can no longer be made of it", job.source);
        return job.nothing_is_there(Error::Refused(refusal)).await;
    }
    volume.claim.stands_still(&job.leaf.member)?;
    match job.post(&volume, classes.at(&job.leaf.member).map(String::as_str)).await {
        Ok(Made::Now) => Ok(()),
        Ok(Made::Taken) => job.adopt(&volume.claim.place.namespace).await,
        Err(error) if error.is_final() => job.nothing_is_there(error).await,
        Err(error) => Err(error),
    }
}

/// Nobody waits for it any more: what was made goes, and the sidecar may forget it.
async fn withdraw_snapshot(job: &SnapshotCreation<'_>) -> Error {
    let removed = async {
        if job.place().is_none() {
            leaf::snapshot::list(job.leaf, job.hash).await?;
        }
        match job.place() {
            Some(place) => delete_snapshot::remove_snapshot(job.leaf, job.hash, &place, job.deadline).await,
            None => delete_snapshot::remove_unplaced(job.leaf, job.hash, job.deadline).await,
        }
    };
    let gone = format!("snapshot {} is no longer wanted in the host; nothing is left of it", job.spec.name);
    removed.await.map_or_else(Error::while_a_leaf_may_exist, |()| Error::Gone(gone))
}

impl SnapshotCreation<'_> {
    fn step(&self, row: Option<&SnapshotRow>) -> Cutting {
        cutting(&self.spec.sources, row.map(SnapshotRow::observed).as_ref())
    }

    fn changed(&self, step: &Cutting) -> bool {
        self.step(self.row().as_ref()) != *step
    }

    /// Where the leaf snapshot is or would be, or where one is seen, which is a copy in another namespace.
    fn place(&self) -> Option<LeafPlace> {
        let seen = || self.leaf.snapshots.row(self.hash).map(|row| row.place);
        beside(self.leaf, self.hash, self.source).or_else(seen)
    }

    /// The leaf snapshot, as far as it is known. What a backup tool has made of it in another namespace is bound to a content that was there before.
    fn row(&self) -> Option<SnapshotRow> {
        let known = || self.leaf.snapshots.row(self.hash);
        let Some(place) = beside(self.leaf, self.hash, self.source) else { return known() };
        self.leaf.snapshots.row_at(self.hash, &place).or_else(|| known().filter(is_cut))
    }

    /// Whether what stands behind it carries our labels, as before anybody is told of it. It may have outlived its snapshot, or come late.
    async fn is_marked(&self) -> Result<bool> {
        let namespace = self.place().map(|place| place.namespace);
        Ok(!leaf::snapshot::list_contents(self.leaf, self.hash, namespace.as_deref()).await?.is_empty())
    }

    /// Nothing is written on the claim, so an imported one will do as well.
    async fn post(&self, volume: &FoundLeaf, class: Option<&str>) -> Result<Made> {
        let claim = &volume.claim;
        let about = |what: &str| {
            Error::Refused(format!("member {}: the volume of claim {} {what}", self.leaf.member, claim.place))
        };
        let driver = match volume.driver().await? {
            None => return Err(about("is not made yet, so no snapshot of it can be taken: it waits for a pod")),
            Some(driver) if driver.is_empty() => return Err(about("is of no CSI driver, so it has no snapshots")),
            Some(driver) => driver,
        };
        is_where_its_handle_says(self.leaf, self.source, &claim.place)?;
        let place = LeafPlace { namespace: claim.place.namespace.clone(), claim: leaf_name(self.hash) };
        let wanted = WantedSnapshot {
            name: &self.spec.name,
            hash: self.hash,
            place: &place,
            claim: &claim.place.claim,
            volume: volume.hash,
            source: self.source,
            driver: &driver,
            class,
            content: self.spec.content.as_deref(),
        };
        leaf::snapshot::create(self.leaf, &wanted).await
    }

    /// The name is taken: by our own, whose row was not here yet, or by somebody else's.
    async fn adopt(&self, namespace: &str) -> Result<()> {
        let place = LeafPlace { namespace: namespace.to_owned(), claim: leaf_name(self.hash) };
        match leaf::snapshot::read(self.leaf, &place).await.map_err(Error::while_a_leaf_may_exist)? {
            None | Some((_, Some(_))) => Ok(()),
            Some((there, None)) if self.made(&there) => Err(self.without_marks(&place, &self.lacking(&there))),
            Some((foreign, None)) => Err(Error::Exists(format!(
                "member {}: snapshot {place} is there already and {}; it is left untouched. Remove it there",
                self.leaf.member,
                ownership::whose(&foreign.metadata, &self.leaf.host)
            ))),
        }
    }

    /// The error itself, where a read shows that there is no leaf; nothing, where there is one after all.
    async fn nothing_is_there(&self, error: Error) -> Result<()> {
        let found = match self.place() {
            Some(place) => match leaf::snapshot::read(self.leaf, &place).await {
                Ok(Some((there, None))) if self.made(&there) => {
                    return Err(self.without_marks(&place, &self.lacking(&there)));
                }
                Ok(None) => self.elsewhere().await,
                read => read.map(|found| found.and_then(|(_, row)| row)),
            },
            None => match self.unplaced().await {
                Ok((None, Some((place, lacking)))) => return Err(self.without_marks(&place, &lacking)),
                read => read.map(|(row, _)| row),
            },
        };
        match found {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(error),
            Err(unsure) => Err(Error::Unreachable {
                member: self.leaf.member.clone(),
                reason: format!("{error}; and whether a snapshot is there cannot be read: {unsure}"),
            }),
        }
    }

    /// What was cut where its leaf claim was before, and is not listed yet, where the handle of its volume says no place.
    async fn elsewhere(&self) -> Result<Option<SnapshotRow>> {
        if VolumeId::parse(self.source).is_none_or(|volume| volume.place().is_some()) {
            return Ok(None);
        }
        leaf::snapshot::list(self.leaf, self.hash).await?;
        Ok(self.row())
    }

    /// What carries its marks, or else where one of its name is without them, and what that lacks.
    async fn unplaced(&self) -> Result<(Option<SnapshotRow>, Option<(LeafPlace, String)>)> {
        leaf::snapshot::list(self.leaf, self.hash).await?;
        match self.leaf.snapshots.row(self.hash) {
            None => Ok((None, leaf::snapshot::stripped(self.leaf, self.hash).await?)),
            row => Ok((row, None)),
        }
    }

    /// By what is left of its marks, where somebody has taken some off: the note that it was made with, or its labels.
    fn made(&self, there: &VolumeSnapshot) -> bool {
        let labelled = ownership::hash_of(&there.metadata, &self.leaf.host, ownership::SNAPSHOT);
        labelled == Some(self.hash) || ownership::is_named(&there.metadata, &self.spec.name)
    }

    fn lacking(&self, there: &VolumeSnapshot) -> String {
        leaf::snapshot::unmarked(self.leaf, there, self.hash).unwrap_or_else(|| self.source_note())
    }

    fn source_note(&self) -> String {
        format!("annotation {}={}", ownership::SOURCE, self.source)
    }

    /// The sidecar forgets for good what it has no handle of, and the member would keep it.
    fn without_marks(&self, place: &LeafPlace, lacking: &str) -> Error {
        let told = delete_snapshot::stripped(self.leaf, place, lacking);
        if self.given_out { told } else { told.while_a_leaf_may_exist() }
    }

    /// What was made for the very record of the host that is asked for was made of its volume, whatever it says since.
    fn differs(&self, difference: &str, row: Option<&SnapshotRow>) -> Error {
        let record = self.spec.content.as_deref();
        match row.filter(|row| record.is_some() && row.asked_by.as_deref() == record) {
            Some(row) => self.without_marks(&row.place, &self.source_note()),
            None => exists(self.spec, difference),
        }
    }

    async fn wait(&self, step: &Cutting) -> Result<()> {
        let late = async || self.late(self.row().as_ref()).await;
        let heard =
            wait_for(self.deadline, |pause| self.leaf.snapshots.until(pause, |_| self.changed(step)), late).await?;
        if !heard && let Some(row) = self.row() {
            // The watch said nothing for a while: it may be dead.
            let there = leaf::snapshot::read(self.leaf, &row.place).await?;
            if there.is_none_or(|(snapshot, _)| snapshot.metadata.uid.as_deref() != Some(&row.uid)) {
                self.leaf.snapshots.drop_row(row.hash, &row.uid);
            }
        }
        Ok(())
    }

    /// Marks what stands behind it as ours, so that it is found also when its snapshot has gone.
    async fn finish(&self, row: &SnapshotRow) -> Result<Snapshot> {
        let snapshots = &self.leaf.snapshots;
        if let Some(content) = row.content.as_deref().filter(|_| !snapshots.is_marked(row.hash, &row.uid)) {
            let backing = self.backing(row, content);
            let marked = leaf::snapshot::mark_content(self.leaf, row, content, backing.as_deref()).await;
            marked.map_err(|error| match error {
                Error::Refused(reason) if backing.is_some() => Error::Refused(format!(
                    "{reason}. It may be of another claim, which had the name of the leaf claim before: delete the \
                     snapshot here, and make it again"
                )),
                error => error,
            })?;
        }
        Ok(Snapshot::new(self.leaf, row))
    }

    /// What the member's storage calls the volume that it is to be cut of, where that is known: a leaf snapshot names its claim alone, and
    /// another one may have had the name. What was restored under our name says nothing of that, and what was given out was cut long ago.
    fn backing(&self, row: &SnapshotRow, content: &str) -> Option<Box<str>> {
        if self.given_out || content != Content::name_of(None, &row.uid) {
            return None;
        }
        let (_, leaf) = self.leaf.rows.find(&VolumeId::parse(self.source)?)?;
        let (claim, volume) = (leaf.claim?, leaf.volume?);
        (claim.volume() == Some(&*volume.name) && !volume.handle.is_empty()).then_some(volume.handle)
    }

    /// Why it still waits, in the member's own words where it has any.
    async fn late(&self, row: Option<&SnapshotRow>) -> Error {
        let Some(row) = row else {
            return Error::InProgress(format!("member {}: the leaf snapshot is being made", self.leaf.member));
        };
        let mut reason = row.trouble.as_deref().map(str::to_owned);
        if reason.is_none() {
            reason = leaf::events::newest_warning(self.leaf, &row.place.namespace, &row.uid).await;
        }
        let state = if row.terminating { "is being removed in the member" } else { "is not cut yet" };
        Error::InProgress(format!(
            "member {}: leaf snapshot {} {state}{}",
            self.leaf.member,
            row.place,
            reason.map(|reason| format!(": {reason}")).unwrap_or_default()
        ))
    }

    /// A new one under its name would be of another moment.
    fn lost(&self) -> Error {
        Error::Refused(format!(
            "member {}: the leaf snapshot of {} was removed there; delete the snapshot here",
            self.leaf.member, self.spec.name
        ))
    }
}

fn exists(spec: &SnapshotSpec, difference: &str) -> Error {
    Error::Exists(format!("snapshot {} exists: {difference}", spec.name))
}

pub(super) fn no_volume(handle: &str) -> Error {
    Error::NotFound(format!("no volume has the handle {handle:?}"))
}
