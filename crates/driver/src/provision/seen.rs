//! Which members have something of a volume. Of a new one none has, which is known without a look at each.

use std::{collections::BTreeMap, sync::Arc};

use super::Provisioner;
use domain::{error::Result, volume::VolumeHash};
use member::Member;

/// Whether any member has anything of it.
pub(super) fn anywhere(provisioner: &Provisioner, hash: VolumeHash) -> Result<bool> {
    let members = provisioner.members.all()?;
    Ok(among(provisioner, &members, hash).any(|member| has_some(member, hash)))
}

/// Those that may have something of it.
pub(super) fn among<'a>(
    provisioner: &Provisioner,
    members: &'a BTreeMap<String, Arc<Member>>,
    hash: VolumeHash,
) -> impl Iterator<Item = &'a Arc<Member>> + use<'a> {
    let may_be = provisioner.members.may_have(hash).then_some(members);
    may_be.into_iter().flat_map(BTreeMap::values)
}

pub(super) fn has_some(member: &Member, hash: VolumeHash) -> bool {
    member.last_known().is_some_and(|leaf| leaf.rows.row(hash).is_some() || leaf.rows.has_unread(hash))
}
