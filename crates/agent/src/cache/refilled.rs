//! Objects that were cut, and for which there is room again: no watch tells of them for that.

use serde_json::Value;

use super::{super::object::Place, Cached, ObjectCache};

impl<T: Cached> ObjectCache<T> {
    /// Keeps one whole that was just read, where it is still what was told of it last. Else news of it is on its way.
    pub(crate) fn refill(&self, whole: &Value) {
        let (place, packed) = (Place::of(whole), T::pack(whole.clone()));
        let mut table = self.lock();
        let Some(kept) = table.objects.get(&place) else { return };
        let known = T::read(kept, &place);
        if known["metadata"]["resourceVersion"] == whole["metadata"]["resourceVersion"] {
            table.insert(&place, packed, self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::{
        super::{
            super::{host_pod::HostPod, object::parsed},
            MOST_LONG,
        },
        *,
    };

    #[test]
    fn what_was_cut_is_whole_again_once_it_is_read_and_has_room_and_only_as_it_was_told() {
        let pods = ObjectCache::by(HostPod::node);
        let long = |name: &str, version: &str| {
            let container = json!({"name": "c", "args": ["a".repeat(MOST_LONG / 3 * 2)]});
            json!({
                "metadata": {"namespace": "attic", "name": name, "uid": name, "resourceVersion": version},
                "spec": {"nodeName": "kosmos-m", "containers": [container]},
            })
        };
        let (first, second) = (long("first", "1"), long("second", "2"));
        let told = |pod: &Value| parsed(pod.clone()).unwrap();
        for pod in [&first, &second] {
            pods.take(Event::Apply(told(pod)), |_| true);
        }
        let is_cut = || pods.kept(&Place::of(&second)).unwrap().is_cut();
        pods.refill(&second);
        assert!(is_cut(), "there is no room");
        pods.take(Event::Delete(told(&first)), |_| true);
        pods.refill(&long("second", "3"));
        assert!(is_cut(), "it is not what was told");
        pods.refill(&second);
        assert!(!is_cut() && pods.kept_of("kosmos-m").len() == 1);
        pods.refill(&first);
        assert!(!pods.has(&Place::of(&first)), "it is gone");
    }
}
