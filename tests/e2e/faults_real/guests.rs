//! Users who come and go for as long as a fault goes on: each makes a claim, and removes it once it is bound. Who waits for it stays: of what
//! is removed while nobody knows of it, a provisioner that has died may leave something for a quarter of an hour, which a test of its own plays.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

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
    here: RefCell<Vec<String>>,
}

impl Guests {
    pub fn new(number: usize) -> Self {
        Self { names: (0..MOST).map(|guest| format!("guest{guest}-{number}")).collect(), here: RefCell::default() }
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }

    /// Who has not gone.
    pub fn here(&self) -> Vec<String> {
        self.here.borrow().clone()
    }

    pub async fn come_and_go(&self, world: &World<'_>, counts: &Counts, is_over: &Cell<bool>) -> Result<()> {
        let (host, class) = (&world.host, world.class(NOW));
        for name in &self.names {
            if is_over.get() {
                break;
            }
            asks(name, THERE, async || host.claim(name, &class).await.map(drop)).await?;
            counts.add(CLAIMS_MADE);
            self.here.borrow_mut().push(name.clone());
            sleep(PAUSE).await;
            self.go(world, counts).await?;
        }
        Ok(())
    }

    async fn go(&self, world: &World<'_>, counts: &Counts) -> Result<()> {
        let host = &world.host;
        for name in self.here() {
            // Its API server may be away.
            let Ok(claim) = host.claims().get(&name).await else { break };
            if claim.status.and_then(|status| status.phase).as_deref() == Some("Bound") {
                asks(&name, GONE, async || host.delete_claim(&name).await).await?;
                counts.add(CLAIMS_REMOVED);
                self.here.borrow_mut().retain(|there| *there != name);
            }
        }
        Ok(())
    }
}
