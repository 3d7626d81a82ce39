//! `release`: the forced way out for a member's administrator. The data stays.

use anyhow::bail;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, ResourceExt};

use super::{Report, connect, print::patiently};
use crate::args::operator::Release;
use cluster::{Dial, with_causes};
use leaf::{
    ownership::FINALIZER,
    release::{retain, unprotect, volume_of},
};
use operator::table::Table;

pub(super) async fn release(flags: &Release, dial: &Dial) -> anyhow::Result<Report> {
    let admin = connect::admin(&flags.access, dial).await?;
    let client = &admin.client;
    let (namespace, name) = (&flags.claim.namespace, &flags.claim.name);
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let found = cluster::read(claims.get(name).await, name);
    let found = found.map_err(|error| anyhow::anyhow!("get claim {namespace}/{name}: {}", with_causes(&error)))?;
    let Some(claim) = found else { bail!("there is no claim {namespace}/{name} in the member") };
    if !claim.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        bail!("claim {namespace}/{name} has no finalizer {FINALIZER}: this driver does not hold it");
    }
    let volume = volume_of(client, &claim).await?;
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    let mut table = Table::new(&["OBJECT", "RESULT"]);
    if let Some(volume) = &volume {
        if !flags.dry_run {
            patiently("keeping the data", retain(client, volume, &claim)).await?;
        }
        let result = if flags.dry_run { "would be retained, with its data" } else { "retained, with its data" };
        table.row([format!("PersistentVolume {}", volume.name_any()).as_str(), result]);
    } else if !named.is_empty() {
        table.row([format!("PersistentVolume {named}").as_str(), "is not there, or not this claim's: nothing to keep"]);
    }
    if !flags.dry_run {
        unprotect(client, &claim).await?;
    }
    let result = if flags.dry_run { "its finalizer would be taken off" } else { "its finalizer was taken off" };
    table.row([format!("PersistentVolumeClaim {}", flags.claim).as_str(), result]);
    let closing = match (flags.dry_run, claim.metadata.deletion_timestamp.is_some()) {
        (true, _) => "Nothing was written: this is a dry run.".to_owned(),
        (false, true) => "The claim was being deleted already, and is gone once no pod uses it.".to_owned(),
        (false, false) => format!("You can delete the claim now: kubectl -n {namespace} delete pvc {name}"),
    };
    Ok(Report::well(format!(
        "{table}\n{closing}\nAs long as the host wants the volume, its driver recreates the claim with the same data.\n"
    )))
}
