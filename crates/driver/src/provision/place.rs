//! Where a volume goes: the member of before, or a new choice, which is written down before anything is made.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Deadline, Provisioner,
    abandon::{self, allows, holds, in_use, keeps, leaf_volume_is_left, left_out, may_hold, misplaced},
    capacity::{self, offer},
    find, kept, seen,
};
use domain::{
    error::{Error, Result},
    volume::{LeafPlace, VolumeHash, VolumeSpec},
};
use host::{
    claim::{Chosen, HostClaim},
    events::News,
};
use leaf::{MemberClient, identity::is_leaf_of};
use member::{
    Member,
    placement::{Candidate, Choice, Standing, Wish, choose, choose_unread, told},
    registry::{self, serving},
};

/// What bears on the choice. What is there already is reached under any name of its member; what is new is made under the one that
/// serves.
struct Asked {
    earlier: Option<String>,
    recorded: Option<String>,
    held: bool,
    on_wrong_node: bool,
    parameter: Option<String>,
    preferred: Vec<String>,
    requisite: Vec<String>,
    node_selected: bool,
    seed: u64,
}

impl Asked {
    /// Of a volume of which nothing is known but what the call says.
    fn of_new(spec: &VolumeSpec, hash: VolumeHash) -> Self {
        Self {
            earlier: None,
            recorded: None,
            held: false,
            on_wrong_node: false,
            parameter: spec.parameters.member.clone(),
            preferred: spec.preferred.clone(),
            requisite: spec.requisite.clone(),
            node_selected: false,
            seed: hash.seed(),
        }
    }

    fn wish(&self) -> Wish<'_> {
        Wish {
            earlier: self.earlier.as_deref(),
            held: self.held,
            on_wrong_node: self.on_wrong_node,
            parameter: self.parameter.as_ref(),
            preferred: &self.preferred,
            requisite: &self.requisite,
            node_selected: self.node_selected,
            seed: self.seed,
        }
    }

    fn anywhere(&self) -> bool {
        self.parameter.is_none() && self.preferred.is_empty() && self.requisite.is_empty()
    }

    /// The members that bear on the choice: all of them only where it may go anywhere.
    fn looked_at<'a>(&self, members: &'a BTreeMap<String, Arc<Member>>) -> Vec<&'a Arc<Member>> {
        if self.anywhere() {
            return members.values().collect();
        }
        let most = if self.node_selected { 1 } else { usize::MAX };
        let required = self.preferred.iter().chain(&self.requisite).take(most);
        let names: BTreeSet<&String> = self.earlier.iter().chain(&self.parameter).chain(required).collect();
        names.into_iter().filter_map(|name| members.get(name)).collect()
    }
}

/// A new choice, written down before anything is made and before the claim was read, which costs the host one request instead of two: for a
/// volume that is seen nowhere, and where all that the claim may say besides leaves the same choice. The claim as it was before that is told
/// with it. None where it has to be read first.
pub(super) async fn at_once(
    provisioner: &Provisioner,
    spec: &VolumeSpec,
    hash: VolumeHash,
) -> Result<Option<(HostClaim, Arc<Member>)>> {
    let (members, is_new) = (provisioner.members.all()?, !seen::anywhere(provisioner, hash)?);
    let Some(claim) = spec.claim.as_ref().filter(|_| is_new) else { return Ok(None) };
    let mut asked = Asked::of_new(spec, hash);
    let candidates = candidates(provisioner, &members, spec, &asked).await;
    let Some(name) = choose_unread(&asked.wish(), &candidates) else { return Ok(None) };
    let choice = Chosen { member: &name, clustertree: provisioner.members.is_beside_clustertree(&members, &name) };
    let Some(owner) = host::claim::record_unread(&provisioner.host, claim, &spec.name, choice).await? else {
        return Ok(None);
    };
    // A host that was restored while it was asked has no record of what was made before.
    if seen::anywhere(provisioner, hash)? {
        return Ok(None);
    }
    asked.node_selected = owner.node_selected;
    say(provisioner, spec, Some(&owner), &asked, &candidates, &name).await;
    Ok(Some((owner, provisioner.members.get(&name).await?)))
}

/// The member of before, or a new choice, written down before anything is made.
pub(super) async fn place(
    provisioner: &Provisioner,
    spec: &VolumeSpec,
    owner: Option<&HostClaim>,
    hash: VolumeHash,
    deadline: &Deadline,
) -> Result<Arc<Member>> {
    let members = provisioner.members.all()?;
    let asked = asked(provisioner, &members, spec, owner, hash, deadline).await?;
    let candidates = candidates(provisioner, &members, spec, &asked).await;
    let mut wish = asked.wish();
    let mut choice = choose(&wish, &candidates)?;
    if let Choice::Leave(earlier) = &choice {
        leave(provisioner, earlier, spec, hash, deadline).await?;
        (wish.earlier, wish.held, wish.on_wrong_node) = (None, false, false);
        choice = choose(&wish, &candidates)?;
    }
    let name = match choice {
        Choice::Stay(name) | Choice::Leave(name) => {
            if owner.is_some() && lacks_record(&asked, &members, &name, hash) {
                record(provisioner, &members, spec, owner, hash, &name).await?;
            }
            name
        }
        Choice::New(name) => {
            record(provisioner, &members, spec, owner, hash, &name).await?;
            if !asked.held {
                is_seen_nowhere(provisioner, hash)?;
            }
            say(provisioner, spec, owner, &asked, &candidates, &name).await;
            name
        }
    };
    provisioner.members.get(&name).await
}

/// A host that was restored from a backup has lost the record of the member that has the data, which may not answer the next time; or what
/// was sent before that has come to it since, and names another one.
fn lacks_record(asked: &Asked, members: &BTreeMap<String, Arc<Member>>, name: &str, hash: VolumeHash) -> bool {
    match asked.recorded.as_deref() {
        None => kept::was_used(members, name, hash),
        Some(recorded) => recorded != name && kept::has_used_leaf(members, name, hash),
    }
}

async fn candidates(
    provisioner: &Provisioner,
    members: &BTreeMap<String, Arc<Member>>,
    spec: &VolumeSpec,
    asked: &Asked,
) -> Vec<Candidate> {
    if asked.anywhere() && asked.earlier.is_none() && members.len() > 1 {
        capacity::hear_capacities(provisioner).await;
    }
    asked.looked_at(members).into_iter().map(|member| candidate(provisioner, member, spec)).collect()
}

/// How a member stands towards one volume, by what is known of it.
fn candidate(provisioner: &Provisioner, member: &Member, spec: &VolumeSpec) -> Candidate {
    let mut candidate = member.candidate(offer(member, spec));
    let leaf = member.last_known().filter(|_| candidate.standing == Standing::Open);
    if let Some(leaf) = leaf
        && let Ok(LeafPlace { namespace, .. }) = spec.place(&leaf.member, &leaf.host, &provisioner.leaf_namespace)
        && !leaf.namespaces.has(&namespace)
    {
        candidate.standing = Standing::NoRights { namespace, only: leaf.namespaces.to_string() };
    }
    candidate
}

async fn asked(
    provisioner: &Provisioner,
    members: &BTreeMap<String, Arc<Member>>,
    spec: &VolumeSpec,
    owner: Option<&HostClaim>,
    hash: VolumeHash,
    deadline: &Deadline,
) -> Result<Asked> {
    let recorded = recorded(provisioner, owner).await?;
    let holder = holder(provisioner, spec, recorded.as_deref(), hash, deadline).await?;
    let earlier = holder.clone().or_else(|| recorded.clone());
    if earlier.is_none() {
        // Its leaf claim may be on the list that has not come yet, and a host that was restored from a backup says nothing of it.
        all_listed(hash, seen::among(provisioner, members, hash).filter(|member| seen::has_some(member, hash)))?;
    }
    let name = |name: &String| {
        let meant = earlier.as_ref().filter(|earlier| serving(members, name) == **earlier);
        meant.unwrap_or(name).clone()
    };
    let names = |list: &[String]| list.iter().map(name).collect();
    Ok(Asked {
        held: holder.is_some(),
        on_wrong_node: on_wrong_node(members, holder.as_deref(), spec, hash),
        parameter: spec.parameters.member.as_ref().map(name),
        preferred: names(&spec.preferred),
        requisite: names(&spec.requisite),
        node_selected: owner.is_some_and(|owner| owner.node_selected),
        seed: hash.seed(),
        recorded,
        earlier,
    })
}

/// The requirement has moved away from the member of before: what is there is proved gone first.
async fn leave(
    provisioner: &Provisioner,
    earlier: &str,
    spec: &VolumeSpec,
    hash: VolumeHash,
    deadline: &Deadline,
) -> Result<()> {
    let earlier = provisioner.members.get(earlier).await?;
    if keeps(&earlier, hash) || !abandon::clear(provisioner, &earlier, spec, hash, deadline).await? {
        return Err(left_out(spec, &earlier.name));
    }
    if !deadline.caller_waits() {
        return Err(Error::InProgress(format!("volume {} has left member {}", spec.name, earlier.name)));
    }
    Ok(())
}

async fn record(
    provisioner: &Provisioner,
    members: &BTreeMap<String, Arc<Member>>,
    spec: &VolumeSpec,
    owner: Option<&HostClaim>,
    hash: VolumeHash,
    member: &str,
) -> Result<()> {
    let (Some(claim), Some(owner)) = (&spec.claim, owner) else { return none_holds(provisioner, spec, hash).await };
    let choice = Chosen { member, clustertree: provisioner.members.is_beside_clustertree(members, member) };
    host::claim::record_member(&provisioner.host, claim, owner, &spec.name, choice).await
}

/// In the log; and on the claim, where its volume was to go elsewhere before.
async fn say(
    provisioner: &Provisioner,
    spec: &VolumeSpec,
    owner: Option<&HostClaim>,
    asked: &Asked,
    candidates: &[Candidate],
    member: &str,
) {
    let why = told::reason(&asked.wish(), candidates, member);
    let (volume, among) = (&spec.name, told::among(candidates));
    tracing::info!(volume, member, why, among, "the volume's member is chosen");
    let earlier = asked.earlier.as_deref().filter(|earlier| *earlier != member);
    if let (Some(claim), Some(owner), Some(earlier)) = (&spec.claim, owner, earlier) {
        let message = format!("the driver makes the volume in member {member} now, and not in {earlier}: {why}");
        host::events::tell_claim(
            &provisioner.host,
            claim,
            &owner.uid,
            &News { reason: "MemberChanged", message, warning: false },
        )
        .await;
    }
}

/// The member in which a leaf is seen. Where that is not the one on record, or there are several, the one that the host was given has the
/// volume; else, of several, the one on record, or one whose leaf volume carries our labels: in the others a write came late, which is taken
/// back. A copy is not: it lacks our finalizer.
async fn holder(
    provisioner: &Provisioner,
    spec: &VolumeSpec,
    recorded: Option<&str>,
    hash: VolumeHash,
    deadline: &Deadline,
) -> Result<Option<String>> {
    let members = provisioner.members.all()?;
    let holders: Vec<&Arc<Member>> =
        seen::among(provisioner, &members, hash).filter(|member| holds(member, hash)).collect();
    let keeper = || seen::among(provisioner, &members, hash).find(|member| keeps(member, hash));
    let first = holders.first().copied().or_else(keeper).map(|member| member.name.clone());
    let is_on_record = recorded.is_none() || first.is_none() || first.as_deref() == recorded;
    if (!is_on_record || holders.len() > 1)
        && let Some(handle) = host::volume::handle_of(&provisioner.host, &spec.name).await?
    {
        let given_out = find::member_of(provisioner, &handle).await?;
        return Ok(given_out.map(|(_, member)| member.name.clone()).or(first));
    }
    let [one, _, ..] = holders[..] else { return Ok(first) };
    let is_recorded = |member: &&&Arc<Member>| Some(member.name.as_str()) == recorded;
    let is_labelled = |member: &&&Arc<Member>| leaf_volume_is_left(member, hash);
    let chosen = holders.iter().find(is_recorded).or_else(|| holders.iter().find(is_labelled)).unwrap_or(&one);
    for late in holders.iter().filter(|member| member.name != chosen.name && is_made_by_us(member, hash)) {
        if !abandon::clear(provisioner, late, spec, hash, deadline).await? {
            return Err(in_use(spec, &late.name));
        }
    }
    Ok(Some(chosen.name.clone()))
}

/// Without a host claim there is no place to write a choice down, so it may only be made by who has seen every member
/// that may have been chosen before.
async fn none_holds(provisioner: &Provisioner, spec: &VolumeSpec, hash: VolumeHash) -> Result<()> {
    let known = host::pins::known_members(&provisioner.host).await?.unwrap_or_default();
    let members = provisioner.members.all()?;
    if let Some(departed) = known.iter().find(|name| !members.contains_key(*name) && allows(spec, name)) {
        return Err(registry::departed(departed));
    }
    let possible = members.values().filter(|member| may_hold(member, spec, hash));
    all_listed(hash, possible.filter(|member| known.contains(&member.name)))
}

/// A member that was listed while the choice was written down has had no say in it, and may have the data: a host that was restored from a
/// backup has no record of that.
fn is_seen_nowhere(provisioner: &Provisioner, hash: VolumeHash) -> Result<()> {
    let members = provisioner.members.all()?;
    match seen::among(provisioner, &members, hash).find(|member| holds(member, hash)) {
        Some(member) => Err(Error::InProgress(format!("member {}: a leaf of it is seen there now", member.name))),
        None => Ok(()),
    }
}

/// The member on record. Of one that was forgotten nothing is awaited.
pub(super) async fn recorded(provisioner: &Provisioner, owner: Option<&HostClaim>) -> Result<Option<String>> {
    let Some(name) = owner.and_then(|owner| owner.member.as_deref()) else { return Ok(None) };
    match provisioner.members.get(name).await {
        Ok(member) => Ok(Some(member.name.clone())),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where the leaf is or will be. One that is seen elsewhere than the class says now is for a person to judge.
pub(super) async fn of_leaf(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    spec: &VolumeSpec,
    owner: Option<&HostClaim>,
    hash: VolumeHash,
) -> Result<LeafPlace> {
    let tried = owner.is_some_and(|owner| owner.member.is_some());
    let unless_tried = |error: Error| if tried { error.while_a_leaf_may_exist() } else { error };
    let place = spec.place(&leaf.member, &leaf.host, &provisioner.leaf_namespace).map_err(unless_tried)?;
    let Some(seen) = leaf.rows.row(hash).and_then(|row| row.claim) else { return Ok(place) };
    if leaf.rows.row_at(hash, &place).claim.is_some() {
        return Ok(place);
    }
    let there = leaf::claim::read(leaf, &place).await.map_err(Error::while_a_leaf_may_exist)?;
    if there.is_some_and(|claim| is_leaf_of(&claim.metadata, &leaf.host, hash)) {
        return Ok(place);
    }
    Err(misplaced(leaf, &seen.place, &place))
}

fn is_made_by_us(member: &Member, hash: VolumeHash) -> bool {
    let claim = member.last_known().and_then(|leaf| leaf.rows.row(hash)?.claim);
    claim.is_some_and(|claim| claim.finalizer.is_some())
}

/// Whether the leaf is bound to a node of its member which the requirement leaves out.
fn on_wrong_node(
    members: &BTreeMap<String, Arc<Member>>,
    holder: Option<&str>,
    spec: &VolumeSpec,
    hash: VolumeHash,
) -> bool {
    let leaf = holder.and_then(|holder| members.get(holder)?.last_known());
    let volume = leaf.and_then(|leaf| leaf.rows.volume(hash));
    let wanted = holder.map(|holder| spec.nodes_of(holder)).unwrap_or_default();
    let bound_to = volume.map(|volume| volume.node).unwrap_or_default();
    !wanted.is_empty() && !bound_to.is_empty() && !wanted.contains(&&*bound_to)
}

/// Whether each has told all that it has of a volume.
pub(super) fn all_listed<'a>(hash: VolumeHash, mut members: impl Iterator<Item = &'a Arc<Member>>) -> Result<()> {
    let unseen = members.find(|member| !member.last_known().is_some_and(|leaf| leaf.rows.has_told(hash)));
    unseen.map_or(Ok(()), |member| {
        Err(Error::Unreachable {
            member: member.name.clone(),
            reason: "the driver cannot tell yet whether this volume is there, and no claim says where it is".to_owned(),
        })
    })
}
