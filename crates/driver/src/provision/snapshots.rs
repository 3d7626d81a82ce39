//! ListSnapshots and GetSnapshot: from memory, which the watch and our own requests keep true.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::{
    Provisioner,
    delete_snapshot::{find_snapshot, is_not_stripped},
    found_snapshot::behind,
    list::LONGEST_PAGE,
    snapshot::Snapshot,
};
use domain::{
    error::{Error, Result},
    volume::VolumeId,
};
use leaf::{MemberClient, snapshot::row::SnapshotRow};
use member::Member;

/// What a token begins with, so that anything else is told from it.
const TOKEN: &str = "after:";

/// Which snapshots are asked for.
#[derive(Clone, Debug, Default)]
pub struct SnapshotQuery {
    pub id: String,
    pub source: String,
    /// At most so many; 0: as many as fit.
    pub most: usize,
    pub token: String,
}

/// One page of the snapshots, in the order of their handles, and the token of the next.
pub async fn list(
    provisioner: &Provisioner,
    wanted: &SnapshotQuery,
    deadline: Instant,
) -> Result<(Vec<Snapshot>, String)> {
    let after = begin(&wanted.token)?;
    let mut found = Vec::new();
    for member in snapshot_members(provisioner, wanted).await? {
        // What is not listed is taken for gone, also where nobody could look.
        let leaf = member.last_known().map_or_else(|| member.leaf(), Ok)?;
        let source = |row: &SnapshotRow| wanted.source.is_empty() || *row.source == *wanted.source;
        let is_wanted = |row: &SnapshotRow| row.is_there() && source(row);
        if let Some(id) = VolumeId::parse(&wanted.id) {
            let row = asked_for(&member, &id).await?.filter(|row| is_wanted(row) && row.id(&id.member) == id);
            found.extend(row.map(|row| Snapshot::known_as(&id.member, leaf, &row)));
        } else {
            ensure_listed(&member, deadline).await?;
            found.extend(leaf.snapshots.all(is_wanted).iter().map(|row| Snapshot::new(leaf, row)));
        }
    }
    Ok(page(found, &after, wanted.most))
}

pub async fn get(provisioner: &Provisioner, id: &str) -> Result<Snapshot> {
    let unknown = || Error::NotFound(format!("no snapshot has the handle {id:?}"));
    let parsed = VolumeId::parse(id).ok_or_else(unknown)?;
    let member = provisioner.members.get(&parsed.member).await?;
    let leaf = member.leaf()?;
    let Some(row) = asked_for(&member, &parsed).await?.filter(SnapshotRow::is_there) else {
        is_not_stripped(leaf, &parsed).await?;
        return Err(unknown());
    };
    Ok(Snapshot::known_as(&parsed.member, leaf, &row))
}

/// The members that can hold what is asked for: one, where a handle says which.
async fn snapshot_members(provisioner: &Provisioner, wanted: &SnapshotQuery) -> Result<Vec<std::sync::Arc<Member>>> {
    let filters = [&wanted.id, &wanted.source].into_iter().filter(|filter| !filter.is_empty());
    let mut named = BTreeSet::new();
    for filter in filters {
        match VolumeId::parse(filter) {
            Some(id) => drop(named.insert(id.member)),
            None => return Ok(Vec::new()),
        }
    }
    match named.first() {
        // Under its other names a member has nothing.
        None => Ok(provisioner.members.all()?.values().filter(|one| one.alias_of().is_none()).cloned().collect()),
        Some(_) if named.len() > 1 => Ok(Vec::new()),
        Some(name) => match provisioner.members.get(name).await {
            Ok(member) => Ok(vec![member]),
            Err(Error::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        },
    }
}

/// The leaf snapshot a volume is to be filled with.
pub(super) async fn source(leaf: &MemberClient, id: &VolumeId) -> Result<Option<SnapshotRow>> {
    let found = find_snapshot(leaf, id).await?;
    if found.is_none() {
        is_not_stripped(leaf, id).await?;
    }
    Ok(found.filter(|row| !row.terminating))
}

/// One that is named is read by itself where no watch stands, as where the member has too many to be followed.
async fn asked_for(member: &Member, id: &VolumeId) -> Result<Option<SnapshotRow>> {
    if let Some(known) = member.last_known().filter(|known| known.snapshots.synced()) {
        return behind(known, id);
    }
    let leaf = member.leaf()?;
    let found = match id.place() {
        Some(place) => leaf::snapshot::read(leaf, &place).await?.and_then(|(_, row)| row),
        None => find_snapshot(leaf, id).await?,
    };
    let found = found.filter(|row| id.names(row.hash));
    if found.is_some() {
        leaf.snapshots.want();
    }
    Ok(found)
}

/// Where no watch stands, one question tells whether there is anything to see. What was seen once is the answer also
/// while the member cannot be asked.
async fn ensure_listed(member: &Member, deadline: Instant) -> Result<()> {
    let Some(known) = member.last_known().filter(|known| !known.snapshots.synced()) else { return Ok(()) };
    let leaf = member.leaf()?;
    if !leaf::snapshot::has_any(leaf).await? {
        return Ok(());
    }
    known.snapshots.want();
    if known.snapshots.until(deadline, leaf::Snapshots::synced).await {
        return Ok(());
    }
    Err(Error::Unreachable { member: member.name.clone(), reason: "its snapshots are still being listed".to_owned() })
}

/// The handle after which a page begins.
fn begin(token: &str) -> Result<String> {
    if token.is_empty() {
        return Ok(String::new());
    }
    let handle = token.strip_prefix(TOKEN).filter(|handle| VolumeId::parse(handle).is_some());
    // The code that the interface has for it is that of ABORTED.
    handle.map(str::to_owned).ok_or_else(|| {
        Error::InProgress(format!("starting_token {token:?} was not given out by this driver: begin without one"))
    })
}

fn page(found: Vec<Snapshot>, after: &str, most: usize) -> (Vec<Snapshot>, String) {
    let mut found: Vec<(String, Snapshot)> =
        found.into_iter().map(|snapshot| (snapshot.id.to_string(), snapshot)).collect();
    found.retain(|(id, _)| *id.as_str() > *after);
    found.sort_unstable_by(|left, right| left.0.cmp(&right.0));
    let most = if most == 0 { LONGEST_PAGE } else { most.min(LONGEST_PAGE) };
    let more = found.len() > most;
    if more {
        found.truncate(most);
    }
    let token = found.last().filter(|_| more).map(|(id, _)| format!("{TOKEN}{id}"));
    (found.into_iter().map(|(_, snapshot)| snapshot).collect(), token.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::volume::{HostId, VolumeHash};

    fn snapshot(name: &str) -> Snapshot {
        let hash = VolumeHash::of_snapshot(&HostId("h".to_owned()), name);
        Snapshot {
            id: VolumeId::new("m", "n", name, hash),
            source: String::new(),
            size: 0,
            cut: 0,
            ready: true,
            member: "m".to_owned(),
            group: None,
        }
    }

    #[test]
    fn pages_follow_one_another_and_lose_nothing() {
        let all = || ["c", "a", "e", "b", "d"].map(snapshot).to_vec();
        let (mut token, mut seen) = (String::new(), Vec::new());
        loop {
            let (found, next) = page(all(), &begin(&token).unwrap(), 2);
            assert!(found.len() <= 2);
            seen.extend(found.into_iter().map(|snapshot| snapshot.id.place().unwrap().claim));
            if next.is_empty() {
                break;
            }
            token = next;
        }
        assert_eq!(seen, ["a", "b", "c", "d", "e"]);
        assert_eq!(page(all(), "", 0).0.len(), 5);
    }

    #[test]
    fn a_token_of_somebody_else_is_refused() {
        for token in ["invalid-token", "after:", "after:x", "m/n/a/0123456789abcdef"] {
            assert!(matches!(begin(token), Err(Error::InProgress(_))), "{token}");
        }
    }
}
