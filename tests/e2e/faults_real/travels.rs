//! Claims whose volumes move to the other member while faults go on, and what the driver needs for that.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

use super::{
    MEMBER, OTHER,
    kept::{LINES, class, reads, writes_lines},
    world::World,
};
use crate::{
    clusters::{
        product::{self, Flavour},
        wait_for,
    },
    driver::Launch,
    install::release::{import, pack},
    objects::{Place, handle},
    rig::{NOW, Rig},
};

/// What their names begin with, and the host's class of them.
pub const TRAVELS: &str = "travels";
/// In the members, of movers alone.
pub const YARD: &str = "kosmos-csi-movers";
const HOST_OBJECTS: &str = include_str!("../../../deploy/manifests/moves.yaml");
const MEMBER_OBJECTS: &str = include_str!("../../../deploy/member-mover.yaml");
/// Who fails again and again is tried after minutes.
const ARRIVES: Duration = Duration::from_mins(10);

/// From now on the driver moves volumes, with movers in both members.
pub async fn prepare(rig: &Rig, host: &Place<'_>) -> Result<()> {
    host.cluster.apply(HOST_OBJECTS).await?;
    let established = ["wait", "--for=condition=Established", "--timeout=30s", "crd/volumemoves.kosmos.csi.io"];
    host.cluster.kubectl(&established).await?;
    let folder = tempfile::tempdir_in(rig.fleet.folder()).context("make a folder for the movers' image")?;
    let archives = pack(folder.path(), &[Flavour::Mover])?;
    for member in rig.fleet.members() {
        member.apply(MEMBER_OBJECTS).await?;
        for archive in &archives {
            import(member, archive).await?;
        }
    }
    host.class(&class(&host.namespace, TRAVELS), "Immediate", json!({"leafStorageClass": NOW}), &[]).await?;
    let image = format!("--mover-image={}-mover:{}", product::NAME, env!("CARGO_PKG_VERSION"));
    rig.driver.kill().await?;
    rig.driver.launch_with(Launch { flags: vec![image], ..rig.driver.launch().await }).await;
    rig.driver.ensure(&rig.fleet).await
}

/// A claim in whichever member, with lines in it. Where it is to go.
pub async fn packs(world: &World<'_>, name: &str) -> Result<&'static str> {
    world.host.claim(name, &world.class(TRAVELS)).await?;
    let handle = handle(&world.host.bound(name).await?);
    let (at, to) = if handle.starts_with(&format!("{MEMBER}/")) { (MEMBER, OTHER) } else { (OTHER, MEMBER) };
    ensure!(handle.starts_with(&format!("{at}/")), "claim {name} is in no member: {handle}");
    world.in_member(at).run(&format!("packer-of-{name}"), &[name], &writes_lines(name)).await?;
    Ok(to)
}

/// Of the namespace.
pub fn moves(host: &Place<'_>) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kosmos.csi.io", "v1alpha1", "VolumeMove"));
    Api::namespaced_with(host.client.clone(), &host.namespace, &kind)
}

/// The move has the name of the claim.
pub async fn leaves(host: &Place<'_>, name: &str, to: &str) -> Result<()> {
    let of = json!({
        "apiVersion": "kosmos.csi.io/v1alpha1", "kind": "VolumeMove", "metadata": {"name": name},
        "spec": {"claimName": name, "to": {"member": to}, "deleteSourceAfter": "0s"},
    });
    moves(host).create(&PostParams::default(), &serde_json::from_value(of)?).await?;
    Ok(())
}

/// It is there, with all lines, and its source is gone. A move that was refused, as nobody could be asked, is made again.
pub async fn arrives(world: &World<'_>, name: &str, to: &str, within: Duration) -> Result<()> {
    let moves = moves(&world.host);
    wait_for(&format!("claim {name} has moved to {to}"), within.max(ARRIVES), || async {
        let Some(found) = moves.get_opt(name).await? else {
            leaves(&world.host, name, to).await?;
            return Ok(None);
        };
        let status = &found.data["status"];
        if status["phase"] == "Refused" {
            moves.delete(name, &DeleteParams::default()).await?;
        }
        ensure!(has_arrived(status), "it says {status}");
        Ok(Some(()))
    })
    .await?;
    let handle = handle(&world.host.bound(name).await?);
    ensure!(handle.starts_with(&format!("{to}/")), "claim {name} has moved to {to}, and leads to {handle}");
    world.in_member(to).run(&format!("reader-of-{name}"), &[name], &reads(name, name, LINES)).await
}

fn has_arrived(status: &Value) -> bool {
    let conditions = status["conditions"].as_array();
    let is_deleted = |one: &Value| one["type"] == "SourceDeleted" && one["status"] == "True";
    status["phase"] == "Succeeded" && conditions.is_some_and(|all| all.iter().any(is_deleted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_has_arrived_once_its_source_is_gone_as_well() {
        let gone = json!([{"type": "Stalled", "status": "False"}, {"type": "SourceDeleted", "status": "True"}]);
        let kept = json!([{"type": "SourceDeleted", "status": "False"}]);
        for (status, expected) in [
            (json!({"phase": "Succeeded", "conditions": gone}), true),
            (json!({"phase": "Succeeded", "conditions": kept}), false),
            (json!({"phase": "Succeeded"}), false),
            (json!({"phase": "Copying", "conditions": gone}), false),
            (Value::Null, false),
        ] {
            assert_eq!(has_arrived(&status), expected, "{status}");
        }
    }
}
