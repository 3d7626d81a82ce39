//! Where a volume goes: the member of before, or a new choice, which is written down before anything is made.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Deadline, Provisioner,
    abandon::{self, allows, holds, in_use, keeps, leaf_volume_is_left, left_out, may_hold, misplaced},
    capacity::{self, offer},
    find, kept,
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
    placement::{Candidate, Choice, Standing, Wish, choose, told},
    registry::{self, is_beside_clustertree, serving},
};

/// What bears on the choice. What is there already is reached under any name of its member; what is new is made under the one that
/// serves.
struct Asked {
    earlier: Option<String>,
    held: bool,
    on_wrong_node: bool,
    parameter: Option<String>,
    preferred: Vec<String>,
    requisite: Vec<String>,
    node_selected: bool,
    seed: u64,
}

impl Asked {
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
    if asked.anywhere() && asked.earlier.is_none() && members.len() > 1 {
        capacity::hear_capacities(provisioner).await;
    }
    let looked_at = asked.looked_at(&members).into_iter();
    let candidates: Vec<_> = looked_at.map(|member| candidate(provisioner, member, spec)).collect();
    let mut wish = asked.wish();
    let mut choice = choose(&wish, &candidates)?;
    if let Choice::Leave(earlier) = &choice {
        leave(provisioner, earlier, spec, hash, deadline).await?;
        (wish.earlier, wish.held, wish.on_wrong_node) = (None, false, false);
        choice = choose(&wish, &candidates)?;
    }
    let name = match choice {
        Choice::Stay(name) | Choice::Leave(name) => {
            // A host that was restored from a backup has lost the record of the member, which may not answer the next time.
            if owner.is_some_and(|owner| owner.member.is_none()) && kept::was_used(&members, &name, hash) {
                record(provisioner, &members, spec, owner, hash, &name).await?;
            }
            name
        }
        Choice::New(name) => {
            record(provisioner, &members, spec, owner, hash, &name).await?;
            say(provisioner, spec, owner, &asked, &candidates, &name).await;
            name
        }
    };
    provisioner.members.get(&name).await
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
    let earlier = holder.clone().or(recorded);
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
    let choice = Chosen { member, clustertree: is_beside_clustertree(members, member) };
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
        let message = format!("its volume goes to member {member}, and not to {earlier} any more: {why}");
        host::events::tell_claim(
            &provisioner.host,
            claim,
            &owner.uid,
            &News { reason: "MemberChanged", message, warning: false },
        )
        .await;
    }
}

/// The member in which a leaf is seen. Of several the one that the host was given has the volume, else the one on record,
/// else one whose leaf volume carries our labels: in the others a write came late, which is taken back. A copy is not: it
/// lacks our finalizer.
async fn holder(
    provisioner: &Provisioner,
    spec: &VolumeSpec,
    recorded: Option<&str>,
    hash: VolumeHash,
    deadline: &Deadline,
) -> Result<Option<String>> {
    let members = provisioner.members.all()?;
    let holders: Vec<&Arc<Member>> = members.values().filter(|member| holds(member, hash)).collect();
    let [first, _, ..] = holders[..] else {
        let holder = holders.first().map(|member| member.name.clone());
        return Ok(holder.or_else(|| kept::in_member(&members, hash)));
    };
    if let Some(handle) = host::volume::handle_of(&provisioner.host, &spec.name).await? {
        let given_out = find::member_of(provisioner, &handle).await?;
        return Ok(Some(given_out.map_or_else(|| first.name.clone(), |(_, member)| member.name.clone())));
    }
    let is_recorded = |member: &&&Arc<Member>| Some(member.name.as_str()) == recorded;
    let is_labelled = |member: &&&Arc<Member>| leaf_volume_is_left(member, hash);
    let chosen = holders.iter().find(is_recorded).or_else(|| holders.iter().find(is_labelled)).unwrap_or(&first);
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
    all_listed(possible.filter(|member| known.contains(&member.name)))?;
    // Listed while the record was read: the choice was made without it.
    match members.values().find(|member| holds(member, hash)) {
        Some(member) => Err(Error::InProgress(format!("member {}: a leaf of it is seen there now", member.name))),
        None => Ok(()),
    }
}

/// The member on record. A name that no member ever had came with a copied claim: nothing can be there.
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
    let volume = leaf.and_then(|leaf| leaf.rows.row(hash)?.volume);
    let wanted = holder.map(|holder| spec.nodes_of(holder)).unwrap_or_default();
    let bound_to = volume.map(|volume| volume.node).unwrap_or_default();
    !wanted.is_empty() && !bound_to.is_empty() && !wanted.contains(&&*bound_to)
}

pub(super) fn all_listed<'a>(mut members: impl Iterator<Item = &'a Arc<Member>>) -> Result<()> {
    let unseen = members.find(|member| !member.last_known().is_some_and(|leaf| leaf.rows.synced()));
    unseen.map_or(Ok(()), |member| {
        Err(Error::Unreachable {
            member: member.name.clone(),
            reason: "whether this volume is there cannot be told yet, and no claim says where it was put".to_owned(),
        })
    })
}
