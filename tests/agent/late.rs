//! What a member makes when nobody waits for the answer any more.

use std::time::Duration;

use simulate::faults::{Action, Verb};
use tokio::time::sleep;

use super::{SHOP, give_secrets, run_with_secret, standing, story, until};

/// The mark of one that has gone is about to go when the next one is asked for.
#[test]
fn secret_that_comes_late_goes_also_where_another_one_was_there_before() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        let has_come = || world.member.get("secrets", SHOP, "keys").is_some();
        run_with_secret(&world);
        until("the first one has come", has_come).await;
        world.host.delete("pods", SHOP, "web").unwrap();
        world.host.delete("secrets", SHOP, "keys").unwrap();
        give_secrets(&world, "false");
        until("both are gone", || !has_come() && world.pod("web").is_none()).await;
        give_secrets(&world, "true");
        sleep(Duration::from_secs(75)).await;
        world.member.faults().set(|asked| match (asked.verb, &*asked.resource) {
            (Verb::Create, "secrets") => Action::Late(Duration::from_secs(40)),
            _ => Action::Pass,
        });
        run_with_secret(&world);
        sleep(Duration::from_secs(1)).await;
        world.host.delete("pods", SHOP, "web").unwrap();
        give_secrets(&world, "false");
        until("it has come", has_come).await;
        until("it is gone again", || !has_come()).await;
    });
}
