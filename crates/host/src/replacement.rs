//! A host volume makes way for one with another handle, under its name and for the same claim. Kubernetes lets nobody change a
//! handle, and binds the claim again by the volume's name and the claim's UID. The steps are planned by
//! `volume::replacement`; each tests what it was decided on, and a process that is killed between two leaves what the next one
//! goes on from.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, VolumeNodeAffinity};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    Host, attachments, passed, unread,
    volume::{HostVolume, volumes},
};
use domain::{
    error::{Error, Result},
    volume::{
        Claim,
        id::is_subdomain,
        replacement::{Replacement, SeenClaim, SeenVolume, decide},
    },
};

/// On the new volume: UID of the one in whose place it is.
pub const REPLACES: &str = "kosmos.csi.io/replaces";
/// On a claim that waits for its volume: how often it was pointed out to the host's controller that it is there.
const WOKEN: &str = "kosmos.csi.io/woken";
/// The protection of volumes is put on by the API server.
const PROTECTION: &str = "kubernetes.io/pv-protection";

/// Between two looks: the host's controller binds within this, where it is told.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a claim is bound before that counts.
const SETTLED: Duration = Duration::from_secs(1);

/// Where a volume leads, and from which nodes it is reached.
#[derive(Clone, Debug)]
pub struct Target {
    pub handle: String,
    pub attributes: BTreeMap<String, String>,
    pub affinity: Option<VolumeNodeAffinity>,
}

/// What is to be replaced by what: whole before the first write, and kept until the last.
#[derive(Clone, Debug)]
pub struct Replacing {
    /// UID of the volume that goes.
    pub replaced: String,
    pub claim: Claim,
    pub claim_uid: String,
    /// As it is sent.
    pub volume: PersistentVolume,
}

impl Replacing {
    /// None where the volume is for no claim, or is of no CSI driver.
    pub fn new(volume: &PersistentVolume, target: Target) -> Option<Self> {
        let mut new = volume.clone();
        let spec = new.spec.as_mut()?;
        let bound_to = spec.claim_ref.as_mut()?;
        bound_to.resource_version = None;
        let claim = Claim { namespace: bound_to.namespace.clone()?, name: bound_to.name.clone()? };
        let claim_uid = bound_to.uid.clone()?;
        let source = spec.csi.as_mut()?;
        source.volume_handle = target.handle;
        source.volume_attributes = Some(target.attributes);
        spec.node_affinity = target.affinity;
        let replaced = volume.uid()?;
        new.status = None;
        new.metadata = kube::api::ObjectMeta {
            name: volume.metadata.name.clone(),
            labels: volume.metadata.labels.clone(),
            annotations: volume.metadata.annotations.clone(),
            finalizers: volume.metadata.finalizers.clone(),
            ..kube::api::ObjectMeta::default()
        };
        new.finalizers_mut().retain(|name| name != PROTECTION);
        new.annotations_mut().insert(REPLACES.to_owned(), replaced.clone());
        Some(Self { replaced, claim, claim_uid, volume: new })
    }

    fn name(&self) -> String {
        self.volume.name_any()
    }

    /// To the end. A claim that is bound once may be lost a moment later, where the host's controller hears of the end of the
    /// former volume after that: it is looked at for a while.
    pub async fn replace(&self, host: &Host, until: Instant) -> Result<()> {
        let (mut before, mut bound_since) = (None, None);
        loop {
            let step = self.step(host).await?;
            match &step {
                Replacement::Stuck(why) => return Err(Error::Refused(format!("volume {}: {why}", self.name()))),
                Replacement::Carry => {
                    return Err(Error::InProgress(format!("volume {} was changed meanwhile", self.name())));
                }
                Replacement::Done if bound_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED => return Ok(()),
                Replacement::Done => {}
                _ => bound_since = None,
            }
            if Instant::now() > until {
                return Err(Error::InProgress(format!("volume {} is being replaced", self.name())));
            }
            // The claim is lost from the end of one volume to the next: no pause between them.
            match before.replace(step.clone()) {
                _ if step == Replacement::Done => sleep(SETTLED / 2).await,
                before if step == Replacement::WakeClaim || before.as_ref() == Some(&step) => sleep(PAUSE).await,
                _ => {}
            }
        }
    }

    /// The new volume is there, and its claim is bound to it, or has gone.
    pub async fn is_done(&self, host: &Host) -> Result<bool> {
        let (volume, claim) = (self.read_volume(host).await?, self.read_claim(host).await?);
        let seen = volume.as_ref().map(|volume| self.see_volume(volume));
        let next = decide(&self.replaced, &self.claim_uid, seen.as_ref(), claim.as_ref().map(see_claim).as_ref());
        Ok(next == Replacement::Done)
    }

    /// What is to take the place of the former volume, where people have written on that since it was decided; none where they have not.
    pub async fn changed(&self, host: &Host) -> Result<Option<PersistentVolume>> {
        let former = self.read_volume(host).await?.filter(|volume| volume.uid().as_ref() == Some(&self.replaced));
        Ok(former.and_then(|former| self.carried(&former)))
    }

    /// Only what people may write at any time: all else of it is what was decided.
    fn carried(&self, former: &PersistentVolume) -> Option<PersistentVolume> {
        let mut now = self.volume.clone();
        now.metadata.labels.clone_from(&former.metadata.labels);
        now.metadata.annotations.clone_from(&former.metadata.annotations);
        now.annotations_mut().insert(REPLACES.to_owned(), self.replaced.clone());
        if let Some((now, former)) = now.spec.as_mut().zip(former.spec.as_ref()) {
            now.mount_options.clone_from(&former.mount_options);
            now.persistent_volume_reclaim_policy.clone_from(&former.persistent_volume_reclaim_policy);
        }
        if now == self.volume {
            return None;
        }
        // Another policy has others.
        now.metadata.finalizers.clone_from(&former.metadata.finalizers);
        now.finalizers_mut().retain(|name| name != PROTECTION);
        Some(now)
    }

    fn see_volume(&self, volume: &PersistentVolume) -> SeenVolume {
        let is_former = volume.uid().as_ref() == Some(&self.replaced);
        SeenVolume {
            uid: volume.uid().unwrap_or_default(),
            replaces: volume.annotations().get(REPLACES).cloned(),
            claim_uid: volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.clone()),
            terminating: volume.metadata.deletion_timestamp.is_some(),
            finalizers: volume.finalizers().to_vec(),
            changed: is_former && self.carried(volume).is_some(),
        }
    }

    /// One look and one step; what the step was.
    pub async fn step(&self, host: &Host) -> Result<Replacement> {
        let (volume, claim) = (self.read_volume(host).await?, self.read_claim(host).await?);
        let seen = volume.as_ref().map(|volume| self.see_volume(volume));
        let next = decide(&self.replaced, &self.claim_uid, seen.as_ref(), claim.as_ref().map(see_claim).as_ref());
        tracing::debug!(volume = self.name(), step = ?next, "a host volume is replaced");
        match &next {
            Replacement::Delete => self.delete(host, volume.as_ref()).await?,
            Replacement::DropFinalizers => self.drop_finalizers(host, volume.as_ref()).await?,
            Replacement::Create => self.create(host).await?,
            Replacement::WakeClaim => self.wake(host, claim.as_ref()).await?,
            Replacement::Done => self.forget_waking(host, claim.as_ref()).await?,
            Replacement::Carry | Replacement::Stuck(_) => {}
        }
        Ok(next)
    }

    /// The host's own word on the new volume, as it will be sent: nothing is made. All that may refuse it, such as a webhook or a policy, is asked
    /// before the host sees that the former has its name. Once that has gone it is too late to hear of it.
    pub async fn try_out(&self, host: &Host) -> Result<()> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        match volumes(host).create(&dry, &self.volume).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => Ok(()),
            Err(error) => Err(unread(&format!("create volume {} again (dry run)", self.name()), &error)),
        }
    }

    async fn read_volume(&self, host: &Host) -> Result<Option<PersistentVolume>> {
        let answer = volumes(host).get(&self.name()).await;
        cluster::read(answer, &self.name()).map_err(|error| unread(&format!("get volume {}", self.name()), &error))
    }

    async fn read_claim(&self, host: &Host) -> Result<Option<PersistentVolumeClaim>> {
        let answer = self.claims(host).get(&self.claim.name).await;
        let doing = format!("get claim {}/{}", self.claim.namespace, self.claim.name);
        cluster::read(answer, &self.claim.name).map_err(|error| unread(&doing, &error))
    }

    fn claims(&self, host: &Host) -> Api<PersistentVolumeClaim> {
        Api::namespaced(host.client.clone(), &self.claim.namespace)
    }

    /// As it was read: what people write on it at this moment would be lost.
    async fn delete(&self, host: &Host, volume: Option<&PersistentVolume>) -> Result<()> {
        let version = volume.and_then(|volume| volume.metadata.resource_version.clone());
        let pinned = Preconditions { uid: Some(self.replaced.clone()), resource_version: version };
        let how = DeleteParams { preconditions: Some(pinned), ..DeleteParams::default() };
        let answer = volumes(host).delete(&self.name(), &how).await.map(drop);
        passed(&format!("delete volume {}", self.name()), answer)
    }

    /// The volume is on its way out for good: nobody needs to be kept from deleting it any more.
    async fn drop_finalizers(&self, host: &Host, volume: Option<&PersistentVolume>) -> Result<()> {
        let Some(of) = volume.map(|volume| &volume.metadata) else { return Ok(()) };
        let change = json!({"metadata": {"uid": of.uid, "resourceVersion": of.resource_version, "finalizers": null}});
        let answer = volumes(host).patch_metadata(&self.name(), &PatchParams::default(), &Patch::Merge(change)).await;
        passed(&format!("take the finalizers of volume {}", self.name()), answer.map(drop))
    }

    async fn create(&self, host: &Host) -> Result<()> {
        let answer = volumes(host).create(&PostParams::default(), &self.volume).await;
        passed(&format!("create volume {} again", self.name()), answer.map(drop))
    }

    /// The host's controller looks at a claim when the claim changes, and else after 15 s; and what it knows of volumes then may be
    /// of before.
    async fn wake(&self, host: &Host, claim: Option<&PersistentVolumeClaim>) -> Result<()> {
        let woken = claim.and_then(|claim| claim.annotations().get(WOKEN)?.parse::<u32>().ok()).unwrap_or_default();
        self.write_woken(host, claim, Some(woken.wrapping_add(1).to_string())).await
    }

    async fn forget_waking(&self, host: &Host, claim: Option<&PersistentVolumeClaim>) -> Result<()> {
        if claim.is_some_and(|claim| claim.annotations().contains_key(WOKEN)) {
            self.write_woken(host, claim, None).await?;
        }
        Ok(())
    }

    /// On the claim as it was read: one that arrives late would stay.
    async fn write_woken(
        &self,
        host: &Host,
        claim: Option<&PersistentVolumeClaim>,
        value: Option<String>,
    ) -> Result<()> {
        let version = claim.and_then(|claim| claim.metadata.resource_version.clone());
        let change = json!({"metadata": {
            "uid": self.claim_uid, "resourceVersion": version, "annotations": {WOKEN: value},
        }});
        let claims = self.claims(host);
        let answer = claims.patch_metadata(&self.claim.name, &PatchParams::default(), &Patch::Merge(change)).await;
        passed(&format!("change claim {}/{}", self.claim.namespace, self.claim.name), answer.map(drop))
    }

    /// Deletes what is left of attachments to other nodes than these, as nobody else does: they are named by the handle of
    /// before.
    pub async fn delete_attachments(&self, host: &Host, is_reached: impl Fn(&str) -> bool) -> Result<()> {
        for attachment in attachments::list(host).await? {
            if attachment.volume == self.name() && !is_reached(&attachment.node) {
                attachments::delete(host, &attachment).await?;
            }
        }
        Ok(())
    }
}

/// UID of the volume of this name, where it has been made in the place of another one and has this handle.
pub async fn uid_of_replacement(host: &Host, name: &str, handle: &str) -> Result<Option<String>> {
    if !is_subdomain(name) {
        return Ok(None);
    }
    let answer = volumes(host).get(name).await;
    let found = cluster::read(answer, name).map_err(|error| unread(&format!("get volume {name}"), &error))?;
    let is_it = |volume: &PersistentVolume| {
        let of_this = HostVolume::new(volume).is_some_and(|known| *known.handle == *handle);
        of_this && volume.annotations().contains_key(REPLACES)
    };
    Ok(found.filter(is_it).and_then(|volume| volume.uid()))
}

fn see_claim(claim: &PersistentVolumeClaim) -> SeenClaim {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    SeenClaim { uid: claim.uid().unwrap_or_default(), bound: phase == Some("Bound") }
}
