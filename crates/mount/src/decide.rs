//! From what is recorded, what is mounted and what is asked for, to what is to be done. Pure.

use std::path::{Path, PathBuf};

use super::records::{Record, Target};
use domain::{
    error::{Error, Result},
    volume::{
        DRIVER,
        backing::{Backing, GroupPolicy},
    },
};

/// What is mounted of a recorded volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// At the staging path of the request.
    pub here: bool,
    /// At the staging path of the record.
    pub recorded: bool,
    /// The recorded targets.
    pub targets: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is mounted; what may be left to do is done.
    Finish,
    Begin,
}

/// Whether a volume is to be mounted at a staging path.
pub fn stage(found: Option<&Record>, wanted: &Record, live: &Live) -> Result<Stage> {
    let go = if live.here { Stage::Finish } else { Stage::Begin };
    let Some(found) = found.filter(|_| live.recorded || !live.targets.is_empty()) else {
        return Ok(go);
    };
    let volume = wanted.volume();
    if found.staging != wanted.staging {
        return Err(Error::Refused(format!(
            "volume {volume} is staged at {} already: unstage it there first",
            found.staging.display()
        )));
    }
    match difference(found, wanted) {
        // Neither a raw one nor a folder is mounted where it is staged.
        None | Some("group")
            if (wanted.way.mode.is_block() || wanted.folder().is_some()) && !live.targets.is_empty() =>
        {
            Ok(Stage::Finish)
        }
        // After its own restart a kubelet stages for any of the pods that have the volume.
        None | Some("group") => Ok(go),
        Some(what) => Err(Error::Exists(format!(
            "volume {volume} is staged at {} with another {what}: unstage it first",
            found.staging.display()
        ))),
    }
}

fn difference(found: &Record, wanted: &Record) -> Option<&'static str> {
    let (then, now) = (&found.way, &wanted.way);
    [
        ("publish context", found.attached != wanted.attached),
        ("access mode", then.access != now.access),
        ("volume mode", then.mode != now.mode),
        ("filesystem", then.filesystem != now.filesystem),
        ("set of mount options", then.flags != now.flags),
        ("group", then.group != now.group),
    ]
    .into_iter()
    .find_map(|(what, differs)| differs.then_some(what))
}

/// No other volume is staged or published at a path.
pub fn is_nobody_elses(all: &[Record], volume: &str, path: &Path) -> Result<()> {
    let has = |record: &&Record| record.staging == path || record.targets.contains_key(path);
    match all.iter().filter(|record| record.volume() != volume).find(has) {
        None => Ok(()),
        Some(other) => Err(Error::Refused(format!(
            "{} belongs to volume {}, not to {volume}: nothing was touched",
            path.display(),
            other.volume()
        ))),
    }
}

/// Whether a request to publish speaks of what is staged.
pub fn is_staged_so(found: &Record, wanted: &Record) -> Result<()> {
    let (volume, staging) = (wanted.volume(), wanted.staging.display());
    if found.staging != wanted.staging {
        return Err(Error::Refused(format!(
            "volume {volume} is staged at {} and not at {staging}: stage it there first",
            found.staging.display()
        )));
    }
    // One that is staged for some pods may be published to each of them in its own access mode and for its own group.
    match difference(found, wanted) {
        None | Some("access mode" | "group") => Ok(()),
        Some(what) => {
            Err(Error::Refused(format!("volume {volume} is staged at {staging} with another {what} than is asked for")))
        }
    }
}

/// Whether a volume may be shown at a target while it is mounted at others.
pub fn may_join(volume: &str, wanted: &Target, others: &[(&Path, &Target)]) -> Result<()> {
    let alone = |target: &Target| !target.way.access.allows_two_targets();
    match others.iter().find(|(_, other)| alone(wanted) || alone(other)) {
        None => Ok(()),
        Some((path, _)) => Err(Error::Refused(format!(
            "volume {volume} is for one pod at a time and is published at {}: it comes free when that pod has ended",
            path.display()
        ))),
    }
}

/// Whether a path below the kubelet's folder is one at which it asks a driver to show volumes to pods.
pub fn is_kubelets_target(path: &Path, kubelet_dir: &Path) -> bool {
    matches!(
        parts(path, kubelet_dir).as_deref(),
        Some(
            ["pods", _, "volumes", "kubernetes.io~csi", _, "mount"]
                | ["plugins", "kubernetes.io", "csi", "volumeDevices", "publish", _, _]
        )
    )
}

/// And at which it asks this driver to stage them.
pub fn is_kubelets_staging(path: &Path, kubelet_dir: &Path) -> bool {
    match parts(path, kubelet_dir).as_deref() {
        Some(["plugins", "kubernetes.io", "csi", driver, _, "globalmount"]) => *driver == DRIVER,
        Some(["plugins", "kubernetes.io", "csi", "volumeDevices", "staging", _]) => true,
        _ => false,
    }
}

/// Where a raw volume was published, of which the kubelet asks by the path at which it maps the volume to a pod.
pub fn published_path(path: &Path, kubelet_dir: &Path) -> Option<PathBuf> {
    match parts(path, kubelet_dir)?.as_slice() {
        ["plugins", "kubernetes.io", "csi", "volumeDevices", volume, "dev", pod] if *volume != "publish" => {
            Some(kubelet_dir.join("plugins/kubernetes.io/csi/volumeDevices/publish").join(volume).join(pod))
        }
        _ => None,
    }
}

fn parts<'a>(path: &'a Path, kubelet_dir: &Path) -> Option<Vec<&'a str>> {
    path.strip_prefix(kubelet_dir).ok()?.iter().map(|part| part.to_str()).collect()
}

/// Whether the node gives a pod's group the files of a CSI leaf volume.
pub fn owns(record: &Record, target: &Target) -> Option<u32> {
    let Backing::Csi(leaf) = &record.attached.backing else {
        return None;
    };
    let by_policy = match leaf.group_policy {
        GroupPolicy::Always => true,
        GroupPolicy::Never => false,
        GroupPolicy::WithFilesystem => !leaf.filesystem.is_empty() && target.way.access.is_for_one_node(),
    };
    target.way.group.filter(|_| by_policy && !only_reads(record, target) && !target.way.mode.is_block())
}

/// Whether nothing may be written through a target.
pub fn only_reads(record: &Record, target: &Target) -> bool {
    target.readonly || record.only_reads() || target.way.access.only_reads()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_volume_was_published_elsewhere_than_where_it_is_mapped_to_a_pod() {
        let kubelet = Path::new("/var/lib/kubelet");
        let devices = kubelet.join("plugins/kubernetes.io/csi/volumeDevices");
        let published = |path: &str| published_path(&devices.join(path), kubelet);
        assert_eq!(published("pv/dev/u"), Some(devices.join("publish/pv/u")));
        for other in ["publish/pv/u", "publish/dev/u", "pv/data/u", "pv/dev", "pv/dev/u/deeper"] {
            assert_eq!(published(other), None, "{other}");
        }
        assert_eq!(published_path(Path::new("/pv/dev/u"), kubelet), None);
    }

    #[test]
    fn kubelets_paths_are_known_by_their_form() {
        let kubelet = Path::new("/var/lib/kubelet");
        let target = |path: &str| is_kubelets_target(Path::new(path), kubelet);
        let staging = |path: &str| is_kubelets_staging(Path::new(path), kubelet);
        assert!(target("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"));
        assert!(target("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv/u"));
        assert!(staging("/var/lib/kubelet/plugins/kubernetes.io/csi/kosmos.csi.io/abc/globalmount"));
        assert!(staging("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pv"));
        for path in [
            "/pods/u/volumes/kubernetes.io~csi/pv/mount",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~nfs/pv/mount",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount/deeper",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv",
            "/var/lib/kubelet/plugins/kubernetes.io/csi/another.driver/abc/globalmount",
            "/var/lib/kubelet",
        ] {
            assert!(!target(path) && !staging(path), "{path}");
        }
    }
}
