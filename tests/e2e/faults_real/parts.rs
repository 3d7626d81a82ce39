//! The parts of the matrix: which faults are played on the same clusters, one after the other, and beside what.

use super::{
    fault::Fault,
    machines::{OF_BACKUP, OF_DISK, OF_HOST, OF_LINK, OF_MEMBER, OF_NODE, OF_OURS},
    requests::{ANSWERS, OF_AGENT, STREAMS, TO_HOST, WAYS},
    way::Way,
    world::Scene,
};

/// Its name is also that of the namespace.
#[derive(Clone, Copy, Debug)]
pub struct PartOf {
    pub name: &'static str,
    pub scene: Scene,
    pub faults: &'static [Fault],
}

pub const PARTS: [PartOf; 12] = [
    PartOf { name: "faults-of-answers", scene: Scene::Through(Way::ToMember), faults: &ANSWERS },
    PartOf { name: "faults-of-streams", scene: Scene::Through(Way::ToMember), faults: &STREAMS },
    PartOf { name: "faults-of-ways", scene: Scene::Through(Way::ToMember), faults: &WAYS },
    PartOf { name: "faults-of-links", scene: Scene::Through(Way::ToMember), faults: &OF_LINK },
    PartOf { name: "faults-of-a-member", scene: Scene::Agent, faults: &OF_MEMBER },
    PartOf { name: "faults-of-disks", scene: Scene::SmallDisks, faults: &OF_DISK },
    PartOf { name: "faults-of-backups", scene: Scene::Agent, faults: &OF_BACKUP },
    PartOf { name: "faults-to-the-host", scene: Scene::Through(Way::ToHost), faults: &TO_HOST },
    PartOf { name: "faults-of-the-host", scene: Scene::Agent, faults: &OF_HOST },
    PartOf { name: "faults-of-ours", scene: Scene::Agent, faults: &OF_OURS },
    PartOf { name: "faults-of-the-agent", scene: Scene::Through(Way::OfAgent), faults: &OF_AGENT },
    PartOf { name: "faults-of-a-node", scene: Scene::RealNode, faults: &OF_NODE },
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn faults_are_told_apart_by_their_names() {
        let mut names = BTreeSet::new();
        for fault in PARTS.iter().flat_map(|part| part.faults) {
            assert!(names.insert(fault.name), "two faults are called {}", fault.name);
        }
    }

    #[test]
    fn script_plays_each_part_by_its_test() {
        let read = |file: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let (script, tests) = (read("tests/faults-real.sh"), read("tests/e2e/faults_real/mod.rs"));
        for part in PARTS {
            let row = script.lines().find(|line| line.split_whitespace().next() == Some(part.name));
            let test = row.and_then(|row| row.split_whitespace().nth(1)).unwrap_or_else(|| panic!("no {}", part.name));
            let body = tests.split("\nfn ").find(|body| body.split('(').next().is_some_and(|name| name.contains(test)));
            assert!(
                body.is_some_and(|body| body.contains(&format!("part(\"{}\")", part.name))),
                "{} by {test}",
                part.name
            );
        }
    }
}
