//! How a call is answered: in a task of its own, because the server drops a handler whose caller gives up, and what
//! has begun must end; and with one line in the log, which never holds a whole request. Calls that only say what the
//! driver is, and probes, take another way and leave no line.

use std::future::Future;
use std::time::Instant;

use tonic::{Code, Response, Status};
use tracing::{info, warn};

use crate::error::Error;

/// Runs `work` to its end, whether or not anyone waits for it. `subject` is the volume, snapshot or name it is about.
pub(crate) async fn answer<T: Send + 'static>(
    method: &'static str,
    subject: String,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<Response<T>, Status> {
    let task = tokio::spawn(async move {
        let start = Instant::now();
        let result = work.await.map(Response::new).map_err(Status::from);
        let milliseconds = start.elapsed().as_millis();
        match &result {
            Ok(_) => info!(method, subject, milliseconds, code = ?Code::Ok, "call"),
            Err(status) => {
                warn!(method, subject, milliseconds, code = ?status.code(), error = status.message(), "call");
            }
        }
        result
    });
    task.await.unwrap_or_else(|error| Err(Status::internal(format!("the call ended early: {error}"))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn work_ends_although_the_caller_gave_up() {
        let (ended, has_ended) = oneshot::channel();
        let work = async move {
            sleep(Duration::from_millis(20)).await;
            ended.send(()).map_err(|()| Error::Internal("nobody listens".to_owned()))
        };
        assert!(timeout(Duration::from_millis(1), answer("Test", String::new(), work)).await.is_err());
        assert_eq!(has_ended.await, Ok(()));
    }
}
