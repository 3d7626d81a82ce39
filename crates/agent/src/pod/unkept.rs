//! Why ConfigMaps and Secrets in a member are not kept up to date: in the log when that begins, when its words change, and when it is over.

use std::collections::{BTreeMap, BTreeSet};

use super::{rejection::without_words, wanted::SyncedObject};
use cluster::with_causes;
use domain::some_of::some_of;

/// Of the namespaces that could not be looked at, how many are named in the log.
const NAMED: usize = 5;

/// What keeps a namespace from being looked at.
pub(super) type Failures = BTreeMap<String, kube::Error>;

/// Why something is so, as it was told last; none where it is not so.
#[derive(Debug, Default)]
struct Cause<T>(Option<T>);

/// What is to be told of it.
#[derive(Debug, PartialEq, Eq)]
enum News<T> {
    Because(T),
    Over,
}

impl<T: Clone + PartialEq> Cause<T> {
    /// None where that is what was told.
    fn now(&mut self, cause: Option<T>) -> Option<News<T>> {
        if self.0 == cause {
            return None;
        }
        self.0.clone_from(&cause);
        Some(cause.map_or(News::Over, News::Because))
    }
}

/// In one member.
#[derive(Debug, Default)]
pub(super) struct Unkept {
    /// Why nothing is kept.
    all: Cause<String>,
    /// By namespace.
    namespaces: Cause<BTreeMap<String, String>>,
    objects: BTreeMap<SyncedObject, Cause<String>>,
}

impl Unkept {
    pub(super) fn tell_of_all(&mut self, member: &str, error: Option<&kube::Error>) {
        match self.all.now(error.map(|error| with_causes(error))) {
            Some(News::Because(error)) => {
                tracing::warn!(member, error, "the agent cannot keep ConfigMaps and Secrets in the member up to date");
            }
            Some(News::Over) => {
                tracing::info!(member, "the agent keeps ConfigMaps and Secrets in the member up to date again");
            }
            None => {}
        }
    }

    /// `unseen`: in which something was not looked at this time.
    pub(super) fn tell_of_namespaces(&mut self, member: &str, failures: Failures, unseen: &BTreeSet<String>) {
        let words = |(namespace, error)| (namespace, with_causes(&without_words(error)));
        match self.of_namespaces(failures.into_iter().map(words).collect(), unseen) {
            Some(News::Because(why)) => {
                let (namespaces, error) = (some_of(why.keys(), NAMED), why.into_values().next().unwrap_or_default());
                tracing::warn!(
                    member,
                    namespaces,
                    error,
                    "the agent cannot keep ConfigMaps and Secrets of these namespaces up to date; the error is that of the first"
                );
            }
            Some(News::Over) => {
                tracing::info!(member, "ConfigMaps and Secrets of all namespaces are kept up to date again");
            }
            None => {}
        }
    }

    fn of_namespaces(
        &mut self,
        mut failures: BTreeMap<String, String>,
        unseen: &BTreeSet<String>,
    ) -> Option<News<BTreeMap<String, String>>> {
        for (namespace, why) in self.namespaces.0.iter().flatten().filter(|(namespace, _)| unseen.contains(*namespace))
        {
            failures.entry(namespace.clone()).or_insert_with(|| why.clone());
        }
        self.namespaces.now(Some(failures).filter(|failures| !failures.is_empty()))
    }

    pub(super) fn tell_of_object(&mut self, member: &str, thing: &SyncedObject, why: Option<String>) {
        let news = self.of_object(thing, why);
        let (kind, object) = thing;
        match news {
            Some(News::Because(why)) => {
                tracing::warn!(member, %kind, %object, why, "the agent cannot keep an object in the member up to date");
            }
            Some(News::Over) => tracing::info!(
                member,
                %kind,
                %object,
                "the agent keeps an object in the member up to date again, or no pod there needs it any more"
            ),
            None => {}
        }
    }

    fn of_object(&mut self, thing: &SyncedObject, why: Option<String>) -> Option<News<String>> {
        if why.is_none() {
            return self.objects.remove(thing).map(|_| News::Over);
        }
        self.objects.entry(thing.clone()).or_default().now(why)
    }

    /// Of all others there is nothing more to be kept up to date.
    pub(super) fn end_all_but(&mut self, member: &str, is_known: impl Fn(&SyncedObject) -> bool) {
        let gone: Vec<SyncedObject> = self.objects.keys().filter(|thing| !is_known(thing)).cloned().collect();
        for thing in gone {
            self.tell_of_object(member, &thing, None);
        }
    }
}

/// Of what no answer came in time, as where a webhook is silent.
#[derive(Debug, Default)]
pub(super) struct Silent {
    /// The last one.
    thing: Option<SyncedObject>,
    /// In which something was silent, the last one last: a webhook may be that for all of a namespace.
    namespaces: Vec<String>,
}

impl Silent {
    /// All of them, those of other namespaces first, and what was silent last of its own.
    pub(super) fn last<T>(&self, mut due: Vec<(SyncedObject, T)>) -> Vec<(SyncedObject, T)> {
        if let Some(at) = due.iter().position(|(thing, _)| Some(thing) == self.thing.as_ref()) {
            due.rotate_left(at + 1);
        }
        due.sort_by_key(|((_, place), _)| self.namespaces.iter().position(|silent| *silent == place.namespace));
        due
    }

    /// None: all have answered.
    pub(super) fn now(&mut self, thing: Option<SyncedObject>) {
        match &thing {
            Some((_, place)) => {
                self.namespaces.retain(|silent| *silent != place.namespace);
                self.namespaces.push(place.namespace.clone());
            }
            None => self.namespaces.clear(),
        }
        self.thing = thing;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::object::Place, names::Kind},
        *,
    };

    fn because(why: &str) -> News<String> {
        News::Because(why.to_owned())
    }

    #[test]
    fn cause_is_told_when_it_begins_when_its_words_change_and_when_it_is_over() {
        let (mut unkept, thing) = (Unkept::default(), (Kind::Secret, Place::default()));
        let mut told = |why: Option<&str>| unkept.of_object(&thing, why.map(str::to_owned));
        assert_eq!(told(None), None, "it was never so");
        assert_eq!((told(Some("a")), told(Some("a")), told(Some("b"))), (Some(because("a")), None, Some(because("b"))));
        assert_eq!((told(None), told(None)), (Some(News::Over), None));
        assert_eq!(told(Some("b")), Some(because("b")), "it begins again");
    }

    #[test]
    fn namespaces_that_are_silent_in_turns_are_told_once() {
        let mut unkept = Unkept::default();
        let mut told = |fails: &[&str], unseen: &[&str]| {
            let failures = fails.iter().map(|name| ((*name).to_owned(), "silent".to_owned())).collect();
            let unseen = unseen.iter().map(|name| (*name).to_owned()).collect();
            unkept.of_namespaces(failures, &unseen).map(|news| match news {
                News::Because(why) => why.into_keys().collect::<Vec<_>>().join(" "),
                News::Over => "over".to_owned(),
            })
        };
        assert_eq!(told(&["a"], &["b", "c"]).as_deref(), Some("a"));
        assert_eq!(told(&["b"], &["a", "c"]).as_deref(), Some("a b"));
        for (fails, unseen) in [("a", ["b", "c"]), ("b", ["a", "c"])] {
            assert_eq!(told(&[fails], &unseen), None);
        }
        assert_eq!(told(&["b"], &[]).as_deref(), Some("b"), "the other one answers");
        assert_eq!((told(&[], &[]).as_deref(), told(&[], &[])), (Some("over"), None));
    }

    #[test]
    fn what_was_silent_comes_last_with_its_namespace_and_who_was_it_longer_ago_before_others_that_were() {
        let thing = |place: &str| {
            let (namespace, name) = place.split_once('/').unwrap();
            (Kind::ConfigMap, Place { namespace: namespace.to_owned(), name: name.to_owned() })
        };
        let order = |silent: &Silent| {
            let all = ["a/1", "a/2", "a/3", "b/1", "c/1"].map(|place| (thing(place), ()));
            let places: Vec<String> =
                silent.last(all.to_vec()).into_iter().map(|((_, place), ())| place.to_string()).collect();
            places.join(" ")
        };
        let mut silent = Silent::default();
        assert_eq!(order(&silent), "a/1 a/2 a/3 b/1 c/1");
        silent.now(Some(thing("a/1")));
        assert_eq!(order(&silent), "b/1 c/1 a/2 a/3 a/1");
        silent.now(Some(thing("b/1")));
        assert_eq!(order(&silent), "c/1 a/1 a/2 a/3 b/1");
        silent.now(Some(thing("a/3")));
        assert_eq!(order(&silent), "c/1 b/1 a/1 a/2 a/3");
        silent.now(None);
        assert_eq!(order(&silent), "a/1 a/2 a/3 b/1 c/1");
    }
}
