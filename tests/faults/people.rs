//! What people and administrators do while all goes wrong, and how it ends.

mod freed;
mod host;
mod member;
mod mood;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use serde_json::{Value, json};
use simulate::text;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    bench::{Bench, SHOP, lock},
    fixture::{self, Planted},
    sidecar::Class,
};

pub use freed::put_all_back;
pub use host::{retain_later, use_again};
use member::Held;
pub use member::{delete_leaf, hold_in, let_go, pod_ends};
pub use mood::Mood;

/// Somebody in the first member is not done with a claim there, or is.
pub fn hold(bench: &Bench, claim: &str, finalizer: &str, held: bool) {
    member::hold_in(&bench.members[0], SHOP, claim, finalizer, held);
}

/// `kubectl delete pvc` by somebody in the first member, of a leaf claim. Its UID.
pub fn delete_leaf_claim(bench: &Bench, name: &str) -> String {
    let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, name).unwrap();
    let uid = text(&leaf, "/metadata/uid").to_owned();
    bench.guard.note(|| format!("somebody deletes leaf claim {name}"));
    lock(&bench.guard.history).deleted_by_people(&uid);
    bench.members[0].delete("persistentvolumeclaims", SHOP, name).unwrap();
    uid
}

/// The same with all finalizers taken away, so that it goes at once.
pub fn delete_leaf_claim_by_force(bench: &Bench, name: &str) {
    delete_leaf_claim(bench, name);
    let unheld = |claim: &mut Value| claim["metadata"]["finalizers"] = json!([]);
    drop(bench.members[0].change("persistentvolumeclaims", SHOP, name, unheld));
}

/// What happens besides: the driver dies and comes back, its provisioner forgets, histories are compacted, members are closed,
/// people make copies, delete what is not theirs, and change their minds. What they are still at when the time is over, they
/// leave.
pub async fn trouble(
    bench: &Arc<Bench>,
    planted: &Arc<Mutex<Planted>>,
    chance: &mut Rng,
    time: Duration,
    volumes_are_freed: bool,
    mood: Mood,
) {
    let mut busy = JoinSet::new();
    busy.spawn(member::take_names(Arc::clone(bench), Arc::clone(planted), Rng::with_seed(chance.u64(..))));
    if chance.bool() {
        busy.spawn(member::write_on_all(Arc::clone(bench), chance.usize(..fixture::MEMBERS)));
    }
    let mut left = time;
    while !left.is_zero() {
        let pause = Duration::from_millis(chance.u64(mood.pauses())).min(left);
        left -= pause;
        sleep(pause).await;
        let at = chance.usize(..fixture::MEMBERS);
        match mood.act(chance) {
            0 | 1 => restart(bench, chance).await,
            17 => {
                let (provisions, time) = (chance.bool(), Duration::from_secs(chance.u64(5..40)));
                busy.spawn(another_replica(Arc::clone(bench), provisions, time));
            }
            2 => bench.members[at].compact(),
            3 => host::cordon(bench, at, chance.bool()),
            4 => {
                busy.spawn(member::limit(Arc::clone(bench), at, Duration::from_secs(chance.u64(5..120))));
            }
            5 => {
                busy.spawn(member::fill(Arc::clone(bench), at, Duration::from_secs(chance.u64(5..120))));
            }
            6 | 7 => {
                let held = chance.bool().then(|| Duration::from_secs(chance.u64(1..60)));
                busy.spawn(member::delete_leaf(Arc::clone(bench), at, held));
            }
            8 | 14 => {
                let wavers = (chance.u8(..3) > 0).then(|| mood.haste(Duration::from_millis(chance.u64(..10_000))));
                busy.spawn(host::retain_later(Arc::clone(bench), wavers, chance.u8(..4) > 0));
            }
            9 => host::use_again(bench),
            10 => host::change_class(bench, chance.u8(..3)),
            11 | 12 => {
                let after = mood.haste(Duration::from_millis(chance.u64(..30_000)));
                let (used_again, soon) = (chance.bool(), chance.bool());
                if let Some(held) = Held::one(bench, at) {
                    busy.spawn(host::call_off(Arc::clone(bench), held, after, used_again, soon));
                }
            }
            19 => host::delete_volumes(bench, chance),
            20 | 21 => host::want_back_before_the_call(bench, chance),
            18 => {
                busy.spawn(member::strip(Arc::clone(bench), at, Duration::from_secs(chance.u64(1..60))));
            }
            13 | 15 if volumes_are_freed => {
                let (taken, after) = (chance.u8(..3) == 0, Duration::from_secs(chance.u64(1..60)));
                busy.spawn(freed::make_free(Arc::clone(bench), at, taken, after));
            }
            _ => {
                let into = if chance.bool() { at } else { chance.usize(..fixture::MEMBERS) };
                member::copy(bench, planted, at, into, chance.bool());
            }
        }
    }
}

/// Of the driver, of the provisioner beside it, or of the pod that both are in.
async fn restart(bench: &Bench, chance: &mut Rng) {
    let (driver, provisioner) = [(true, true), (true, false), (false, true)][chance.usize(..3)];
    bench.guard.note(|| format!("killed are the driver: {driver}, the provisioner: {provisioner}"));
    if provisioner {
        bench.sidecar.restart();
    }
    if driver {
        bench.kill();
        sleep(Duration::from_millis(chance.u64(..5000))).await;
        bench.start();
    }
}

/// It serves for so long beside the other one, which ends then, or ends itself: the provisioner stays where it is. Where that is the new
/// one, it has forgotten what it was at.
async fn another_replica(bench: Arc<Bench>, provisions: bool, time: Duration) {
    bench.guard.note(|| format!("another replica begins, beside which the provisioner is: {provisions}"));
    bench.start_beside(provisions);
    if provisions {
        bench.sidecar.restart();
    }
    sleep(time).await;
    bench.guard.note(|| "the one beside which the provisioner is not is killed".to_owned());
    bench.end_beside();
}

pub fn heal(bench: &Arc<Bench>, planted: &Mutex<Planted>) {
    bench.guard.note(|| "the faults are over".to_owned());
    bench.guard.heal();
    bench.end_beside();
    // A claim that goes while a copy of its leaf is seen waits for a person.
    let mut planted = lock(planted);
    let touched = planted.touched(bench);
    for wrong in touched {
        bench.guard.report(wrong);
    }
    planted.remove_copies(bench);
    drop(planted);
    bench.sidecar.set_class(Class::AsItWas);
    for (at, member) in bench.members.iter().enumerate().take(fixture::MEMBERS) {
        member::put_labels_back(bench, at);
        let _ = member.delete("resourcequotas", SHOP, "tight");
        fixture::empty(bench, at);
        host::cordon(bench, at, false);
    }
}
