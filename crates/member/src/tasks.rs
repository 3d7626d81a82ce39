//! The work that is done on each member, for as long as it is one.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::{AbortHandle, JoinSet};

use super::Member;
use cluster::Writes;

/// One task for each member; all of them end when this is dropped.
#[derive(Debug, Default)]
pub struct MemberTasks {
    tasks: JoinSet<()>,
    under_way: BTreeMap<String, (Arc<Member>, AbortHandle)>,
}

impl MemberTasks {
    /// Ends the work on members that have gone or are others now, and begins what is not under way. Work that has failed is
    /// begun again.
    pub fn follow<F>(&mut self, members: &BTreeMap<String, Arc<Member>>, begin: impl Fn(Arc<Member>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && !error.is_cancelled()
            {
                tracing::error!(%error, "the work on a member has failed and begins again");
            }
        }
        self.under_way.retain(|name, (member, work)| {
            let stays = members.get(name).is_some_and(|now| Arc::ptr_eq(now, member));
            if !stays {
                work.abort();
            }
            stays && !work.is_finished()
        });
        for (name, member) in members {
            if !self.under_way.contains_key(name) {
                let work = self.tasks.spawn(Writes::of_this(begin(Arc::clone(member))));
                self.under_way.insert(name.clone(), (Arc::clone(member), work));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::task::yield_now;

    use super::*;

    fn members(names: &[&str]) -> BTreeMap<String, Arc<Member>> {
        let member = |name: &&str| Member {
            name: (*name).to_owned(),
            policy: tokio::sync::watch::Sender::default(),
            clustertree: false.into(),
            strays: 0.into(),
            token: std::sync::Mutex::default(),
            overfull: false.into(),
            link: Err("it is made up".to_owned()),
        };
        names.iter().map(member).map(|member| (member.name.clone(), Arc::new(member))).collect()
    }

    #[tokio::test]
    async fn work_goes_on_as_long_as_its_member_is_the_same_and_begins_again_where_it_fails() {
        let count = Arc::new(AtomicUsize::new(0));
        let begin = |member: Arc<Member>| {
            let count = Arc::clone(&count);
            async move {
                count.fetch_add(1, Ordering::Relaxed);
                assert_ne!(member.name, "fails");
                pending::<()>().await;
            }
        };
        let mut works = MemberTasks::default();
        let (two, other) = (members(&["a", "fails"]), members(&["a"]));
        for (members, so_far) in [(&two, 2), (&two, 3), (&two, 4), (&other, 5), (&other, 5)] {
            works.follow(members, begin);
            yield_now().await;
            assert_eq!(count.load(Ordering::Relaxed), so_far);
        }
        assert_eq!(works.under_way.len(), 1);
    }
}
