//! The parts of the matrix: which faults are played on the same clusters, one after the other, and beside what.

use super::{
    credentials::OF_DRIVER,
    fault::Fault,
    machines::{
        OF_BACKUP, OF_CLOCK, OF_DISK, OF_HOST, OF_LINK, OF_MEMBER, OF_NODE, OF_NODES_POWER, OF_OLDER, OF_OURS,
        OF_POWER, OF_UPGRADE,
    },
    requests::{ANSWERS, OF_AGENT, OF_MOVES, STREAMS, TO_HOST, WAYS},
    way::Way,
    world::Scene,
};

/// Its name is also that of the namespace.
#[derive(Clone, Copy, Debug)]
pub struct PartOf {
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    pub scene: Scene,
    pub faults: &'static [Fault],
}

pub const PARTS: [PartOf; 19] = [
    PartOf {
        name: "faults-of-answers",
        title: "A member answers something else than it should",
        scene: Scene::Through(Way::ToMember),
        faults: &ANSWERS,
    },
    PartOf {
        name: "faults-of-streams",
        title: "What a member says does not arrive as it was said",
        scene: Scene::Through(Way::ToMember),
        faults: &STREAMS,
    },
    PartOf {
        name: "faults-of-ways",
        title: "The way to a member leads elsewhere, or is slow",
        scene: Scene::Through(Way::ToMember),
        faults: &WAYS,
    },
    PartOf {
        name: "faults-of-credentials",
        title: "Certificates and tokens of a member are replaced",
        scene: Scene::Through(Way::ToMember),
        faults: &OF_DRIVER,
    },
    PartOf {
        name: "faults-of-moves",
        title: "What moves a volume is not answered, or its line is cut",
        scene: Scene::Through(Way::ToMember),
        faults: &OF_MOVES,
    },
    PartOf {
        name: "faults-of-links",
        title: "One direction between the driver and a member is cut",
        scene: Scene::Through(Way::ToMember),
        faults: &OF_LINK,
    },
    PartOf {
        name: "faults-of-a-member",
        title: "Processes of a member, and the link of its node",
        scene: Scene::Agent,
        faults: &OF_MEMBER,
    },
    PartOf {
        name: "faults-of-power",
        title: "A node of a member is without power",
        scene: Scene::Power,
        faults: &OF_POWER,
    },
    PartOf { name: "faults-of-disks", title: "A disk of a member is full", scene: Scene::SmallDisks, faults: &OF_DISK },
    PartOf {
        name: "faults-of-backups",
        title: "A cluster goes back to a backup",
        scene: Scene::Agent,
        faults: &OF_BACKUP,
    },
    PartOf {
        name: "faults-to-the-host",
        title: "The host answers something else than it should to the driver and its sidecars",
        scene: Scene::Through(Way::ToHost),
        faults: &TO_HOST,
    },
    PartOf { name: "faults-of-the-host", title: "Processes of the host", scene: Scene::Agent, faults: &OF_HOST },
    PartOf {
        name: "faults-of-an-older-host",
        title: "The host is a minor version of Kubernetes behind its members",
        scene: Scene::OlderHost,
        faults: &OF_OLDER,
    },
    PartOf {
        name: "faults-of-ours",
        title: "The driver, its sidecars and the agent",
        scene: Scene::Agent,
        faults: &OF_OURS,
    },
    PartOf {
        name: "faults-of-upgrades",
        title: "The driver and the agent are of another version",
        scene: Scene::Agent,
        faults: &OF_UPGRADE,
    },
    PartOf {
        name: "faults-of-clocks",
        title: "The clock of the driver and the agent is set",
        scene: Scene::Clock,
        faults: &OF_CLOCK,
    },
    PartOf {
        name: "faults-of-the-agent",
        title: "A member answers something else than it should to the agent",
        scene: Scene::Through(Way::OfAgent),
        faults: &OF_AGENT,
    },
    PartOf {
        name: "faults-of-a-node",
        title: "Processes of a real node of the host",
        scene: Scene::RealNode,
        faults: &OF_NODE,
    },
    PartOf {
        name: "faults-of-a-nodes-power",
        title: "A real node of the host is without power",
        scene: Scene::RealPower,
        faults: &OF_NODES_POWER,
    },
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;
    use crate::faults_real::limits::{Limits, now};

    /// It is the script that goes by it: what a part needs may take long to build.
    #[test]
    #[ignore = "tests/faults-real.sh asks for it"]
    fn parts_are_told_of_which_faults_are_asked_for() {
        let limits = Limits::given();
        for part in PARTS.iter().filter(|part| part.faults.iter().any(|fault| limits.ask_for(fault))) {
            println!("asked for: {}", part.name);
        }
    }

    #[test]
    fn faults_are_told_apart_by_their_names() {
        let mut names = BTreeSet::new();
        for fault in PARTS.iter().flat_map(|part| part.faults) {
            assert!(names.insert(fault.name), "two faults are called {}", fault.name);
        }
    }

    #[test]
    fn members_are_whole_but_for_faults_of_their_own_machines() {
        for fault in PARTS.iter().flat_map(|part| part.faults) {
            assert_eq!(fault.how.leaves_members(), !fault.name.starts_with("member: "), "{}", fault.name);
        }
    }

    #[test]
    fn quarter_of_an_hour_has_time_for_every_fault_but_those_of_which_something_is_withdrawn_after_that() {
        let limits = Limits::new("", Some(now() + 900));
        let faults = PARTS.iter().flat_map(|part| part.faults);
        let others: Vec<&str> = faults.filter(|fault| !limits.allow(fault)).map(|fault| fault.name).collect();
        assert_eq!(others, ["answers of another cluster", "claims that arrive late"]);
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
