//! What a member has behind it.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt, api::ListParams};

use super::{super::look::leaf_claims, Chain, Tracer, claim_state, get, host::volume_state, warn};
use crate::run::operator::connect;
use ::leaf::{
    MemberClient,
    identity::{Identity, Meant, judge},
    ownership::{self, FINALIZER},
};
use cluster::with_causes;
use domain::volume::{LeafPlace, VolumeHash, VolumeId};
use host::claim::chosen_member;

/// Without a host volume: the member that was chosen, if one was.
pub(super) async fn unbound(
    tracer: &Tracer<'_>,
    claim: &PersistentVolumeClaim,
    chain: &mut Chain,
) -> anyhow::Result<()> {
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let hash = VolumeHash::new(&tracer.host.id, &name);
    if let Some(chosen) = chosen_member(claim) {
        return member(tracer, chosen, LeafKey::Hash(hash), chain).await;
    }
    for name in connect::members(&tracer.host, &tracer.flags.members).await?.keys() {
        member(tracer, name, LeafKey::Hash(hash), chain).await?;
    }
    Ok(())
}

/// How the leaf is looked for.
pub(super) enum LeafKey<'a> {
    Handle(&'a VolumeId),
    Hash(VolumeHash),
}

pub(super) async fn member(
    tracer: &Tracer<'_>,
    name: &str,
    wanted: LeafKey<'_>,
    chain: &mut Chain,
) -> anyhow::Result<()> {
    let host = &tracer.host;
    let named = connect::members(host, &tracer.flags.members).await?;
    let Some(definition) = named.get(name) else {
        chain.missing(
            "member",
            name,
            "is unknown: no Secret, file or Cluster object names it; `kosmos-csi get members` lists all members",
        );
        return Ok(());
    };
    match connect::known(host, name, definition, &host::pins::pins(host).await?, tracer.dial).await {
        Err(why) => chain.missing("member", name, why),
        Ok(known) => {
            let cordon = if definition.policy.cordoned { ", closed to new volumes" } else { "" };
            chain.add("member", name, format!("answers as {}{cordon}", known.identity));
            leaf(&known.leaf, wanted, chain).await;
        }
    }
    Ok(())
}

async fn leaf(leaf: &MemberClient, wanted: LeafKey<'_>, chain: &mut Chain) {
    let found = match &wanted {
        LeafKey::Handle(id) => match id.place() {
            Some(place) => match at_place(leaf, &place).await {
                // A volume that another claim uses keeps its handle, and its leaf is where that claim's is.
                Ok(None) => with_handle(leaf, id).await,
                found => found,
            },
            None => with_hash(leaf, *id.hashes().start()).await,
        },
        LeafKey::Hash(hash) => with_hash(leaf, *hash).await,
    };
    let claim = match (found, wanted) {
        (Ok(Some(claim)), _) => claim,
        (Ok(None), LeafKey::Handle(id)) => return chain.missing("leaf claim", id.to_string(), "is not there"),
        (Ok(None), LeafKey::Hash(_)) => return chain.add("leaf claim", "", "none here"),
        (Err(why), _) => return chain.missing("leaf claim", "", why),
    };
    leaf_claim(leaf, &claim, chain).await;
}

async fn at_place(leaf: &MemberClient, place: &LeafPlace) -> Result<Option<PersistentVolumeClaim>, String> {
    ::leaf::claim::read(leaf, place).await.map_err(|error| error.to_string())
}

async fn with_handle(leaf: &MemberClient, id: &VolumeId) -> Result<Option<PersistentVolumeClaim>, String> {
    let claims = leaf_claims(leaf).await.map_err(|why| format!("cannot be listed: {why}"))?;
    let said = |claim: &PersistentVolumeClaim| claim.annotations().get(ownership::HANDLE) == Some(&id.to_string());
    Ok(claims.into_iter().find(said))
}

async fn with_hash(leaf: &MemberClient, hash: VolumeHash) -> Result<Option<PersistentVolumeClaim>, String> {
    let ours = format!("{},{}={hash}", ownership::selector(&leaf.host), ownership::VOLUME);
    let wanted = ListParams::default().labels(&ours);
    let found = leaf.listed(|namespace| leaf.within::<PersistentVolumeClaim>(namespace), &wanted).await;
    let found = found.map_err(|error| format!("cannot be listed: {}", with_causes(&error)))?;
    Ok(found.into_iter().min_by_key(|claim| claim.metadata.creation_timestamp.clone()))
}

async fn leaf_claim(leaf: &MemberClient, claim: &PersistentVolumeClaim, chain: &mut Chain) {
    let namespace = claim.namespace().unwrap_or_default();
    let shown = format!("{namespace}/{}", claim.name_any());
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default();
    let state = format!("{}, class {class}", claim_state(claim));
    let identity = judge(&claim.metadata, &leaf.host, Meant::Any);
    if let Identity::Leaf(_) = identity {
        let protected = claim.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        chain.add("leaf claim", shown, if protected { state } else { format!("{state}, without {FINALIZER}") });
    } else if identity == Identity::Consents {
        chain.add("leaf claim", shown, format!("{state}, imported"));
    } else {
        chain.missing("leaf claim", shown, ownership::whose(&claim.metadata, &leaf.host));
    }
    warn(&leaf.client, &namespace, &claim.uid().unwrap_or_default(), "leaf claim", chain).await;
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
    if name.is_empty() {
        return chain.missing("leaf volume", "", "none yet");
    }
    match get(&Api::<PersistentVolume>::all(leaf.client.clone()), &name).await {
        Ok(Some(volume)) => chain.add("leaf volume", name, volume_state(&volume)),
        Ok(None) => chain.missing("leaf volume", name, "is not there"),
        Err(why) => chain.missing("leaf volume", name, why),
    }
}
