//! What is handed to who helps: how driver, members and volumes stand, in files that tell no secret.

mod fields;
mod kinds;
mod pods;
mod scrub;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{objects::word, table::Table};
use domain::printable::{one_line, printable};
pub use kinds::{CLASSES_OF_MEMBER, EVENTS, Kind, LEAF_CLAIMS, LEAF_VOLUMES, OF_HOST};
pub use pods::{Log, Scrape, logs_of, scrapes_of};
use scrub::Scrub;
pub use scrub::credentials;

/// No reason is longer, whoever wrote it.
const REASON: usize = 1_000;

/// What was taken of a cluster so far.
#[derive(Debug, Default)]
pub struct Ours {
    /// Of driver, agent and the plugin on real nodes.
    namespaces: Vec<String>,
    /// By the kinds' plurals.
    names: BTreeSet<(&'static str, String)>,
    uids: BTreeSet<String>,
}

impl Ours {
    pub fn new(namespaces: &[&str]) -> Self {
        Self { namespaces: namespaces.iter().map(|&namespace| namespace.to_owned()).collect(), ..Self::default() }
    }

    /// Those of these objects that have to do with the driver, with the fields that are kept of them.
    pub fn take(&mut self, kind: &Kind, objects: &[Value]) -> Vec<Value> {
        let taken: Vec<&Value> = objects.iter().filter(|object| kind.takes(self, object)).collect();
        for object in &taken {
            self.names.insert((kind.plural, word(object, "/metadata/name").to_owned()));
            self.uids.insert(word(object, "/metadata/uid").to_owned());
        }
        taken.into_iter().map(|object| kind.kept(object)).collect()
    }

    fn has(&self, plural: &'static str, name: &str) -> bool {
        !name.is_empty() && self.names.contains(&(plural, name.to_owned()))
    }

    fn is_of(&self, uid: &str) -> bool {
        !uid.is_empty() && self.uids.contains(uid)
    }
}

/// Files, and what could not be had.
#[derive(Debug, Default)]
pub struct Bundle {
    scrub: Scrub,
    files: Vec<File>,
    missing: Vec<(String, String)>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub text: String,
}

impl Bundle {
    /// What must not be told is taken out of every text.
    pub fn new(secrets: Vec<String>) -> Self {
        Self { scrub: Scrub::new(secrets), ..Self::default() }
    }

    pub fn add(&mut self, path: impl Into<String>, text: &str) {
        let text = printable(&self.scrub.text(text)).into_owned();
        self.files.push(File { path: path.into(), text });
    }

    /// As kubectl reads them; and why there are no more.
    pub fn add_objects(&mut self, path: &str, objects: &[Value], problem: Option<&str>) {
        if let Some(why) = problem {
            let what = if objects.is_empty() { "" } else { ": what comes after that" };
            self.lacks(format!("{path}{what}"), why);
        }
        if problem.is_none() || !objects.is_empty() {
            let mut list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            self.scrub.object(&mut list);
            let text = printable(&format!("{list:#}\n")).into_owned();
            self.files.push(File { path: path.to_owned(), text });
        }
    }

    /// What would be there, if it could be had.
    pub fn lacks(&mut self, path: impl Into<String>, why: &str) {
        let why = self.scrub.text(why);
        self.missing.push((path.into(), one_line(&why).chars().take(REASON).collect()));
    }

    /// The file, or why there is none.
    pub fn put(&mut self, path: impl Into<String>, text: Result<String, String>) {
        match text {
            Ok(text) => self.add(path, &text),
            Err(why) => self.lacks(path, &why),
        }
    }

    /// With the first of all files, which says what they are.
    pub fn finish(self, made: &str) -> Finished {
        let readme = File { path: "README.txt".to_owned(), text: self.readme(made) };
        let files = std::iter::once(readme).chain(self.files).collect();
        Finished { files, missing: self.missing }
    }

    fn readme(&self, made: &str) -> String {
        let mut there = Table::new(&["FILE", "BYTES"]);
        for file in &self.files {
            there.row([file.path.clone(), file.text.len().to_string()]);
        }
        let not = missing(&self.missing);
        let not = if not.is_empty() { not } else { format!("\n{not}") };
        format!("{made}\n\n{HOLDS}\n\n{there}{not}")
    }
}

/// A bundle to which nothing comes any more.
#[derive(Debug)]
pub struct Finished {
    pub files: Vec<File>,
    missing: Vec<(String, String)>,
}

impl Finished {
    /// What could not be had, as a table; empty where all could.
    pub fn missing(&self) -> String {
        missing(&self.missing)
    }
}

fn missing(missing: &[(String, String)]) -> String {
    let mut table = Table::new(&["NOT THERE", "WHY"]);
    for (path, why) in missing {
        table.row([path, why]);
    }
    if table.is_empty() { String::new() } else { table.to_string() }
}

const HOLDS: &str = "\
These files hold names of namespaces, claims, pods, nodes and members, addresses of clusters, sizes, times, events and logs. They
hold no Secret, of ConfigMaps only which members are forgotten and which backup was adopted, and of objects only those fields
that are known to tell no secret: no values of environment variables, no parameters and attributes of other drivers, no labels
and annotations but those of Kubernetes and of this driver.
Credentials of members of eight letters or more, tokens and private keys are taken out of all texts. Look through the files before you hand them on.";

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(objects: &[(&str, Value)]) -> Vec<String> {
        let mut ours = Ours::new(&["kosmos-csi"]);
        let mut names = Vec::new();
        for kind in &OF_HOST {
            let of: Vec<Value> =
                objects.iter().filter(|(plural, _)| *plural == kind.plural).map(|(_, object)| object.clone()).collect();
            let kept = ours.take(kind, &of);
            names.extend(
                kept.iter().map(|object| format!("{} {}", kind.plural, object["metadata"]["name"].as_str().unwrap())),
            );
        }
        names
    }

    fn object(name: &str, rest: Value) -> Value {
        let mut object = json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}});
        let Value::Object(rest) = rest else { panic!("{name} is no object") };
        object.as_object_mut().unwrap().extend(rest);
        object
    }

    #[test]
    fn objects_of_this_driver_and_of_its_volumes_are_taken_and_no_others() {
        let event = |name: &str, uid: &str| ("events", object(name, json!({"involvedObject": {"uid": uid}})));
        let driver = domain::volume::DRIVER;
        let names = taken(&[
            ("storageclasses", object("kosmos", json!({"provisioner": driver}))),
            ("storageclasses", object("other", json!({"provisioner": "ebs.csi.aws.com"}))),
            ("persistentvolumes", object("pv-1", json!({"spec": {"csi": {"driver": driver}}}))),
            ("persistentvolumes", object("pv-2", json!({"spec": {"csi": {"driver": "ebs.csi.aws.com"}}}))),
            (
                "persistentvolumeclaims",
                object("imported", json!({"spec": {"storageClassName": "", "volumeName": "pv-1"}})),
            ),
            ("persistentvolumeclaims", object("waits", json!({"spec": {"storageClassName": "kosmos"}}))),
            (
                "persistentvolumeclaims",
                object("theirs", json!({"spec": {"storageClassName": "other", "volumeName": "pv-2"}})),
            ),
            ("persistentvolumeclaims", object("bare", json!({"spec": {}}))),
            ("volumeattachments", object("va", json!({"spec": {"attacher": driver}}))),
            ("csinodes", object("kosmos-m0", json!({"spec": {"drivers": [{"name": "x"}, {"name": driver}]}}))),
            ("csinodes", object("node-1", json!({"spec": {"drivers": [{"name": "x"}]}}))),
            ("csistoragecapacities", object("csisc-1", json!({"storageClassName": "kosmos"}))),
            ("csistoragecapacities", object("csisc-2", json!({"storageClassName": "other"}))),
            ("volumesnapshotcontents", object("content", json!({"spec": {"driver": driver}}))),
            ("volumesnapshots", object("photo", json!({"status": {"boundVolumeSnapshotContentName": "content"}}))),
            ("volumesnapshots", object("their-photo", json!({"spec": {"volumeSnapshotClassName": "other"}}))),
            ("nodes", object("node-1", json!({}))),
            ("leases", object("external-attacher-leader-kosmos-csi-io", json!({}))),
            ("leases", object("kube-scheduler", json!({}))),
            ("pods", object("somebodys", json!({}))),
            event("nobodys", ""),
            event("waits.1", "uid-of-waits"),
            event("theirs.1", "uid-of-theirs"),
        ]);
        let expected = [
            "storageclasses kosmos",
            "persistentvolumes pv-1",
            "persistentvolumeclaims imported",
            "persistentvolumeclaims waits",
            "volumeattachments va",
            "csinodes kosmos-m0",
            "csistoragecapacities csisc-1",
            "volumesnapshotcontents content",
            "volumesnapshots photo",
            "leases external-attacher-leader-kosmos-csi-io",
            "events waits.1",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn groups_of_snapshots_of_this_driver_are_taken_and_no_others() {
        let driver = domain::volume::DRIVER;
        let names = taken(&[
            ("volumegroupsnapshotclasses", object("groups", json!({"driver": driver}))),
            ("volumegroupsnapshotclasses", object("their-groups", json!({"driver": "ebs.csi.aws.com"}))),
            ("volumegroupsnapshotcontents", object("both", json!({"spec": {"driver": driver}}))),
            ("volumegroupsnapshots", object("all", json!({"status": {"boundVolumeGroupSnapshotContentName": "both"}}))),
            ("volumegroupsnapshots", object("begun", json!({"spec": {"volumeGroupSnapshotClassName": "groups"}}))),
            ("volumegroupsnapshots", object("theirs", json!({"spec": {"volumeGroupSnapshotClassName": "other"}}))),
        ]);
        let expected = [
            "volumegroupsnapshotclasses groups",
            "volumegroupsnapshotcontents both",
            "volumegroupsnapshots all",
            "volumegroupsnapshots begun",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn readme_names_what_is_there_and_what_is_not_and_no_text_has_a_credential() {
        let mut bundle = Bundle::new(vec!["canary-of-m0".to_owned()]);
        bundle.add("status.txt", "m0 said canary-of-m0\n");
        bundle.put("members/m1.txt", Err(format!("refused: canary-of-m0\n{}", "x".repeat(2_000))));
        bundle.add_objects("host/pods.json", &[json!({"kind": "Pod", "a": "canary-of-m0"})], Some("too many"));
        bundle.add_objects("host/none.json", &[], Some("refused"));
        let finished = bundle.finish("Made by a test.");
        let paths: Vec<&str> = finished.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["README.txt", "status.txt", "host/pods.json"]);
        let readme = &finished.files[0].text;
        assert!(
            finished.files.iter().all(|file| !file.text.contains("canary")) && readme.len() < 2_500,
            "{finished:?}"
        );
        for said in [
            "Made by a test.",
            "status.txt       ",
            "host/pods.json: what comes after that   too many",
            "refused: <taken out",
        ] {
            assert!(readme.contains(said), "{said}: {readme}");
        }
        assert!(finished.missing().contains("host/none.json") && Bundle::default().finish("").missing().is_empty());
        let list: Value = serde_json::from_str(&finished.files[2].text).unwrap();
        assert_eq!(list["items"][0]["kind"], "Pod");
    }
}
