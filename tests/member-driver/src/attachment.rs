//! Attaching is bookkeeping here: the node stages a volume only while it is on record as attached.

use std::sync::PoisonError;

use crate::driver::Driver;
use crate::error::Error;
use crate::volume::{Capability, Volume};

pub(crate) fn attach(
    driver: &Driver,
    id: &str,
    node: &str,
    capability: &Capability,
    read_only: bool,
) -> Result<(), Error> {
    let _volume = driver.in_flight.begin([id])?;
    let volume = driver.volumes.get(id)?;
    if node != driver.node {
        return Err(Error::NotFound(format!("there is no node {node:?}")));
    }
    volume.kind.supports(capability)?;
    match volume.attached.get(node) {
        Some(as_before) if *as_before == read_only => return Ok(()),
        Some(_) => {
            return Err(Error::Exists(format!(
                "volume {id} is attached to {node} with the other readonly flag"
            )));
        }
        None => {}
    }
    let _counting = driver
        .attaching
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    check_limit(&driver.volumes.all(), node, driver.max_volumes)?;
    driver
        .volumes
        .update(id, |volume| {
            volume.attached.insert(node.to_owned(), read_only);
        })
        .map(drop)
}

/// Without a node, from every node. An unknown volume is attached nowhere.
pub(crate) fn detach(driver: &Driver, id: &str, node: &str) -> Result<(), Error> {
    let _volume = driver.in_flight.begin([id])?;
    let Some(volume) = driver.volumes.find(id) else {
        return Ok(());
    };
    let leaves = |attached: &String| node.is_empty() || attached == node;
    if volume.attached.keys().any(leaves) {
        driver.volumes.update(id, |volume| {
            volume.attached.retain(|attached, _| !leaves(attached));
        })?;
    }
    Ok(())
}

/// Zero is no limit.
fn check_limit(volumes: &[Volume], node: &str, limit: u32) -> Result<(), Error> {
    let attached = volumes
        .iter()
        .filter(|volume| volume.attached.contains_key(node))
        .count();
    if limit != 0 && attached >= limit as usize {
        return Err(Error::NoRoom(format!(
            "{node} has {attached} volumes, and no more may be attached to it"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_node_takes_so_many_volumes() {
        let attached = |node: &str| Volume {
            attached: BTreeMap::from([(node.to_owned(), false)]),
            ..Volume::default()
        };
        let volumes = [
            attached("a"),
            attached("a"),
            attached("b"),
            Volume::default(),
        ];
        for (node, limit, fits) in [
            ("a", 0, true),
            ("a", 3, true),
            ("a", 2, false),
            ("b", 2, true),
            ("c", 1, true),
        ] {
            assert_eq!(
                check_limit(&volumes, node, limit).is_ok(),
                fits,
                "{node} {limit}"
            );
        }
    }
}
