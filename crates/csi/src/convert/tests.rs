use std::collections::HashMap;

use tonic::metadata::MetadataValue;

use super::{
    v1::{
        Topology,
        volume_capability::{BlockVolume, MountVolume},
    },
    *,
};
use domain::volume::MEMBER_KEY;

fn capability(mode: Mode, block: bool) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(v1::volume_capability::AccessMode { mode: mode.into() }),
        access_type: Some(if block {
            AccessType::Block(BlockVolume::default())
        } else {
            AccessType::Mount(MountVolume::default())
        }),
    }
}

fn request() -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: "pvc-1".to_owned(),
        volume_capabilities: vec![capability(Mode::SingleNodeWriter, false)],
        ..CreateVolumeRequest::default()
    }
}

#[test]
fn access_modes_become_those_of_kubernetes() {
    for (mode, expected) in [
        (Mode::SingleNodeWriter, AccessMode::ReadWriteOnce),
        (Mode::SingleNodeMultiWriter, AccessMode::ReadWriteOnce),
        (Mode::SingleNodeSingleWriter, AccessMode::ReadWriteOncePod),
        (Mode::MultiNodeReaderOnly, AccessMode::ReadOnlyMany),
        (Mode::MultiNodeMultiWriter, AccessMode::ReadWriteMany),
    ] {
        let request = CreateVolumeRequest { volume_capabilities: vec![capability(mode, false)], ..request() };
        assert_eq!(volume_spec(request).unwrap().request.access, [expected]);
    }
}

#[test]
fn what_is_missing_or_contradictory_is_named() {
    type Spoil = fn(&mut CreateVolumeRequest);
    let cases: [(Spoil, &str); 8] = [
        (|request| request.name.clear(), "name"),
        (|request| request.name = "x".repeat(129), "128"),
        (|request| request.name = "a\u{7f}".to_owned(), "control"),
        (|request| request.volume_capabilities.clear(), "volume_capabilities"),
        (|request| request.volume_capabilities[0].access_mode = None, "access_mode"),
        (|request| request.volume_capabilities[0].access_type = None, "access_type"),
        (|request| request.volume_capabilities.push(capability(Mode::SingleNodeWriter, true)), "either"),
        (|request| drop(request.mutable_parameters.insert("iops".to_owned(), "1".to_owned())), "iops"),
    ];
    for (spoil, word) in cases {
        let mut spoilt = request();
        spoil(&mut spoilt);
        let error = volume_spec(spoilt).unwrap_err();
        assert!(matches!(&error, Error::Invalid(message) if message.contains(word)), "{error}");
    }
}

#[test]
fn sizes_that_cannot_be_are_out_of_range() {
    for (required_bytes, limit_bytes) in [(-1, 0), (0, -1), (2, 1)] {
        let capacity_range = Some(CapacityRange { required_bytes, limit_bytes });
        let error = volume_spec(CreateVolumeRequest { capacity_range, ..request() }).unwrap_err();
        assert!(matches!(error, Error::OutOfRange(_)));
    }
}

#[test]
fn the_claim_and_the_members_are_read() {
    let mut full = request();
    for (key, value) in [("csi.storage.k8s.io/pvc/namespace", "shop"), ("csi.storage.k8s.io/pvc/name", "db")] {
        full.parameters.insert(key.to_owned(), value.to_owned());
    }
    let topology = |member: &str| Topology { segments: HashMap::from([(MEMBER_KEY.to_owned(), member.to_owned())]) };
    let elsewhere = Topology { segments: HashMap::from([("zone".to_owned(), "a".to_owned())]) };
    full.accessibility_requirements = Some(v1::TopologyRequirement {
        requisite: vec![topology("a"), topology("b"), elsewhere],
        preferred: vec![topology("b")],
    });
    let spec = volume_spec(full).unwrap();
    assert_eq!(spec.claim, Some(Claim { namespace: "shop".to_owned(), name: "db".to_owned() }));
    assert_eq!((spec.preferred, spec.requisite), (vec!["b".to_owned()], vec!["a".to_owned(), "b".to_owned()]));
    assert!(spec.request.parameters.is_empty(), "what the provisioner adds is not compared");
}

#[test]
fn call_is_answered_shortly_before_its_own_deadline() {
    let patience_of = |timeout: &str| {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", MetadataValue::try_from(timeout).unwrap());
        patience(&metadata)
    };
    assert_eq!(patience_of("10S"), Duration::from_secs(9));
    assert_eq!(patience_of("10000000u"), Duration::from_secs(9));
    assert_eq!(patience_of("5M"), LONGEST_WAIT);
    assert_eq!(patience_of("100m"), Duration::ZERO);
    assert_eq!(patience_of("nonsense"), LONGEST_WAIT);
    assert_eq!(patience(&MetadataMap::new()), LONGEST_WAIT);
}
