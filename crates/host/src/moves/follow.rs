//! What feeds the moves: one list, taken move by move as it comes, and a watch of what changes from there on.

use std::collections::BTreeMap;

use kube::{Api, ResourceExt, api::DynamicObject, runtime::watcher::Event};

use super::{AnyObject, Moves, VolumeMove, resource, trimmed};
use crate::Host;
use cluster::{Unread, field_in, watch_one_by_one, with_causes};
use domain::printable::short;

/// Of what is wrong with a move, in bytes.
const LONGEST: usize = 200;

/// Nothing is known of them any more once this is dropped.
#[derive(Debug)]
struct Forgets<'a>(&'a Moves);

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.0.write(BTreeMap::clear);
    }
}

/// Keeps them true, until it is dropped.
pub async fn keep(host: &Host, moves: &Moves) {
    let all = Api::<AnyObject>::all_with(host.client.clone(), &resource());
    let (mut listed, mut unread) = (BTreeMap::new(), Unread::default());
    let _forgets = Forgets(moves);
    let take = |event: Event<AnyObject>| match event {
        Event::Init => {
            listed.clear();
            unread.begin();
        }
        Event::InitApply(found) => listed.extend(readable(moves, &mut unread, &trimmed(found))),
        Event::InitDone => {
            unread.complete();
            moves.write(|known| *known = std::mem::take(&mut listed));
        }
        Event::Apply(found) => {
            let found = readable(moves, &mut unread, &trimmed(found));
            moves.write(|known| known.extend(found));
        }
        Event::Delete(gone) => {
            let gone = gone.into_object();
            unread.remove(&named(&gone));
            moves.write(|known| drop(known.remove(&gone.uid().unwrap_or_default())));
        }
    };
    let failed =
        |error: &kube::Error| tracing::debug!(error = with_causes(error), "the watch of moves was interrupted");
    watch_one_by_one(&host.client, &all, None, take, failed).await;
}

/// A move, by its UID. One that nobody understands stays as it was known, and hides no other.
fn readable(moves: &Moves, unread: &mut Unread<()>, found: &DynamicObject) -> Option<(String, VolumeMove)> {
    let (uid, name) = (found.uid().unwrap_or_default(), named(found));
    let text = serde_json::to_vec(found).unwrap_or_default();
    match serde_json::from_slice(&text) {
        Ok(of) => {
            unread.remove(&name);
            Some((uid, of))
        }
        Err(error) => {
            let (field, error) = (field_in(&text, &error), short(&error.to_string(), LONGEST));
            if unread.put(&name, (), field.clone()) {
                tracing::warn!(of = name, field, error, "the driver cannot read a VolumeMove, and does nothing for it");
            }
            moves.all().remove(&uid).map(|known| (uid, known))
        }
    }
}

fn named(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::{super::phase_of, *};
    use domain::volume::moving::Phase;

    fn found(name: &str, phase: &str) -> DynamicObject {
        let spec = json!({"claimName": "data", "to": {"member": "m1"}});
        from_value(json!({"apiVersion": "kosmos.csi.io/v1alpha1", "kind": "VolumeMove",
            "metadata": {"namespace": "shop", "name": name, "uid": name}, "spec": spec, "status": {"phase": phase}}))
        .unwrap()
    }

    /// As one that another version of this program has led on.
    #[test]
    fn move_that_cannot_be_read_stays_as_it_was_known_and_hides_no_other() {
        let (moves, mut unread) = (Moves::default(), Unread::default());
        let mut phase = |name: &str, phase: &str| {
            let read = readable(&moves, &mut unread, &found(name, phase));
            moves.write(|known| known.extend(read.clone()));
            (read.and_then(|(_, of)| phase_of(&of)), unread.is_empty())
        };
        assert_eq!(phase("a", "Copying"), (Some(Phase::Copying), true));
        assert_eq!(phase("a", "Unheard"), (Some(Phase::Copying), false));
        assert_eq!(phase("b", "Ready"), (Some(Phase::Ready), false));
        assert_eq!(phase("c", "Unheard"), (None, false), "nothing was known of it");
        assert_eq!(phase("a", "Placing"), (Some(Phase::Placing), false));
        assert_eq!(phase("c", "Ready"), (Some(Phase::Ready), true));
    }
}
