//! Which member is which cluster, kept in the host from the first time a member is seen. Without it a kubeconfig that
//! suddenly points elsewhere would make every leaf look absent.

mod pinning;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{Host, outcome, unread};
use domain::error::{Error, Result};
pub use pinning::Pinning;

const TRIES: usize = 5;
const CONFIG_MAP: &str = "kosmos-csi-members";
/// On the record of members: whose volumes the host has taken over, and which cluster has. In any other cluster, as where the
/// record was restored or copied, the word counts for nothing.
pub(super) const ADOPTED: &str = "kosmos.csi.io/host";
pub(super) const BY_CLUSTER: &str = "kosmos.csi.io/cluster";
/// Likewise: of when the backup was of which all was made here.
const BACKUP: &str = "kosmos.csi.io/adopted";
/// On the record of members: of which names the host's administrator has said that nothing of them is awaited any more.
const FORGOTTEN: &str = "kosmos.csi.io/forgotten";

/// What a member's identity turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// It is the cluster that the name has always meant.
    Held,
    /// The name means another cluster.
    Moved { pinned: String },
    /// The cluster is known by another name.
    SameAs { name: String },
}

fn config_maps(host: &Host) -> Api<ConfigMap> {
    Api::namespaced(host.client.clone(), &host.namespace)
}

/// Every name that was ever a member's; none where there is no record at all.
pub async fn known_members(host: &Host) -> Result<Option<BTreeSet<String>>> {
    let map = read_pins(host).await?;
    Ok(map.map(|map| map.data.unwrap_or_default().into_keys().collect()))
}

/// Whether a name was ever a member's, be it forgotten since.
pub async fn has_known(host: &Host, name: &str) -> Result<bool> {
    Ok(read_pins(host).await?.is_some_and(|map| is_pinned(&map, name) || forgotten(&map).contains(name)))
}

/// Which name means which cluster.
pub async fn pins(host: &Host) -> Result<BTreeMap<String, String>> {
    Ok(read_pins(host).await?.and_then(|map| map.data).unwrap_or_default())
}

/// Whether the host's administrator has said that nothing of this name is awaited any more. That the record does not know the name is no
/// such word: somebody may have deleted one that did.
pub async fn is_forgotten(host: &Host, name: &str) -> Result<bool> {
    Ok(read_pins(host).await?.is_some_and(|map| !is_pinned(&map, name) && forgotten(&map).contains(name)))
}

/// Every name of which he has said that.
pub async fn forgotten_members(host: &Host) -> Result<BTreeSet<String>> {
    let Some(map) = read_pins(host).await? else { return Ok(BTreeSet::new()) };
    Ok(forgotten(&map).into_iter().filter(|name| !is_pinned(&map, name)).map(str::to_owned).collect())
}

/// Takes a name out of the record, over the version that said what it means, and notes that nothing of it is awaited any more. False: it is
/// not in it, and is not noted where it need not have been, or is so already.
pub async fn forget(host: &Host, name: &str, even_unknown: bool) -> Result<bool> {
    let mut read = read_pins(host).await?;
    if read.is_none() && even_unknown {
        create_pins(host, BTreeMap::new()).await?;
        read = read_pins(host).await?;
    }
    let Some(map) = read else { return Ok(false) };
    let mut names = forgotten(&map);
    let is_new = names.insert(name);
    if !(is_pinned(&map, name) || even_unknown && is_new) {
        return Ok(false);
    }
    let change = json!({
        "metadata": {
            "uid": map.metadata.uid, "resourceVersion": map.metadata.resource_version,
            "annotations": {FORGOTTEN: written(&names)},
        },
        "data": {name: null},
    });
    let patched = config_maps(host).patch(CONFIG_MAP, &PatchParams::default(), &Patch::Merge(change)).await;
    patched.map_err(|error| outcome(&format!("forget member {name}"), &error))?;
    Ok(true)
}

fn is_pinned(map: &ConfigMap, name: &str) -> bool {
    map.data.as_ref().is_some_and(|pins| pins.contains_key(name))
}

fn forgotten(map: &ConfigMap) -> BTreeSet<&str> {
    let names = map.annotations().get(FORGOTTEN).map(String::as_str).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).collect()
}

/// None where there are none, and nothing is to be noted.
fn written(names: &BTreeSet<&str>) -> Option<String> {
    (!names.is_empty()).then(|| names.iter().copied().collect::<Vec<_>>().join(","))
}

/// Pins one name to a cluster at first sight; later, compares. Who has many asks one [`Pinning`].
pub async fn pin(host: &Host, name: &str, identity: &str) -> Result<Pin> {
    Pinning::new(host.clone()).pin(name, identity).await
}

async fn read_pins(host: &Host) -> Result<Option<ConfigMap>> {
    read(&host.client, &host.namespace).await
}

pub(super) async fn read(client: &Client, namespace: &str) -> Result<Option<ConfigMap>> {
    let answer = Api::<ConfigMap>::namespaced(client.clone(), namespace).get(CONFIG_MAP).await;
    cluster::read(answer, CONFIG_MAP)
        .map_err(|error| unread(&format!("get config map {namespace}/{CONFIG_MAP}"), &error))
}

/// Of when the backup was of which all was made here last.
pub async fn adopted(host: &Host) -> Result<Option<String>> {
    let Some(map) = read_pins(host).await? else { return Ok(None) };
    let said = |key: &str| map.annotations().get(key).map(String::as_str);
    Ok(said(BACKUP).filter(|_| said(BY_CLUSTER) == Some(&*host.cluster)).map(str::to_owned))
}

/// Whose volumes they are is said with it: a record that came from another cluster may say something else.
pub async fn note_adopted(host: &Host, former: &str, made: &str) -> Result<()> {
    let adopted = (*former != *host.cluster).then_some(former);
    let annotations = json!({BACKUP: made, ADOPTED: adopted, BY_CLUSTER: &*host.cluster});
    let change = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let noted = config_maps(host).patch_metadata(CONFIG_MAP, &PatchParams::default(), &change).await;
    noted.map(drop).map_err(|error| outcome("record that all of a backup was made", &error))
}

/// From the next start on, the host is to its members who the other one was; an error where it is a third one already.
pub async fn adopt(host: &Host, former: &str) -> Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_adopt(host, former).await {
            Err(Error::InProgress(_)) if tries < TRIES => {}
            adopted => return adopted,
        }
    }
}

async fn try_adopt(host: &Host, former: &str) -> Result<()> {
    let Some(map) = read_pins(host).await? else {
        create_pins(host, BTreeMap::new()).await?;
        return Err(Error::InProgress("the record of members was made just now".to_owned()));
    };
    let said = |key: &str| map.annotations().get(key).map(String::as_str);
    match (said(ADOPTED), said(BY_CLUSTER)) {
        (Some(adopted), Some(by)) if by == &*host.cluster && adopted == former => return Ok(()),
        (Some(adopted), Some(by)) if by == &*host.cluster && !adopted.is_empty() => {
            return Err(Error::Refused(format!(
                "somebody has had this cluster take over the volumes of host {adopted} meanwhile"
            )));
        }
        _ => {}
    }
    let change = json!({"metadata": {
        "resourceVersion": map.metadata.resource_version, "annotations": {ADOPTED: former, BY_CLUSTER: &*host.cluster},
    }});
    let patched = config_maps(host).patch_metadata(CONFIG_MAP, &PatchParams::default(), &Patch::Merge(change)).await;
    patched.map(drop).map_err(|error| outcome("record whose volumes the host takes over", &error))
}

/// Adds to the record as it was read.
async fn write_pins(host: &Host, map: Option<ConfigMap>, added: BTreeMap<String, String>) -> Result<()> {
    match map {
        Some(map) => add_pins(host, &map, &added).await,
        None => create_pins(host, added).await,
    }
}

/// Written only over the version that was read, so that two replicas cannot pin one name to two clusters.
async fn add_pins(host: &Host, map: &ConfigMap, added: &BTreeMap<String, String>) -> Result<()> {
    let mut change = json!({
        "metadata": {"resourceVersion": map.metadata.resource_version},
        "data": added,
    });
    if let Some(annotations) = without(map, |name| added.contains_key(name)) {
        change["metadata"]["annotations"] = annotations;
    }
    let patched = config_maps(host).patch(CONFIG_MAP, &PatchParams::default(), &Patch::Merge(change)).await;
    // Each of those that are new together is told of it: with the others' names it would be something else each time.
    patched.map(drop).map_err(|error| outcome("record which cluster each new member is", &error))
}

/// Those have joined again, and are on the record by another name.
async fn note_back(host: &Host, map: &ConfigMap, names: &BTreeSet<String>) -> Result<()> {
    let Some(annotations) = without(map, |name| names.contains(name)) else { return Ok(()) };
    let change = json!({"metadata": {"resourceVersion": map.metadata.resource_version, "annotations": annotations}});
    let noted = config_maps(host).patch_metadata(CONFIG_MAP, &PatchParams::default(), &Patch::Merge(change)).await;
    noted.map(drop).map_err(|error| outcome("record who is forgotten no more", &error))
}

/// The note of who is forgotten without those who have joined again; none where none of them is in it.
fn without(map: &ConfigMap, has_joined: impl Fn(&str) -> bool) -> Option<Value> {
    let mut names = forgotten(map);
    let known = names.len();
    names.retain(|name| !has_joined(name));
    (names.len() < known).then(|| json!({FORGOTTEN: written(&names)}))
}

/// Somebody may have deleted the record of before: whose volumes this cluster has taken over, nothing else would say.
fn taken_over(host: &Host) -> Option<BTreeMap<String, String>> {
    let said = [(ADOPTED, &*host.id.0), (BY_CLUSTER, &*host.cluster)];
    (*host.id.0 != *host.cluster).then(|| said.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
}

async fn create_pins(host: &Host, pins: BTreeMap<String, String>) -> Result<()> {
    let annotations = taken_over(host);
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(CONFIG_MAP.to_owned()), annotations, ..ObjectMeta::default() },
        data: Some(pins),
        ..ConfigMap::default()
    };
    let doing = format!("create config map {}/{CONFIG_MAP}", host.namespace);
    let create = async || {
        let made = config_maps(host).create(&PostParams::default(), &map).await;
        made.map(drop).map_err(|error| outcome(&doing, &error))
    };
    match create().await {
        Err(Error::NotFound(_)) => {
            create_namespace(host).await?;
            create().await
        }
        made => made,
    }
}

/// Who starts the driver by hand may not have made its namespace; who installs it has, and grants no right to.
async fn create_namespace(host: &Host) -> Result<()> {
    let metadata = ObjectMeta { name: Some(host.namespace.clone()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let made = Api::all(host.client.clone()).create(&PostParams::default(), &namespace).await;
    match made.map_err(|error| outcome(&format!("create namespace {}", host.namespace), &error)) {
        Ok(_) | Err(Error::InProgress(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What an identity is to a name; none where neither is known.
pub fn compare(pins: &BTreeMap<String, String>, name: &str, identity: &str) -> Option<Pin> {
    match pins.get(name) {
        Some(pinned) if pinned == identity => Some(Pin::Held),
        Some(pinned) => Some(Pin::Moved { pinned: pinned.clone() }),
        None => {
            let other = pins.iter().find(|(_, pinned)| *pinned == identity);
            other.map(|(name, _)| Pin::SameAs { name: name.clone() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_compared_with_what_was_pinned() {
        let pins = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        assert_eq!(compare(&pins, "a", "1"), Some(Pin::Held));
        assert_eq!(compare(&pins, "a", "2"), Some(Pin::Moved { pinned: "1".to_owned() }));
        assert_eq!(compare(&pins, "b", "1"), Some(Pin::SameAs { name: "a".to_owned() }));
        assert_eq!(compare(&pins, "b", "2"), None);
    }

    #[test]
    fn names_that_are_forgotten_are_read_as_they_are_written() {
        let names = BTreeSet::from(["m1", "m0"]);
        let annotations = written(&names).map(|written| BTreeMap::from([(FORGOTTEN.to_owned(), written)]));
        let metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        assert_eq!(forgotten(&map), names);
        assert_eq!(written(&forgotten(&ConfigMap::default())), None);
    }
}
