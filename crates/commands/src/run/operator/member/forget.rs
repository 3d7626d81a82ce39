//! `member forget`: the name means no cluster any more.

use super::belongings::Belongings;
use crate::{
    args::operator::Forget,
    run::operator::{Report, connect, print::patiently},
};
use cluster::Dial;
use member::source::Account;

pub(in crate::run::operator) async fn forget(flags: &Forget, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.members.host, dial).await?;
    let name = &flags.name;
    let named = connect::members(&host, &flags.members).await?;
    let agents = connect::agents(&host, &flags.members.host);
    let for_pods = connect::members_as(&host, &flags.members, Account::VirtualNode).await?;
    if let Some(definition) = named.get(name).or_else(|| for_pods.get(name)) {
        let why = format!("Member {name} is not forgotten: {} names it. Remove it first.\n", definition.origin);
        return Ok(Report::new(why, false));
    }
    let left = patiently("counting what it has", Belongings::of(&host, name)).await?;
    if !left.is_empty() && !flags.force {
        let of_moves = left.of_moves();
        let moves = if left.has_moves() {
            " Moves end that have led their volumes elsewhere already, or that have something left to undo only there."
        } else {
            ""
        };
        let why = format!(
            "Member {name} is not forgotten: it has {left}. Once it is forgotten, the driver does not know them: DeleteVolume and DeleteSnapshot \
             answer OK, and their data stays in the member.{moves} Add --force if you want that.\n{of_moves}"
        );
        return Ok(Report::new(why, false));
    }
    // Of one that is on no record, as that was deleted, somebody has to say so all the same: a claim may wait for it that is not counted.
    let even_unknown = !left.is_empty() || flags.force;
    let forgotten =
        [host::pins::forget(&host, name, even_unknown).await?, host::pins::forget(&agents, name, false).await?];
    if !forgotten.contains(&true) {
        let why = format!(
            "The host has no record of a member {name}: there is nothing to forget. If a claim waits for it all the same, add --force.\n"
        );
        return Ok(Report::new(why, false));
    }
    let of_moves = left.of_moves();
    let told = match (left.is_empty(), of_moves.is_empty()) {
        (true, true) => "The host has nothing there.".to_owned(),
        (true, false) => "The host has no volumes and no snapshots there, and no move is under way.".to_owned(),
        (false, _) => format!("The driver does not know these any more, and their data stays in the member: {left}."),
    };
    Ok(Report::well(format!("Member {name} is forgotten: the name may mean another cluster now. {told}\n{of_moves}")))
}
