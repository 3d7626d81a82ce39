//! The mover role: one end of a copy. It speaks to no cluster.

use anyhow::Context;

use super::{Signals, raise_open_files};
use crate::args::mover::{Mover, Places};

pub async fn mover(command: Mover) -> anyhow::Result<()> {
    let (places, must_be_empty) = match command {
        Mover::Send(places) => (found(places), None),
        Mover::Receive { places, must_be_empty } => (found(places), Some(must_be_empty)),
        Mover::Pipe { arguments } => return mover::pipe::run(arguments).context("the way to the other end"),
    };
    raise_open_files();
    let work = async {
        match must_be_empty {
            None => mover::send(&places).await,
            Some(must_be_empty) => mover::receive(&places, must_be_empty).await,
        }
    };
    // The first process of a pod is not ended by a signal that it does not listen to.
    let mut signals = Signals::new()?;
    let outcome = tokio::select! {
        outcome = work => outcome,
        signal = signals.next() => anyhow::bail!("{signal} came: stopped before the copy was done"),
    };
    places.leave(&outcome).with_context(|| format!("write {}", places.result.display()))?;
    outcome?;
    tracing::info!("source and copy are the same");
    Ok(())
}

fn found(places: Places) -> mover::Places {
    mover::Places { folder: places.folder, keys: places.keys, listen: places.listen, result: places.result }
}
