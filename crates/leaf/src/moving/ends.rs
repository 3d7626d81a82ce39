//! The movers of a copy: a pod in the yard of each member, and the keys by which they know one another. A pod carries the number
//! of the attempt that it was made for; one that carries another was made late, and is of no use. Its keys are its own, and go with
//! it: a pod that was made late finds none, and never begins.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    ByteString,
    api::core::v1::{
        Capabilities, Container, EmptyDirVolumeSource, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod,
        PodSpec, SeccompProfile, Secret, SecretVolumeSource, SecurityContext, Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use rcgen::{CertificateParams, KeyPair};

use crate::{MemberClient, ownership};
use domain::{
    error::{Error, Result},
    volume::{
        HostId, VolumeHash,
        moving::{Outcome, YARD},
    },
};

/// On a mover's pod and keys (label): the UID of the move.
const OF: &str = "kosmos.csi.io/move";
/// Beside it: the number of the attempt.
const ATTEMPT: &str = "kosmos.csi.io/attempt";
/// The name in both certificates, as the mover has it, and that of its container.
const NAME: &str = "mover";
/// Of a node: the system that it runs.
const OS: &str = "kubernetes.io/os";
/// What a pod of root needs for files of anybody's, within the level `baseline`.
const READS: [&str; 2] = ["DAC_OVERRIDE", "FOWNER"];
const WRITES: [&str; 4] = ["CHOWN", "FSETID", "SETFCAP", "MKNOD"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Send,
    Receive,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}

/// One mover as it is wanted.
#[derive(Debug)]
pub struct WantedMover<'a> {
    pub role: Role,
    /// UID of the move.
    pub of: &'a str,
    pub attempt: u32,
    pub hash: VolumeHash,
    /// In the yard.
    pub claim: &'a PersistentVolumeClaim,
    pub image: &'a str,
    /// Its volume is to be new.
    pub must_be_empty: bool,
    /// Its volume can be used on a single node: nowhere else can it run, whatever else that node is closed to.
    pub is_on_one_node: bool,
}

/// One mover as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mover {
    pub name: String,
    pub uid: String,
    pub attempt: u32,
    pub is_leaving: bool,
    /// The member's, once it has one.
    pub node: Option<String>,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Why, where anybody has said it.
    Starting(String),
    Running,
    Ended(Option<Outcome>),
}

/// Both certificates of an attempt and their keys. They are written down nowhere but in the two Secrets.
pub struct Keys {
    pub attempt: u32,
    sender: Pair,
    receiver: Pair,
}

struct Pair {
    certificate: String,
    key: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Keys").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

impl Keys {
    pub fn new(attempt: u32) -> Result<Self> {
        Ok(Self { attempt, sender: pair()?, receiver: pair()? })
    }

    fn data(&self, role: Role) -> BTreeMap<String, ByteString> {
        let (own, other) = match role {
            Role::Send => (&self.sender, &self.receiver),
            Role::Receive => (&self.receiver, &self.sender),
        };
        let all = [("tls.crt", &own.certificate), ("tls.key", &own.key), ("ca.crt", &other.certificate)];
        all.map(|(name, text)| (name.to_owned(), ByteString(text.clone().into_bytes()))).into()
    }
}

fn pair() -> Result<Pair> {
    let said = |error: rcgen::Error| Error::Refused(format!("keys of a mover cannot be made: {error}"));
    let key = KeyPair::generate().map_err(said)?;
    let params = CertificateParams::new(vec![NAME.to_owned()]).map_err(said)?;
    let certificate = params.self_signed(&key).map_err(said)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

impl WantedMover<'_> {
    fn metadata(&self, host: &HostId, (kind, name, uid): (&str, String, String)) -> ObjectMeta {
        let mut labels = ownership::host_labels(host);
        labels.insert(OF.to_owned(), self.of.to_owned());
        labels.insert(ATTEMPT.to_owned(), self.attempt.to_string());
        let (api_version, kind) = ("v1".to_owned(), kind.to_owned());
        let owner = OwnerReference { api_version, kind, name, uid, ..OwnerReference::default() };
        ObjectMeta {
            // By its end an admission policy of the member tells whose it is.
            name: Some(format!("{}-{}-{}-{host}", self.role.word(), self.hash, self.attempt)),
            namespace: Some(YARD.to_owned()),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        }
    }

    fn secret(&self, host: &HostId, keys: &Keys, pod: &Mover) -> Secret {
        Secret {
            metadata: self.metadata(host, ("Pod", pod.name.clone(), pod.uid.clone())),
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(keys.data(self.role)),
            immutable: Some(true),
            ..Secret::default()
        }
    }

    /// It goes with the claim in the yard, whoever forgets it.
    fn pod(&self, host: &HostId) -> Pod {
        let owner = ("PersistentVolumeClaim", self.claim.name_any(), self.claim.uid().unwrap_or_default());
        let metadata = self.metadata(host, owner);
        let keys = metadata.name.clone();
        let claim = PersistentVolumeClaimVolumeSource {
            claim_name: self.claim.name_any(),
            read_only: Some(self.role == Role::Send),
        };
        let volume = |name: &str| Volume { name: name.to_owned(), ..Volume::default() };
        let volumes = vec![
            Volume { persistent_volume_claim: Some(claim), ..volume("data") },
            Volume {
                secret: Some(SecretVolumeSource { secret_name: keys, default_mode: Some(0o400), ..Default::default() }),
                ..volume("keys")
            },
            Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..volume("tmp") },
        ];
        let anything = Toleration {
            operator: Some("Exists".to_owned()),
            effect: Some("NoSchedule".to_owned()),
            ..Toleration::default()
        };
        let spec = PodSpec {
            containers: vec![self.container()],
            volumes: Some(volumes),
            node_selector: Some([(OS.to_owned(), "linux".to_owned())].into()),
            tolerations: self.is_on_one_node.then(|| vec![anything]),
            restart_policy: Some("Never".to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            ..PodSpec::default()
        };
        Pod { metadata, spec: Some(spec), status: None }
    }

    fn container(&self) -> Container {
        let mut arguments = vec!["mover".to_owned(), self.role.word().to_owned()];
        let is_receiver = self.role == Role::Receive;
        arguments.extend((is_receiver && self.must_be_empty).then(|| "--must-be-empty".to_owned()));
        let added = READS.into_iter().chain(WRITES.into_iter().filter(|_| is_receiver)).map(str::to_owned).collect();
        let mount = |name: &str, read_only: bool| VolumeMount {
            name: name.to_owned(),
            mount_path: format!("/{name}"),
            read_only: Some(read_only),
            ..VolumeMount::default()
        };
        Container {
            name: NAME.to_owned(),
            image: Some(self.image.to_owned()),
            args: Some(arguments),
            volume_mounts: Some(vec![mount("data", !is_receiver), mount("keys", true), mount("tmp", false)]),
            security_context: Some(SecurityContext {
                run_as_user: Some(0),
                run_as_group: Some(0),
                allow_privilege_escalation: Some(false),
                read_only_root_filesystem: Some(true),
                capabilities: Some(Capabilities { add: Some(added), drop: Some(vec!["ALL".to_owned()]) }),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..SecurityContext::default()
            }),
            ..Container::default()
        }
    }
}

fn pods(client: &MemberClient) -> Api<Pod> {
    Api::namespaced(client.client.clone(), YARD)
}

fn secrets(client: &MemberClient) -> Api<Secret> {
    Api::namespaced(client.client.clone(), YARD)
}

/// The pod, then its keys.
pub async fn start(client: &MemberClient, wanted: &WantedMover<'_>, keys: &Keys) -> Result<()> {
    let made = pods(client).create(&PostParams::default(), &wanted.pod(&client.host)).await;
    match made.map_err(|error| client.outcome("create the pod of a mover", &error)) {
        Ok(pod) if give_keys(client, wanted, keys, &Mover::new(&pod)).await? => Ok(()),
        // Those of somebody else would let him in.
        Ok(_) => Err(Error::InProgress("a mover has keys already".to_owned())),
        Err(Error::Exists(why)) => Err(Error::InProgress(why)),
        Err(error) => Err(error),
    }
}

/// False: it has some already.
pub async fn give_keys(client: &MemberClient, wanted: &WantedMover<'_>, keys: &Keys, pod: &Mover) -> Result<bool> {
    let made = secrets(client).create(&PostParams::default(), &wanted.secret(&client.host, keys, pod)).await;
    match made.map_err(|error| client.outcome("create the keys of a mover", &error)) {
        Ok(_) => Ok(true),
        Err(Error::Exists(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// All of a move's in this member.
pub async fn movers(client: &MemberClient, of: &str) -> Result<Vec<Mover>> {
    let wanted = ListParams::default().labels(&format!("{},{OF}={of}", ownership::selector(&client.host)));
    let listed = pods(client).list(&wanted).await.map_err(|error| client.outcome("list the pods of a move", &error))?;
    Ok(listed.items.iter().map(Mover::new).collect())
}

pub async fn remove(client: &MemberClient, mover: &Mover) -> Result<()> {
    let pinned = Preconditions { uid: Some(mover.uid.clone()), resource_version: None };
    let how = DeleteParams { preconditions: Some(pinned), ..DeleteParams::default() };
    let deleted = pods(client).delete(&mover.name, &how).await;
    match deleted.map_err(|error| client.outcome("delete the pod of a mover", &error)) {
        Err(Error::NotFound(_) | Error::InProgress(_)) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Mover {
    fn new(pod: &Pod) -> Self {
        let attempt = pod.labels().get(ATTEMPT).and_then(|text| text.parse().ok());
        Self {
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            attempt: attempt.unwrap_or_default(),
            is_leaving: pod.metadata.deletion_timestamp.is_some(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            state: state(pod),
        }
    }
}

fn state(pod: &Pod) -> State {
    let status = pod.status.as_ref();
    // A member may put containers of its own beside it, and all are told in the order of their names.
    let container = status.and_then(|status| status.container_statuses.as_ref()?.iter().find(|one| one.name == NAME));
    let of = container.and_then(|container| container.state.as_ref());
    if let Some(ended) = of.and_then(|state| state.terminated.as_ref()) {
        return State::Ended(ended.message.as_deref().and_then(Outcome::parse));
    }
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Succeeded" | "Failed") => State::Ended(None),
        Some("Running") => State::Running,
        _ => {
            let waits = of.and_then(|state| state.waiting.as_ref());
            let why = waits.and_then(|waits| waits.message.clone().or_else(|| waits.reason.clone()));
            let unplaced = || {
                let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
                conditions.iter().find(|one| one.status == "False").and_then(|one| one.message.clone())
            };
            State::Starting(why.or_else(unplaced).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    /// Such a container goes on, and the pod with it, once the mover has ended.
    #[test]
    fn mover_is_judged_by_its_own_container_and_by_none_that_a_member_has_put_beside_it() {
        let container = |name: &str, state: Value| json!({"name": name, "state": state});
        let ended = |message: &str| json!({"terminated": {"exitCode": 0, "message": message}});
        let state_of = |beside: Value, own: Value| {
            let containers = [container("istio-proxy", beside), container(NAME, own)];
            let status = json!({"phase": "Running", "containerStatuses": containers});
            state(&from_value(json!({"metadata": {}, "status": status})).unwrap())
        };
        let copied = r#"{"copied":{"digest":"sha256:ab","entries":3,"files":2,"bytes":8}}"#;
        let goes_on = || json!({"running": {}});
        assert_eq!(state_of(goes_on(), ended(copied)), State::Ended(Outcome::parse(copied)));
        assert_eq!(state_of(ended(copied), goes_on()), State::Running);
    }

    #[test]
    fn movers_run_on_nodes_of_linux_alone_whatever_taints_they_tolerate() {
        let (host, claim) = (HostId("host".to_owned()), PersistentVolumeClaim::default());
        for is_on_one_node in [false, true] {
            let wanted = WantedMover {
                role: Role::Send,
                of: "m",
                attempt: 1,
                hash: VolumeHash::new(&host, "pvc-1"),
                claim: &claim,
                image: "mover",
                must_be_empty: false,
                is_on_one_node,
            };
            let spec = wanted.pod(&host).spec.unwrap();
            assert_eq!(spec.node_selector.unwrap()[OS], "linux");
            assert_eq!(spec.tolerations.is_some(), is_on_one_node);
        }
    }
}
