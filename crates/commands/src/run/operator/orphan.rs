//! `doctor remove`: one leaf claim that both looks have found to be an orphan. Everything that speaks against it is asked
//! again, just before, and its data stays unless the operator gives it up.

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
};

use super::{
    Report,
    connect::{self, Known},
    doctor::look_twice,
    look::{claim_uid, host_claims},
};
use crate::{args::operator::RemoveOrphan, run::Misuse};
use cluster::{Dial, with_causes};
use domain::volume::{LeafPlace, VolumeHash, VolumeId};
use host::Host;
use leaf::{
    identity::{Identity, Meant, judge},
    ownership::{self, HAD_VOLUME, NAME, PUBLISHED},
    release::{retain, unprotect, volume_of},
};
use operator::{
    compare::{Finding, parse_leaf_name},
    table::Table,
};

/// What speaks against it; and nothing was done.
struct NotRemoved(String);

/// The orphan as it is just before it is removed.
struct Orphan {
    claim: PersistentVolumeClaim,
    volume: Option<PersistentVolume>,
}

pub(super) async fn remove(flags: &RemoveOrphan, dial: &Dial) -> anyhow::Result<Report> {
    let Some((member, place)) = parse_leaf_name(&flags.finding) else {
        return Err(Misuse(format!(
            "{} cannot be removed by this command: only what begins with leaf: can, and the finding itself says what to do \
             about others",
            flags.finding
        ))
        .into());
    };
    let host = connect::host(&flags.look.members.host, dial).await?;
    let looked = look_twice(&flags.look, &host, dial).await?;
    let Some(finding) = looked.findings.iter().find(|finding| finding.name == flags.finding) else {
        let why = unfound(flags, &member, &looked.seen.members);
        return Ok(Report::new(format!("{} is not removed: {why}.\n", flags.finding), false));
    };
    let known = known(&host, flags, &member, dial).await?;
    match examine(flags, &host, &known, &place, finding).await? {
        Err(NotRemoved(why)) => Ok(Report::new(format!("{} is not removed: {why}.\n", flags.finding), false)),
        Ok(orphan) => end(flags, &known.leaf.client, &member, &orphan).await,
    }
}

fn unfound(flags: &RemoveOrphan, member: &str, members: &[operator::doctor::SeenMember]) -> String {
    let seen = members.iter().find(|seen| seen.name == member);
    match seen.and_then(|seen| seen.problem.as_ref()) {
        Some(problem) => format!("member {member} cannot be judged: {problem}"),
        None => format!(
            "it is no orphan, or younger than {}; `kosmos-csi doctor` says what there is",
            humantime::format_duration(flags.look.older_than)
        ),
    }
}

async fn known(host: &Host, flags: &RemoveOrphan, member: &str, dial: &Dial) -> anyhow::Result<Known> {
    let named = connect::members(host, &flags.look.members).await?;
    let definition = named.get(member).with_context(|| format!("nobody names member {member} any more"))?;
    let known = connect::known(host, member, definition, &host::pins::pins(host).await?, dial).await;
    known.map_err(|reason| anyhow::anyhow!("member {member}: {reason}"))
}

/// All that must hold, read just now.
async fn examine(
    flags: &RemoveOrphan,
    host: &Host,
    known: &Known,
    place: &LeafPlace,
    finding: &Finding,
) -> anyhow::Result<Result<Orphan, NotRemoved>> {
    let refuse = |why: String| Ok(Err(NotRemoved(why)));
    let Some(claim) = leaf::claim::read(&known.leaf, place).await? else {
        return refuse("somebody has deleted it meanwhile".to_owned());
    };
    let Identity::Leaf(hash) = judge(&claim.metadata, &host.id, Meant::Any) else {
        return refuse(format!(
            "its labels do not say that it is a leaf of this host: {}",
            ownership::whose(&claim.metadata, &host.id)
        ));
    };
    if claim.uid().as_deref() != Some(finding.uid.as_str()) {
        return refuse("another claim has its name now".to_owned());
    }
    if claim.annotations().get(PUBLISHED).is_some_and(|nodes| !matches!(nodes.as_str(), "" | "{}")) {
        return refuse(format!("a node still has it (annotation {PUBLISHED})"));
    }
    if claim.annotations().contains_key(HAD_VOLUME) && !flags.data_will_be_lost {
        return refuse(format!(
            "a volume of the host used it once (annotation {HAD_VOLUME}), so it may have somebody's data: if nobody wants the data, give \
             --data-will-be-lost"
        ));
    }
    if let Some(why) = wanted(host, &known.leaf.member, place, hash, &claim).await? {
        return refuse(why);
    }
    let volume = volume_of(&known.leaf.client, &claim).await?;
    Ok(Ok(Orphan { claim, volume }))
}

/// Whether the host wants it after all. These are reads of the host itself.
async fn wanted(
    host: &Host,
    member: &str,
    place: &LeafPlace,
    hash: VolumeHash,
    claim: &PersistentVolumeClaim,
) -> anyhow::Result<Option<String>> {
    let uid = claim_uid(claim);
    if uid.is_empty() {
        return Ok(Some("it does not say for which claim of the host it was made: delete it in the member".to_owned()));
    }
    let name = claim.annotations().get(NAME).map(String::as_str).unwrap_or_default();
    let claims = host_claims(host).await?;
    if let Some(claim) = claims.iter().find(|claim| claim.uid().as_deref() == Some(uid.as_str())) {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        // For one that has got another volume nobody asks.
        if volume.is_empty() || volume == name || !host::volume::exists(host, volume).await? {
            let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
            return Ok(Some(format!("the host still has its claim {namespace}/{name}")));
        }
    }
    let handle = VolumeId::new(member, &place.namespace, &place.claim, hash).to_string();
    let used = host::volume::uses(host, name, &handle).await?;
    Ok(used.then(|| format!("the host has a volume for it ({name} or one with handle {handle})")))
}

async fn end(flags: &RemoveOrphan, client: &Client, member: &str, orphan: &Orphan) -> anyhow::Result<Report> {
    let Orphan { claim, volume } = orphan;
    let mut table = Table::new(&["OBJECT", "CLUSTER", "RESULT"]);
    let (would, kept, removed) = if flags.dry_run {
        ("would ", "be retained, with its data", "be removed")
    } else {
        ("", "retained, with its data", "removed")
    };
    if let Some(volume) = volume.as_ref().filter(|_| !flags.data_will_be_lost) {
        if !flags.dry_run {
            retain(client, volume, claim).await?;
        }
        let title = format!("PersistentVolume {}", volume.name_any());
        table.row([title.as_str(), member, &format!("{would}{kept}")]);
    }
    if !flags.dry_run {
        delete(client, claim).await?;
        unprotect(client, claim).await?;
    }
    let title = format!("PersistentVolumeClaim {}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
    table.row([title.as_str(), member, &format!("{would}{removed}")]);
    Ok(Report::well(format!("{table}\n{}", closing(flags, volume.as_ref()))))
}

fn closing(flags: &RemoveOrphan, volume: Option<&PersistentVolume>) -> String {
    match volume.map(ResourceExt::name_any) {
        _ if flags.dry_run => "Nothing was written: this is a dry run.\n".to_owned(),
        None => "It had no volume.\n".to_owned(),
        Some(name) if flags.data_will_be_lost => {
            format!("The reclaim policy of volume {name} in the member decides what becomes of its data.\n")
        }
        Some(name) => format!(
            "The data is on volume {name}, which is Released now. If nobody wants it, remove the storage behind it, and then type \
             `kubectl delete pv {name}` in the member.\n"
        ),
    }
}

/// Only the object that was examined, as it was then.
async fn delete(client: &Client, claim: &PersistentVolumeClaim) -> anyhow::Result<()> {
    let seen = Preconditions { uid: claim.uid(), resource_version: claim.resource_version() };
    let parameters = DeleteParams { preconditions: Some(seen), ..DeleteParams::default() };
    let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &namespace);
    if claim.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    match claims.delete(&name, &parameters).await {
        Ok(_) => Ok(()),
        Err(error) => bail!("delete claim {namespace}/{name}: {}", with_causes(&error)),
    }
}
