//! Which specs of Kubernetes' own suites are run together, by their names. Pure.

/// Where the pods of the specs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// On virtual nodes.
    Virtual,
    /// On the host's real node, with the driver's node plugin.
    Real,
}

#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// That of its files as well.
    pub name: &'static str,
    pub scene: Scene,
    /// Whether a spec is one of it.
    pub has: fn(&str) -> bool,
    /// So many specs at a time: mostly they wait.
    pub workers: usize,
}

pub const PODS: Part =
    Part { name: "pods", scene: Scene::Virtual, has: |name| of_pods(name) && !of_probes(name), workers: 6 };
pub const PROBES: Part =
    Part { name: "probes", scene: Scene::Virtual, has: |name| of_pods(name) && of_probes(name), workers: 8 };
pub const MOUNTS: Part = Part { name: "mounts", scene: Scene::Virtual, has: of_mounts, workers: 6 };
pub const STORAGE: Part =
    Part { name: "storage", scene: Scene::Virtual, has: |name| of_storage(name) && !is_slow(name), workers: 4 };
pub const SLOW_STORAGE: Part =
    Part { name: "slow-storage", scene: Scene::Virtual, has: |name| of_storage(name) && is_slow(name), workers: 4 };
pub const REAL_STORAGE: Part =
    Part { name: "real-storage", scene: Scene::Real, has: |name| of_storage(name) && !is_slow(name), workers: 4 };

pub const PARTS: [Part; 6] = [PODS, PROBES, MOUNTS, STORAGE, SLOW_STORAGE, REAL_STORAGE];

/// What every node has to do.
fn conforms(name: &str) -> bool {
    name.contains("[NodeConformance]") || name.contains("[Conformance]")
}

/// By which containers begin again, all of them at once too: a scheduler looks for a node that declares that.
const RULES: &str = "] Pod Extended (";

fn of_pods(name: &str) -> bool {
    name.starts_with("[sig-node]") && (conforms(name) || name.contains(RULES))
}

fn of_probes(name: &str) -> bool {
    name.contains("Probing ")
}

fn of_mounts(name: &str) -> bool {
    name.starts_with("[sig-storage]") && conforms(name)
}

fn of_storage(name: &str) -> bool {
    name.contains("External Storage [Driver: ")
}

fn is_slow(name: &str) -> bool {
    name.contains("[Slow]")
}

/// It is run when no other one is.
pub fn is_alone(name: &str) -> bool {
    name.contains("[Serial]")
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    const NAMES: [(&str, &[&str]); 7] = [
        ("[sig-node] Pods should be updated [NodeConformance] [Conformance]", &["pods"]),
        ("[sig-node] Probing container should be restarted with a GRPC liveness probe [NodeConformance]", &["probes"]),
        ("[sig-node] Lease lease API should be available [Conformance]", &["pods"]),
        ("[sig-node] Pod Extended (RestartAllContainers) [Beta] RestartAllContainers should restart x", &["pods"]),
        ("[sig-storage] EmptyDir volumes should support (root,0644,tmpfs) [LinuxOnly] [NodeConformance]", &["mounts"]),
        (
            "External Storage [Driver: kosmos.csi.io] [Testpattern: Dynamic PV (default fs)] volumes should store data",
            &["storage", "real-storage"],
        ),
        (
            "External Storage [Driver: kosmos.csi.io] [Testpattern: Dynamic PV (block volmode)] multiVolume [Slow] x",
            &["slow-storage"],
        ),
    ];

    #[test]
    fn spec_is_in_one_part_of_each_scene() {
        for (name, parts) in NAMES {
            let of_name = PARTS.iter().filter(|part| (part.has)(name)).map(|part| part.name);
            assert_eq!(of_name.collect::<Vec<_>>(), parts, "{name}");
        }
        assert!(!PARTS.iter().any(|part| (part.has)("[sig-node] Pod Level Resources [Serial] [Feature:X] y")));
    }

    /// By name, and among what takes long.
    #[test]
    fn script_runs_each_part_by_its_test() {
        let read = |file: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let (script, tests) = (read("tests/faults-real.sh"), read("tests/e2e/suites/mod.rs"));
        for part in PARTS {
            let name = format!("suites-of-{}", part.name);
            let row = script.lines().find(|line| line.split_whitespace().next() == Some(name.as_str()));
            let test = row.and_then(|row| row.split_whitespace().nth(1)).unwrap_or_else(|| panic!("no {name}"));
            let body = tests.split("\nfn ").find(|body| body.starts_with(&format!("{test}()")));
            let constant = part.name.to_uppercase().replace('-', "_");
            assert!(body.is_some_and(|body| body.contains(&format!("parts::{constant}"))), "{name} by {test}");
        }
    }
}
