//! What has become another protocol, as exec and port-forward do: bytes that pass both ways.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, copy, split},
    sync::watch,
};

use super::rule::Count;

/// Of the bytes that an API server says, so many, and where it is counted that these were all.
#[derive(Debug)]
pub struct Most {
    pub bytes: u64,
    pub played: Count,
}

/// Until one side ends it, it is cut, or no more may pass.
pub async fn join(mut cut: watch::Receiver<()>, asker: OnUpgrade, server: OnUpgrade, most: Option<Most>) {
    let Ok((asker, server)) = tokio::try_join!(asker, server) else { return };
    let (mut of_asker, mut to_asker) = split(TokioIo::new(asker));
    let (of_server, mut to_server) = split(TokioIo::new(server));
    let mut answered = of_server.take(most.as_ref().map_or(u64::MAX, |most| most.bytes));
    let passed = tokio::select! {
        biased;
        _ = cut.changed() => None,
        passed = copy(&mut answered, &mut to_asker) => passed.ok(),
        _ = copy(&mut of_asker, &mut to_server) => None,
    };
    if let Some(most) = most.filter(|most| passed == Some(most.bytes)) {
        most.played.add();
    }
}
