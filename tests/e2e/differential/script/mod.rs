//! What is asked, topic by topic. Each topic keeps to namespaces of its own.

mod apply;
mod crds;
mod create;
mod csi;
mod delete;
mod discovery;
mod namespaces;
mod objects;
mod patch;
mod quota;
mod read;
mod selectors;
mod status;
mod storage;
mod tables;
mod update;
mod watch;
mod workloads;

use crate::differential::step::{Script, Step};

type Topic = (&'static str, fn(&mut Script));

const TOPICS: &[Topic] = &[
    ("create", create::steps),
    ("read", read::steps),
    ("selectors", selectors::steps),
    ("watch", watch::steps),
    ("update", update::steps),
    ("patch", patch::steps),
    ("apply", apply::steps),
    ("delete", delete::steps),
    ("status", status::steps),
    ("namespaces", namespaces::steps),
    ("storage", storage::steps),
    ("csi", csi::steps),
    ("workloads", workloads::steps),
    ("quota", quota::steps),
    ("tables", tables::steps),
    ("crds", crds::steps),
    ("discovery", discovery::steps),
];

pub(crate) fn steps() -> Vec<Step> {
    let script = |(topic, write): &Topic| {
        let mut script = Script { topic, ..Script::default() };
        write(&mut script);
        script.steps
    };
    TOPICS.iter().flat_map(script).collect()
}
