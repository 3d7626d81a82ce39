//! Calls that hang for as long as a server is dead. Nobody waits for one without an end.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, TryRecvError},
    },
    thread,
    time::Duration,
};

use super::told;
use crate::kernel::{Called, Failure, Number};

/// As long as a kubelet waits for the server of an NFS volume of its own.
const ANSWERED_WITHIN: Duration = Duration::from_mins(1);
/// How often a call that has not ended is looked after.
const LOOK: Duration = Duration::from_millis(200);

/// One for the process, as filesystems have their numbers from the kernel.
static SILENT: Silent = Silent::new();

/// The filesystems of which a question hangs. The question keeps its own mounted, so no other one gets that number meanwhile.
#[derive(Debug)]
struct Silent(Mutex<BTreeSet<Number>>);

/// Asks something of a filesystem, and waits for the answer only for so long. An answer that comes later is nobody's.
pub(super) fn ask<T: Send + 'static>(
    filesystem: Number,
    question: impl FnOnce() -> Called<T> + Send + 'static,
) -> Called<T> {
    SILENT.ask(filesystem, ANSWERED_WITHIN, question)
}

/// Does what may be done long before its call ends: that is waited for, or until it shows that it is done.
pub(super) fn until_done(work: impl FnOnce() -> Called<()> + Send + 'static, is_done: impl Fn() -> bool) -> Called<()> {
    let (tell, end) = mpsc::channel();
    begin(move || drop(tell.send(work())))?;
    loop {
        match end.recv_timeout(LOOK) {
            Ok(ended) => return ended,
            Err(RecvTimeoutError::Timeout) if is_done() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(failed_in_itself()),
        }
    }
}

impl Silent {
    const fn new() -> Self {
        Self(Mutex::new(BTreeSet::new()))
    }

    fn filesystems(&self) -> MutexGuard<'_, BTreeSet<Number>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What hangs keeps a thread, so nobody asks the same filesystem meanwhile.
    fn ask<T: Send + 'static>(
        &'static self,
        filesystem: Number,
        within: Duration,
        question: impl FnOnce() -> Called<T> + Send + 'static,
    ) -> Called<T> {
        if self.filesystems().contains(&filesystem) {
            return Err(Failure::Silent);
        }
        let (tell, answer) = mpsc::channel();
        begin(move || {
            let told = question();
            // Whoever has waited in vain looks once more before it enters the filesystem.
            let mut filesystems = self.filesystems();
            filesystems.remove(&filesystem);
            tell.send(told).ok();
        })?;
        if let Ok(told) = answer.recv_timeout(within) {
            return told;
        }
        let mut filesystems = self.filesystems();
        match answer.try_recv() {
            Ok(told) => told,
            Err(TryRecvError::Disconnected) => Err(failed_in_itself()),
            Err(TryRecvError::Empty) => {
                filesystems.insert(filesystem);
                Err(Failure::Silent)
            }
        }
    }
}

fn begin(work: impl FnOnce() + Send + 'static) -> Called<()> {
    thread::Builder::new().spawn(work).map(drop).map_err(told)
}

fn failed_in_itself() -> Failure {
    Failure::Other("a call to the kernel failed in itself".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NFS: Number = (0, 50);
    const OTHER: Number = (0, 51);
    const SHORT: Duration = Duration::from_millis(20);

    fn silent() -> &'static Silent {
        Box::leak(Box::new(Silent::new()))
    }

    #[test]
    fn filesystem_is_asked_once_until_it_answers() {
        let silent = silent();
        let (go, wait) = mpsc::channel::<()>();
        let hangs = move || {
            wait.recv().ok();
            Ok(1)
        };
        assert_eq!(silent.ask(NFS, SHORT, hangs), Err(Failure::Silent));
        assert_eq!(silent.ask(NFS, ANSWERED_WITHIN, || Ok(2)), Err(Failure::Silent), "one question hangs already");
        assert_eq!(silent.ask(OTHER, ANSWERED_WITHIN, || Ok(3)), Ok(3));
        drop(go);
        while silent.filesystems().contains(&NFS) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(silent.ask(NFS, ANSWERED_WITHIN, || Ok(4)), Ok(4));
    }

    #[test]
    fn question_that_fails_in_itself_leaves_no_filesystem_silent() {
        let silent = silent();
        let failed = silent.ask(NFS, ANSWERED_WITHIN, || panic!("on purpose") as Called<()>);
        assert!(matches!(failed, Err(Failure::Other(_))), "{failed:?}");
        assert_eq!(silent.ask(NFS, ANSWERED_WITHIN, || Ok(1)), Ok(1));
    }

    #[test]
    fn call_that_goes_on_is_over_where_it_is_done() {
        let (go, wait) = mpsc::channel::<()>();
        let hangs = move || wait.recv().map_err(|_| Failure::Busy);
        assert_eq!(until_done(hangs, || true), Ok(()));
        drop(go);
        assert_eq!(until_done(|| Err(Failure::Unfit), || false), Err(Failure::Unfit));
    }
}
