//! The objects of a backup, made in a host; what is there already stays as it is, and what cannot be made keeps no other one back.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::run::operator::{
    objects::{api, create, read},
    print::progress,
};
use cluster::with_causes;
use leaf::ownership::POLICY_BEFORE;
use operator::{
    backup::{Backup, KeptSnapshot, KeptVolume, MissingSnapshot, MissingVolume},
    objects::{title, word},
    table::Table,
};

/// Which are made at once; the order of a volume's own is kept.
const AT_ONCE: usize = 16;
/// Who waits is told so often how many there are.
const TOLD: usize = 1000;
/// The host's controllers write on a volume that is new.
const TRIES: usize = 5;

#[derive(Clone, Copy, Default)]
struct Count {
    made: usize,
    there: usize,
}

/// What became of all of them.
#[derive(Default)]
pub(super) struct Made {
    by_kind: BTreeMap<String, Count>,
    /// What could not be made, and why.
    pub(super) left: Vec<String>,
}

impl Made {
    fn count(&mut self, object: &Value, is_made: bool) {
        let count = self.by_kind.entry(word(object, "/kind").to_owned()).or_default();
        let counted = if is_made { &mut count.made } else { &mut count.there };
        *counted += 1;
    }

    fn add(&mut self, other: Self) {
        for (kind, Count { made, there }) in other.by_kind {
            let count = self.by_kind.entry(kind).or_default();
            *count = Count { made: count.made + made, there: count.there + there };
        }
        self.left.extend(other.left);
    }

    pub(super) fn table(&self, dry_run: bool) -> Table {
        let mut table = Table::new(&["KIND", if dry_run { "WOULD BE MADE" } else { "MADE" }, "THERE ALREADY"]);
        for (kind, Count { made, there }) in &self.by_kind {
            table.row([kind.clone(), made.to_string(), there.to_string()]);
        }
        table
    }
}

/// Where they are made, or only looked at.
#[derive(Clone, Copy)]
pub(super) struct Maker<'a> {
    pub(super) client: &'a Client,
    pub(super) dry_run: bool,
}

impl Maker<'_> {
    pub(super) async fn all(self, backup: &Backup) -> Made {
        let mut made = Made::default();
        for object in backup.namespaces.iter().chain(&backup.classes) {
            made.add(self.alone(object).await);
        }
        let volumes = stream::iter(&backup.volumes).map(async |kept| self.volume(kept).await);
        let snapshots = stream::iter(&backup.snapshots).map(async |kept| self.snapshot(kept).await);
        let all = volumes.buffer_unordered(AT_ONCE).chain(snapshots.buffer_unordered(AT_ONCE));
        let mut all = std::pin::pin!(all.enumerate());
        while let Some((at, one)) = all.next().await {
            made.add(one);
            if (at + 1) % TOLD == 0 {
                progress(&format!("{} of {} …\n", at + 1, backup.volumes.len() + backup.snapshots.len()));
            }
        }
        made
    }

    async fn alone(self, object: &Value) -> Made {
        let mut made = Made::default();
        match read(self.client, object).await {
            Ok(there) => drop(self.make(object, there.is_none(), &mut made).await),
            Err(error) => made.left.push(format!("{error:#}")),
        }
        made
    }

    /// The claim first, so that its volume names it by its UID from the start.
    async fn volume(self, kept: &KeptVolume) -> Made {
        let mut made = Made::default();
        let (missing, mut uid) = match self.look_at_volume(kept).await {
            Ok(looked) => looked,
            Err(why) => {
                made.left.push(why);
                return made;
            }
        };
        if let Some(claim) = &kept.claim {
            match self.make(claim, missing.claim, &mut made).await {
                Ok(Some(claim)) => uid = Some(word(&claim, "/metadata/uid").to_owned()),
                Ok(None) => {}
                // Without its claim it would be removed, with its data.
                Err(()) => return made,
            }
        }
        let volume = uid.as_deref().map_or_else(|| kept.volume.clone(), |uid| kept.bound_to(uid));
        let is_there = self.make(&volume, missing.volume, &mut made).await.is_ok();
        if let Some(uid) = uid.filter(|_| is_there && !self.dry_run) {
            made.left.extend(self.give_policy_back(kept, &uid).await.err());
        }
        made
    }

    /// It stays until it is seen that its claim is the one that it was made for: of another one Kubernetes would not know it, and have it
    /// removed, with its data.
    async fn give_policy_back(self, kept: &KeptVolume, uid: &str) -> Result<(), String> {
        for _ in 0..TRIES {
            if self.has_policy_back(kept, uid).await? {
                return Ok(());
            }
        }
        Err(format!("{} is kept (Retain), as somebody changes it all the time", title(&kept.volume)))
    }

    /// False: somebody has written on it since it was read, and may have kept it.
    async fn has_policy_back(self, kept: &KeptVolume, uid: &str) -> Result<bool, String> {
        let volume = self.read(Some(&kept.volume)).await?.unwrap_or_default();
        // Without it somebody else has made the volume `Retain`, or it always was.
        let Some(policy) = volume["metadata"]["annotations"].get(POLICY_BEFORE) else { return Ok(true) };
        let claim = self.read(kept.claim.as_ref()).await?.unwrap_or_default();
        let is_its = word(&claim, "/metadata/uid") == uid && word(&volume, "/spec/claimRef/uid") == uid;
        if !is_its || !word(&claim, "/metadata/deletionTimestamp").is_empty() {
            return Err(format!(
                "{} is kept (Retain), as its claim was replaced or deleted just now",
                title(&kept.volume)
            ));
        }
        let metadata = &volume["metadata"];
        let change = json!({
            "metadata": {
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
                "annotations": {POLICY_BEFORE: null},
            },
            "spec": {"persistentVolumeReclaimPolicy": policy},
        });
        let name = word(&kept.volume, "/metadata/name");
        match api(self.client, &kept.volume).patch(name, &PatchParams::default(), &Patch::Merge(change)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(format!("{}: {}", title(&kept.volume), with_causes(&error))),
        }
    }

    /// What is missing of a volume, and the UID of its claim where that is there.
    async fn look_at_volume(self, kept: &KeptVolume) -> Result<(MissingVolume, Option<String>), String> {
        let claim = self.read(kept.claim.as_ref()).await?;
        let volume = self.read(Some(&kept.volume)).await?;
        let missing = kept.missing(claim.as_ref(), volume.as_ref())?;
        Ok((missing, claim.map(|claim| word(&claim, "/metadata/uid").to_owned())))
    }

    async fn snapshot(self, kept: &KeptSnapshot) -> Made {
        let mut made = Made::default();
        let looked = async {
            let content = self.read(Some(&kept.content)).await?;
            kept.missing(content.as_ref(), self.read(kept.snapshot.as_ref()).await?.as_ref())
        };
        match looked.await {
            Ok(MissingSnapshot { content, snapshot }) => {
                let is_there = self.make(&kept.content, content, &mut made).await.is_ok();
                if let Some(kept) = kept.snapshot.as_ref().filter(|_| is_there) {
                    let _ = self.make(kept, snapshot, &mut made).await;
                }
            }
            Err(why) => made.left.push(why),
        }
        made
    }

    async fn read(self, object: Option<&Value>) -> Result<Option<Value>, String> {
        match object {
            Some(object) => read(self.client, object).await.map_err(|error| format!("{error:#}")),
            None => Ok(None),
        }
    }

    /// The object as it was made, where it was. An error is told in what is left.
    async fn make(self, object: &Value, is_missing: bool, made: &mut Made) -> Result<Option<Value>, ()> {
        if !is_missing || self.dry_run {
            made.count(object, is_missing);
            return Ok(None);
        }
        match create(self.client, object).await {
            Ok(object) => {
                made.count(&object, true);
                Ok(Some(object))
            }
            Err(error) => {
                made.left.push(format!("{}: {error:#}", title(object)));
                Err(())
            }
        }
    }
}
