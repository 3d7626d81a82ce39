//! GetCapacity: how much room a member has for a class, by its own word and by what it has refused lately.
//!
//! A member that takes no new volumes now has none, and so has one that lacks the class or is not the one that the class
//! names. Nothing is asked of a member that has told it within the last half minute.

use std::time::Duration;

use super::Provisioner;
use domain::{
    error::{Error, Result},
    volume::{Parameters, VolumeSpec},
};
use leaf::{MemberClient, capacity::Room};
use member::{Closed, Member, placement::Offer};

/// A new volume does not wait longer for what is only good to know.
const QUICK: Duration = Duration::from_millis(500);

/// The room for volumes of a class in a place.
#[derive(Clone, Debug)]
pub struct CapacityQuestion {
    pub parameters: Parameters,
    pub place: Where,
}

/// Which place is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    Anywhere,
    /// One of no member.
    Elsewhere,
    At {
        member: String,
        node: Option<String>,
    },
}

/// What a place has.
pub type Capacity = Room;

pub async fn capacity(provisioner: &Provisioner, question: &CapacityQuestion) -> Result<Capacity> {
    let members = provisioner.members.all()?;
    let (name, node) = match &question.place {
        Where::Elsewhere => return Ok(Capacity::NONE),
        Where::At { member, node } => (Some(member), node.as_deref()),
        Where::Anywhere => (None, None),
    };
    let mut sum = Capacity::NONE;
    let asked = members.values().filter(|member| name.is_none_or(|name| *name == member.name));
    for room in futures::future::join_all(asked.map(|member| room_in(provisioner, member, question, node))).await {
        match room {
            Ok(room) => sum = sum.plus(room),
            // Of several, the others still count.
            Err(_) if name.is_none() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

async fn room_in(
    provisioner: &Provisioner,
    member: &Member,
    question: &CapacityQuestion,
    node: Option<&str>,
) -> Result<Capacity> {
    let parameters = &question.parameters;
    let named = parameters.member.as_ref().is_none_or(|name| *name == member.name);
    let closed = member.closed();
    let open = closed.is_none() && !member.is_cordoned();
    if let Some(Closed { reason, starting: true }) = closed {
        // Nothing is known yet, and what the host was told before a restart is better than nothing.
        return Err(Error::Unreachable { member: member.name.clone(), reason });
    }
    let Some(leaf) = member.last_known().filter(|_| named && open) else { return Ok(Capacity::NONE) };
    let Some(class) = leaf_class(leaf, parameters) else { return Ok(Capacity::NONE) };
    let namespace = fixed_namespace(provisioner, leaf, parameters);
    if namespace.as_ref().is_some_and(|namespace| !leaf.namespaces.has(namespace)) {
        return Ok(Capacity::NONE);
    }
    leaf::capacity::hear(leaf).await?;
    let room = leaf.capacity.room(&class, node);
    let quota = match namespace {
        Some(namespace) => leaf::capacity::quota(leaf, &namespace, &class).await?,
        None => None,
    };
    Ok(quota.map_or(room, |left| room.within(left)))
}

/// The one namespace of all leaf claims of a class, where it has one: only then is a quota everybody's.
fn fixed_namespace(provisioner: &Provisioner, leaf: &MemberClient, parameters: &Parameters) -> Option<String> {
    let template = parameters.leaf_namespace.at(&leaf.member)?;
    let filled = template.replace("${host}", &provisioner.host.id.0);
    (!filled.contains("${")).then_some(filled)
}

/// Where nothing else decides, members are compared by their room, so they are asked for it. One that does not tell is
/// taken as it was.
pub(super) async fn hear_capacities(provisioner: &Provisioner) {
    let Ok(members) = provisioner.members.all() else { return };
    let open = members.values().filter_map(|member| member.leaf().ok());
    // One that is slow to answer shall not slow every volume.
    let open = open.filter(|leaf| !leaf.capacity.was_asked());
    let asked = open.map(|leaf| tokio::time::timeout(QUICK, leaf::capacity::hear(leaf)));
    futures::future::join_all(asked).await;
}

/// What a member has for one volume, by what is known of it.
pub(super) fn offer(member: &Member, spec: &VolumeSpec) -> Offer {
    let Some(leaf) = member.last_known() else { return Offer::Full };
    let Some(class) = leaf_class(leaf, &spec.parameters) else { return Offer::NoClass };
    let node = spec.nodes_of(&member.name).first().copied();
    let room = leaf.capacity.room(&class, node);
    if room.fits() < spec.request.required.max(1) { Offer::Full } else { Offer::Room(room.free) }
}

/// The member's class for the volumes of a host class, where it has it, open to this host.
fn leaf_class(leaf: &MemberClient, parameters: &Parameters) -> Option<String> {
    leaf.class_for(parameters).filter(|class| leaf.rows.class(class).is_some_and(|class| class.open))
}
