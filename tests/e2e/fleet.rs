//! What a fleet promises to the tests that stand on it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use crate::clusters::guardian::{self, Guardian};
use crate::clusters::wait::Hopeless;
use crate::clusters::{Fleet, NodeDriver, Spec, images::BUSYBOX, remains, wait_for};
use crate::pool::{Need, Turn, bare};
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);
const SYSCTLS: [&str; 4] = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"];
/// Where the programs of a fleet would put their things.
const FOLDERS: [&str; 7] = ["/etc", "/opt", "/root", "/run", "/usr/libexec", "/var/lib", "/var/log"];

#[tokio::test]
async fn a_fleet_serves_its_clusters() {
    let _turn = Turn::take("a_fleet_serves_its_clusters", Need::Bare).await;
    let fleet = bare().await;
    let _logs = fleet.test("a_fleet_serves_its_clusters");
    for cluster in fleet.clusters() {
        let namespaces: Api<Namespace> = Api::all(cluster.client().await.unwrap());
        namespaces.get("kube-system").await.unwrap();
        let inside = cluster.kubeconfig_inside();
        let kubectl = fleet.tools().path("kubectl");
        let arguments = ["--kubeconfig", inside.to_str().unwrap(), "get", "nodes", "-o", "name"];
        let nodes = fleet.exec(kubectl.to_str().unwrap(), &arguments).await.unwrap();
        assert_eq!(nodes.trim(), format!("node/{}", cluster.node_name()));
    }
}

#[tokio::test]
async fn a_service_account_may_only_what_it_is_granted() {
    let _turn = Turn::take("a_service_account_may_only_what_it_is_granted", Need::Bare).await;
    let fleet = bare().await;
    let _logs = fleet.test("a_service_account_may_only_what_it_is_granted");
    let kubeconfig = fleet.host().kubeconfig_for("default", "default").await.unwrap();
    let file = fleet.folder().join("account.kubeconfig");
    fs::write(&file, kubeconfig).unwrap();
    let kubectl = fleet.tools().path("kubectl");
    let may = async |verb: &str, what: &str| {
        let arguments = ["--kubeconfig", file.to_str().unwrap(), "auth", "can-i", verb, what];
        fleet.exec(kubectl.to_str().unwrap(), &arguments).await.is_ok()
    };
    assert!(may("create", "selfsubjectreviews.authentication.k8s.io").await);
    assert!(!may("list", "secrets").await);
}

#[tokio::test]
async fn every_request_is_counted_once() {
    let _turn = Turn::take("every_request_is_counted_once", Need::Bare).await;
    let fleet = bare().await;
    let _logs = fleet.test("every_request_is_counted_once");
    let host = fleet.host();
    let secrets: Api<Secret> = Api::namespaced(host.client().await.unwrap(), "default");
    let mark = host.audit_mark().await.unwrap();
    secrets.list(&ListParams::default()).await.unwrap();
    secrets.get_opt("none").await.unwrap();
    let entries = host.audit_since(mark).await.unwrap();
    let ours = entries.iter().filter(|entry| entry.resource == "secrets" && entry.user == "admin");
    let ours: Vec<_> = ours.map(|entry| (entry.verb.as_str(), entry.name.as_str(), entry.code)).collect();
    assert_eq!(ours, [("list", "", 200), ("get", "none", 404)]);
}

#[tokio::test]
async fn an_api_server_stops_pauses_and_returns() {
    let _turn = Turn::take("an_api_server_stops_pauses_and_returns", Need::Bare).await;
    let fleet = bare().await;
    let _logs = fleet.test("an_api_server_stops_pauses_and_returns");
    let member = fleet.member("cluster38");
    member.stop_api_server().await.unwrap();
    assert!(member.client().await.unwrap().apiserver_version().await.is_err());
    fleet.host().client().await.unwrap().apiserver_version().await.unwrap();
    member.start_api_server().await.unwrap();
    let client = member.client().await.unwrap();
    client.apiserver_version().await.unwrap();
    member.pause_api_server().await.unwrap();
    let silent = tokio::time::timeout(Duration::from_secs(1), client.apiserver_version()).await;
    member.resume_api_server().unwrap();
    assert!(silent.is_err(), "a paused server answered {silent:?}");
    client.apiserver_version().await.unwrap();
    // Whoever comes next has a pod run there.
    member.resume().await.unwrap();
}

#[tokio::test]
async fn a_process_of_the_fleet_ends_when_it_is_dropped() {
    let _turn = Turn::take("a_process_of_the_fleet_ends_when_it_is_dropped", Need::Bare).await;
    let fleet = bare().await;
    let process = fleet.spawn("sleeper", "sleep", &["1000"], &[]).unwrap();
    let number = process.pid();
    assert!(process.is_running().unwrap());
    drop(process);
    wait_for("the process ends", PATIENCE, || async { Ok((!exists(number)).then_some(())) }).await.unwrap();
    let process = fleet.spawn("speaker", "sh", &["-c", "echo $WORD; exit 3"], &[("WORD", "hello")]).unwrap();
    assert_eq!(process.wait(PATIENCE).await.unwrap().code, Some(3));
    assert_eq!(process.log().unwrap(), "hello\n");
}

#[tokio::test]
async fn a_pod_runs_on_the_real_node() {
    let _turn = Turn::take("a_pod_runs_on_the_real_node", Need::Bare).await;
    let fleet = bare().await;
    let _logs = fleet.test("a_pod_runs_on_the_real_node");
    let host = fleet.host();
    let pod = pod("speaker", "echo hello from $HOSTNAME; sleep 1000", &json!([]));
    host.apply(&pod.to_string()).await.unwrap();
    let log = wait_for("the pod speaks", PATIENCE, || async {
        let log = host.kubectl(&["logs", "speaker"]).await?;
        Ok((!log.is_empty()).then_some(log))
    });
    assert_eq!(log.await.unwrap(), "hello from speaker\n");
    assert_eq!(host.kubectl(&["exec", "speaker", "--", "id", "-u"]).await.unwrap(), "0\n");
    host.kubectl(&["delete", "pod", "speaker", "--now"]).await.unwrap();
}

#[tokio::test]
async fn a_local_path_volume_is_written_and_removed() {
    let _turn = Turn::take("a_local_path_volume_is_written_and_removed", Need::Bare).await;
    let fleet = bare().await;
    let _logs = fleet.test("a_local_path_volume_is_written_and_removed");
    let member = fleet.member("cluster38");
    member.install_local_path("local-path").await.unwrap();
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"storageClassName": "local-path", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}}},
    });
    member.apply(&claim.to_string()).await.unwrap();
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let pod = pod("writer", "echo written >/data/file; sleep 1000", &volumes);
    member.apply(&pod.to_string()).await.unwrap();
    let folder = member.local_path_folder();
    let written = wait_for("the pod's file is there", PATIENCE, || async {
        let volume = only_entry(&folder)?;
        Ok(fs::read_to_string(volume.join("file")).ok().filter(|text| !text.is_empty()))
    });
    assert_eq!(written.await.unwrap(), "written\n");
    member.kubectl(&["delete", "pod", "writer", "--now"]).await.unwrap();
    member.kubectl(&["delete", "pvc", "data"]).await.unwrap();
    let removed =
        wait_for("the volume is removed", PATIENCE, || async { Ok((folder.read_dir()?.count() == 0).then_some(())) });
    removed.await.unwrap();
}

#[tokio::test]
async fn a_pod_is_bound_to_a_virtual_node() {
    let _turn = Turn::take("a_pod_is_bound_to_a_virtual_node", Need::Bare).await;
    let fleet = bare().await;
    let _logs = fleet.test("a_pod_is_bound_to_a_virtual_node");
    let host = fleet.host();
    let driver = NodeDriver { name: "test.kosmos.csi.io", node_id: "virtual/cluster38", topology_keys: &["member"] };
    let node = host.virtual_node("kosmos-cluster38", &[("member", "cluster38")], driver).await.unwrap();
    let mut pod = pod("bound", "sleep 1000", &json!([]));
    pod["spec"]["nodeSelector"] = json!({"member": "cluster38"});
    pod["spec"]["tolerations"] = json!([{"key": "kosmos.io/node", "operator": "Exists"}]);
    host.apply(&pod.to_string()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(host.client().await.unwrap());
    let bound = wait_for("the pod is bound", PATIENCE, || async {
        Ok(pods.get("bound").await?.spec.and_then(|spec| spec.node_name))
    });
    assert_eq!(bound.await.unwrap(), node.name());
    host.kubectl(&["delete", "pod", "bound", "--force", "--grace-period=0"]).await.unwrap();
    node.delete().await.unwrap();
}

#[tokio::test]
async fn a_failed_test_leaves_its_logs() {
    let _turn = Turn::take("a_failed_test_leaves_its_logs", Need::Bare).await;
    let fleet = bare().await;
    let name = "a_failed_test_leaves_its_logs";
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let _logs = fleet.test(name);
        panic!("on purpose");
    }));
    assert!(failed.is_err());
    let folder = guardian::profile_folder().unwrap().parent().unwrap().join("test-logs").join(name);
    for file in ["host/kube-apiserver.log", "cluster38/kubelet.log", "host/events.txt", "cluster38/objects.yaml"] {
        let length = fs::metadata(folder.join(file)).unwrap().len();
        assert!(length > 0, "{file} is empty");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn waiting_for_what_has_ended_ends_at_once() {
    let _turn = Turn::take("waiting_for_what_has_ended_ends_at_once", Need::Own).await;
    let never = wait_for("it comes", PATIENCE, || async { anyhow::bail!(Hopeless("it has ended".to_owned())) });
    let error = tokio::time::timeout(Duration::from_secs(1), never).await.unwrap();
    let error: anyhow::Result<()> = error;
    assert!(format!("{:#}", error.unwrap_err()).ends_with("until it comes: it has ended"));
}

#[tokio::test]
async fn two_fleets_at_once_do_not_meet() {
    let _turn = Turn::take("two_fleets_at_once_do_not_meet", Need::Bare).await;
    let one = bare().await;
    let other = Fleet::start(Spec { members: 0, nodes: false }).await.unwrap();
    assert_ne!(one.host().identity().await.unwrap(), other.host().identity().await.unwrap());
    let commands = async |fleet: &Fleet| fleet.exec("ps", &["-e", "-o", "args"]).await.unwrap();
    let (folder, foreign) = (one.folder().to_str().unwrap(), other.folder().to_str().unwrap());
    let (own, others) = (commands(one).await, commands(&other).await);
    assert!(own.contains(folder) && !own.contains(foreign));
    assert!(others.contains(foreign) && !others.contains(folder));
    let gone = other.folder().to_owned();
    drop(other);
    assert!(!gone.exists());
    one.host().identity().await.unwrap();
}

#[tokio::test]
async fn a_person_s_fleet_outlives_its_command() {
    let _turn = Turn::take("a_person_s_fleet_outlives_its_command", Need::Own).await;
    let clusters = |arguments: &[&str]| {
        let output = Command::new(guardian::program().unwrap()).args(arguments).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        printed
    };
    let name = format!("--name=test-{}", std::process::id());
    let up = clusters(&["up", "--members=0", "--no-nodes", &name]);
    let kubeconfig = up.lines().find(|line| line.trim().ends_with("/host/admin.kubeconfig")).unwrap().trim();
    let client = crate::clusters::kubernetes::client(Path::new(kubeconfig)).await.unwrap();
    client.apiserver_version().await.unwrap();
    assert!(clusters(&["up", &name]).contains("up already"));
    assert!(clusters(&["down", &name]).contains("host/kube-apiserver"));
    assert!(clusters(&["down", &name]).contains("is up"));
    assert!(!Path::new(kubeconfig).exists());
}

/// The machine, as far as a fleet could change it.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    mounts: String,
    interfaces: String,
    sysctls: Vec<String>,
    folders: Vec<Vec<OsString>>,
}

fn machine() -> Machine {
    let sysctl = |name| fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap();
    let links = Command::new("ip").args(["-o", "link"]).output().unwrap();
    Machine {
        mounts: fs::read_to_string("/proc/self/mountinfo").unwrap(),
        interfaces: String::from_utf8(links.stdout).unwrap(),
        sysctls: SYSCTLS.map(sysctl).to_vec(),
        folders: FOLDERS.map(entries).to_vec(),
    }
}

fn entries(folder: &str) -> Vec<OsString> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_killed_test_leaves_nothing() {
    let _turn = Turn::take("a_killed_test_leaves_nothing", Need::Own).await;
    let before = machine();
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "fleet::victim_of_a_kill"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let folder = lines.find_map(|line| Some(line.split_once("folder=")?.1.to_owned())).unwrap();
    let folder = Path::new(&folder);
    let cgroups = || {
        let hierarchies = remains::cgroup_hierarchies().unwrap().into_iter();
        hierarchies
            .map(|hierarchy| hierarchy.join(remains::cgroup_name(folder)))
            .filter(|cgroup| cgroup.exists())
            .count()
    };
    let processes = descendants(victim.id());
    assert!(processes.len() > 10, "the fleet has only {processes:?}");
    assert!(cgroups() > 0);
    victim.kill().unwrap();
    victim.wait().unwrap();
    let ended = wait_for("nothing of the fleet is left", PATIENCE, || async { Ok((!folder.exists()).then_some(())) });
    ended.await.unwrap();
    assert_eq!(cgroups(), 0);
    assert_eq!(machine(), before);
    let gone = wait_for("its processes are gone", PATIENCE, || async {
        Ok((!processes.iter().any(|process| exists(*process))).then_some(()))
    });
    gone.await.unwrap();
}

#[tokio::test]
async fn what_a_killed_guardian_leaves_is_removed_by_the_next() {
    let _turn = Turn::take("what_a_killed_guardian_leaves_is_removed_by_the_next", Need::Own).await;
    let (guardian, owner) = Guardian::start(None).unwrap();
    let folder = guardian.started.folder;
    let cgroups = remains::cgroup_hierarchies().unwrap().into_iter();
    let cgroups: Vec<_> = cgroups.map(|hierarchy| hierarchy.join(remains::cgroup_name(&folder))).collect();
    for cgroup in &cgroups {
        fs::create_dir(cgroup).unwrap();
    }
    let plugins = folder.join("m/lib/kubelet/plugins");
    fs::create_dir_all(&plugins).unwrap();
    // The second is made by a node, under a path that is the node's own.
    let left = format!("left-{}", folder.file_name().unwrap().display());
    attach(&folder.join(&left), "losetup --find $0");
    attach(&plugins.join(&left), "mount --bind ${0%/plugins/*} /mnt && losetup --find /mnt/plugins/${0##*/}");
    assert_eq!(attached(&left), 2);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(owner.pid()), nix::sys::signal::Signal::SIGKILL).unwrap();
    drop(owner);
    let first = guardian.started.init;
    wait_for("the first process sees it", PATIENCE, || async { Ok((!exists(first)).then_some(())) }).await.unwrap();
    // The next one may be that of another test, and be there already.
    drop(Guardian::start(None).unwrap());
    assert!(!folder.exists());
    assert!(!cgroups.iter().any(|cgroup| cgroup.exists()));
    // Whoever looks at a device at that moment keeps it until he has.
    wait_for("they are detached", PATIENCE, || async { Ok((attached(&left) == 0).then_some(())) }).await.unwrap();
}

#[test]
fn folder_of_a_persons_fleet_is_read_by_nobody_else_and_is_never_somebody_elses() {
    let name = format!("test-{}", std::process::id());
    let (folder, lock) = remains::claim_folder(Some(&name)).unwrap();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    chown(&folder, Some(1), None).unwrap();
    let refused = remains::named_folder(&name).unwrap_err().to_string();
    assert!(refused.contains("belongs to somebody else"), "{refused}");
    fs::remove_dir(&folder).unwrap();
    drop(lock);
}

/// Makes a file, and gives it to a loop device.
fn attach(file: &Path, command: &str) {
    fs::File::create(file).unwrap().set_len(1 << 20).unwrap();
    let made = Command::new("unshare").args(["--mount", "sh", "-c", command]).arg(file).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// How many loop devices have a file of this name. Their numbers say nothing: whatever else runs takes those that are free.
fn attached(name: &str) -> usize {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| file.contains(name)).count()
}

#[tokio::test]
#[ignore = "killed by a_killed_test_leaves_nothing; alone it waits for the end of its input"]
async fn victim_of_a_kill() {
    let fleet = Fleet::start(Spec { members: 0, nodes: true }).await.unwrap();
    let host = fleet.host();
    host.apply(&pod("orphan", "sleep 1000", &json!([])).to_string()).await.unwrap();
    host.kubectl(&["wait", "--for=condition=Ready", "pod/orphan", "--timeout=60s"]).await.unwrap();
    println!("folder={}", fleet.folder().display());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// A pod with busybox; its volumes are mounted at their names.
fn pod(name: &str, command: &str, volumes: &Value) -> Value {
    let names = volumes.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap());
    let mounts: Vec<Value> = names.map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect();
    let container = json!({"name": "main", "image": BUSYBOX, "command": ["sh", "-c", command], "volumeMounts": mounts});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes},
    })
}

fn only_entry(folder: &Path) -> anyhow::Result<std::path::PathBuf> {
    let mut entries = folder.read_dir()?;
    let first = entries.next().ok_or_else(|| anyhow::anyhow!("{} is empty", folder.display()))?;
    assert!(entries.next().is_none(), "{} holds more than one volume", folder.display());
    Ok(first?.path())
}

fn exists(process: i32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Every process below this one.
fn descendants(ancestor: u32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut next = vec![ancestor.cast_signed()];
    while let Some(process) = next.pop() {
        let children: Vec<i32> = fs::read_dir(format!("/proc/{process}/task"))
            .into_iter()
            .flatten()
            .filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok())
            .flat_map(|children| children.split_whitespace().map(|child| child.parse().unwrap()).collect::<Vec<_>>())
            .collect();
        found.extend(&children);
        next.extend(children);
    }
    found
}
