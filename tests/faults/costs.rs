//! What each call asks of the clusters, counted. One request more fails the test.

use std::time::Duration;

use tokio::time::sleep;
use tonic::Code;

use crate::{ask::ask, bench::Bench, codes::prepare, fixture, virtual_time};

const STEP: Duration = Duration::from_millis(100);

#[test]
fn calls_for_a_volume_that_lives_cost_what_is_promised() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 2, &fixture::steady(STEP)).await;
        bench.start();
        bench.serves().await;
        sleep(STEP).await;
        let target = prepare(&bench).await;
        sleep(STEP).await;
        for (rpc, cost) in [
            ("ListVolumes", 0),
            ("ControllerGetVolume", 0),
            ("ValidateVolumeCapabilities", 0),
            ("ControllerListVolumeHealth", 0),
            // The events that the member's health monitor writes.
            ("ControllerGetVolumeHealth", 1),
            ("ControllerExpandVolume", 1),
            ("ControllerExpandVolume", 0),
            // Whether the class is there, and the claim.
            ("ControllerModifyVolume", 2),
            ("ControllerModifyVolume", 0),
            ("ControllerPublishVolume", 1),
            ("ControllerPublishVolume", 1),
            ("ControllerUnpublishVolume", 1),
            ("ControllerUnpublishVolume", 1),
            ("ListVolumes", 0),
        ] {
            let before = bench.guard.sent();
            let (code, message) = ask(&bench, rpc, &target).await;
            assert_eq!(code, Code::Ok, "{rpc}: {message}");
            assert_eq!(bench.guard.sent() - before, cost, "{rpc}:\n{}", bench.guard.trace().join("\n"));
        }
    });
}
