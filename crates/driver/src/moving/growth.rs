//! A volume that is being enlarged: its copy has the size of before.

use domain::volume::growth::Growth;
use leaf::row::ClaimRow;

/// Where the leaf claim asks for more than it has: what that waits for, as far as anybody can do something about it.
pub(super) fn awaited(claim: &ClaimRow) -> Option<&'static str> {
    let why = match claim.size().growth {
        Growth::OnNode { .. } => ": its filesystem grows once a pod uses the volume, so start one if there is none",
        Growth::Infeasible { .. } => ": the member's storage says that it cannot be so large, so ask for less",
        Growth::Untold => "",
    };
    (claim.size().requested > claim.capacity()).then_some(why)
}
