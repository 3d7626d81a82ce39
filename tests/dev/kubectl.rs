//! The demo by hand: what `kosmos-csi dev` prints to be copied is run as it stands, with a stock kubectl.
#![allow(unreachable_pub, dead_code, reason = "a binary of its own, which uses a part of what both share")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "its helpers are part of tests")]

mod demo;
mod process;
#[path = "../clusters/tools.rs"]
mod tools;
#[path = "../clusters/tools_table.rs"]
mod tools_table;

use std::{fs, path::Path};

use demo::{CLAIM, VOLUMES, folder_of_the_leaf};
use process::{Dev, items};
use tokio::process::Command;

/// What a person types into a shell in the checkout; all that was printed.
async fn shell(dev: &Dev, line: &str) -> String {
    let kubectl = tools::tool("kubectl").unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_kosmos-csi"));
    let [kubectl, program] = [&kubectl, program].map(|tool| tool.parent().unwrap().display());
    let path = format!("{kubectl}:{program}:/usr/bin:/bin");
    let kubeconfig = dev.folder.join("host.kubeconfig");
    let output = Command::new("/bin/bash")
        .args(["-euc", line])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_clear()
        .env("PATH", path)
        .env("HOME", &dev.folder) // kubectl keeps what it has discovered there
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await
        .unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{line}\n{printed}");
    printed
}

#[tokio::test]
async fn commands_that_are_printed_do_what_they_say() {
    let folder = tempfile::Builder::new().prefix("dev it's ").tempdir_in("/tmp").unwrap();
    let dev = Dev::start(folder.path()).await;
    let report = dev.report.clone();
    let commands: Vec<&str> = report.lines().filter(|line| line.contains("kubectl")).collect();
    let [apply, look, delete] = commands.as_slice() else { panic!("not three commands: {report}") };

    shell(&dev, apply).await;
    shell(&dev, "kubectl -n test-new wait --for=condition=Available deployment/nginx-new --timeout=20s").await;
    let both = shell(&dev, look).await;
    for (words, times) in [("Bound", 4), ("Running", 2), ("kosmos-cluster38", 1), ("openebs-hostpath", 4)] {
        let lines = both.lines().filter(|line| line.contains(words)).count();
        assert_eq!(lines, times, "lines with {words} in\n{both}");
    }
    let ours: Vec<&str> = report.lines().skip_while(|line| !line.starts_with("source ")).take(2).collect();
    let told = shell(&dev, &format!("unset KUBECONFIG\n{}", ours.join("\n"))).await;
    for words in ["test-new/nginx-pvc   cluster38   1Gi    Bound   nginx-new-", "leaf volume", "2 of 2 answer"] {
        assert!(told.contains(words), "{words} in\n{told}");
    }
    let checked = shell(&dev, &format!("unset KUBECONFIG\n{}\nkosmos-csi member check cluster38", ours[0])).await;
    for words in ["they are good", "deploy/member.yaml", "FAILED"] {
        assert_eq!(checked.contains(words), words == "they are good", "{words} in\n{checked}");
    }
    let (host, member) = (dev.cluster("host").await, dev.cluster("cluster38").await);
    let leaf = folder_of_the_leaf(&member).await;
    fs::write(leaf.join("index.html"), "still here").unwrap();

    shell(&dev, "kubectl -n test-new rollout restart deployment/nginx-new").await;
    let status = "kubectl -n test-new rollout status deployment/nginx-new --timeout=20s";
    assert!(shell(&dev, status).await.contains("successfully rolled out"));
    shell(&dev, "kubectl -n test-new delete pod --all").await;
    shell(&dev, "kubectl -n test-new scale deployment/nginx-new --replicas=0").await;
    shell(&dev, "kubectl -n test-new wait --for=delete pod --all --timeout=20s").await;
    shell(&dev, "kubectl -n test-new scale deployment/nginx-new --replicas=1").await;
    shell(&dev, status).await;
    assert_eq!(folder_of_the_leaf(&member).await, leaf);
    assert_eq!(fs::read_to_string(leaf.join("index.html")).unwrap(), "still here");
    let told = shell(&dev, "kubectl -n test-new describe pvc nginx-pvc").await;
    assert!(told.contains("ProvisioningSucceeded") && told.contains("dev-provisioner"), "{told}");

    shell(&dev, delete).await;
    for cluster in [&host, &member] {
        cluster.until_gone(CLAIM).await;
        cluster.until(VOLUMES, "empty", |volumes| items(volumes).is_empty()).await;
    }
    assert!(!leaf.exists());
}

#[tokio::test]
async fn program_is_a_plugin_of_kubectl_by_the_name_of_a_link() {
    let folder = tempfile::Builder::new().prefix("dev-").tempdir_in("/tmp").unwrap();
    let dev = Dev::start(folder.path()).await;
    let link = r#"ln -s "$(command -v kosmos-csi)" "$HOME/kubectl-kosmos_csi"; export PATH="$HOME:$PATH""#;
    let told = shell(&dev, &format!("{link}; kubectl kosmos-csi get volumes; kubectl kosmos-csi --version")).await;
    for words in ["There are no such volumes.", concat!("kosmos-csi ", env!("CARGO_PKG_VERSION"))] {
        assert!(told.contains(words), "{words} in\n{told}");
    }
}

#[tokio::test]
async fn stateful_set_of_the_examples_runs_with_a_volume_for_each_pod() {
    let folder = tempfile::Builder::new().prefix("dev-").tempdir_in("/tmp").unwrap();
    let dev = Dev::start(folder.path()).await;
    shell(&dev, "kubectl -n test-new apply -f deploy/examples/statefulset.yaml").await;
    shell(&dev, "kubectl -n test-new rollout status statefulset/ledger --timeout=30s").await;
    let claims = shell(&dev, "kubectl -n test-new get pvc --no-headers").await;
    assert_eq!(claims.lines().filter(|line| line.contains("Bound")).count(), 2, "{claims}");
    shell(&dev, "kubectl -n test-new delete -f deploy/examples/statefulset.yaml").await;
    let claims = shell(&dev, "kubectl -n test-new delete pvc -l app=ledger").await;
    assert_eq!(claims.lines().count(), 2, "{claims}");
    dev.cluster("host").await.until(VOLUMES, "empty", |volumes| items(volumes).is_empty()).await;
}

#[tokio::test]
async fn examples_of_volumes_run_as_they_stand() {
    let folder = tempfile::Builder::new().prefix("dev-").tempdir_in("/tmp").unwrap();
    let dev = Dev::start(folder.path()).await;
    let apply =
        |files: &str| format!("cd deploy/examples; kubectl -n test-new apply -f {}", files.replace(' ', " -f "));
    shell(&dev, &apply("claim-and-pod.yaml block.yaml shared.yaml")).await;
    shell(&dev, "kubectl -n test-new wait --for=condition=Ready pods --all --timeout=30s").await;
    shell(&dev, &apply("growth.yaml")).await;
    let grown = "kubectl -n test-new wait --for=jsonpath={.status.capacity.storage}=2Gi pvc/nginx-pvc --timeout=30s";
    shell(&dev, grown).await;
    shell(&dev, &apply("snapshot.yaml clone.yaml")).await;
    shell(&dev, "kubectl -n test-new wait --for=condition=Ready pods --all --timeout=30s").await;
    let told = shell(&dev, "kubectl -n test-new get pods,pvc --no-headers -o wide").await;
    for (words, times) in [("Running", 6), ("Bound", 5), ("Block", 1), ("RWX", 1), ("2Gi", 3)] {
        let lines = told.lines().filter(|line| line.contains(words)).count();
        assert_eq!(lines, times, "lines with {words} in\n{told}");
    }
    let nodes = shell(&dev, "kubectl -n test-new get pods -l app=shared -o jsonpath='{.items[*].spec.nodeName}'").await;
    let nodes: Vec<&str> = nodes.split(' ').collect();
    assert!(nodes.len() == 2 && nodes[0] == nodes[1], "one volume is in one member: {nodes:?}");
}

#[tokio::test]
async fn move_of_a_volume_is_asked_for_by_a_command_and_shown_by_kubectl() {
    let folder = tempfile::Builder::new().prefix("dev-").tempdir_in("/tmp").unwrap();
    let dev = Dev::start(folder.path()).await;
    let comes_to = |phase: &str| {
        format!("kubectl -n test-new wait --for=jsonpath={{.status.phase}}={phase} volumemove --all --timeout=40s")
    };
    shell(&dev, "kubectl apply -f deploy/examples/nginx.yaml").await;
    shell(&dev, "kubectl -n test-new wait --for=condition=Available deployment/nginx-new --timeout=20s").await;
    shell(&dev, "kosmos-csi volume move test-new/nginx-pvc --to cluster39 --no-wait").await;
    shell(&dev, &comes_to("Waiting")).await;
    shell(&dev, "kubectl -n test-new scale deployment/nginx-new --replicas=0").await;
    shell(&dev, &comes_to("Succeeded")).await;
    let told = shell(&dev, "kubectl -n test-new get volumemoves --no-headers").await;
    let words: Vec<&str> = told.split_whitespace().take(5).collect();
    assert_eq!(words, ["nginx-pvc-to-cluster39", "nginx-pvc", "cluster38", "cluster39", "Succeeded"], "{told}");
}
