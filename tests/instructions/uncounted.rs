//! What callgrind counts, which is told by functions' names: all that is done in `counted`, but for what is done in `uncounted` meanwhile.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use hyper::body::{Body, Frame};
use tokio::runtime::Runtime;

/// Their names, as callgrind knows them.
pub const COUNTED: &str = "instructions::uncounted::counted";
pub const UNCOUNTED: &str = "instructions::uncounted::uncounted";

/// All that the thread does until this has come to its end.
#[inline(never)]
pub fn counted(runtime: &Runtime, call: Pin<Box<dyn Future<Output = ()> + '_>>) {
    runtime.block_on(call);
}

#[inline(never)]
fn uncounted(work: &mut dyn FnMut()) {
    work();
}

/// A task or an answer of the simulated clusters. What it does is not the driver's.
pub struct Uncounted<T>(Pin<Box<T>>);

impl<T> Uncounted<T> {
    pub fn new(of: T) -> Self {
        Self(Box::pin(of))
    }
}

impl<T: Future> Future for Uncounted<T> {
    type Output = T::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T::Output> {
        let (work, mut polled) = (&mut self.0, Poll::Pending);
        uncounted(&mut || polled = work.as_mut().poll(context));
        polled
    }
}

impl<T: Body> Body for Uncounted<T> {
    type Data = T::Data;
    type Error = T::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<T::Data>, T::Error>>> {
        let (body, mut polled) = (&mut self.0, Poll::Pending);
        uncounted(&mut || polled = body.as_mut().poll_frame(context));
        polled
    }
}
