//! From a claim to its volume, as external-provisioner goes: which codes mean "still at work", which one moves the claim to
//! another node, and that anything else makes it forget the volume for good. So does its end: what it is at, it knows in its
//! memory alone.

use csi::v1;
use tokio::time::sleep;
use tonic::{Code, Status};

use super::{Caller, Ending, FIRST_PAUSE, LONGEST_PAUSE};
use crate::sidecar::{Class, Memory};

/// Which is a way out for good.
fn tells_to_delete(status: &Status) -> bool {
    ["Delete the claim and make it again", "Delete the claim to begin again"]
        .iter()
        .any(|told| status.message().contains(told))
}

impl Caller {
    /// From the first call to a bound claim, or to nothing, whatever the user does meanwhile.
    pub async fn provision(&mut self) -> Ending {
        let (mut pause, mut memory) = (FIRST_PAUSE, Memory::new(&self.bench.sidecar, self.script.told));
        loop {
            if self.host_volume_is_there() {
                return Ending::Provisioned;
            }
            if !memory.is_at_work(&self.bench.sidecar) && !self.claim_is_there() {
                return Ending::Forgotten;
            }
            if self.script.told && self.bench.sidecar.class() == Class::Gone {
                sleep(FIRST_PAUSE).await;
                continue;
            }
            let class = self.leaf_class();
            match self.create_at_once().await {
                Ok(volume) => {
                    self.check_volume(&volume);
                    self.check_class(&volume, class);
                    self.make_host_volume(&volume);
                    if self.script.asks_again {
                        self.ask_again().await;
                    }
                    return Ending::Provisioned;
                }
                Err(status) => match status.code() {
                    // The user does as he is told, and begins again with another claim.
                    Code::Aborted if tells_to_delete(&status) => {
                        memory.set(true);
                        self.delete_claim();
                    }
                    Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => memory.set(true),
                    code => {
                        memory.set(false);
                        self.nothing_is_left(&status);
                        if code == Code::ResourceExhausted && self.script.node_selected {
                            self.choose_again();
                        }
                    }
                },
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Several provisioners, or one that has lost its memory, ask for the same at once.
    pub(super) async fn create_at_once(&self) -> Result<v1::Volume, Status> {
        let twins = (0..self.script.at_once).map(|_| self.create());
        let answers = futures::future::join_all(twins).await;
        let handles: Vec<&str> = answers.iter().flatten().map(|volume| volume.volume_id.as_str()).collect();
        if handles.windows(2).any(|two| two[0] != two[1]) {
            self.wrong(&format!("I2: calls at once were given {handles:?}"));
        }
        for status in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            self.answered("CreateVolume", status);
        }
        // The one that goes on is the one that does not merely wait for another.
        let rank = |answer: &Result<v1::Volume, Status>| match answer {
            Ok(_) => 0,
            Err(status) if status.code() != Code::Aborted => 1,
            Err(_) => 2,
        };
        answers.into_iter().min_by_key(rank).expect("at least one call was made")
    }
}
