//! What a host knows of its volumes, as it is kept outside of it, and what of that a new host is given. The data itself stays in
//! the members; no secret is in it.

mod object;
mod snapshot;
mod volume;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    listing::API,
    objects::{title, word},
};
use domain::volume::{
    DRIVER, HostId, VolumeHash, VolumeId,
    id::{is_member_name, is_uid},
};
use object::{by_name, is_a, trimmed};
pub use snapshot::{KeptSnapshot, MissingSnapshot, SNAPSHOTS};
pub use volume::{KeptVolume, MissingVolume};

const KIND: &str = "HostBackup";
pub const STORAGE: &str = "storage.k8s.io/v1";
/// The kinds of classes, by the field that names their driver.
const CLASSES: [(&str, &str, &str); 3] = [
    (STORAGE, "StorageClass", "/provisioner"),
    (STORAGE, "VolumeAttributesClass", "/driverName"),
    (SNAPSHOTS, "VolumeSnapshotClass", "/driver"),
];

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Backup {
    api_version: String,
    kind: String,
    /// When, as RFC 3339.
    pub made: String,
    /// Who the host is to its members.
    pub host: String,
    /// Which member is which cluster.
    pub members: BTreeMap<String, String>,
    pub namespaces: Vec<Value>,
    pub classes: Vec<Value>,
    pub volumes: Vec<KeptVolume>,
    pub snapshots: Vec<KeptSnapshot>,
}

/// The host's objects as they are, of every driver, each with its kind.
#[derive(Debug, Default)]
pub struct Seen {
    pub namespaces: Vec<Value>,
    pub classes: Vec<Value>,
    pub volumes: Vec<Value>,
    pub claims: Vec<Value>,
    pub contents: Vec<Value>,
    pub snapshots: Vec<Value>,
}

impl Backup {
    /// What is kept of this driver's, and what is not, in words.
    pub fn new(made: String, host: String, members: BTreeMap<String, String>, seen: &Seen) -> (Self, Vec<String>) {
        let (mut snapshots, mut left_out) = (Vec::new(), Vec::new());
        let classes = seen.classes.iter().filter(|class| is_our_class(class)).map(trimmed).collect();
        let (api_version, kind) = (API.to_owned(), KIND.to_owned());
        let (namespaces, volumes) = (Vec::new(), Vec::new());
        let mut kept =
            Self { api_version, kind, made, host, members, namespaces, classes, volumes, snapshots: Vec::new() };
        let claims = by_name(&seen.claims);
        for volume in seen.volumes.iter().filter(|volume| word(volume, "/spec/csi/driver") == DRIVER) {
            match KeptVolume::new(volume, &claims).and_then(|one| kept.agrees(&one.volume).map(|()| one)) {
                Ok(one) => kept.volumes.push(one),
                Err(why) => left_out.push(format!("{}: {why}", title(volume))),
            }
        }
        let all = by_name(&seen.snapshots);
        for content in seen.contents.iter().filter(|content| word(content, "/spec/driver") == DRIVER) {
            match KeptSnapshot::new(content, &all) {
                Ok(one) => snapshots.push(one),
                Err(why) => left_out.push(format!("{}: {why}", title(content))),
            }
        }
        kept.snapshots = snapshots;
        let used: BTreeSet<&str> = kept.used_namespaces();
        let is_used = |namespace: &&Value| used.contains(word(namespace, "/metadata/name"));
        kept.namespaces = seen.namespaces.iter().filter(is_used).map(trimmed).collect();
        (kept, left_out)
    }

    /// A volume of a member that is in no record would be let go at a word, and so would one of another host.
    fn agrees(&self, volume: &Value) -> Result<(), &'static str> {
        let (name, handle) = (word(volume, "/metadata/name"), word(volume, "/spec/csi/volumeHandle"));
        let Some(id) = VolumeId::parse(handle) else { return Ok(()) };
        // One that was imported says nothing of a leaf claim, and its handle any digits.
        let is_made = !word(volume, "/spec/csi/volumeAttributes/leafClaimUID").is_empty();
        match self.members.contains_key(&id.member) {
            false => Err(
                "ConfigMap kosmos-csi-members does not say which cluster its member is: it has no second names of members, and another cluster \
                 cannot know them",
            ),
            true if is_made && !id.names(VolumeHash::new(&HostId(self.host.clone()), name)) => {
                Err("it is the volume of another host")
            }
            true => Ok(()),
        }
    }

    pub fn text(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n").map_err(|error| error.to_string())
    }

    /// What no backup holds is refused: its objects are made with the rights of an administrator. Whose volumes they are, and what is in
    /// these, is believed: keep it as you keep those rights.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut backup: Self =
            serde_json::from_str(text).map_err(|error| format!("the file is no backup of a host: {error}"))?;
        if (backup.api_version.as_str(), backup.kind.as_str()) != (API, KIND) {
            let said = format!("{} {}", backup.api_version, backup.kind);
            return Err(format!("the file is a {said}, but this program reads {API} {KIND}"));
        }
        if !is_uid(&backup.host) {
            return Err("the file does not say which host it is of: its field host is not a UID".to_owned());
        }
        if let Some(name) = backup.members.keys().find(|name| !is_member_name(name)) {
            return Err(format!("{name:?} in the file is not the name of a member"));
        }
        match backup.foreign() {
            Some(object) => return Err(format!("{} in the file is no object of a backup", title(object))),
            None => backup.objects_mut().for_each(|object| *object = trimmed(object)),
        }
        for KeptVolume { volume, .. } in &backup.volumes {
            backup.agrees(volume).map_err(|why| format!("{} in the file: {why}", title(volume)))?;
        }
        Ok(backup)
    }

    /// In which namespaces its claims and snapshots are.
    pub fn used_namespaces(&self) -> BTreeSet<&str> {
        let claims = self.volumes.iter().filter_map(|kept| kept.claim.as_ref());
        let all = claims.chain(self.snapshots.iter().filter_map(|kept| kept.snapshot.as_ref()));
        all.map(|object| word(object, "/metadata/namespace")).collect()
    }

    fn foreign(&self) -> Option<&Value> {
        let namespace = self.namespaces.iter().find(|namespace| !is_a(namespace, "v1", "Namespace", ""));
        let class = || self.classes.iter().find(|class| !is_our_class(class));
        let volume = || self.volumes.iter().find_map(KeptVolume::foreign);
        let snapshot = || self.snapshots.iter().find_map(KeptSnapshot::foreign);
        namespace.or_else(class).or_else(volume).or_else(snapshot)
    }

    fn objects_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let volumes = self.volumes.iter_mut().flat_map(|kept| [Some(&mut kept.volume), kept.claim.as_mut()]);
        let snapshots = self.snapshots.iter_mut().flat_map(|kept| [Some(&mut kept.content), kept.snapshot.as_mut()]);
        self.namespaces.iter_mut().chain(&mut self.classes).chain(volumes.chain(snapshots).flatten())
    }
}

fn is_our_class(class: &Value) -> bool {
    let is_one =
        |(version, kind, driver): &(&str, &str, &str)| is_a(class, version, kind, "") && word(class, driver) == DRIVER;
    CLASSES.iter().any(is_one)
}

#[cfg(test)]
mod tests;
