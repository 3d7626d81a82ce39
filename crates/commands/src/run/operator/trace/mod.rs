//! `trace`: everything behind a claim of the host, in the order in which it comes to be; behind each claim of a pod; or behind a
//! volume. What cannot be read is a line that says so, and the rest goes on.

mod host;
mod leaf;

use k8s_openapi::{
    api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, ObjectList},
    core::Request,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    Report,
    connect::{self, now},
    pods,
    print::patiently,
};
use crate::{
    args::operator::{ClaimName, Kind, Trace},
    run::Misuse,
};
use ::host::{Host, claim::chosen_member};
use ::leaf::ownership::{HAD_VOLUME, PUBLISHED};
use cluster::{Dial, events::readable, with_causes};
use domain::volume::{DRIVER, VolumeId};
use operator::{
    kubeconfig::span,
    listing::{Item, Listing},
};

const WARNING: &str = ": newest warning";

/// The lines so far.
struct Chain {
    listing: Listing,
    /// Nothing is missing, and no move is stalled. The newest warning may be of what has passed since.
    well: bool,
}

impl Chain {
    fn add(&mut self, step: &str, object: impl Into<String>, state: impl Into<String>) {
        let (object, state) = (object.into(), state.into());
        // What a warning is of is told above it, and its reason is no name.
        let name = if step.ends_with(WARNING) { String::new() } else { object.clone() };
        self.listing.add(Item {
            name,
            object: json!({"step": step, "object": object, "state": state}),
            cells: vec![step.to_owned(), object, state],
            wide: Vec::new(),
        });
    }

    fn missing(&mut self, step: &str, object: impl Into<String>, state: impl Into<String>) {
        self.add(step, object, state);
        self.well = false;
    }
}

/// Where to look.
struct Tracer<'a> {
    flags: &'a Trace,
    host: Host,
    dial: &'a Dial,
}

pub(super) async fn trace(flags: &Trace, dial: &Dial) -> anyhow::Result<Report> {
    let tracer = Tracer { flags, host: connect::host(&flags.members.host, dial).await?, dial };
    let mut chain = Chain { listing: Listing::new("Step", &["STEP", "OBJECT", "STATE"], &[]), well: true };
    patiently("following the claim", Box::pin(tracer.follow(&mut chain))).await?;
    Ok(Report::new(chain.listing.print(flags.output.into()), chain.well))
}

impl Tracer<'_> {
    async fn follow(&self, chain: &mut Chain) -> anyhow::Result<()> {
        let subject = &self.flags.subject;
        if subject.kind == Kind::Volume {
            return Box::pin(self.volume(&subject.named.name, chain)).await;
        }
        let usual = self.host.client.default_namespace();
        let named = subject.named.within(&self.flags.within, usual).map_err(Misuse)?;
        if subject.kind == Kind::Pod {
            Box::pin(self.pod(&named, chain)).await
        } else {
            self.claim(&named, chain).await
        }
    }

    async fn claim(&self, of: &ClaimName, chain: &mut Chain) -> anyhow::Result<()> {
        let (host, shown) = (&self.host, of.to_string());
        let claims = Api::<PersistentVolumeClaim>::namespaced(host.client.clone(), &of.namespace);
        let Some(claim) = get(&claims, &of.name).await.map_err(anyhow::Error::msg)? else {
            chain.missing("host claim", shown, "is not there");
            return Ok(());
        };
        chain.add("host claim", shown, claim_state(&claim));
        warn(&host.client, &of.namespace, &claim.uid().unwrap_or_default(), "host claim", chain).await;
        host::class(host, &claim, chain).await;
        host::pods(host, &claim, chain).await;
        host::moved(host, of, chain).await;
        match host::volume(host, &claim, chain).await {
            Some(volume) => self.behind(&volume, chain).await,
            None => leaf::unbound(self, &claim, chain).await,
        }
    }

    async fn pod(&self, of: &ClaimName, chain: &mut Chain) -> anyhow::Result<()> {
        let pods = pods::within(&self.host.client, Some(&of.namespace));
        let Some(pod) = get(&pods, &of.name).await.map_err(anyhow::Error::msg)? else {
            chain.missing("host pod", of.to_string(), "is not there");
            return Ok(());
        };
        let claims = ::host::pod::claims_of(&pods::seen(pod.into_object())?);
        if claims.is_empty() {
            chain.add("host pod", of.to_string(), "has no claim");
        }
        for name in claims {
            let claim = ClaimName { namespace: of.namespace.clone(), name };
            if let Some(driver) = host::other_driver(&self.host, &claim).await {
                chain.add("host claim", claim.to_string(), format!("is of {driver}, not of this driver"));
            } else {
                self.claim(&claim, chain).await?;
            }
        }
        Ok(())
    }

    /// From its claim on, where that still has it.
    async fn volume(&self, name: &str, chain: &mut Chain) -> anyhow::Result<()> {
        let volumes = Api::<PersistentVolume>::all(self.host.client.clone());
        let Some(volume) = get(&volumes, name).await.map_err(anyhow::Error::msg)? else {
            chain.missing("host volume", name, "is not there");
            return Ok(());
        };
        let spec = volume.spec.as_ref();
        if let Some(of) = spec.and_then(|spec| spec.claim_ref.as_ref()) {
            let place = ClaimName {
                namespace: of.namespace.clone().unwrap_or_default(),
                name: of.name.clone().unwrap_or_default(),
            };
            let claims = Api::<PersistentVolumeClaim>::namespaced(self.host.client.clone(), &place.namespace);
            let claim = get(&claims, &place.name).await.map_err(anyhow::Error::msg)?;
            if claim.is_some_and(|claim| claim.spec.is_some_and(|spec| spec.volume_name.as_deref() == Some(name))) {
                return self.claim(&place, chain).await;
            }
            chain.add("host claim", place.to_string(), "does not have this volume any more");
        }
        host::tell_volume(&self.host, &volume, chain).await;
        self.behind(&volume, chain).await
    }

    async fn behind(&self, volume: &PersistentVolume, chain: &mut Chain) -> anyhow::Result<()> {
        host::attachments(&self.host, volume, chain).await;
        let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        let handle = csi.filter(|csi| csi.driver == DRIVER);
        if let Some(id) = handle.and_then(|csi| VolumeId::parse(&csi.volume_handle)) {
            return leaf::member(self, &id.member, leaf::LeafKey::Handle(&id), chain).await;
        }
        chain.missing("handle", "", "none of this driver's");
        Ok(())
    }
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
    let request =
        Request::new(Event::url_path(&(), Some(namespace))).list(&about).map_err(kube::Error::BuildRequest)?;
    let listed = client.request::<ObjectList<Value>>(request).await?;
    Ok(readable(listed.items).into_iter().max_by_key(time))
}

async fn warn(client: &Client, namespace: &str, uid: &str, step: &str, chain: &mut Chain) {
    match newest_warning(client, namespace, uid).await {
        Ok(event) => {
            if let Some(event) = event {
                let ago =
                    time(&event).map(|time| format!(" ({} ago)", span(now() - time.0.as_second()))).unwrap_or_default();
                let said = format!("{}{ago}", event.message.unwrap_or_default());
                chain.add(&format!("{step}{WARNING}"), event.reason.unwrap_or_default(), said);
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
