//! Snapshots, and what volumes are filled with, between the interface's messages and the domain's types.

use std::collections::{BTreeMap, BTreeSet};

use super::{checked_name, missing, topology};
use crate::v1::{self, volume_content_source as content};
use domain::{
    error::{Error, Result},
    volume::{SnapshotSpec, Source, id::is_subdomain, snapshot::leaf_class},
};
use driver::provision::{group::Group, snapshot::Snapshot, snapshots::SnapshotQuery};

const GROUP_CONTENT: &str = "csi.storage.k8s.io/volumegroupsnapshotcontent/name";
const CONTENT: &str = "csi.storage.k8s.io/volumesnapshotcontent/name";

pub fn spec(request: v1::CreateSnapshotRequest) -> Result<SnapshotSpec> {
    let name = checked_name(request.name)?;
    if request.source_volume_id.is_empty() {
        return Err(missing("source_volume_id"));
    }
    let raw: BTreeMap<String, String> = request.parameters.into_iter().collect();
    Ok(SnapshotSpec {
        name,
        sources: vec![request.source_volume_id],
        leaf_class: leaf_class("VolumeSnapshotClass", "leafSnapshotClass", &raw),
        allowed: allowed(request.accessibility_requirements)?,
        content: content_name(&raw, CONTENT)?,
    })
}

pub fn group_spec(request: v1::CreateVolumeGroupSnapshotRequest) -> Result<SnapshotSpec> {
    let name = checked_name(request.name)?;
    if request.source_volume_ids.is_empty() || request.source_volume_ids.iter().any(String::is_empty) {
        return Err(Error::Invalid(
            "source_volume_ids is empty, or one of them is: name the volumes of the group".to_owned(),
        ));
    }
    let raw: BTreeMap<String, String> = request.parameters.into_iter().collect();
    let (mut sources, mut named) = (request.source_volume_ids, BTreeSet::new());
    sources.retain(|source| named.insert(source.clone()));
    Ok(SnapshotSpec {
        name,
        sources,
        leaf_class: leaf_class("VolumeGroupSnapshotClass", "leafGroupSnapshotClass", &raw),
        allowed: Vec::new(),
        content: content_name(&raw, GROUP_CONTENT)?,
    })
}

pub fn group(group: Group) -> v1::VolumeGroupSnapshot {
    v1::VolumeGroupSnapshot {
        group_snapshot_id: group.id.to_string(),
        snapshots: group.snapshots.into_iter().map(snapshot).collect(),
        creation_time: Some(prost_types::Timestamp { seconds: group.cut, nanos: 0 }),
        ready_to_use: group.ready,
    }
}

/// The host's content object, where the sidecar tells it. It becomes part of a path.
fn content_name(raw: &BTreeMap<String, String>, key: &str) -> Result<Option<String>> {
    match raw.get(key) {
        Some(name) if !is_subdomain(name) => Err(Error::Invalid(format!("{key}: {name:?} is no name of an object"))),
        name => Ok(name.cloned()),
    }
}

/// The members that a requirement names.
fn allowed(requirement: Option<v1::TopologyRequirement>) -> Result<Vec<String>> {
    let requirement = topology::requirement(requirement)?;
    let mut allowed = [requirement.requisite, requirement.preferred].concat();
    allowed.sort_unstable();
    allowed.dedup();
    Ok(allowed)
}

pub fn snapshot(snapshot: Snapshot) -> v1::Snapshot {
    v1::Snapshot {
        size_bytes: i64::try_from(snapshot.size).unwrap_or(i64::MAX),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.source,
        creation_time: Some(prost_types::Timestamp { seconds: snapshot.cut, nanos: 0 }),
        ready_to_use: snapshot.ready,
        group_snapshot_id: snapshot.group.unwrap_or_default(),
        accessible_topology: vec![topology::accessible(snapshot.member, None)],
    }
}

pub fn wanted(request: v1::ListSnapshotsRequest) -> Result<SnapshotQuery> {
    let most = usize::try_from(request.max_entries)
        .map_err(|_| Error::Invalid(format!("max_entries is {}, which is negative", request.max_entries)))?;
    Ok(SnapshotQuery { id: request.snapshot_id, source: request.source_volume_id, most, token: request.starting_token })
}

pub fn source(source: v1::VolumeContentSource) -> Result<Source> {
    let (source, field) = match source.r#type {
        Some(content::Type::Snapshot(snapshot)) => (Source::Snapshot(snapshot.snapshot_id), "snapshot.snapshot_id"),
        Some(content::Type::Volume(volume)) => (Source::Volume(volume.volume_id), "volume.volume_id"),
        None => return Err(Error::Invalid("volume_content_source has neither snapshot nor volume".to_owned())),
    };
    if source.handle().is_empty() {
        return Err(missing(&format!("volume_content_source.{field}")));
    }
    Ok(source)
}

pub fn content_source(source: Source) -> v1::VolumeContentSource {
    let kind = match source {
        Source::Snapshot(snapshot_id) => content::Type::Snapshot(content::SnapshotSource { snapshot_id }),
        Source::Volume(volume_id) => content::Type::Volume(content::VolumeSource { volume_id }),
    };
    v1::VolumeContentSource { r#type: Some(kind) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn request() -> v1::CreateSnapshotRequest {
        v1::CreateSnapshotRequest {
            name: "snapshot-1".to_owned(),
            source_volume_id: "a/n/c/0123456789abcdef".to_owned(),
            ..v1::CreateSnapshotRequest::default()
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        type Spoil = fn(&mut v1::CreateSnapshotRequest);
        let cases: [(Spoil, &str); 3] = [
            (|request| request.name.clear(), "name"),
            (|request| request.name = "x".repeat(129), "128"),
            (|request| request.source_volume_id.clear(), "source_volume_id"),
        ];
        for (spoil, word) in cases {
            let mut spoilt = request();
            spoil(&mut spoilt);
            let error = spec(spoilt).unwrap_err();
            assert!(matches!(&error, Error::Invalid(message) if message.contains(word)), "{error}");
        }
        let elsewhere = v1::Topology { segments: [("zone".to_owned(), "a".to_owned())].into() };
        let requirement = v1::TopologyRequirement { requisite: vec![elsewhere], preferred: Vec::new() };
        let request = v1::CreateSnapshotRequest { accessibility_requirements: Some(requirement), ..request() };
        assert!(matches!(spec(request), Err(Error::NoPlace(_))));
    }

    #[test]
    fn what_is_wrong_in_a_class_is_told_where_it_is_needed() {
        let slip = HashMap::from([("leafClass".to_owned(), "x".to_owned())]);
        let one = spec(v1::CreateSnapshotRequest { parameters: slip.clone(), ..request() });
        let group = group_spec(v1::CreateVolumeGroupSnapshotRequest {
            name: "group-1".to_owned(),
            source_volume_ids: vec!["a/n/c/0123456789abcdef".to_owned()],
            parameters: slip,
            ..v1::CreateVolumeGroupSnapshotRequest::default()
        });
        for spec in [one.unwrap(), group.unwrap()] {
            let error = spec.leaf_class.unwrap_err();
            assert!(matches!(&error, Error::Invalid(message) if message.contains("leafClass")), "{error}");
        }
    }

    #[test]
    fn volume_that_is_named_twice_is_in_its_group_once() {
        let group = group_spec(v1::CreateVolumeGroupSnapshotRequest {
            name: "group-1".to_owned(),
            source_volume_ids: ["b", "a", "b"].map(|claim| format!("m/n/{claim}/0123456789abcdef")).to_vec(),
            ..v1::CreateVolumeGroupSnapshotRequest::default()
        });
        assert_eq!(group.unwrap().sources, ["m/n/b/0123456789abcdef", "m/n/a/0123456789abcdef"]);
    }

    #[test]
    fn content_that_is_no_name_is_refused_before_it_is_looked_for() {
        let told = |key: &str, name: &str| HashMap::from([(key.to_owned(), name.to_owned())]);
        for (name, right) in [("snapcontent-1", true), ("", false), ("a/../b", false), ("..", false), ("A", false)] {
            let one = spec(v1::CreateSnapshotRequest { parameters: told(CONTENT, name), ..request() });
            let group = group_spec(v1::CreateVolumeGroupSnapshotRequest {
                name: "group-1".to_owned(),
                source_volume_ids: vec!["a/n/c/0123456789abcdef".to_owned()],
                parameters: told(GROUP_CONTENT, name),
                ..v1::CreateVolumeGroupSnapshotRequest::default()
            });
            for spec in [one, group] {
                match spec {
                    Ok(spec) => assert!(right && spec.content.as_deref() == Some(name), "{name:?}"),
                    Err(error) => assert!(!right && matches!(error, Error::Invalid(_)), "{name:?}: {error}"),
                }
            }
        }
    }

    #[test]
    fn source_comes_back_as_it_was_given() {
        for asked in [Source::Snapshot("a".to_owned()), Source::Volume("b".to_owned())] {
            assert_eq!(source(content_source(asked.clone())).unwrap(), asked);
        }
        for empty in [Source::Snapshot(String::new()), Source::Volume(String::new())] {
            assert!(matches!(source(content_source(empty)), Err(Error::Invalid(_))));
        }
        assert!(source(v1::VolumeContentSource { r#type: None }).is_err());
    }

    #[test]
    fn negative_number_of_entries_is_refused() {
        let request = v1::ListSnapshotsRequest { max_entries: -1, ..v1::ListSnapshotsRequest::default() };
        assert!(matches!(wanted(request), Err(Error::Invalid(_))));
    }
}
