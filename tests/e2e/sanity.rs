//! csi-sanity on the real fleet, with volumes that the member's own driver makes.

use crate::{
    objects::nothing_of_ours,
    rig::{DRIVER_NAMESPACE, MEMBERS, on_fleet},
    suite::Suite,
};

#[test]
fn csi_sanity_passes_every_spec_listed() {
    on_fleet("csi_sanity", async |rig| {
        let suite = Suite {
            program: rig.fleet.tools().path("csi-sanity"),
            controller: rig.driver.socket.clone(),
            // The member's driver stands in for the cleaning until ours has a node service.
            node: rig.fleet.member("cluster38").member_driver_folder().join("csi.sock"),
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
