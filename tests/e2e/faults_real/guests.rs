//! Users who come and go for as long as a fault goes on: each makes a claim, and removes the one of before, whatever has become of it.

use std::{cell::Cell, time::Duration};

use anyhow::Result;
use tokio::time::sleep;

use super::{
    load::{CLAIMS_MADE, CLAIMS_REMOVED, Counts, GONE, THERE, asks},
    world::World,
};
use crate::rig::NOW;

/// As many as come in a minute.
const MOST: usize = 30;
const PAUSE: Duration = Duration::from_secs(2);

/// Of one fault.
pub struct Guests {
    names: Vec<String>,
    /// How many have come.
    come: Cell<usize>,
}

impl Guests {
    pub fn new(number: usize) -> Self {
        Self { names: (0..MOST).map(|guest| format!("guest{guest}-{number}")).collect(), come: Cell::default() }
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }

    pub async fn come_and_go(&self, world: &World<'_>, counts: &Counts, is_over: &Cell<bool>) -> Result<()> {
        let (host, class) = (&world.host, world.class(NOW));
        for name in &self.names {
            if is_over.get() {
                break;
            }
            let former = self.last();
            asks(name, THERE, async || host.claim(name, &class).await.map(drop)).await?;
            counts.add(CLAIMS_MADE);
            self.come.set(self.come.get() + 1);
            if let Some(former) = former {
                asks(former, GONE, async || host.delete_claim(former).await).await?;
                counts.add(CLAIMS_REMOVED);
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// The one that stays.
    pub fn last(&self) -> Option<&String> {
        self.names.get(self.come.get().checked_sub(1)?)
    }
}
