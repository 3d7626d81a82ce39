//! The command's honest edges: whatever is wrong around it, it says so in a sentence and ends, or goes on and keeps
//! trying. No panic, no hang, no hot loop. Run as a process; what plays the host answers only what a test needs.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "authority.rs"]
mod authority;
#[path = "edges/driver.rs"]
mod driver;
#[path = "edges/files.rs"]
mod files;
#[path = "edges/host.rs"]
mod host;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::net::UnixListener,
    path::Path,
    time::{Duration, Instant},
};

use authority::AUTHORITY;
use csi::v1;
use domain::volume::Parameters;
use driver::{Driver, comes_to, get, run, run_into};
use host::{Host, kubeconfig};
use nix::sys::{
    signal::Signal,
    socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket},
};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, UnixStream},
    time::timeout,
};

/// Bad configuration, by the convention of `sysexits`.
const MISUSE: i32 = 64;
/// Nothing here takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:1";
const NO_ANSWER: &str = "the host does not answer yet";

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("edges-").tempdir_in("/tmp").unwrap()
}

fn endpoint(folder: &Path) -> String {
    format!("--endpoint=unix://{}/csi.sock", folder.display())
}

/// It ends at once with 64, and one line says all of `words`.
async fn is_misuse(arguments: &[&str], words: &[&str]) {
    let (code, printed) = run(arguments, &[]).await;
    assert_eq!(code, MISUSE, "{arguments:?}: {printed}");
    let said = printed.lines().filter(|line| line.to_lowercase().contains("error")).collect::<Vec<_>>();
    assert_eq!(said.len(), 1, "one sentence: {printed}");
    assert!(words.iter().all(|word| said[0].contains(word)), "{words:?} in: {printed}");
    assert!(!printed.contains("panicked"), "{printed}");
}

#[tokio::test]
async fn socket_path_that_cannot_be_used_is_named() {
    let folder = folder();
    let shown = folder.path().display();
    fs::write(folder.path().join("file"), "precious").unwrap();
    let long = format!("{shown}/{}", "x".repeat(120));
    for (path, words) in [
        (format!("{shown}/file"), ["/file", "is not a socket"]),
        (format!("{shown}/missing/csi.sock"), ["/missing/csi.sock", "does not exist"]),
        (shown.to_string(), [shown.to_string().as_str(), "is not a socket"]),
        (long, ["--endpoint", "at most 107"]),
        ("csi.sock".to_owned(), ["--endpoint", "absolute path"]),
        (String::new(), ["--endpoint", "absolute path"]),
        ("tcp://127.0.0.1:9000".to_owned(), ["--endpoint", "absolute path"]),
    ] {
        is_misuse(&["controller", &format!("--endpoint={path}")], &words).await;
    }
    is_misuse(&["controller"], &["--endpoint"]).await;
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "precious");
}

#[tokio::test]
async fn standard_variable_names_the_socket_too() {
    let (code, printed) = run(&["controller"], &[("CSI_ENDPOINT", "csi.sock")]).await;
    assert!(code == MISUSE && printed.contains("CSI_ENDPOINT"), "{code}: {printed}");
}

#[tokio::test]
async fn socket_that_another_process_serves_is_left_to_it() {
    let folder = folder();
    let path = folder.path().join("csi.sock");
    let _other = UnixListener::bind(&path).unwrap();
    is_misuse(&["controller", &endpoint(folder.path())], &["another process", "csi.sock"]).await;
    UnixStream::connect(&path).await.unwrap();
}

#[tokio::test]
async fn socket_of_a_process_too_busy_to_accept_is_left_to_it() {
    let folder = folder();
    let path = folder.path().join("csi.sock");
    let address = UnixAddr::new(&path).unwrap();
    let new = || socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).unwrap();
    let busy = new();
    bind(std::os::fd::AsRawFd::as_raw_fd(&busy), &address).unwrap();
    listen(&busy, Backlog::new(0).unwrap()).unwrap();
    let mut waiting = Vec::new();
    loop {
        let caller = new();
        if connect(std::os::fd::AsRawFd::as_raw_fd(&caller), &address).is_err() {
            break;
        }
        waiting.push(caller);
    }
    is_misuse(&["controller", &endpoint(folder.path())], &["csi.sock"]).await;
    assert!(path.exists());
}

#[tokio::test]
async fn folder_or_kubeconfig_that_is_missing_or_broken_is_named() {
    let folder = folder();
    let endpoint = endpoint(folder.path());
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let members = format!("--members-dir={}/missing", folder.path().display());
    is_misuse(&["controller", &endpoint, &members], &["--members-dir", "/missing"]).await;
    let no_folder = format!("--members-dir={}", file("plain", ""));
    is_misuse(&["controller", &endpoint, &no_folder], &["--members-dir", "/plain"]).await;
    is_misuse(&["controller", &endpoint], &["--kubeconfig", "not a pod"]).await;
    for path in [
        format!("{}/missing", folder.path().display()),
        folder.path().display().to_string(),
        file("empty", ""),
        file("prose", "this is no kubeconfig"),
        file("cut", &kubeconfig(NOWHERE)[..40]),
        file("no-context", &kubeconfig(NOWHERE).replace("current-context: c", "current-context: d")),
    ] {
        is_misuse(&["controller", &endpoint, &format!("--kubeconfig={path}")], &["--kubeconfig", &path]).await;
    }
    assert!(!folder.path().join("csi.sock").exists(), "no socket is left");
}

#[tokio::test]
async fn kubelet_endpoint_that_nobody_could_reach_or_trust_is_misuse() {
    let folder = folder();
    let files = ["client-ca", "certificate", "key"].map(|name| {
        let path = folder.path().join(name);
        fs::write(&path, "no PEM").unwrap();
        format!("--kubelet-{name}={}", path.display())
    });
    for (address, words) in [
        ("0.0.0.0:10250", ["--kubelet-address", "the one address"]),
        ("[::]:10250", ["--kubelet-address", "the one address"]),
        ("127.0.0.1:0", ["client-ca", "no certificate in PEM"]),
    ] {
        let address = format!("--kubelet-address={address}");
        is_misuse(&["virtual-node", &address, &files[0], &files[1], &files[2]], &words).await;
    }
}

#[tokio::test]
async fn kubeconfig_with_credentials_that_cannot_be_used_is_misuse() {
    let folder = folder();
    let path = folder.path().join("host.kubeconfig");
    let flag = format!("--kubeconfig={}", path.display());
    let broken = format!("certificate-authority-data: {AUTHORITY}");
    for (cluster, user) in [
        ("certificate-authority-data: '%%%'", "token: t"),
        ("certificate-authority: /missing", "token: t"),
        (&broken, "token: t"),
        ("tls-server-name: x", "tokenFile: /missing"),
        ("tls-server-name: x", "client-certificate: /missing, client-key: /missing"),
        ("tls-server-name: x", "client-certificate-data: bm9uZQ==, client-key-data: bm9uZQ=="),
        ("tls-server-name: x", "exec: {apiVersion: client.authentication.k8s.io/v1, command: /missing}"),
    ] {
        let text = kubeconfig("https://127.0.0.1:1").replace("server:", &format!("{cluster}, server:"));
        fs::write(&path, text.replace("token: t", user)).unwrap();
        is_misuse(&["controller", &endpoint(folder.path()), &flag], &["kubeconfig"]).await;
    }
}

#[tokio::test]
async fn admin_address_that_is_taken_is_named() {
    let folder = folder();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let kubeconfig = Host::nowhere(folder.path());
    let flag = format!("--admin-address={address}");
    is_misuse(&["controller", &endpoint(folder.path()), &kubeconfig, &flag], &["--admin-address", &address]).await;
    assert!(!folder.path().join("csi.sock").exists(), "no socket is left");
}

/// What is set for all pods of a cluster is not meant for this program, which goes on.
#[cfg(not(feature = "otlp"))]
#[tokio::test]
async fn program_without_traces_refuses_who_asks_it_for_them() {
    let folder = folder();
    let (socket, host) = (endpoint(folder.path()), Host::nowhere(folder.path()));
    let collector = "--otlp-endpoint=http://127.0.0.1:4317";
    let words = ["--otlp-endpoint", "sends no traces", "FEATURES=otlp"];
    is_misuse(&["controller", &socket, &host, collector], &words).await;
    is_misuse(&["virtual-node", &host, collector], &words).await;
    is_misuse(&["node", "--node-name=worker", "--member=cluster38", collector], &words).await;
    let missing = ["controller", "--endpoint=/missing/csi.sock"];
    let (code, printed) = run(&missing, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")]).await;
    let told = printed.lines().filter(|line| line.contains("OTEL_EXPORTER_OTLP_ENDPOINT")).count();
    assert!(code == MISUSE && told == 1 && printed.contains("/missing"), "{printed}");
}

#[tokio::test]
async fn log_says_that_its_filter_is_not_understood() {
    let missing = ["controller", "--endpoint=/missing/csi.sock"];
    for (filter, expected) in [("warn,kosmos_csi=warning", 1), ("warn,kosmos_csi=debug", 0), ("", 0)] {
        let (code, printed) = run(&missing, &[("RUST_LOG", filter)]).await;
        let told = printed.lines().filter(|line| line.contains("RUST_LOG is \"warn,kosmos_csi=warning\"")).count();
        assert!(code == MISUSE && told == expected && printed.contains("/missing"), "{filter}: {printed}");
    }
}

#[tokio::test]
async fn unknown_words_are_misuse_and_help_is_help() {
    let (code, printed) = run(&[], &[]).await;
    assert!(code == MISUSE && printed.contains("Usage: kosmos-csi"), "{code}: {printed}");
    for (arguments, word) in [
        (vec!["controller", "--endpont=unix:///csi.sock"], "--endpont"),
        (vec!["conductor"], "conductor"),
        (vec!["controller", "--log-format=xml"], "--log-format"),
        (vec!["controller", "--shutdown-grace=soon"], "--shutdown-grace"),
        (vec!["controller", "--admin-address=8080"], "--admin-address"),
        (vec!["controller", "--otlp-endpoint=https://collector:4317"], "--otlp-endpoint"),
        (vec!["controller", "--members-namespace=Not_One"], "--members-namespace"),
    ] {
        is_misuse(&arguments, &[word]).await;
    }
    for (arguments, words) in [
        (vec!["--help"], vec!["controller", "member", "doctor", "Usage: kosmos-csi <COMMAND>"]),
        (vec!["member", "add", "--help"], vec!["--member-kubeconfig <FILE>", "Without it 720h", "Exit code: 0"]),
        (vec!["doctor", "remove", "--help"], vec!["--data-will-be-lost", "if its policy is Delete", "<FINDING>"]),
        (
            vec!["member", "remove", "--help"],
            vec!["volumes, snapshots or leaves there", "volumes, snapshots, moves, leaves or pods"],
        ),
        (vec!["member", "forget", "--help"], vec!["or no record of it"]),
        (vec!["controller", "--help"], vec!["--endpoint <unix:///PATH>", "--members-dir <FOLDER>", "[default: 30s]"]),
        (vec!["completion", "bash"], vec!["-o default kosmos-csi", "uncordon", "--member-kubeconfig"]),
        (
            vec!["get", "volumes", "--help"],
            vec![
                "-n, --namespace <NAMESPACE>",
                "The host alone is asked",
                "Examples:",
                "- wide:  A table with more columns",
            ],
        ),
        (vec!["--version"], vec![concat!("kosmos-csi ", env!("CARGO_PKG_VERSION"))]),
    ] {
        let (code, printed) = run(&arguments, &[]).await;
        assert_eq!(code, 0, "{arguments:?}");
        assert!(words.iter().all(|word| printed.contains(word)), "{words:?} in: {printed}");
    }
}

#[tokio::test]
async fn command_ends_with_one_sentence_and_a_code_that_says_whose_fault_it_is() {
    let folder = folder();
    let nowhere = Host::nowhere(folder.path());
    for (command, expected) in [
        (vec!["member", "list"], 2),
        (vec!["doctor"], 2),
        (vec!["trace", "shop/db"], 2),
        (vec!["status"], 2),
        (vec!["member", "forget", "m"], 1),
    ] {
        let (code, printed) = run(&[&command[..], &[nowhere.as_str()]].concat(), &[]).await;
        assert_eq!(code, expected, "{command:?}: {printed}");
        assert!(printed.starts_with("error: host cluster: ") && printed.lines().count() == 1, "{printed}");
        assert!(printed.contains(&format!("{}: {NOWHERE}: ", nowhere.replace('=', " "))), "{printed}");
    }
    let path = nowhere.trim_start_matches("--kubeconfig=");
    let (_, printed) = run(&["status"], &[("KUBECONFIG", path)]).await;
    assert!(printed.starts_with(&format!("error: host cluster: KUBECONFIG {path}: {NOWHERE}: ")), "{printed}");
    is_misuse(&["member", "list"], &["no --kubeconfig is given"]).await;
    is_misuse(&["doctor", "--kubeconfig=/missing"], &["--kubeconfig", "/missing"]).await;
    is_misuse(&["member", "list", &nowhere, "--context=x"], &["--kubeconfig", "x"]).await;
    is_misuse(&["release", "shop/db", "--member-kubeconfig=/missing"], &["--member-kubeconfig", "/missing"]).await;
}

/// A list that is cut off is not to be taken for all there is.
#[tokio::test]
async fn output_that_cannot_be_written_is_an_error() {
    let folder = folder();
    let host = Host::start(folder.path()).await;
    for (arguments, expected) in
        [(vec!["member", "check", "m", host.flag.as_str()], 2), (vec!["completion", "bash"], 1)]
    {
        let (code, said) = run_into("/dev/full", &arguments).await;
        assert_eq!(code, expected, "{arguments:?}: {said}");
        assert!(said.starts_with("error: write to standard output: ") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn exit_code_says_whose_fault_it_is_also_where_the_error_cannot_be_written() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kosmos-csi"));
    let ended = command.args(["doctor", "--kubeconfig=/missing"]).stderr(full).status().unwrap();
    assert_eq!(ended.code(), Some(MISUSE));
}

/// The parser would quote the text around the slip, with the token in it.
#[tokio::test]
async fn kubeconfig_that_cannot_be_read_is_told_of_and_not_quoted() {
    const TOKEN: &str = "canary-of-a-kubeconfig";
    let folder = folder();
    let broken = folder.path().join("broken");
    std::fs::write(
        &broken,
        format!("apiVersion: v1\nusers:\n- name: a\n  user: {{token: {TOKEN}, token: {TOKEN}\nclusters: ["),
    )
    .unwrap();
    let host = format!("--kubeconfig={}", broken.display());
    let member = format!("--member-kubeconfig={}", broken.display());
    let endpoint = endpoint(folder.path());
    for arguments in [vec!["controller", &endpoint, &host], vec!["status", &host], vec!["release", "shop/db", &member]]
    {
        let (code, printed) = run(&arguments, &[]).await;
        assert!(
            code == 64 && printed.contains("it is not the YAML of a kubeconfig"),
            "{arguments:?}: {code} {printed}"
        );
        assert!(!printed.contains(TOKEN), "{arguments:?}: {printed}");
    }
    let (_, printed) = run(&["status"], &[("KUBECONFIG", &broken.display().to_string())]).await;
    assert!(printed.contains("it is not the YAML of a kubeconfig") && !printed.contains(TOKEN), "{printed}");
    let (_, printed) = run(&["status", "--kubeconfig=/missing"], &[]).await;
    assert_eq!(printed, "error: --kubeconfig /missing: it cannot be read: No such file or directory\n");
}

#[tokio::test]
async fn host_that_cannot_be_reached_is_waited_for() {
    let folder = folder();
    let mut driver = Driver::start(&[&endpoint(folder.path()), &Host::nowhere(folder.path())], folder.path());
    driver.line_with(NO_ANSWER).await;
    assert_eq!(get(driver.admin, "/livez").await, 200);
    assert_eq!(get(driver.admin, "/readyz").await, 503);
    assert_eq!(get(driver.admin, "/metrics").await, 200);

    let lines = driver.lines_within(Duration::from_secs(3)).await;
    let attempts = lines.iter().filter(|line| line.contains(NO_ANSWER)).count();
    assert!(attempts >= 2 && lines.len() < 20, "{lines:#?}");

    driver.signal(Signal::SIGTERM);
    assert_eq!(driver.end().await, Some(0));
    assert!(!folder.path().join("csi.sock").exists(), "the socket is removed");
}

#[tokio::test]
async fn host_that_takes_connections_and_is_silent_does_not_hold_up_a_stop() {
    let folder = folder();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let flag = host::write(folder.path(), &format!("http://{}", silent.local_addr().unwrap()));
    let mut driver = Driver::start(&[&endpoint(folder.path()), &flag], folder.path());
    let _connection = timeout(PATIENCE, silent.accept()).await.unwrap().unwrap();
    assert_eq!(get(driver.admin, "/livez").await, 200);

    let begin = Instant::now();
    driver.signal(Signal::SIGTERM);
    assert_eq!(driver.end().await, Some(0));
    assert!(begin.elapsed() < Duration::from_secs(5), "it took {:?}", begin.elapsed());
}

#[tokio::test]
async fn process_that_may_have_few_files_open_asks_for_all_it_may_have() {
    let folder = folder();
    let mut driver =
        Driver::start_with_files(64, &[&endpoint(folder.path()), &Host::nowhere(folder.path())], folder.path());
    driver.lines_with(&["may have more files and connections open", NO_ANSWER]).await;
    let value = async |name: &str| {
        let lines = driver::metric(driver.admin, &format!("{name} ")).await;
        lines[0].rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(value("kosmos_csi_open_files_limit").await > 64);
    let open = value("kosmos_csi_open_files").await;
    assert!((5..64).contains(&open), "{open}");
}

#[tokio::test]
async fn lease_is_given_back_at_a_stop_and_is_nobodys_then() {
    let folder = folder();
    let host = Host::start(folder.path()).await;
    let mut driver = Driver::start(&[&endpoint(folder.path()), &host.flag], folder.path());
    // The host knows it a moment before.
    driver.lines_with(&["this replica leads: it does the work in the background"]).await;
    driver.signal(Signal::SIGTERM);
    assert_eq!(driver.end().await, Some(0));
    assert_eq!(host.holder.borrow().as_deref(), Some(""));
}

#[tokio::test]
async fn line_of_the_log_names_the_module_that_it_is_from() {
    let folder = folder();
    let host = Host::start(folder.path()).await;
    let mut driver = Driver::start(&[&endpoint(folder.path()), &host.flag], folder.path());
    let line = driver.line_with("kosmos-csi is ready").await;
    assert!(line.contains(" INFO kosmos_csi_commands::run::controller: "), "{line}");
    driver.signal(Signal::SIGTERM);
    assert_eq!(driver.end().await, Some(0));
}

#[tokio::test]
async fn second_signal_ends_it_at_once_and_the_grace_ends_it_too() {
    for (grace, signals) in [("--shutdown-grace=1h", 2), ("--shutdown-grace=1s", 1)] {
        let folder = folder();
        let host = Host::start(folder.path()).await;
        let mut driver = Driver::start(&[&endpoint(folder.path()), &host.flag, grace], folder.path());
        driver.line_with("kosmos-csi is ready").await;
        let call = create_volume(&folder.path().join("csi.sock"));
        host.asked_for("persistentvolumeclaims").await; // which is never answered

        driver.signal(Signal::SIGTERM);
        driver.line_with("requests under way may finish").await;
        comes_to(driver.admin, "/readyz", 503).await;
        if signals == 2 {
            driver.signal(Signal::SIGTERM);
        }
        let code = driver.end().await;
        assert_eq!(code, Some(1), "{grace}");
        assert!(!folder.path().join("csi.sock").exists(), "the socket is removed");
        call.abort();
    }
}

/// Asks for a volume, as the provisioner does.
fn create_volume(socket: &Path) -> tokio::task::JoinHandle<()> {
    use v1::{controller_client::ControllerClient, volume_capability as capability};
    let socket = socket.to_owned();
    let mount = capability::AccessType::Mount(capability::MountVolume::default());
    let mode = capability::AccessMode { mode: capability::access_mode::Mode::SingleNodeWriter.into() };
    let parameters = [("csi.storage.k8s.io/pvc/namespace", "default"), ("csi.storage.k8s.io/pvc/name", "data")];
    let request = v1::CreateVolumeRequest {
        name: "pvc-1".to_owned(),
        volume_capabilities: vec![v1::VolumeCapability { access_type: Some(mount), access_mode: Some(mode) }],
        parameters: parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..v1::CreateVolumeRequest::default()
    };
    tokio::spawn(async move {
        let channel = driver::channel(socket);
        let _ = ControllerClient::new(channel).create_volume(tonic::Request::new(request)).await;
    })
}

#[tokio::test]
async fn members_folder_that_is_empty_leaves_it_ready_and_warned() {
    let folder = folder();
    let host = Host::start(folder.path()).await;
    let members = folder.path().join("members");
    fs::create_dir(&members).unwrap();
    let flag = format!("--members-dir={}", members.display());
    let mut driver = Driver::start(&[&endpoint(folder.path()), &host.flag, &flag], folder.path());
    driver.lines_with(&["no <name>.kubeconfig here yet", "no Secret with this label yet", "kosmos-csi is ready"]).await;
    assert_eq!(get(driver.admin, "/readyz").await, 200);

    fs::write(members.join("broken.kubeconfig"), "this is no kubeconfig").unwrap();
    driver.line_with("broken.kubeconfig").await;
    let lines = driver.lines_within(Duration::from_secs(3)).await;
    assert!(lines.len() < 5, "it is said once: {lines:#?}");
    assert_eq!(get(driver.admin, "/readyz").await, 200);

    driver.signal(Signal::SIGINT);
    assert_eq!(driver.end().await, Some(0));
}

#[tokio::test]
async fn socket_that_nobody_serves_any_more_is_replaced() {
    let folder = folder();
    let path = folder.path().join("csi.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists() && UnixStream::connect(&path).await.is_err());
    let mut driver = Driver::start(&[&endpoint(folder.path()), &Host::nowhere(folder.path())], folder.path());
    driver.line_with(NO_ANSWER).await;
    UnixStream::connect(&path).await.unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "nobody else can open it");
}

#[tokio::test]
async fn log_that_nobody_reads_any_more_is_no_reason_to_end() {
    let folder = folder();
    let mut driver = Driver::start(&[&endpoint(folder.path()), &Host::nowhere(folder.path())], folder.path());
    driver.line_with(NO_ANSWER).await;
    driver.close_log();
    let attempts = async || driver::metric(driver.admin, "kosmos_csi_member_request_errors_total").await;
    let before = attempts().await;
    timeout(PATIENCE, async { while attempts().await == before {} }).await.unwrap();
    assert_eq!(get(driver.admin, "/livez").await, 200);
    driver.signal(Signal::SIGTERM);
    assert_eq!(driver.end().await, Some(0));
}

#[tokio::test]
async fn json_log_has_one_object_per_line() {
    let folder = folder();
    let flags = [&endpoint(folder.path()), &Host::nowhere(folder.path()), "--log-format=json"];
    let mut driver = Driver::start(&flags, folder.path());
    let line = driver.line_with(NO_ANSWER).await;
    driver.signal(Signal::SIGTERM);
    assert_eq!(driver.end().await, Some(0));
    for line in [vec![line], driver.seen.clone()].concat() {
        let object: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(["timestamp", "level", "message"].iter().all(|key| object[key].is_string()), "{line}");
    }
    let wrong = ["controller", "--endpoint=/missing/csi.sock", "--log-format=json"];
    let (code, printed) = run(&wrong, &[]).await;
    let last: serde_json::Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert!(code == MISUSE && last["level"] == "ERROR", "{printed}");
}

/// The first words in backticks of a page's table rows below a heading.
fn listed(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let rows = section.take_while(|line| !line.starts_with("## ")).filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split(['`', ' ']).next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn docs_list_every_flag_and_every_parameter() {
    let (_, help) = run(&["controller", "--help"], &[]).await;
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with("--"));
    let flags: BTreeSet<String> = lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert_eq!(listed(include_str!("../docs/flags.md"), "## Flags"), flags);

    let unknown = BTreeMap::from([("x".to_owned(), "y".to_owned())]);
    let refusal = Parameters::parse(&unknown).unwrap_err().to_string();
    let known = refusal.split_once("known are ").unwrap().1.split(" (").next().unwrap();
    let parameters: BTreeSet<String> = known.split(", ").map(str::to_owned).collect();
    assert_eq!(listed(include_str!("../docs/storageclass.md"), "## StorageClass"), parameters);
}
