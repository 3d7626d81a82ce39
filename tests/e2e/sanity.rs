//! csi-sanity on the real fleet, with volumes that the member's own driver makes.

use k8s_openapi::api::storage::v1::CSINode;
use kube::{Api, api::DeleteParams};

use crate::{
    clusters::member_driver,
    node,
    objects::nothing_of_ours,
    rig::{DRIVER_NAMESPACE, MEMBERS, on_fleet},
    suite::Suite,
};

#[test]
fn csi_sanity_passes_every_spec_listed() {
    on_fleet("csi_sanity", async |rig| {
        let (host, member) = (rig.fleet.host(), rig.fleet.member("cluster38"));
        let socket = rig.fleet.folder().join("stand-in.sock");
        let serving = node::serve(&socket)?;
        host.apply(&node::csi_node().to_string()).await?;
        member.apply(&node::attributes_class(member_driver::DRIVER).to_string()).await?;
        let suite = Suite {
            program: rig.fleet.tools().path("csi-sanity"),
            controller: rig.driver.socket.clone(),
            node: socket,
            // Where nothing grows at a mount: the suite mounts nothing.
            parameters: "member: cluster38\nleafStorageClass: shared\n",
            attributes: node::ATTRIBUTES,
            folder: rig.fleet.folder().to_owned(),
        };
        let outcome = suite.run().await;
        drop(serving);
        Api::<CSINode>::all(host.client().await?).delete(node::NAME, &DeleteParams::default()).await?;
        outcome?;
        for member in MEMBERS {
            nothing_of_ours(rig.fleet.member(member), DRIVER_NAMESPACE).await?;
        }
        Ok(())
    });
}
