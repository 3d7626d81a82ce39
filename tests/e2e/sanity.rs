//! csi-sanity on the real fleet, with volumes that the member's own driver makes.

use crate::{
    node,
    objects::nothing_of_ours,
    rig::{DRIVER_NAMESPACE, MEMBERS, on_fleet},
    suite::Suite,
};

#[test]
fn csi_sanity_passes_every_spec_listed() {
    on_fleet("csi_sanity", async |rig| {
        let socket = rig.fleet.folder().join("sanity-node.sock");
        let _serving = node::serve(&socket)?;
        let suite = Suite {
            program: rig.fleet.tools().path("csi-sanity"),
            controller: rig.driver.socket.clone(),
            node: socket,
            parameters: "member: cluster38\nleafStorageClass: now\n",
            folder: rig.fleet.folder().to_owned(),
        };
        suite.run().await?;
        for member in MEMBERS {
            nothing_of_ours(rig.fleet.member(member), DRIVER_NAMESPACE).await?;
        }
        Ok(())
    });
}
