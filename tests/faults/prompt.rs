//! Once nothing is wrong any more, answers come as soon as the member is done: what the watches say is heard again.

use std::{sync::Arc, time::Duration};

use simulate::{Cluster, What, text};
use tokio::time::Instant;

use crate::{
    bench::Bench,
    caller::{Caller, Ending, Script},
    invariants::Story,
};

/// From the storage's last step to the answer.
const PROMPT: Duration = Duration::from_secs(1);

/// A volume is made and removed in one member by a caller who asks again at once.
pub async fn volume(bench: &Arc<Bench>, member: usize) -> Story {
    let script = Script { places: vec![member], ..Script::new(&format!("fresh-{member}")) };
    let mut caller = Caller::new(bench, script);
    let cluster = &bench.members[member];
    let volume = follow(cluster, caller.claim().to_owned());
    let made = tokio::spawn(volume);
    caller.insist_on_creation().await;
    let (name, bound) = made.await.unwrap();
    is_prompt(bench, &caller, "CreateVolume", bound);
    let gone = tokio::spawn(end_of(cluster.clone(), name));
    caller.delete_claim();
    caller.insist_on_deletion().await;
    is_prompt(bench, &caller, "DeleteVolume", gone.await.unwrap());
    Story { caller, ending: Ending::Provisioned, deleted: true }
}

fn is_prompt(bench: &Bench, caller: &Caller, call: &str, done: Instant) {
    let late = done.elapsed();
    if late > PROMPT {
        bench
            .guard
            .report(format!("I10: {call} of {} was answered {late:?} after the member was done", caller.claim()));
    }
}

/// The leaf volume's name, and when the leaf claim was bound to it.
fn follow(member: &Cluster, claim: String) -> impl Future<Output = (String, Instant)> + use<> {
    let mut changes = simulate::follow::follow(member, &["persistentvolumeclaims"]);
    async move {
        loop {
            let change = changes.next().await;
            if text(&change.object, "/metadata/name") == claim && text(&change.object, "/status/phase") == "Bound" {
                return (text(&change.object, "/spec/volumeName").to_owned(), Instant::now());
            }
        }
    }
}

async fn end_of(member: Cluster, volume: String) -> Instant {
    let mut changes = simulate::follow::follow(&member, &["persistentvolumes"]);
    loop {
        let change = changes.next().await;
        if change.what == What::Deleted && text(&change.object, "/metadata/name") == volume {
            return Instant::now();
        }
    }
}
