//! Makes and removes snapshots, alone or in groups. A snapshot is a copy, ready when the call ends, and lives on when its
//! volume is gone.

use std::collections::BTreeSet;

use crate::copies::copy_volumes;
use crate::driver::{Driver, now};
use crate::error::Error;
use crate::parameters::check_none;
use crate::volume::{Group, Map, Snapshot, Volume};

/// The name is the key: a repeated call finds the snapshot that is there.
pub(crate) async fn create(
    driver: &Driver,
    name: &str,
    source: &str,
    parameters: &Map,
) -> Result<Snapshot, Error> {
    check_none(parameters)?;
    let _name = driver
        .in_flight
        .begin([format!("the snapshot name {name:?}")])?;
    if let Some(snapshot) = driver.snapshots.named(name) {
        let same = snapshot.volume == source && snapshot.group.is_none();
        return same.then_some(snapshot).ok_or_else(|| taken(name));
    }
    let _source = driver.in_flight.begin([source])?;
    let volume = driver.volumes.get(source)?;
    let snapshot = plan(driver.snapshots.next_id(), name.to_owned(), &volume, None);
    take(driver, &[(volume, &snapshot)]).await?;
    Ok(snapshot)
}

/// An unknown snapshot is a deleted snapshot.
pub(crate) fn delete(driver: &Driver, id: &str) -> Result<(), Error> {
    let _snapshot = driver.in_flight.begin([id])?;
    match driver.snapshots.find(id) {
        None => Ok(()),
        Some(Snapshot {
            group: Some(group), ..
        }) => Err(Error::Invalid(format!(
            "snapshot {id} goes with its group {group}"
        ))),
        Some(_) => forget(driver, id),
    }
}

/// Snapshots of all these volumes at one moment. The group's record is written last and is what makes them count.
pub(crate) async fn create_group(
    driver: &Driver,
    name: &str,
    sources: BTreeSet<String>,
    parameters: &Map,
) -> Result<Group, Error> {
    check_none(parameters)?;
    let _name = driver
        .in_flight
        .begin([format!("the group name {name:?}")])?;
    if let Some(group) = driver.groups.named(name) {
        return (group.volumes == sources)
            .then_some(group)
            .ok_or_else(|| taken(name));
    }
    let _sources = driver.in_flight.begin(&sources)?;
    let id = driver.groups.next_id();
    let mut members = Vec::new();
    for source in &sources {
        let volume = driver.volumes.get(source)?;
        let name = format!("{name}/{source}");
        let snapshot = plan(driver.snapshots.next_id(), name, &volume, Some(id.clone()));
        members.push((volume, snapshot));
    }
    let snapshots = members
        .iter()
        .map(|(_, snapshot)| snapshot.id.clone())
        .collect();
    let copies: Vec<_> = members
        .iter()
        .map(|(volume, snapshot)| (volume.clone(), snapshot))
        .collect();
    take(driver, &copies).await?;
    let group = Group {
        id,
        name: name.to_owned(),
        volumes: sources,
        snapshots,
        created: now(),
    };
    driver.groups.put(group.clone())?;
    Ok(group)
}

/// An unknown group is a deleted group.
pub(crate) fn delete_group(
    driver: &Driver,
    id: &str,
    snapshots: &BTreeSet<String>,
) -> Result<(), Error> {
    let _group = driver.in_flight.begin([id])?;
    let Some(group) = driver.groups.find(id) else {
        return Ok(());
    };
    check_members(&group, snapshots)?;
    let _snapshots = driver.in_flight.begin(&group.snapshots)?;
    for snapshot in &group.snapshots {
        forget(driver, snapshot)?;
    }
    driver.groups.remove(id)
}

/// Callers may name the members, and then have to name all of them.
pub(crate) fn check_members(group: &Group, named: &BTreeSet<String>) -> Result<(), Error> {
    if named.is_empty() || *named == group.snapshots {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "these are not the snapshots of group {}",
        group.id
    )))
}

fn plan(id: String, name: String, volume: &Volume, group: Option<String>) -> Snapshot {
    Snapshot {
        id,
        name,
        volume: volume.id.clone(),
        bytes: volume.bytes,
        kind: volume.kind,
        format: volume.format,
        created: now(),
        group,
    }
}

/// Copies the data and writes the records, or leaves nothing.
async fn take(driver: &Driver, pairs: &[(Volume, &Snapshot)]) -> Result<(), Error> {
    let copies: Vec<_> = pairs
        .iter()
        .map(|(volume, to)| (volume.clone(), to.id.as_str(), to.bytes))
        .collect();
    let mut taken = copy_volumes(driver, &copies).await;
    for (_, snapshot) in pairs {
        taken = taken.and_then(|()| driver.snapshots.put((*snapshot).clone()));
    }
    if taken.is_err() {
        for (_, snapshot) in pairs {
            forget(driver, &snapshot.id)?;
        }
    }
    taken
}

fn forget(driver: &Driver, id: &str) -> Result<(), Error> {
    driver.data.remove(id)?;
    driver.snapshots.remove(id)
}

fn taken(name: &str) -> Error {
    Error::Exists(format!(
        "the name {name:?} belongs to a snapshot of other volumes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_all_or_not_at_all() {
        let set = |ids: &[&str]| {
            ids.iter()
                .map(|id| (*id).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let group = Group {
            snapshots: set(&["a", "b"]),
            ..Group::default()
        };
        for (named, right) in [
            (set(&[]), true),
            (set(&["b", "a"]), true),
            (set(&["a"]), false),
            (set(&["a", "b", "c"]), false),
        ] {
            assert_eq!(check_members(&group, &named).is_ok(), right, "{named:?}");
        }
    }
}
