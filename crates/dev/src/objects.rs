//! What the host holds before a user comes: the driver's own object, the kind VolumeMove, a class and a namespace. All of it is what
//! `deploy/host.yaml`, the chart and `deploy/examples` write. And what a member holds.

use serde_json::{Value, json};

use domain::volume::{DRIVER, MEMBER_KEY, moving::YARD};
use simulate::{Cluster, StatusError, storage::definitions, text};

/// The class of the example, in the host and in the members.
pub(super) const CLASS: &str = "openebs-hostpath";
/// Where the driver is at home.
pub(super) const DRIVER_NAMESPACE: &str = "kosmos-csi";
pub(super) const PODS_NAMESPACE: &str = "kosmos-csi-pods";
/// The namespace of the example.
pub(super) const NAMESPACE: &str = "test-new";

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const MOVES: &str = include_str!("../../../deploy/chart/kosmos-csi/files/volumemoves.yaml");
const SNAPSHOT_CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";
const GROUP_CLASSES: &str = "volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io";
const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
const DEFAULT_GROUP_CLASS: &str = "groupsnapshot.storage.kubernetes.io/is-default-class";

/// Makes what is missing, and corrects what follows from the members there are.
pub(super) fn prepare(host: &Cluster, members: &[String]) -> anyhow::Result<()> {
    for namespace in [DRIVER_NAMESPACE, PODS_NAMESPACE, NAMESPACE] {
        ensure(host, "namespaces", json!({"metadata": {"name": namespace}}))?;
    }
    ensure(host, "csidrivers.storage.k8s.io", driver())?;
    ensure(host, "storageclasses.storage.k8s.io", class())?;
    definitions::install(host)?;
    define_moves(host)?;
    ensure(host, SNAPSHOT_CLASSES, definitions::class(CLASS, DRIVER, "Delete", Some(DEFAULT_SNAPSHOT_CLASS)))?;
    ensure(host, GROUP_CLASSES, definitions::class(CLASS, DRIVER, "Delete", Some(DEFAULT_GROUP_CLASS)))?;
    let allow = |class: &mut Value| {
        let expression = json!({"key": MEMBER_KEY, "values": members});
        class["allowedTopologies"] = json!([{"matchLabelExpressions": [expression]}]);
    };
    host.change("storageclasses.storage.k8s.io", "", CLASS, allow)?;
    ensure(host, "csinodes.storage.k8s.io", super::node::csi_node())?;
    Ok(())
}

/// As this version has the kind, also where an earlier one has made it.
fn define_moves(host: &Cluster) -> anyhow::Result<()> {
    let definition: Value = serde_saphyr::from_str(MOVES)?;
    let (name, spec) = (text(&definition, "/metadata/name").to_owned(), definition["spec"].clone());
    ensure(host, DEFINITIONS, definition)?;
    host.change(DEFINITIONS, "", &name, |there| there["spec"] = spec)?;
    Ok(())
}

/// The movers' namespace in a member, the kinds of snapshots, and classes of its own driver for them.
pub(super) fn prepare_member(member: &Cluster, driver: &str) -> Result<(), StatusError> {
    ensure(member, "namespaces", json!({"metadata": {"name": YARD}}))?;
    definitions::install(member)?;
    ensure(member, SNAPSHOT_CLASSES, definitions::class(CLASS, driver, "Delete", Some(DEFAULT_SNAPSHOT_CLASS)))?;
    ensure(member, GROUP_CLASSES, definitions::class(CLASS, driver, "Delete", Some(DEFAULT_GROUP_CLASS)))
}

/// What is there stays as the user has made it.
fn ensure(host: &Cluster, resource: &str, object: Value) -> Result<(), StatusError> {
    match host.create(resource, object) {
        Err(refusal) if refusal.reason != "AlreadyExists" => Err(refusal),
        _ => Ok(()),
    }
}

fn driver() -> Value {
    let spec = json!({
        "attachRequired": true,
        "podInfoOnMount": false,
        "storageCapacity": true,
        "volumeLifecycleModes": ["Persistent"],
    });
    json!({"metadata": {"name": DRIVER}, "spec": spec})
}

fn class() -> Value {
    json!({
        "metadata": {"name": CLASS},
        "provisioner": DRIVER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
        "parameters": {"leafStorageClass": CLASS},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn everything_follows_the_members_and_what_a_user_changed_stays() {
        let host = Cluster::new("host", 1);
        prepare(&host, &names(&["a", "b"])).unwrap();
        let keep = |class: &mut Value| class["allowVolumeExpansion"] = json!(false);
        host.change("storageclasses.storage.k8s.io", "", CLASS, keep).unwrap();
        prepare(&host, &names(&["a", "c"])).unwrap();
        let class = host.get("storageclasses.storage.k8s.io", "", CLASS).unwrap();
        assert_eq!(class["allowVolumeExpansion"], false);
        assert_eq!(class["allowedTopologies"][0]["matchLabelExpressions"][0]["values"], json!(["a", "c"]));
    }

    #[tokio::test]
    async fn kind_of_moves_is_as_this_version_has_it_whatever_an_earlier_one_has_made() {
        let host = Cluster::new("host", 1);
        prepare(&host, &names(&["a"])).unwrap();
        let spec = || host.get(DEFINITIONS, "", "volumemoves.kosmos.csi.io").unwrap()["spec"].clone();
        let made = spec();
        let earlier = |kind: &mut Value| kind["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
        host.change(DEFINITIONS, "", "volumemoves.kosmos.csi.io", earlier).unwrap();
        prepare(&host, &names(&["a"])).unwrap();
        assert_eq!(spec(), made);
    }
}
