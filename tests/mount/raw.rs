//! Volumes without a filesystem, on a model of a machine.

use std::path::Path;

use domain::{error::Error, volume::VolumeMode};
use mount::Amounts;

use crate::{
    fake::Content,
    kinds::{Act, Kind, STAGING, VOLUME, all, machine},
};

fn raw() -> Kind {
    all().into_iter().find(|kind| kind.name == "raw disk").unwrap()
}

#[test]
fn raw_volume_is_never_formatted() {
    for content in [Content::Blank, Content::Bytes] {
        let kind = Kind { disk: Some(content), ..raw() };
        let fake = kind.machine();
        for act in [Act::Stage, Act::Publish(0)] {
            kind.act(&fake, act).unwrap();
        }
        assert!(fake.see().programs_run.is_empty() && kind.way.mode == VolumeMode::Block);
    }
}

/// The kernel does so when the last one ends who has it open, which need not be the pod.
#[test]
fn all_is_written_to_a_raw_disk_before_it_leaves_the_node() {
    let kind = raw();
    let fake = kind.machine();
    for act in [Act::Stage, Act::Publish(0), Act::Unpublish(0)] {
        kind.act(&fake, act).unwrap();
    }
    fake.change().unwritten.insert((8, 16));
    kind.act(&fake, Act::Unstage).unwrap();
    assert!(fake.see().unwritten.is_empty());
}

/// The kubelet asks by that, and not by the path at which it has the volume published.
#[test]
fn raw_volume_is_measured_where_the_kubelet_maps_it_to_a_pod() {
    let (kind, devices) = (raw(), "/kubelet/plugins/kubernetes.io/csi/volumeDevices");
    let (fake, target) = (kind.machine(), format!("{devices}/publish/pv-1/u1"));
    fake.change().folder(&format!("{devices}/publish/pv-1"));
    kind.act(&fake, Act::Stage).unwrap();
    let (staging, target) = (Path::new(STAGING), Path::new(&target));
    mount::publish::publish(&machine(&fake), &kind.attached, staging, target, &kind.way, false).unwrap();
    let usage = |pod: &str| {
        let mapped = format!("{devices}/pv-1/dev/{pod}");
        mount::measure::usage(&machine(&fake), VOLUME, Path::new(&mapped))
    };
    assert_eq!(usage("u1").unwrap().bytes, Some(Amounts { total: 1 << 30, ..Amounts::default() }));
    assert!(matches!(usage("u2"), Err(Error::NotFound(_))));
}
