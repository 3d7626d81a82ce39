//! csi-sanity on the real fleet: both sockets, volumes that a member's own driver makes, and real mounts on a host's node.

use crate::{
    attributes,
    host_node::{HostNode, MEMBER, NEAR, storage_objects},
    objects::nothing_of_ours,
    pool::in_quiet,
    rig::{DRIVER_NAMESPACE, MEMBERS},
    suite::Suite,
};

#[test]
fn csi_sanity_passes_every_spec_listed() {
    // The suite asks each call once, where a sidecar would ask again: a member that is silent for seconds fails it.
    in_quiet("csi_sanity", async |rig| {
        let member = rig.fleet.member(MEMBER);
        member.apply(&attributes::attributes_class(attributes::CLASS, NEAR.driver).to_string()).await?;
        for object in storage_objects(NEAR) {
            member.apply(&object.to_string()).await?;
        }
        let node = HostNode::start(rig, NEAR).await?;
        let suite = Suite {
            program: rig.fleet.tools().path("csi-sanity"),
            controller: rig.driver.socket.clone(),
            node: node.socket(),
            mounts: true,
            // The suite has volumes grow that it has not mounted.
            parameters: "member: cluster38\nleafStorageClass: folders\n",
            attributes: attributes::ATTRIBUTES,
            folder: rig.fleet.folder().to_owned(),
        };
        suite.run().await?;
        for member in MEMBERS {
            nothing_of_ours(rig.fleet.member(member), DRIVER_NAMESPACE).await?;
        }
        node.is_clean().await?;
        node.end().await
    });
}
