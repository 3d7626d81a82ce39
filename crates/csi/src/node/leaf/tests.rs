//! What a leaf driver is asked, and what becomes of its answers.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    identity::Identity,
    node::{Info, Node},
    server::{self, Socket},
    v1::{
        node_server::{self, Node as _},
        volume_capability::MountVolume,
    },
};
use cluster::metrics::Metrics;
use domain::volume::backing::{AttachMode, Attached, Backing};
use mount::{Linux, Machine, Permitted};

const DRIVER: &str = "storage.example";

/// Answers all calls alike, and remembers what it was asked.
#[derive(Clone, Default)]
struct Played {
    can: Vec<Type>,
    refuses_with: Arc<Mutex<Option<Code>>>,
    staged: Arc<Mutex<Vec<v1::NodeStageVolumeRequest>>>,
    published: Arc<Mutex<Vec<v1::NodePublishVolumeRequest>>>,
}

impl Played {
    fn answer<T>(&self, answer: T) -> Result<Response<T>, Status> {
        match *self.refuses_with.lock().unwrap() {
            Some(code) => Err(Status::new(code, "on purpose")),
            None => Ok(Response::new(answer)),
        }
    }
}

#[tonic::async_trait]
impl node_server::Node for Played {
    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        let capabilities = self.can.iter().map(|can| (*can).into()).collect();
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        self.staged.lock().unwrap().push(request.into_inner());
        self.answer(v1::NodeStageVolumeResponse {})
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        self.published.lock().unwrap().push(request.into_inner());
        self.answer(v1::NodePublishVolumeResponse {})
    }

    async fn node_unpublish_volume(
        &self,
        _: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        self.answer(v1::NodeUnpublishVolumeResponse {})
    }
}

fn refusing(code: Code) -> Arc<Mutex<Option<Code>>> {
    Arc::new(Mutex::new(Some(code)))
}

/// The driver on its socket in a kubelet's folder.
async fn serve(kubelet_dir: &Path, name: &'static str, played: Played) -> CancellationToken {
    let folder = kubelet_dir.join("plugins").join(DRIVER);
    std::fs::create_dir_all(&folder).unwrap();
    let socket = Socket::bind(&folder.join("csi.sock")).await.unwrap();
    let stop = CancellationToken::new();
    let serving = server::serve_node(socket, Identity(name), played, Metrics::new(), stop.clone());
    tokio::spawn(async move { serving.await.unwrap() });
    stop
}

fn leaf_volume() -> CsiLeaf {
    let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    CsiLeaf {
        driver: DRIVER.to_owned(),
        handle: "vol-1".to_owned(),
        filesystem: "xfs".to_owned(),
        attributes: one("pool", "fast"),
        context: one("device", "sdb"),
        ..CsiLeaf::default()
    }
}

fn capability() -> VolumeCapability {
    let mount = MountVolume {
        fs_type: "ext4".to_owned(),
        mount_flags: vec!["noatime".to_owned()],
        volume_mount_group: "4321".to_owned(),
    };
    let mut capability = VolumeCapability {
        access_mode: Some(v1::volume_capability::AccessMode::default()),
        access_type: Some(AccessType::Mount(mount)),
    };
    capability.access_mode.as_mut().unwrap().set_mode(Mode::SingleNodeMultiWriter);
    capability
}

fn stage_request() -> v1::NodeStageVolumeRequest {
    let map = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
    v1::NodeStageVolumeRequest {
        volume_id: "cluster38/shop/data/0123456789abcdef".to_owned(),
        publish_context: map("backing", "{}"),
        staging_target_path: "/staging".to_owned(),
        volume_capability: Some(capability()),
        secrets: map("key", "canary"),
        volume_context: HashMap::from([
            ("leafVolume".to_owned(), "pv".to_owned()),
            ("csi.storage.k8s.io/pod.name".to_owned(), "web".to_owned()),
        ]),
    }
}

async fn leaf(kubelet_dir: &Path) -> Result<Leaf> {
    Leaves { kubelet_dir: kubelet_dir.to_owned() }.driver_of(leaf_volume()).await
}

fn access(capability: Option<&VolumeCapability>) -> (Mode, MountVolume) {
    let capability = capability.unwrap();
    let Some(AccessType::Mount(mount)) = capability.access_type.clone() else { panic!("no mount") };
    (capability.access_mode.as_ref().unwrap().mode(), mount)
}

#[tokio::test]
async fn leaf_driver_is_told_of_its_own_volume_in_words_that_it_knows() {
    let folder = tempfile::tempdir().unwrap();
    let played = Played { can: vec![Type::StageUnstageVolume], ..Played::default() };
    let _stop = serve(folder.path(), DRIVER, played.clone()).await;
    leaf(folder.path()).await.unwrap().stage(stage_request(), &["discard".to_owned()]).await.unwrap();
    let asked = played.staged.lock().unwrap().remove(0);
    let (mode, mount) = access(asked.volume_capability.as_ref());
    assert_eq!((asked.volume_id.as_str(), asked.staging_target_path.as_str()), ("vol-1", "/staging"));
    assert_eq!((asked.publish_context["device"].as_str(), asked.secrets["key"].as_str()), ("sdb", "canary"));
    let mut context: Vec<_> = asked.volume_context.keys().map(String::as_str).collect();
    context.sort_unstable();
    assert_eq!(context, ["csi.storage.k8s.io/pod.name", "pool"]);
    assert_eq!(mode, Mode::SingleNodeWriter, "it knows no other");
    assert_eq!((mount.fs_type.as_str(), mount.volume_mount_group.as_str()), ("xfs", ""));
    assert_eq!(mount.mount_flags, ["discard", "noatime"], "the host's own come last");
}

#[tokio::test]
async fn leaf_driver_that_does_not_stage_is_not_staged_and_gets_the_group_where_it_takes_one() {
    let folder = tempfile::tempdir().unwrap();
    let can = vec![Type::VolumeMountGroup, Type::SingleNodeMultiWriter];
    let played = Played { can, ..Played::default() };
    let _stop = serve(folder.path(), DRIVER, played.clone()).await;
    leaf(folder.path()).await.unwrap().stage(stage_request(), &[]).await.unwrap();
    assert!(played.staged.lock().unwrap().is_empty());
    let request = v1::NodePublishVolumeRequest {
        staging_target_path: "/staging".to_owned(),
        target_path: "/target".to_owned(),
        volume_capability: Some(capability()),
        ..v1::NodePublishVolumeRequest::default()
    };
    assert!(leaf(folder.path()).await.unwrap().publish(request, &[], true).await.unwrap(), "the group is its affair");
    let asked = played.published.lock().unwrap().remove(0);
    let (mode, mount) = access(asked.volume_capability.as_ref());
    assert_eq!((asked.staging_target_path.as_str(), asked.target_path.as_str()), ("", "/target"));
    assert_eq!((mode, mount.volume_mount_group.as_str(), asked.readonly), (Mode::SingleNodeMultiWriter, "4321", true));
}

#[tokio::test]
async fn nobody_but_the_driver_of_that_name_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let missing = leaf(folder.path()).await.unwrap_err();
    assert!(
        matches!(&missing, Error::InProgress(text) if text.contains("Install that driver's node plugin")),
        "{missing}"
    );
    let _stop = serve(folder.path(), "another.example", Played::default()).await;
    assert!(matches!(leaf(folder.path()).await, Err(Error::InProgress(_))));
    let forged = CsiLeaf { driver: "../../../run".to_owned(), ..leaf_volume() };
    let forged = Leaves { kubelet_dir: folder.path().to_owned() }.driver_of(forged).await;
    assert!(matches!(forged, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn member_says_nothing_of_the_pod() {
    let folder = tempfile::tempdir().unwrap();
    let played = Played { can: vec![Type::StageUnstageVolume], ..Played::default() };
    let _stop = serve(folder.path(), DRIVER, played.clone()).await;
    let forged = |pairs: [(&str, &str); 2]| pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let volume = CsiLeaf {
        attributes: forged([
            ("csi.storage.k8s.io/pod.name", "a-victim"),
            ("csi.storage.k8s.io/serviceAccount.name", "admin"),
        ]),
        context: forged([("csi.storage.k8s.io/serviceAccount.tokens", "{}"), ("device", "sdb")]),
        ..leaf_volume()
    };
    let leaf = Leaves { kubelet_dir: folder.path().to_owned() }.driver_of(volume).await.unwrap();
    leaf.stage(stage_request(), &[]).await.unwrap();
    let asked = played.staged.lock().unwrap().remove(0);
    let pod = HashMap::from([("csi.storage.k8s.io/pod.name".to_owned(), "web".to_owned())]);
    assert_eq!(asked.volume_context, pod, "the kubelet's, and no other");
    assert_eq!(asked.publish_context.keys().collect::<Vec<_>>(), ["device"]);
}

#[tokio::test]
async fn refusal_is_final_only_where_the_leaf_driver_says_that_nothing_was_done() {
    for (code, is_final) in [
        (Code::InvalidArgument, true),
        (Code::FailedPrecondition, true),
        (Code::NotFound, true),
        (Code::Internal, false),
        (Code::Unknown, false),
        (Code::DeadlineExceeded, false),
        (Code::Unavailable, false),
        (Code::Aborted, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let can = vec![Type::StageUnstageVolume];
        let _stop =
            serve(folder.path(), DRIVER, Played { can, refuses_with: refusing(code), ..Played::default() }).await;
        let refused = leaf(folder.path()).await.unwrap().stage(stage_request(), &[]).await.unwrap_err();
        assert_eq!(refused.is_final(), is_final, "{code:?}: {refused}");
        assert!(refused.to_string().contains("on purpose") && !refused.to_string().contains("canary"), "{refused}");
        let undone = leaf(folder.path()).await.unwrap().unpublish("/target".to_owned()).await;
        assert_eq!(undone.is_ok(), code == Code::NotFound, "what is not there needs no undoing");
    }
}

/// A node below which the driver is, and nothing is mounted.
fn node(folder: &Path) -> Node {
    let permitted = Permitted { leaf_drivers: vec![DRIVER.to_owned()], ..Permitted::default() };
    let machine = Machine::new(Linux, folder.join("volumes"), folder.join("by-id"), folder.to_owned(), permitted);
    let info = Info { name: "worker".to_owned(), member: "cluster38".to_owned(), most: 0 };
    Node::new(machine, folder.to_owned(), info)
}

/// For the volume as it is told to the node.
fn told(staging: &Path) -> v1::NodeStageVolumeRequest {
    let mut request = stage_request();
    let (mode, backing) = (AttachMode::None, Backing::Csi(leaf_volume()));
    let volume = request.volume_id.clone();
    let attached = Attached { volume, mode, backing, options: Vec::new(), readonly: false };
    request.publish_context = attached.context().unwrap().into_iter().collect();
    request.staging_target_path = staging.display().to_string();
    request
}

fn records(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder.join("volumes")).unwrap().map(|file| file.unwrap().path());
    files.map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

#[tokio::test]
async fn volume_is_remembered_exactly_while_its_driver_may_have_done_something() {
    for (code, is_remembered) in [(Code::FailedPrecondition, false), (Code::Internal, true)] {
        let folder = tempfile::tempdir().unwrap();
        let can = vec![Type::StageUnstageVolume];
        let _stop =
            serve(folder.path(), DRIVER, Played { can, refuses_with: refusing(code), ..Played::default() }).await;
        let staging = folder.path().join("staging");
        std::fs::create_dir(&staging).unwrap();
        let refused = node(folder.path()).node_stage_volume(Request::new(told(&staging))).await.unwrap_err();
        assert_eq!(records(folder.path()).len(), usize::from(is_remembered), "{code:?}: {refused}");
    }
}

/// It knows no other names of its member.
#[tokio::test]
async fn node_that_refuses_a_volume_of_another_member_says_what_to_do_where_that_is_its_own_by_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = told(&folder.path().join("staging"));
    request.volume_id = "alias/shop/data/0123456789abcdef".to_owned();
    let refused = node(folder.path()).node_stage_volume(Request::new(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for said in ["is in member alias", "set up with --member cluster38", "a node whose plugin has --member alias"] {
        assert!(refused.message().contains(said), "{said}: {refused}");
    }
}

#[tokio::test]
async fn refusal_of_a_repeated_call_undoes_nothing_that_may_be_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let played = Played { can: vec![Type::StageUnstageVolume, Type::VolumeMountGroup], ..Played::default() };
    let _stop = serve(folder.path(), DRIVER, played.clone()).await;
    let (staging, target) = (folder.path().join("staging"), folder.path().join("target"));
    std::fs::create_dir(&staging).unwrap();
    let (node, request) = (node(folder.path()), told(&staging));
    let publish = v1::NodePublishVolumeRequest {
        volume_id: request.volume_id.clone(),
        publish_context: request.publish_context.clone(),
        staging_target_path: request.staging_target_path.clone(),
        target_path: target.display().to_string(),
        volume_capability: request.volume_capability.clone(),
        ..v1::NodePublishVolumeRequest::default()
    };
    node.node_stage_volume(Request::new(request.clone())).await.unwrap();
    node.node_publish_volume(Request::new(publish.clone())).await.unwrap();
    let before = records(folder.path());
    *played.refuses_with.lock().unwrap() = Some(Code::FailedPrecondition);
    node.node_publish_volume(Request::new(publish)).await.unwrap_err();
    node.node_stage_volume(Request::new(request)).await.unwrap_err();
    assert!(before.len() == 1 && before[0].contains("/target") && records(folder.path()) == before, "{before:?}");
}
