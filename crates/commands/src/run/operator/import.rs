//! `import`: consent in the member, and the objects by which the host uses the claim.

use anyhow::{Context, anyhow, bail};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    Report,
    connect::{self, Admin},
    objects::{create, read as read_object},
    print::not_all,
};
use crate::args::operator::Import;
use cluster::{Dial, with_causes};
use domain::volume::LeafPlace;
use host::{Host, pins};
use leaf::ownership::CONSENT;
use operator::{
    import::{Consent, Names, judge, missing, objects, yaml},
    objects::title,
    table::Table,
};

pub(super) async fn import(flags: &Import, dial: &Dial) -> anyhow::Result<Report> {
    let admin = connect::admin(&flags.access, dial).await?;
    let host = connect::host(&flags.host, dial).await?;
    is_the_member(flags, &host, &admin).await?;
    let claim = read(flags, &admin.client).await?;
    let leaf = serde_json::to_value(&claim)?;
    let consent =
        judge(&leaf, &host.id).map_err(|why| anyhow!("claim {} of member {}: {why}", flags.claim, flags.member))?;
    let names = names(flags);
    is_free(flags, &host, &names).await?;
    let made = objects(&leaf, &names, &host.id).map_err(anyhow::Error::msg)?;
    let missing = look(&host, &made).await?;
    if flags.dry_run {
        return Ok(Report::well(yaml(&made).map_err(anyhow::Error::msg)?));
    }
    let mut table = Table::new(&["OBJECT", "CLUSTER", "RESULT"]);
    let result = if consent == Consent::Write { "consents now" } else { "consented before" };
    if consent == Consent::Write {
        write_consent(&admin.client, &claim, &host.id.0).await?;
    }
    if !flags.apply {
        return Ok(Report::well(yaml(&made).map_err(anyhow::Error::msg)?));
    }
    table.row([format!("PersistentVolumeClaim {}", flags.claim).as_str(), &flags.member, result]);
    let applied = apply(&host, &made, missing, &mut table).await;
    applied.with_context(|| not_all(&table))?;
    let next = format!("kosmos-csi trace {}/{}", names.namespace, names.claim);
    Ok(Report::well(format!("{table}\nTo see how it goes on: {next}\n")))
}

/// The name in the handle must lead to the cluster in which the consent is given.
async fn is_the_member(flags: &Import, host: &Host, admin: &Admin) -> anyhow::Result<()> {
    let name = &flags.member;
    match pins::compare(&host::pins::pins(host).await?, name, &admin.identity) {
        Some(pins::Pin::Held) => Ok(()),
        None => bail!("the host knows no member {name} yet: kosmos-csi member add {name} --member-kubeconfig FILE"),
        Some(pin) => bail!("--member {name}: {}", member::quarantined(&pin, &admin.identity)),
    }
}

async fn read(flags: &Import, client: &Client) -> anyhow::Result<PersistentVolumeClaim> {
    let name = &flags.claim.name;
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &flags.claim.namespace);
    let found = cluster::read(claims.get(name).await, name);
    let found = found.map_err(|error| anyhow!("get claim {}: {}", flags.claim, with_causes(&error)))?;
    found.with_context(|| format!("member {} has no claim {}", flags.member, flags.claim))
}

/// The very volume that is to be made may be there, of a time before.
async fn is_free(flags: &Import, host: &Host, names: &Names) -> anyhow::Result<()> {
    let place = LeafPlace { namespace: flags.claim.namespace.clone(), claim: flags.claim.name.clone() };
    let there = host::volume::at(host, &flags.member, &place).await?;
    match there.iter().find(|volume| *volume.name != *names.volume) {
        None => Ok(()),
        Some(volume) => bail!("the host's volume {} uses that claim already", volume.name),
    }
}

async fn look(host: &Host, made: &[Value; 2]) -> anyhow::Result<[bool; 2]> {
    let [volume, claim] = made;
    let live = [read_object(&host.client, volume).await?, read_object(&host.client, claim).await?];
    missing(made, live.each_ref().map(Option::as_ref)).map_err(anyhow::Error::msg)
}

fn names(flags: &Import) -> Names {
    let host_claim = flags.host_claim.as_ref().unwrap_or(&flags.claim);
    let default = || format!("{}-{}-{}", flags.member, flags.claim.namespace, flags.claim.name);
    Names {
        member: flags.member.clone(),
        volume: flags.volume.clone().unwrap_or_else(default),
        namespace: host_claim.namespace.clone(),
        claim: host_claim.name.clone(),
    }
}

/// Written only on the claim that was judged, as it was then.
async fn write_consent(client: &Client, claim: &PersistentVolumeClaim, host: &str) -> anyhow::Result<()> {
    let change = json!({"metadata": {
        "uid": claim.uid(), "resourceVersion": claim.resource_version(), "annotations": {CONSENT: host},
    }});
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let written = claims.patch_metadata(&claim.name_any(), &PatchParams::default(), &Patch::Merge(change)).await;
    written.map_err(|error| anyhow!("write {CONSENT} on claim {}: {}", claim.name_any(), with_causes(&error)))?;
    Ok(())
}

async fn apply(host: &Host, made: &[Value; 2], missing: [bool; 2], table: &mut Table) -> anyhow::Result<()> {
    for (object, is_missing) in made.iter().zip(missing) {
        if is_missing {
            create(&host.client, object).await.with_context(|| format!("create {}", title(object)))?;
        }
        table.row([title(object).as_str(), "(host)", if is_missing { "made" } else { "was there" }]);
    }
    Ok(())
}
