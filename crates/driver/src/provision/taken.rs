//! A name in a member that the leaf claim of another volume of this host has, and is wanted for a leaf claim. Where the data of that volume
//! is not in that claim, nobody is advised to delete the volume for it.

use domain::{
    error::Result,
    volume::{LeafPlace, VolumeHash, VolumeId},
};
use host::Host;
use leaf::{
    MemberClient,
    healing::{self, LeafPair},
    identity::{Identity, Meant, judge},
    ownership,
    row::ClaimRow,
};
use member::{Registry, registry::serving};

/// Where the data of that volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// The claim came late, is looked for, and withdrawn.
    UntilItGoes,
    InAnotherClaim(LeafPlace),
    InMember(String),
    /// By the host. What is here was used, or may have been.
    AlsoInMember(String),
    /// It could not be read.
    Unread,
}

impl Elsewhere {
    /// For who wants the name.
    pub(crate) fn way_out(&self) -> String {
        match self {
            Self::UntilItGoes => {
                "That claim was recreated late, and another leaf claim has its volume by now: it goes \
                                  by itself within a quarter of an hour, so delete nothing"
                    .to_owned()
            }
            Self::InAnotherClaim(place) => {
                format!("Leaf claim {place} has that volume: do not delete the volume to free this name")
            }
            Self::Unread => {
                "The driver cannot read now where the data of that volume is: delete nothing before it can".to_owned()
            }
            Self::InMember(member) => format!(
                "That volume is in member {member}: do not delete the volume to free this name. The late claim here \
                 goes by itself within a quarter of an hour"
            ),
            Self::AlsoInMember(member) => format!(
                "The host has that volume in member {member}, but the claim here may have its newest data, for example \
                 because the host was restored from a backup of before a move: delete nothing before you know where \
                 the newest data is"
            ),
        }
    }
}

/// It is some host's leaf, and its data is that one's.
pub(crate) const STRIPPED: &str = "it was made by a driver like this one, and its labels were removed: put them back. \
     Remove it there only if no host has its volume";

/// Whose the claim is that has the name, for whoever would have it recreated there. Nobody is told to remove what is another host's.
pub(crate) async fn whose(
    host: &Host,
    members: &Registry,
    leaf: &MemberClient,
    hash: VolumeHash,
    pair: &LeafPair,
) -> Option<String> {
    let claim = pair.claim.as_ref()?;
    let way_out = match judge(&claim.metadata, &leaf.host, Meant::Volume(hash)) {
        Identity::Stripped => return Some(STRIPPED.to_owned()),
        Identity::OtherHost(_) => String::new(),
        Identity::OtherVolume(other) => Box::pin(elsewhere(host, members, leaf, other, &pair.place)).await.map_or_else(
            || ". Delete that volume in the host, if it is there; else `kosmos-csi doctor` names the claim".to_owned(),
            |elsewhere| format!(". {}", elsewhere.way_out()),
        ),
        _ => ". Remove it there".to_owned(),
    };
    Some(format!("{}{way_out}", ownership::whose(&claim.metadata, &leaf.host)))
}

/// None where the data may be in the claim at this place, or nobody can tell where it is. Whose the name is has to be told also while that
/// cannot be read.
pub(crate) async fn elsewhere(
    host: &Host,
    members: &Registry,
    leaf: &MemberClient,
    hash: VolumeHash,
    place: &LeafPlace,
) -> Option<Elsewhere> {
    read(host, members, leaf, hash, place).await.unwrap_or_else(|error| {
        tracing::debug!(member = leaf.member, claim = %place, %error, "it cannot be read where the volume that has this name has its data");
        Some(Elsewhere::Unread)
    })
}

async fn read(
    host: &Host,
    members: &Registry,
    leaf: &MemberClient,
    hash: VolumeHash,
    place: &LeafPlace,
) -> Result<Option<Elsewhere>> {
    let pair = healing::examine(leaf, hash, place, None).await?;
    if let Some(late) = healing::superseded(leaf, hash, &pair).await? {
        let goes = late.is_out_of_sight(leaf, hash);
        return Ok(Some(if goes { Elsewhere::UntilItGoes } else { Elsewhere::InAnotherClaim(late.holder().clone()) }));
    }
    let came_late = pair.claim.as_ref().is_some_and(|claim| ClaimRow::new(claim).may_have_come_late());
    let elsewhere = if came_late { Elsewhere::InMember } else { Elsewhere::AlsoInMember };
    Ok(other_member(host, members, leaf, hash, &pair).await?.map(elsewhere))
}

/// Whoever may write in the member writes any name on a claim: one that is not of its volume says nothing. A host that was restored from
/// before a move leads to where the volume was then. Another name of this member leads here.
async fn other_member(
    host: &Host,
    members: &Registry,
    leaf: &MemberClient,
    hash: VolumeHash,
    pair: &LeafPair,
) -> Result<Option<String>> {
    let Some(name) = pair.volume_name().filter(|name| VolumeHash::new(&host.id, name) == hash) else { return Ok(None) };
    let id = host::volume::handle_of(host, name).await?.and_then(|handle| VolumeId::parse(&handle));
    let all = members.all()?;
    Ok(id.map(|id| serving(&all, &id.member)).filter(|member| *member != leaf.member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_data_is_elsewhere_that_is_named_and_nothing_is_to_be_deleted() {
        let place = LeafPlace { namespace: "shop".to_owned(), claim: "again".to_owned() };
        for (elsewhere, named) in [
            (Elsewhere::UntilItGoes, "by itself"),
            (Elsewhere::InAnotherClaim(place), "Leaf claim shop/again has that volume"),
            (Elsewhere::InMember("m1".to_owned()), "in member m1"),
            (Elsewhere::AlsoInMember("m1".to_owned()), "in member m1"),
            (Elsewhere::Unread, "cannot read now"),
        ] {
            let told = elsewhere.way_out();
            let is_kept = ["delete nothing", "do not delete the volume"].iter().any(|words| told.contains(words));
            assert!(told.contains(named) && is_kept, "{told}");
        }
    }
}
