//! What watches have told: objects by place, and by what else they are looked for.

mod one_by_one;
mod refilled;
mod watched;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::runtime::watcher::Event;
use serde_json::Value;
use tokio::sync::watch;

use super::object::{Object, Place, whole};
use cluster::Relist;
pub(super) use one_by_one::keep_one_by_one;
pub(super) use watched::keep;

/// What one member's pods, or its nodes, may take of memory: its administrator decides what it says, and one process serves
/// all members.
const MOST: usize = 128 << 20;
/// What long objects of one namespace may take, whole: a tenant decides how long they are, and how many.
pub(super) const MOST_LONG: usize = 16 << 20;

/// The form in which objects of a kind are kept.
pub(super) trait Cached: Sized {
    fn pack(object: Value) -> Self;
    /// The object again, as far as it is kept.
    fn read(kept: &Arc<Self>, place: &Place) -> Arc<Value>;
    /// In bytes.
    fn weight(&self) -> usize;
    /// In bytes, of one that is long and whole.
    fn long(&self) -> usize {
        0
    }
    /// One that is long, without what makes it so.
    fn cut(self) -> Self {
        self
    }
}

/// As it is: for what is read more often than it is told.
impl Cached for Value {
    fn pack(object: Value) -> Self {
        object
    }

    fn read(kept: &Arc<Self>, _: &Place) -> Arc<Value> {
        Arc::clone(kept)
    }

    fn weight(&self) -> usize {
        let inside = match self {
            Self::String(text) => text.len(),
            Self::Array(items) => items.iter().map(Cached::weight).sum(),
            Self::Object(fields) => fields.iter().map(|(name, value)| name.len() + value.weight()).sum(),
            Self::Null | Self::Bool(_) | Self::Number(_) => 0,
        };
        size_of::<Self>() + inside
    }
}

/// By what objects are looked for besides their place; none where nobody looks for this one.
type Key<T> = fn(&T) -> Option<String>;

/// Objects of one kind.
#[derive(Debug)]
pub(super) struct ObjectCache<T = Value> {
    table: Mutex<Table<T>>,
    key: Key<T>,
    synced: watch::Sender<bool>,
    /// More was told than one member has room for.
    overfull: watch::Sender<bool>,
    /// What was last in the way of the watch.
    obstacle: Mutex<Option<String>>,
}

/// An object as it was, and as it is now.
#[derive(Debug)]
pub(super) struct Change<T = Value> {
    pub(super) place: Place,
    pub(super) before: Option<Arc<T>>,
    pub(super) after: Option<Arc<T>>,
}

impl<T> Change<T> {
    /// What can be read of it, before and now: each once.
    pub(super) fn each(&self, read: Key<T>) -> BTreeSet<String> {
        [&self.before, &self.after].into_iter().flatten().filter_map(|object| read(object)).collect()
    }
}

#[derive(Debug)]
struct Table<T> {
    objects: HashMap<Place, Arc<T>>,
    by_key: HashMap<String, BTreeSet<Place>>,
    relist: Relist<Place>,
    /// What the objects take, in bytes.
    weight: usize,
    /// What long ones do that are whole, by their namespace.
    long: HashMap<String, usize>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let (objects, by_key, long) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { objects, by_key, relist: Relist::default(), weight: 0, long }
    }
}

impl<T: Cached> Table<T> {
    /// It as it was, and as it is kept now.
    fn insert(&mut self, place: &Place, object: T, key: Key<T>) -> (Option<Arc<T>>, Arc<T>) {
        let before = self.remove(place, key);
        let has_room = object.long() <= self.room(&place.namespace);
        let object = Arc::new(if has_room { object } else { object.cut() });
        self.weight += weight(place, &*object);
        if object.long() > 0 {
            *self.long.entry(place.namespace.clone()).or_default() += object.long();
        }
        if let Some(key) = key(&object) {
            self.by_key.entry(key).or_default().insert(place.clone());
        }
        self.objects.insert(place.clone(), Arc::clone(&object));
        (before, object)
    }

    fn room(&self, namespace: &str) -> usize {
        MOST_LONG.saturating_sub(self.long.get(namespace).copied().unwrap_or_default())
    }

    fn remove(&mut self, place: &Place, key: Key<T>) -> Option<Arc<T>> {
        let removed = self.objects.remove(place)?;
        self.weight -= weight(place, &*removed);
        if let Some(long) = self.long.get_mut(&place.namespace) {
            *long -= removed.long();
            if *long == 0 {
                self.long.remove(&place.namespace);
            }
        }
        if let Some(key) = key(&removed)
            && let Some(places) = self.by_key.get_mut(&key)
        {
            places.remove(place);
            if places.is_empty() {
                self.by_key.remove(&key);
            }
        }
        Some(removed)
    }
}

/// Of one object, with where it is kept.
fn weight<T: Cached>(place: &Place, object: &T) -> usize {
    size_of::<Place>() + place.namespace.len() + place.name.len() + object.weight()
}

impl ObjectCache {
    pub(super) fn all(&self) -> Vec<Arc<Value>> {
        self.all_kept()
    }
}

impl<T: Cached> Default for ObjectCache<T> {
    fn default() -> Self {
        Self::by(|_| None)
    }
}

impl<T: Cached> ObjectCache<T> {
    /// Of objects that are looked for by this key as well.
    pub(super) fn by(key: Key<T>) -> Self {
        Self {
            table: Mutex::default(),
            key,
            synced: watch::Sender::new(false),
            overfull: watch::Sender::new(false),
            obstacle: Mutex::default(),
        }
    }

    pub(super) fn get(&self, place: &Place) -> Option<Arc<Value>> {
        self.kept(place).map(|kept| T::read(&kept, place))
    }

    /// In the form in which it is kept.
    pub(super) fn kept(&self, place: &Place) -> Option<Arc<T>> {
        self.lock().objects.get(place).cloned()
    }

    pub(super) fn has(&self, place: &Place) -> bool {
        self.lock().objects.contains_key(place)
    }

    pub(super) fn all_kept(&self) -> Vec<Arc<T>> {
        self.lock().objects.values().cloned().collect()
    }

    /// Those that have this key.
    pub(super) fn of(&self, key: &str) -> Vec<Arc<Value>> {
        self.kept_of(key).iter().map(|(place, kept)| T::read(kept, place)).collect()
    }

    pub(super) fn kept_of(&self, key: &str) -> Vec<(Place, Arc<T>)> {
        let table = self.lock();
        let places = table.by_key.get(key).into_iter().flatten();
        places.filter_map(|place| Some((place.clone(), Arc::clone(table.objects.get(place)?)))).collect()
    }

    /// Where those are of which this is so.
    pub(super) fn places(&self, is_so: impl Fn(&Place, &T) -> bool) -> Vec<Place> {
        let table = self.lock();
        table.objects.iter().filter(|(place, kept)| is_so(place, kept)).map(|(place, _)| place.clone()).collect()
    }

    /// What one more long object of the namespace may take, in bytes.
    pub(super) fn room(&self, namespace: &str) -> usize {
        self.lock().room(namespace)
    }

    pub(super) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns once everything has been listed.
    pub(super) async fn synced(&self) {
        // The sender is here: it cannot be closed.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Returns once a member has told more of them than there is room for, with what to say of it.
    pub(super) async fn overfull(&self, kinds: &str) -> String {
        // The sender is here: it cannot be closed.
        let _ = self.overfull.subscribe().wait_for(|overfull| *overfull).await;
        format!("its {kinds} take more than {} MiB, which is more than the agent keeps", MOST >> 20)
    }

    pub(super) fn obstacle(&self) -> Option<String> {
        self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Told in the log once.
    fn obstructed(&self, kind: &str, reason: String) {
        let mut obstacle = self.obstacle.lock().unwrap_or_else(PoisonError::into_inner);
        if obstacle.as_ref() != Some(&reason) {
            tracing::warn!(kind, reason, "the agent cannot watch objects of this kind, and tries again");
        }
        *obstacle = Some(reason);
    }

    fn put(&self, object: Value) -> Change<T> {
        let place = Place::of(&object);
        let object = T::pack(object);
        let mut table = self.lock();
        table.relist.tell(&place);
        let (before, object) = table.insert(&place, object, self.key);
        if table.weight > MOST {
            self.overfull.send_replace(true);
        }
        Change { place, before, after: Some(object) }
    }

    fn remove(&self, place: Place) -> Option<Change<T>> {
        let before = self.lock().remove(&place, self.key)?;
        Some(Change { place, before: Some(before), after: None })
    }

    fn complete(&self) -> Vec<Change<T>> {
        let gone = {
            let mut locked = self.lock();
            let table = &mut *locked;
            table.relist.end(table.objects.keys())
        };
        let gone = gone.into_iter().filter_map(|place| self.remove(place)).collect();
        self.synced.send_replace(true);
        gone
    }

    /// What was in the way is so no more, whatever is told; that a list begins is told before it is asked for.
    pub(super) fn take(&self, event: Event<Object>, keeps: fn(&mut Value) -> bool) -> Vec<Change<T>> {
        let judged = |object| {
            let mut object = whole(object);
            (keeps(&mut object), object)
        };
        if !matches!(event, Event::Init) {
            *self.obstacle.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        match event {
            Event::Init => {
                self.lock().relist.begin();
                Vec::new()
            }
            Event::InitApply(object) => {
                let (kept, object) = judged(object);
                Vec::from_iter(kept.then(|| self.put(object)))
            }
            Event::InitDone => self.complete(),
            Event::Apply(object) => match judged(object) {
                (true, object) => vec![self.put(object)],
                (false, object) => Vec::from_iter(self.remove(Place::of(&object))),
            },
            Event::Delete(object) => Vec::from_iter(self.remove(Place::of(&whole(object)))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table<T>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::object, *};

    fn object(name: &str, kept: bool) -> Object {
        object::parsed(json!({"metadata": {"namespace": "shop", "name": name}, "kept": kept})).unwrap()
    }

    fn keeps(object: &mut Value) -> bool {
        object["kept"] == true
    }

    fn told(changes: &[Change]) -> Vec<String> {
        changes.iter().map(|change| change.place.to_string()).collect()
    }

    #[test]
    fn what_a_new_list_does_not_tell_has_gone_and_is_told() {
        let cache: ObjectCache = ObjectCache::default();
        cache.take(Event::Apply(object("a", true)), keeps);
        cache.take(Event::Apply(object("b", true)), keeps);
        assert!(cache.take(Event::Init, keeps).is_empty());
        assert_eq!(told(&cache.take(Event::InitApply(object("b", true)), keeps)), ["shop/b"]);
        assert!(cache.take(Event::InitApply(object("c", false)), keeps).is_empty());
        let gone = cache.take(Event::InitDone, keeps);
        assert_eq!(told(&gone), ["shop/a"]);
        assert!(gone[0].before.is_some() && gone[0].after.is_none());
        assert_eq!(cache.all().len(), 1);
    }

    #[test]
    fn what_is_not_kept_any_more_is_removed() {
        let cache: ObjectCache = ObjectCache::default();
        cache.take(Event::Apply(object("a", true)), keeps);
        assert_eq!(told(&cache.take(Event::Apply(object("a", false)), keeps)), ["shop/a"]);
        assert!(cache.all().is_empty());
        assert!(cache.take(Event::Delete(object("a", true)), keeps).is_empty(), "it is told once");
    }

    #[test]
    fn object_is_found_by_its_key_and_by_no_former_one() {
        let cache = ObjectCache::<Value>::by(|object| object["key"].as_str().map(str::to_owned));
        let keyed = |name: &str, key: &str| {
            let keyed = json!({"metadata": {"namespace": "shop", "name": name}, "key": key});
            Event::Apply(object::parsed(keyed).unwrap())
        };
        let found = |key: &str| cache.of(key).iter().map(|object| Place::of(object).name).collect::<Vec<_>>();
        cache.take(keyed("a", "one"), |_| true);
        cache.take(keyed("b", "one"), |_| true);
        assert_eq!(found("one"), ["a", "b"]);
        let moved = cache.take(keyed("a", "two"), |_| true);
        assert_eq!(moved[0].each(|object| object["key"].as_str().map(str::to_owned)).len(), 2);
        assert_eq!((found("one"), found("two")), (vec!["b".to_owned()], vec!["a".to_owned()]));
        cache.take(Event::Delete(object("b", true)), keeps);
        assert!(found("one").is_empty() && cache.lock().by_key.len() == 1, "nothing is left of it");
    }
}
