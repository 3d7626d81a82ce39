//! A move begins, or is refused: all that can be known before anything is done is looked at, and what it is about is pinned.

use std::collections::BTreeMap;

use super::{LONG, RunningMove, Went, growth, within};
use crate::provision::modify::check_class;
use domain::{
    error::{Error, Result},
    volume::{
        Attributes, Claim, LeafPlace, Parameters, Request, VolumeHash, VolumeId, VolumeMode, VolumeSpec,
        backing::AttachMode,
        id::is_subdomain,
        moving::{MoveMark, Part, Phase, YARD},
        quantity,
    },
};
use host::{
    class::{self, HostClass},
    moves::{
        self, PinnedLeaf, PinnedVolume, Side,
        subject::{Subject, read_attributes_class, read_subject},
    },
    volume::GivenOut,
};
use leaf::{
    MemberClient,
    claim::LeafSpec,
    moving::{self as writes, yard},
    ownership::MOVE,
    row::{ClaimRow, VolumeRow},
};
use member::{Member, registry::may_mean};

use super::look::Looked;

/// What a move is to do, once nothing speaks against it.
struct Plan {
    volume: PinnedVolume,
    source: PinnedLeaf,
    from: Side,
    to: Side,
}

pub(super) async fn begin(job: &mut RunningMove) -> Result<Went> {
    if job.of.metadata.deletion_timestamp.is_some() {
        job.of = moves::release(&job.movers.host, &job.of).await?;
        return Ok(Went::Over);
    }
    if !moves::is_held(&job.of) {
        job.of = moves::hold(&job.movers.host, &job.of).await?;
        return Ok(Went::On);
    }
    match within(LONG * 2, Box::pin(plan(job))).await {
        Ok(plan) => {
            let change = moves::begun(&job.of, &plan.volume, [&plan.from, &plan.to], &plan.source);
            job.write(change).await
        }
        Err(
            error @ (Error::Refused(_) | Error::Invalid(_) | Error::NoPlace(_) | Error::NotFound(_) | Error::Exists(_)),
        ) => {
            let why = error.to_string();
            job.tell_event("MoveRefused", why.clone(), true).await;
            job.write(moves::refused(&job.of, &why)).await
        }
        Err(other) => Err(other),
    }
}

async fn plan(job: &RunningMove) -> Result<Plan> {
    let (host, claim) = (&job.movers.host, moves::claim_of(&job.of));
    let refuse = |why: &str| Error::Refused(format!("claim {claim} {why}"));
    // What a user has written may be anything, and is to become a part of a request's path.
    if !is_subdomain(&claim.name) {
        let why = "is not the name of a claim: name one in the namespace of the VolumeMove";
        return Err(Error::Invalid(format!("spec.claimName: {:?} {why}", claim.name)));
    }
    job.of.spec.keeps_source_for()?;
    let subject = read_subject(host, &claim, true).await?.ok_or_else(|| refuse("is not there"))?;
    if let Some(rival) = moves::rival(host, &job.of, subject.volume_name().as_deref()).await? {
        let name = moves::name(&rival);
        // It ends in a moment.
        if moves::phase_of(&rival).is_some_and(Phase::is_over) {
            return Err(Error::InProgress(format!("{name} ends")));
        }
        return Err(refuse(&format!("is being moved by {name}: wait until that move has ended")));
    }
    let handle = movable(&subject)?;
    let id = VolumeId::parse(handle).ok_or_else(|| refuse("has a volume whose handle is not one of this driver's"))?;
    let from = job.movers.members.get(&id.member).await?;
    let to = destination(job, &from).await?;
    let (volume, uid) = (subject.volume_name().unwrap_or_default(), subject.volume_uid().unwrap_or_default());
    let hash = VolumeHash::new(&host.id, &volume);
    let (home, source) = Box::pin(source_at(job, &from, &id, hash)).await?;
    is_given_out(&from, &home, &source, GivenOut::read(&subject.attributes()))?;
    let members = job.movers.members.all()?;
    let is_from = |name: &str| may_mean(&members, name, &from.name);
    if let Some(other) = host::volume::another_with(host, &volume, &id, is_from).await? {
        return Err(refuse(&format!(
            "shares its data with another volume: remove PersistentVolume {} first",
            other.name
        )));
    }
    let class = class_of(job, &subject, &to.name).await?;
    let spec = spec_of(job, &subject, &class, &volume).await?;
    if spec.attach_mode(&from.name) == AttachMode::VirtualMachine
        || spec.attach_mode(&to.name) == AttachMode::VirtualMachine
    {
        return Err(refuse("is a disk of virtual machines in one of the members"));
    }
    let place = spec.place(&to.name, &host.id, &job.movers.leaf_namespace)?;
    try_out(to.leaf()?, &spec, hash, &place, &subject).await?;
    Ok(Plan {
        volume: PinnedVolume {
            name: volume,
            uid,
            claim_uid: subject.claim_uid.clone(),
            attributes_class: subject.attributes_class().map(str::to_owned),
        },
        source,
        from: side(&from, handle.to_owned(), &home)?,
        to: side(&to, spec.id(&to.name, &host.id, &place).to_string(), &place)?,
    })
}

async fn destination(job: &RunningMove, from: &Member) -> Result<std::sync::Arc<Member>> {
    let name = &job.of.spec.to.member;
    let to = job.movers.members.get_for_new(name).await?;
    if to.name == from.name {
        let other =
            if to.name == *name { String::new() } else { format!(", which is another name of member {}", to.name) };
        return Err(Error::Refused(format!("spec.to.member: the volume is in member {name} already{other}")));
    }
    if to.is_cordoned() {
        return Err(Error::Refused(format!("spec.to.member: member {name} is cordoned: it takes no new volumes")));
    }
    to.leaf()?;
    Ok(to)
}

/// Where the leaf is, and whether it can be moved.
async fn source_at(
    job: &RunningMove,
    from: &Member,
    id: &VolumeId,
    hash: VolumeHash,
) -> Result<(LeafPlace, PinnedLeaf)> {
    let leaf = from.leaf()?;
    let is_listed = leaf.rows.synced();
    let known = leaf.rows.find(id).and_then(|(_, row)| row.claim).map(|claim| claim.place);
    if known.is_none() {
        has_told(leaf, is_listed)?;
    }
    let missing = || {
        Error::Refused(format!(
            "member {}: there is no leaf claim of {id}: the driver does not move imported claims",
            from.name
        ))
    };
    let home = known.or_else(|| id.place()).ok_or_else(missing)?;
    let sight = writes::look(leaf, hash, &home, Some(&moves::mark(&job.of, Part::Source))).await?;
    let claim = ClaimRow::new(sight.home.as_ref().ok_or_else(missing)?);
    if let Some(other) = &claim.moving
        && !moves::is_under_way(&job.movers.host, other).await?
    {
        return Err(left_closed(from, &home, other, sight.is_held() && !claim.is_lost()));
    }
    claim.stands_still(&from.name).map_err(|error| Error::Refused(error.to_string()))?;
    let seen = sight.seen(&home, &moves::mark(&job.of, Part::Source));
    if !seen.whole {
        return Err(Error::Refused(format!(
            "member {}: leaf claim {home} {}",
            from.name,
            claim.unusable().unwrap_or("is being recreated")
        )));
    }
    if let Some(why) = growth::awaited(&claim) {
        return Err(Error::Refused(format!(
            "member {}: leaf claim {home} is being enlarged{why}. Wait until that is done",
            from.name
        )));
    }
    let volume = VolumeRow::new(sight.volume.as_ref().ok_or_else(missing)?);
    has_movers(leaf, &moves::mark(&job.of, Part::Source).uid).await?;
    Ok((home, pinned(&volume)))
}

/// Why a leaf that names a move which is not under way cannot be moved now. The driver opens it by itself where it is one that is whole.
fn left_closed(from: &Member, home: &LeafPlace, other: &MoveMark, is_opened: bool) -> Error {
    let says = format!(
        "member {}: leaf claim {home} says that {} has it, which is not under way in the host",
        from.name,
        other.object()
    );
    if is_opened {
        return Error::InProgress(format!("{says}: the driver opens it again within some minutes"));
    }
    Error::Refused(format!(
        "{says}. The driver does not open it, as it has lost its volume or the driver's finalizer: take annotation \
         {MOVE} off the claim there"
    ))
}

/// What somebody has restored from a backup may be older, and the host would lead every pod to its copy.
fn is_given_out(from: &Member, home: &LeafPlace, source: &PinnedLeaf, told: Option<GivenOut>) -> Result<()> {
    match told.filter(|told| !told.volume.is_empty() && told.volume != source.name) {
        Some(told) => Err(Error::Refused(format!(
            "member {}: leaf claim {home} has leaf volume {}, but the host was given {}: the driver does not move what \
            was restored from a backup. Restore {} there, or copy the data to a new claim here",
            from.name, source.name, told.volume, told.volume
        ))),
        None => Ok(()),
    }
}

/// A driver that has just begun with a member knows nothing of it, and that something is not there is no reason to refuse a move then.
fn has_told(leaf: &MemberClient, was_listed: bool) -> Result<()> {
    // What is known of a member that says too much is forgotten at any moment.
    if was_listed && leaf.rows.synced() {
        return Ok(());
    }
    let why = leaf.rows.obstacle().map(|why| format!(": {why}")).unwrap_or_default();
    Err(Error::InProgress(format!("member {}: what it has is not listed yet{why}", leaf.member)))
}

/// Whether it has joined for moves: nobody's pods are to end, or to wait, for one that cannot go on.
async fn has_movers(leaf: &MemberClient, of: &str) -> Result<()> {
    has_rights_in(leaf, YARD)?;
    writes::ends::movers(leaf, of).await.map(drop)
}

fn has_rights_in(leaf: &MemberClient, namespace: &str) -> Result<()> {
    if leaf.namespaces.has(namespace) {
        return Ok(());
    }
    Err(Error::Refused(format!("member {}: the driver has no rights in namespace {namespace} there", leaf.member)))
}

pub(super) fn pinned(volume: &VolumeRow) -> PinnedLeaf {
    PinnedLeaf { name: volume.name.to_string(), uid: volume.uid().to_owned() }
}

/// The class of the host's volume, where that lets it be in this member.
pub(super) async fn class_of(job: &RunningMove, subject: &Subject, member: &str) -> Result<HostClass> {
    let name = subject.class().unwrap_or_default();
    let class = class::read(&job.movers.host, name).await?;
    let class = class.ok_or_else(|| {
        Error::Refused(format!("StorageClass {name:?} of the volume is not there any more: make it again"))
    })?;
    let only = class.parameters.get("member").filter(|only| *only != member);
    let elsewhere = class.members.as_ref().is_some_and(|members| !members.iter().any(|one| one == member));
    if only.is_some() || elsewhere {
        return Err(Error::Refused(format!(
            "StorageClass {name} does not let its volumes be in member {member} (parameter member, allowedTopologies)"
        )));
    }
    Ok(class)
}

/// The member itself is asked whether it would take the claim where it is to be in the end.
async fn try_out(
    leaf: &MemberClient,
    spec: &VolumeSpec,
    hash: VolumeHash,
    place: &LeafPlace,
    subject: &Subject,
) -> Result<()> {
    has_rights_in(leaf, &place.namespace)?;
    has_rights_in(leaf, YARD)?;
    let class = class_at(leaf, spec)?;
    if let Some(attributes) = spec.attributes.at(&leaf.member) {
        check_class(leaf, attributes, None).await?;
    }
    writes::try_claim(leaf, &leaf_spec(spec, hash, place, &class, leaf, subject)).await
}

pub(super) async fn make_copy(job: &mut RunningMove, looked: &Looked) -> Result<Went> {
    let half = looked.copy.as_ref().map_err(Clone::clone)?;
    let leaf = half.member.leaf()?;
    let Some(subject) = &looked.subject else { return Ok(Went::Waits("the host's claim is missing".to_owned())) };
    let class = class_of(job, subject, &half.side.member).await?;
    let spec = spec_of(job, subject, &class, &looked.pinned.name).await?;
    let (leaf_class, place) = (class_at(leaf, &spec)?, yard(&leaf.host, looked.hash));
    let wanted = leaf_spec(&spec, looked.hash, &place, &leaf_class, leaf, subject);
    let mark = moves::mark(&job.of, Part::Copy);
    match writes::copy::make(leaf, &wanted, &mark, &half.side.handle).await? {
        leaf::claim::Made::Now => Ok(Went::On),
        leaf::claim::Made::Taken => Err(Error::Refused(format!(
            "member {}: claim {place} has the name of this move's claim, and is not its own: remove it",
            half.side.member
        ))),
    }
}

/// The handle of a volume that can be moved.
fn movable(subject: &Subject) -> Result<&str> {
    let refuse = |why: &str| Err(Error::Refused(format!("claim {} {why}", subject.claim)));
    match subject.handle() {
        _ if subject.is_leaving || subject.is_volume_leaving() => refuse("is being deleted, or its volume is"),
        _ if !subject.is_bound => refuse("is not bound to a volume"),
        _ if subject.is_ephemeral => refuse("was made for a pod, and goes with it"),
        None => refuse("has no volume of this driver's"),
        Some(_) if subject.mode() == VolumeMode::Block => refuse("is a block volume: only filesystems can be moved"),
        Some(_) if subject.is_modified => {
            refuse("is being given another VolumeAttributesClass: wait until that is done")
        }
        Some(handle) => match subject.foreign_finalizer() {
            None => Ok(handle),
            Some(finalizer) => {
                refuse(&format!("has a volume with finalizer {finalizer}, so the driver may not replace it"))
            }
        },
    }
}

/// Without its UID on record, any cluster that has the name later would be taken for it.
fn side(member: &Member, handle: String, home: &LeafPlace) -> Result<Side> {
    let unsaid = || Error::InProgress(format!("member {} is asked again which cluster it is", member.name));
    Ok(Side {
        member: member.name.clone(),
        cluster: member.cluster_uid().ok_or_else(unsaid)?,
        handle,
        namespace: home.namespace.clone(),
        claim_name: home.claim.clone(),
    })
}

/// As if it were made new, with the size that it has.
pub(super) async fn spec_of(
    job: &RunningMove,
    subject: &Subject,
    class: &HostClass,
    volume: &str,
) -> Result<VolumeSpec> {
    let attributes = match subject.attributes_class() {
        Some(name) => read_attributes_class(&job.movers.host, name).await?.ok_or_else(|| {
            Error::Refused(format!(
                "VolumeAttributesClass {name:?} of the volume is not there, or is another driver's: make it again"
            ))
        })?,
        None => BTreeMap::new(),
    };
    Ok(VolumeSpec {
        name: volume.to_owned(),
        request: Request {
            required: subject.capacity(),
            limit: 0,
            access: subject.access(),
            mode: subject.mode(),
            parameters: VolumeSpec::comparable(&class.parameters),
            source: None,
        },
        parameters: Parameters::parse(&class.parameters)?,
        attributes: Attributes::parse(&attributes)?,
        claim: Some(Claim { namespace: subject.claim.namespace.clone(), name: subject.claim.name.clone() }),
        preferred: Vec::new(),
        requisite: Vec::new(),
        nodes: Vec::new(),
    })
}

/// The member's class for it.
fn class_at(leaf: &MemberClient, spec: &VolumeSpec) -> Result<String> {
    let is_listed = leaf.rows.synced();
    let missing = |what: &str| {
        let refused = || Error::Refused(format!("member {} has no {what} for it", leaf.member));
        has_told(leaf, is_listed).err().unwrap_or_else(refused)
    };
    let name = leaf.class_for(&spec.parameters).ok_or_else(|| missing("default StorageClass"))?;
    match leaf.rows.class(&name) {
        Some(class) if class.open => Ok(name),
        Some(_) => Err(Error::Refused(format!("member {}: StorageClass {name} is not open to this host", leaf.member))),
        None => Err(missing(&format!("StorageClass {name}"))),
    }
}

fn leaf_spec<'a>(
    spec: &'a VolumeSpec,
    hash: VolumeHash,
    place: &'a LeafPlace,
    class: &'a str,
    leaf: &MemberClient,
    subject: &'a Subject,
) -> LeafSpec<'a> {
    LeafSpec {
        spec,
        hash,
        place,
        class,
        access: spec.leaf_access(&leaf.member),
        mode: spec.leaf_mode(&leaf.member),
        attributes: spec.attributes.at(&leaf.member),
        size: quantity::print(spec.request.required.max(1)),
        claim_uid: Some(&subject.claim_uid),
        node: None,
        source: None,
    }
}
