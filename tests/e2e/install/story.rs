//! A release's story, in chapters: each finds what the ones before have left, and a chapter that fails hides no other.

use std::future::Future;

use anyhow::Result;

use super::{demo, examples, moves, release::Release, upgrade, verify, volumes};
use crate::{clusters::Fleet, pool::on_release};

/// The number of the last chapter, which is told when all others were.
const LAST: u8 = 11;

/// From its second installation on.
fn chapter<F>(number: u8, name: &str, story: impl FnOnce(&'static Fleet) -> F)
where
    F: Future<Output = Result<()>>,
{
    on_release(name, number, async |release| {
        story(release.installed().await?).await?;
        release.tell();
        Ok(())
    });
}

/// What is told only where it is asked for, and uses no right that the chapters do not use.
fn aside<F>(after: u8, name: &str, story: impl FnOnce(&'static Fleet) -> F)
where
    F: Future<Output = Result<()>>,
{
    on_release(name, after, async |release| story(release.installed().await?).await);
}

#[test]
fn readme_commands_install_it_and_the_demo_runs_until_it_is_removed() {
    on_release("readme", 0, async |release| {
        release.first_life().await?;
        release.tell();
        Ok(())
    });
}

#[test]
fn demo_runs_when_it_is_installed_again() {
    chapter(1, "demo", demo::runs_in_its_member);
}

#[test]
fn secrets_cross_where_the_namespace_says_so() {
    chapter(2, "secrets", volumes::secrets_cross_where_the_namespace_says_so);
}

#[test]
fn volumes_grow_and_are_photographed_and_copied() {
    chapter(3, "growth", volumes::growth_and_snapshots);
}

#[test]
fn volumes_are_bound_at_once_with_a_pod_and_as_told() {
    chapter(4, "ways-of-binding", volumes::every_way_of_binding);
}

#[test]
fn damaged_csi_node_is_repaired() {
    chapter(5, "csi-node", volumes::damaged_csi_node_is_repaired);
}

#[test]
fn pod_says_what_it_lacks() {
    chapter(6, "lacking", volumes::pod_says_what_it_lacks);
}

#[test]
fn stateful_set_is_spread_over_members_and_finds_its_data() {
    chapter(7, "stateful-set", examples::stateful_set_is_spread_over_members);
}

#[test]
fn claim_of_a_member_is_imported_and_stays() {
    chapter(8, "import", examples::claim_of_a_member_is_imported_and_stays);
}

#[test]
fn volume_moves_to_another_member_and_back_while_it_is_written_to() {
    chapter(9, "moves", moves::volume_moves_there_and_back);
}

#[test]
fn helm_test_of_a_release_says_what_there_is_and_leaves_its_pod_alone() {
    chapter(10, "helm-test", verify::helm_test_says_what_there_is_and_leaves_its_pod_alone);
}

#[test]
#[ignore = "it measures: make bench-move"]
fn volume_with_much_data_moves_there_and_back() {
    aside(9, "much-data-moves", moves::much_data_moves);
}

#[test]
#[ignore = "it measures: make bench-move"]
fn volumes_move_a_few_at_a_time_while_others_are_made() {
    aside(9, "many-volumes-move", moves::many_volumes_move);
}

#[test]
#[ignore = "minutes: make faults-real"]
fn move_goes_on_when_the_api_server_of_a_member_goes_away() {
    aside(9, "members-go-away-in-moves", moves::members_go_away);
}

#[test]
#[ignore = "minutes: make faults-real"]
fn move_names_whoever_keeps_the_volume_and_waits_for_all_of_them() {
    aside(9, "users-in-moves", moves::users_are_waited_for_and_named);
}

#[test]
#[ignore = "minutes: make faults-real"]
fn move_onto_storage_without_owners_stalls_and_is_called_off() {
    aside(9, "storage-without-owners", moves::storage_without_owners_stalls_a_move);
}

#[test]
#[ignore = "minutes: make faults-real"]
fn volume_moves_between_storage_of_two_drivers_there_and_back_five_times() {
    aside(9, "drivers-of-moves", moves::storage_of_two_drivers);
}

#[test]
#[ignore = "minutes: make faults-real"]
fn move_from_a_member_that_is_gone_for_good_ends_once_somebody_says_so() {
    aside(9, "gone-members-of-moves", moves::member_that_is_gone_for_good_ends_a_move);
}

#[test]
#[ignore = "minutes: make faults-real"]
fn moved_volumes_go_or_stay_with_their_claims_as_the_page_of_reclaim_says() {
    aside(9, "reclaim-of-moves", moves::moved_volumes_go_or_stay);
}

#[test]
#[ignore = "two minutes: make faults-real"]
fn release_is_upgraded_and_rolled_back_and_who_uses_its_volumes_does_not_notice() {
    aside(9, "upgrade", upgrade::nobody_notices_an_upgrade_and_a_rollback);
}

#[test]
fn release_has_the_rights_that_it_uses_and_leaves_nothing() {
    on_release("end-of-the-release", LAST, async |release: &'static Release| release.end(LAST.into()).await);
}
