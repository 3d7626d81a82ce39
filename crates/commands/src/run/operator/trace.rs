//! `trace`: everything behind one claim of the host, in the order in which it comes to be. What cannot be read is a line
//! that says so, and the rest goes on.

use k8s_openapi::{
    api::{
        core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::{StorageClass, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;

use super::{
    Report,
    connect::{self, now},
    look::leaf_claims,
    print::patiently,
    volume,
};
use crate::args::operator::{ClaimName, Trace};
use cluster::{Dial, with_causes};
use domain::volume::{DRIVER, LeafPlace, VolumeHash, VolumeId};
use host::{Host, claim::chosen_member, moves};
use leaf::{
    MemberClient,
    identity::{Identity, Meant, judge},
    ownership::{self, FINALIZER, HAD_VOLUME, PUBLISHED},
};
use operator::{kubeconfig::span, table::Table};

/// The lines so far.
struct Chain {
    table: Table,
    /// Nothing is missing, and nothing warns.
    well: bool,
}

impl Chain {
    fn add(&mut self, step: &str, object: impl Into<String>, state: impl Into<String>) {
        self.table.row([step.to_owned(), object.into(), state.into()]);
    }

    fn missing(&mut self, step: &str, object: impl Into<String>, state: impl Into<String>) {
        self.add(step, object, state);
        self.well = false;
    }
}

pub(super) async fn trace(flags: &Trace, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.members.host, dial).await?;
    let mut chain = Chain { table: Table::new(&["STEP", "OBJECT", "STATE"]), well: true };
    patiently("following the claim", Box::pin(follow(flags, &host, dial, &mut chain))).await?;
    Ok(Report::new(chain.table.to_string(), chain.well))
}

async fn follow(flags: &Trace, host: &Host, dial: &Dial, chain: &mut Chain) -> anyhow::Result<()> {
    let shown = flags.claim.to_string();
    let claims = Api::<PersistentVolumeClaim>::namespaced(host.client.clone(), &flags.claim.namespace);
    let Some(claim) = get(&claims, &flags.claim.name).await.map_err(anyhow::Error::msg)? else {
        chain.missing("host claim", shown, "is not there");
        return Ok(());
    };
    chain.add("host claim", shown, claim_state(&claim));
    warn(&host.client, &flags.claim.namespace, &claim.uid().unwrap_or_default(), "host claim", chain).await;
    class(host, &claim, chain).await;
    pods(host, &claim, chain).await;
    moved(host, &flags.claim, chain).await;
    let volume = host_volume(host, &claim, chain).await;
    let Some(volume) = volume else {
        return unbound(flags, host, &claim, dial, chain).await;
    };
    attachments(host, &volume, chain).await;
    let handle = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).filter(|csi| csi.driver == DRIVER);
    if let Some(id) = handle.and_then(|csi| VolumeId::parse(&csi.volume_handle)) {
        return member(flags, host, &id.member, LeafKey::Handle(&id), dial, chain).await;
    }
    chain.missing("handle", "", "none of this driver's");
    Ok(())
}

async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, String>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    cluster::read(api.get(name).await, name).map_err(|error| format!("cannot be read: {}", with_causes(&error)))
}

fn claim_state(claim: &PersistentVolumeClaim) -> String {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let asked = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
    let has = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
    let mut words = vec![phase.to_owned()];
    words.extend(asked.filter(|asked| has != Some(*asked)).map(|asked| format!("asks for {}", asked.0)));
    words.extend(has.map(|has| format!("has {}", has.0)));
    for (key, said) in [
        ("volume.kubernetes.io/selected-node", "for node"),
        (PUBLISHED, "published on"),
        (HAD_VOLUME, "known to the host as"),
    ] {
        words.extend(claim.annotations().get(key).map(|value| format!("{said} {value}")));
    }
    words.extend(chosen_member(claim).map(|member| format!("member chosen: {member}")));
    words.extend(claim.metadata.deletion_timestamp.as_ref().map(|_| held(claim)));
    words.join(", ")
}

fn held(claim: &PersistentVolumeClaim) -> String {
    format!("being deleted, held by {}", claim.finalizers().join(" "))
}

/// What was last warned of an object.
pub(super) async fn newest_warning(client: &Client, namespace: &str, uid: &str) -> Result<Option<Event>, kube::Error> {
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning"));
    let events = Api::<Event>::namespaced(client.clone(), namespace).list(&about).await?;
    Ok(events.items.into_iter().max_by_key(time))
}

async fn warn(client: &Client, namespace: &str, uid: &str, step: &str, chain: &mut Chain) {
    match newest_warning(client, namespace, uid).await {
        Ok(event) => {
            if let Some(event) = event {
                let ago =
                    time(&event).map(|time| format!(" ({} ago)", span(now() - time.0.as_second()))).unwrap_or_default();
                let said = format!("{}{ago}", event.message.unwrap_or_default());
                chain.add(&format!("{step}: newest warning"), event.reason.unwrap_or_default(), said);
            }
        }
        Err(error) => chain.add(&format!("{step}: warnings"), "", format!("cannot be read: {}", with_causes(&error))),
    }
}

fn time(event: &Event) -> Option<Time> {
    let precise = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let precise = precise.or(event.event_time.as_ref()).map(|time| Time(time.0));
    precise.or_else(|| event.last_timestamp.clone()).or_else(|| event.metadata.creation_timestamp.clone())
}

async fn class(host: &Host, claim: &PersistentVolumeClaim, chain: &mut Chain) {
    let name = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default();
    if name.is_empty() {
        return;
    }
    match get(&Api::<StorageClass>::all(host.client.clone()), &name).await {
        Ok(Some(class)) if class.provisioner == DRIVER => {
            let parameters = class.parameters.unwrap_or_default();
            let parameters: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let mode = class.volume_binding_mode.unwrap_or_default();
            chain.add("host class", name, format!("{mode} {}", parameters.join(" ")).trim());
        }
        Ok(Some(class)) => {
            chain.missing("host class", name, format!("is of {}, not of this driver", class.provisioner));
        }
        Ok(None) => chain.missing("host class", name, "is not there"),
        Err(why) => chain.missing("host class", name, why),
    }
}

async fn pods(host: &Host, claim: &PersistentVolumeClaim, chain: &mut Chain) {
    let namespace = claim.namespace().unwrap_or_default();
    let pods = Api::<Pod>::namespaced(host.client.clone(), &namespace).list(&ListParams::default()).await;
    let pods = match pods {
        Ok(pods) => pods.items,
        Err(error) => return chain.add("host pods", "", format!("cannot be read: {}", with_causes(&error))),
    };
    for pod in pods.iter().filter(|pod| host::pod::claims_of(pod).contains(&claim.name_any())) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let node = node.map_or_else(|| "without a node".to_owned(), |node| format!("on node {node}"));
        chain.add("host pod", format!("{namespace}/{}", pod.name_any()), format!("{phase}, {node}"));
        warn(&host.client, &namespace, &pod.uid().unwrap_or_default(), "host pod", chain).await;
    }
}

/// Moves of its volume.
async fn moved(host: &Host, claim: &ClaimName, chain: &mut Chain) {
    let moves = match volume::list_known(&host.client, Some(&claim.namespace)).await {
        Ok(moves) => moves.unwrap_or_default(),
        Err(error) => return chain.add("moves", "", format!("cannot be read: {error}")),
    };
    for of in moves.iter().filter(|of| of.spec.claim_name == claim.name) {
        let phase = moves::phase_of(of).map_or_else(|| "New".to_owned(), |phase| format!("{phase:?}"));
        let state = format!("to member {}: {phase}", of.spec.to.member);
        let shown = format!("{}/{}", claim.namespace, of.name_any());
        match moves::stall(of) {
            Some(stall) => chain.missing("move", shown, format!("{state}, stalled: {}", stall.message)),
            None => chain.add("move", shown, state),
        }
    }
}

async fn host_volume(host: &Host, claim: &PersistentVolumeClaim, chain: &mut Chain) -> Option<PersistentVolume> {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
    if name.is_empty() {
        chain.missing("host volume", "", "none yet");
        return None;
    }
    match get(&Api::<PersistentVolume>::all(host.client.clone()), &name).await {
        Ok(Some(volume)) => {
            chain.add("host volume", &name, volume_state(&volume));
            let uid = volume.uid().unwrap_or_default();
            warn(&host.client, "default", &uid, "host volume", chain).await;
            Some(volume)
        }
        Ok(None) => {
            chain.missing("host volume", name, "is not there");
            None
        }
        Err(why) => {
            chain.missing("host volume", name, why);
            None
        }
    }
}

fn volume_state(volume: &PersistentVolume) -> String {
    let spec = volume.spec.clone().unwrap_or_default();
    let phase = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let policy = spec.persistent_volume_reclaim_policy.unwrap_or_default();
    let size = spec.capacity.and_then(|capacity| capacity.get("storage").cloned()).unwrap_or_default().0;
    let source = spec.csi.map(|csi| format!(", {} {}", csi.driver, csi.volume_handle)).unwrap_or_default();
    let going = if volume.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" };
    format!("{phase}, {size}, {policy}{source}{going}")
}

async fn attachments(host: &Host, volume: &PersistentVolume, chain: &mut Chain) {
    let all = Api::<VolumeAttachment>::all(host.client.clone()).list(&ListParams::default()).await;
    let all = match all {
        Ok(all) => all.items,
        Err(error) => return chain.add("attachments", "", format!("cannot be read: {}", with_causes(&error))),
    };
    let name = volume.name_any();
    for one in all.iter().filter(|one| one.spec.source.persistent_volume_name.as_deref() == Some(name.as_str())) {
        let status = one.status.as_ref();
        let error =
            status.and_then(|status| status.attach_error.as_ref().or(status.detach_error.as_ref())?.message.clone());
        let attached = status.is_some_and(|status| status.attached);
        let state =
            error.unwrap_or_else(|| if attached { "attached".to_owned() } else { "not attached yet".to_owned() });
        chain.add("attachment", &one.spec.node_name, state);
    }
}

/// Without a host volume: the member that was chosen, if one was.
async fn unbound(
    flags: &Trace,
    host: &Host,
    claim: &PersistentVolumeClaim,
    dial: &Dial,
    chain: &mut Chain,
) -> anyhow::Result<()> {
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let hash = VolumeHash::new(&host.id, &name);
    if let Some(chosen) = chosen_member(claim) {
        return member(flags, host, chosen, LeafKey::Hash(hash), dial, chain).await;
    }
    for name in connect::members(host, &flags.members).await?.keys() {
        member(flags, host, name, LeafKey::Hash(hash), dial, chain).await?;
    }
    Ok(())
}

/// How the leaf is looked for.
enum LeafKey<'a> {
    Handle(&'a VolumeId),
    Hash(VolumeHash),
}

async fn member(
    flags: &Trace,
    host: &Host,
    name: &str,
    wanted: LeafKey<'_>,
    dial: &Dial,
    chain: &mut Chain,
) -> anyhow::Result<()> {
    let named = connect::members(host, &flags.members).await?;
    let Some(definition) = named.get(name) else {
        chain.missing("member", name, "has left, or never joined: nobody names it");
        return Ok(());
    };
    match connect::known(host, name, definition, &host::pins::pins(host).await?, dial).await {
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
    leaf::claim::read_claim(leaf, place).await.map_err(|error| error.to_string())
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
