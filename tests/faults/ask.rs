//! One call of each RPC, as a table needs it: the same for every method, and only its code is told.

use std::collections::HashMap;

use csi::{
    controller::Controller,
    v1::{
        self, CapacityRange, CreateVolumeRequest, Topology, TopologyRequirement, VolumeCapability,
        controller_server::Controller as _,
        group_controller_server::GroupController as _,
        volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    },
};
use serde_json::json;
use tokio::time::{Duration, sleep};
use tonic::{Code, Status};

use crate::{
    bench::{Bench, with_deadline},
    fixture::{GOLD, NOW},
    snapshotter::{CONTENTS, GROUP_CONTENTS},
};

pub const MEMBER_KEY: &str = "topology.kosmos.csi.io/member";
const GIB: i64 = 1 << 30;
const PAUSE: Duration = Duration::from_secs(1);

/// What is asked for, and about what.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Nothing is filled in.
    pub empty: bool,
    /// Where new volumes go.
    pub member: String,
    /// Of what is to be made.
    pub name: String,
    /// The host claim for which a volume is to be made.
    pub claim: String,
    /// The members' class.
    pub class: String,
    /// A volume that is there.
    pub volume: String,
    /// A snapshot of it, and a group of one.
    pub snapshot: String,
    pub group: String,
    pub parts: Vec<String>,
}

/// The code and the message of an answer.
pub type Told = (Code, String);

#[expect(clippy::too_many_lines, reason = "a table: a call in each arm")]
pub async fn ask(bench: &Bench, rpc: &str, target: &Target) -> Told {
    macro_rules! call {
        ($method:ident, $request:expr) => {{
            let request = if target.empty { Default::default() } else { $request };
            let answer = bench.call(|driver: Controller| async move { driver.$method(with_deadline(request)).await });
            told(answer.await)
        }};
    }
    let volume_id = target.volume.clone();
    match rpc {
        "CreateVolume" => call!(create_volume, creation(target)),
        "DeleteVolume" => call!(delete_volume, v1::DeleteVolumeRequest { volume_id, ..Default::default() }),
        "ValidateVolumeCapabilities" => call!(
            validate_volume_capabilities,
            v1::ValidateVolumeCapabilitiesRequest {
                volume_id,
                volume_capabilities: vec![capability()],
                ..Default::default()
            }
        ),
        "ControllerExpandVolume" => {
            let capacity_range = Some(CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 });
            let request = v1::ControllerExpandVolumeRequest { volume_id, capacity_range, ..Default::default() };
            call!(controller_expand_volume, request)
        }
        "ControllerModifyVolume" => {
            let class = if target.class == NOW { GOLD } else { &target.class };
            let mutable_parameters = [("leafVolumeAttributesClass".to_owned(), class.to_owned())].into();
            let request = v1::ControllerModifyVolumeRequest { volume_id, mutable_parameters, ..Default::default() };
            call!(controller_modify_volume, request)
        }
        "ListVolumes" => call!(list_volumes, v1::ListVolumesRequest::default()),
        "ControllerGetVolume" => call!(controller_get_volume, v1::ControllerGetVolumeRequest { volume_id }),
        "ControllerListVolumeHealth" => {
            call!(controller_list_volume_health, v1::ControllerListVolumeHealthRequest::default())
        }
        "ControllerGetVolumeHealth" => {
            let request = v1::ControllerGetVolumeHealthRequest { volume_id, ..Default::default() };
            call!(controller_get_volume_health, request)
        }
        "ControllerPublishVolume" => {
            let (node_id, volume_capability) = (format!("virtual/{}", target.member), Some(capability()));
            let request =
                v1::ControllerPublishVolumeRequest { volume_id, node_id, volume_capability, ..Default::default() };
            call!(controller_publish_volume, request)
        }
        "ControllerUnpublishVolume" => {
            let node_id = format!("virtual/{}", target.member);
            let request = v1::ControllerUnpublishVolumeRequest { volume_id, node_id, ..Default::default() };
            call!(controller_unpublish_volume, request)
        }
        "GetCapacity" => call!(get_capacity, capacity(target)),
        "CreateSnapshot" => call!(create_snapshot, cut(bench, "another", target)),
        "DeleteSnapshot" => {
            let request = v1::DeleteSnapshotRequest { snapshot_id: target.snapshot.clone(), ..Default::default() };
            call!(delete_snapshot, request)
        }
        "ListSnapshots" => call!(list_snapshots, v1::ListSnapshotsRequest::default()),
        "GetSnapshot" => {
            let request = v1::GetSnapshotRequest { snapshot_id: target.snapshot.clone(), ..Default::default() };
            call!(get_snapshot, request)
        }
        "CreateVolumeGroupSnapshot" => call!(create_volume_group_snapshot, cut_group(bench, "another", target)),
        "DeleteVolumeGroupSnapshot" => {
            let (group_snapshot_id, snapshot_ids) = (target.group.clone(), target.parts.clone());
            let request =
                v1::DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() };
            call!(delete_volume_group_snapshot, request)
        }
        "GetVolumeGroupSnapshot" => {
            let (group_snapshot_id, snapshot_ids) = (target.group.clone(), target.parts.clone());
            let request = v1::GetVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() };
            call!(get_volume_group_snapshot, request)
        }
        other => panic!("the table names {other}, and there is no such call"),
    }
}

fn capacity(target: &Target) -> v1::GetCapacityRequest {
    v1::GetCapacityRequest {
        parameters: [("leafStorageClass".to_owned(), target.class.clone())].into(),
        accessible_topology: Some(Topology { segments: [(MEMBER_KEY.to_owned(), target.member.clone())].into() }),
        ..Default::default()
    }
}

/// As the chart has the sidecar tell for which record of the host it asks. It makes none where the host has no such kind.
fn record(bench: &Bench, kind: &str, key: &str, name: &str) -> HashMap<String, String> {
    let record = format!("content-of-{name}");
    if bench.host.get(kind, "", &record).is_none() {
        let _ = bench.host.create(kind, json!({"metadata": {"name": record}, "spec": {}}));
    }
    let is_there = bench.host.get(kind, "", &record).is_some();
    is_there.then(|| (format!("csi.storage.k8s.io/{key}/name"), record)).into_iter().collect()
}

fn cut(bench: &Bench, name: &str, target: &Target) -> v1::CreateSnapshotRequest {
    let parameters = record(bench, CONTENTS, "volumesnapshotcontent", name);
    let (name, source_volume_id) = (name.to_owned(), target.volume.clone());
    v1::CreateSnapshotRequest { name, source_volume_id, parameters, ..Default::default() }
}

fn cut_group(bench: &Bench, name: &str, target: &Target) -> v1::CreateVolumeGroupSnapshotRequest {
    let parameters = record(bench, GROUP_CONTENTS, "volumegroupsnapshotcontent", name);
    let (name, source_volume_ids) = (name.to_owned(), vec![target.volume.clone()]);
    v1::CreateVolumeGroupSnapshotRequest { name, source_volume_ids, parameters, ..Default::default() }
}

/// A snapshot and a group of the volume, ready to be used.
pub async fn cut_first(bench: &Bench, target: &mut Target) {
    let ready = loop {
        let request = with_deadline(cut(bench, "first", target));
        let asked = bench.call(|driver| async move { driver.create_snapshot(request).await });
        match asked.await.map(|answer| answer.snapshot.unwrap()) {
            Ok(snapshot) if snapshot.ready_to_use => break snapshot,
            _ => sleep(PAUSE).await,
        }
    };
    target.snapshot = ready.snapshot_id;
    let group = loop {
        let request = with_deadline(cut_group(bench, "first", target));
        let asked = bench.call(|driver| async move { driver.create_volume_group_snapshot(request).await });
        match asked.await.map(|answer| answer.group_snapshot.unwrap()) {
            Ok(group) if group.ready_to_use => break group,
            _ => sleep(PAUSE).await,
        }
    };
    target.parts = group.snapshots.iter().map(|part| part.snapshot_id.clone()).collect();
    target.group = group.group_snapshot_id;
}

fn creation(target: &Target) -> CreateVolumeRequest {
    let topology = Topology { segments: [(MEMBER_KEY.to_owned(), target.member.clone())].into() };
    let parameters = [
        ("leafStorageClass", target.class.as_str()),
        ("csi.storage.k8s.io/pvc/namespace", crate::bench::SHOP),
        ("csi.storage.k8s.io/pvc/name", &target.claim),
    ];
    CreateVolumeRequest {
        name: target.name.clone(),
        capacity_range: Some(CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability()],
        parameters: parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![topology.clone()],
            preferred: vec![topology],
        }),
        ..CreateVolumeRequest::default()
    }
}

pub fn capability() -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
    }
}

fn told<T>(answer: Result<T, Status>) -> Told {
    match answer {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}
