//! Waiting for what others tell by notices.

use std::pin::pin;

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// Waits until something holds, which is looked at again at each notice; false when the deadline came first.
pub(super) async fn until(notices: &Notify, deadline: Instant, mut holds: impl FnMut() -> bool) -> bool {
    loop {
        let mut notice = pin!(notices.notified());
        // Heard from here on, before the look.
        notice.as_mut().enable();
        if holds() {
            return true;
        }
        if timeout_at(deadline, notice).await.is_err() {
            return holds();
        }
    }
}
