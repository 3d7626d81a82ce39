//! Every form in which a list is printed: of nothing, of one thing, of several, and where the host does not answer.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};

use crate::{
    clusters::{CLAIMS, Clusters, VOLUMES, kubeconfig},
    moves::{DEFINITION, is_in},
    orphans::{complete, host_volume, leaf},
};

const LISTS: [&str; 7] =
    ["status", "verify", "get volumes", "get members", "doctor --interval=0s", "trace shop/db", "volume status"];
const FORMS: [&str; 5] = ["table", "wide", "json", "yaml", "name"];

/// A claim of the host with a pod, and its volume with its leaf.
fn bound(clusters: &Clusters, name: &str) {
    let volume = format!("pvc-{name}");
    leaf(clusters, name, &volume);
    host_volume(clusters, name, &volume);
    let claim = claim(clusters, name, &volume);
    let reference = json!({"namespace": "shop", "name": name, "uid": claim["metadata"]["uid"]});
    let is_bound = |volume: &mut Value| {
        volume["spec"]["claimRef"] = reference;
        volume["spec"]["storageClassName"] = json!("fast");
        volume["status"] = json!({"phase": "Bound"});
    };
    clusters.host.change(VOLUMES, "", &volume, is_bound).unwrap();
    let uses = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    let spec = json!({"containers": [{"name": "main", "image": "x"}], "volumes": uses});
    let pod = json!({"metadata": {"name": format!("{name}-0"), "namespace": "shop"}, "spec": spec});
    clusters.host.create("pods", pod).unwrap();
}

/// One that waits, where there is no volume.
fn claim(clusters: &Clusters, name: &str, volume: &str) -> Value {
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "volumeMode": "Filesystem", "storageClassName": "fast"},
    });
    if !volume.is_empty() {
        claim["spec"]["volumeName"] = json!(volume);
    }
    (*clusters.host.create(CLAIMS, claim).unwrap()).clone()
}

/// A host with so many volumes, each of which moves, in a member.
async fn world(volumes: usize) -> Clusters {
    let clusters = Clusters::new(2);
    let definition = serde_saphyr::from_str(DEFINITION).unwrap();
    clusters.host.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    if volumes > 0 {
        clusters.join().await;
        complete(&clusters);
    }
    for name in ["db", "log"].into_iter().take(volumes) {
        bound(&clusters, name);
        clusters.does(&format!("volume move shop/{name} --to=m1 --no-wait")).await;
        is_in(&clusters, &format!("{name}-to-m1"), "Waiting");
    }
    if volumes > 1 {
        claim(&clusters, "new", "");
        clusters.pin("gone", 1);
    }
    clusters
}

fn unreachable() -> Clusters {
    let clusters = Clusters::new(0);
    fs::write(clusters.file("host"), kubeconfig("https://nowhere")).unwrap();
    clusters
}

/// Without what is another one a moment later: how long ago, how long still, which version.
fn steady(text: &str) -> String {
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        kept.push_str(before);
        if before.trim_end_matches(['"', ' ', ':']).ends_with("creationTimestamp") {
            kept.push_str("WHEN");
            rest = from.trim_start_matches(|letter| letter != '"');
            continue;
        }
        let digits = from.len() - from.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (number, after) = from.split_at(digits);
        let is_time = after.starts_with(['s', 'm', 'h', 'd'])
            && !after[1..].starts_with(|letter: char| letter.is_ascii_alphanumeric());
        if before.trim_end().ends_with("ageSeconds\":") || before.trim_end().ends_with("ageSeconds:") {
            kept.push('0');
        } else if is_time {
            kept.push_str(&"0".repeat(digits));
        } else {
            kept.push_str(number);
        }
        rest = after;
    }
    kept + rest
}

async fn told(clusters: &Clusters, words: &str, form: &str) -> String {
    let words = format!("{words} -o {form}");
    steady(&clusters.type_in(&words).await.unwrap_or_else(|error| panic!("{words}: {error}")).text)
}

#[tokio::test]
async fn each_form_of_a_list_has_the_same_items_be_they_none_one_or_many() {
    for (volumes, members, moves) in [(0, 0, 0), (1, 1, 1), (3, 2, 2)] {
        let clusters = world(volumes).await;
        for words in LISTS {
            let json: Value = serde_json::from_str(&told(&clusters, words, "json").await).unwrap();
            let yaml: Value = serde_saphyr::from_str(&told(&clusters, words, "yaml").await).unwrap();
            assert_eq!(json, yaml, "{words}");
            assert_eq!(json["apiVersion"], "cli.kosmos.csi.io/v1alpha1", "{words}");
            assert!(json["kind"].as_str().is_some_and(|kind| kind.ends_with("List")), "{words}: {json:#}");
            assert!(json["items"].is_array(), "{words}: {json:#}");
        }
        for (words, count) in [("get volumes", volumes), ("get members", members), ("volume status", moves)] {
            let json: Value = serde_json::from_str(&told(&clusters, words, "json").await).unwrap();
            assert_eq!(json["items"].as_array().unwrap().len(), count, "{words}: {json:#}");
            assert_eq!(told(&clusters, words, "name").await.lines().count(), count, "{words}");
            let (table, wide) = (told(&clusters, words, "table").await, told(&clusters, words, "wide").await);
            let lines = if count == 0 { 0 } else { count + 1 };
            assert_eq!((table.lines().count(), wide.lines().count()), (lines, lines), "{table}{wide}");
            let head = |text: &str| -> Vec<String> {
                text.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
            };
            assert!(head(&wide).starts_with(&head(&table)), "{wide}");
        }
    }
}

#[tokio::test]
async fn host_that_does_not_answer_is_one_sentence_in_whatever_form() {
    let clusters = unreachable();
    for words in LISTS {
        for form in FORMS {
            let told = clusters.type_in(&format!("{words} -o {form}")).await.err();
            let told = told.unwrap_or_else(|| panic!("{words} -o {form} has something to show"));
            assert!(told.contains("host") && told.lines().count() == 1, "{words} -o {form}: {told}");
        }
    }
}

/// What was printed is what the file has, which KOSMOS_CSI_WRITE_GOLDEN=1 writes.
fn is_as_before(name: &str, printed: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operator/golden");
    let file = folder.join(format!("{name}.txt"));
    if std::env::var_os("KOSMOS_CSI_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&file, printed).unwrap();
    }
    let before = fs::read_to_string(&file).unwrap_or_default();
    let first = before.lines().zip(printed.lines()).find(|(before, now)| before != now);
    assert!(before == printed, "{} has another text, from {first:?} on; what is printed is\n{printed}", file.display());
}

#[tokio::test]
async fn lists_are_printed_as_they_were() {
    let worlds = [("empty", world(0).await), ("one", world(1).await), ("many", world(3).await)];
    for (name, clusters) in worlds.into_iter().chain([("unreachable", unreachable())]) {
        let mut printed = String::new();
        let folder = clusters.folder.path().display().to_string();
        for words in LISTS {
            for form in FORMS {
                let typed = format!("{words} -o {form}");
                let (text, code) = match clusters.type_in(&typed).await {
                    Ok(report) => (report.text, u8::from(!report.well)),
                    Err(error) => (format!("error: {error}\n"), 2),
                };
                write!(
                    printed,
                    "$ kosmos-csi {typed}\n{}[exit code {code}]\n\n",
                    steady(&text.replace(&folder, "FOLDER"))
                )
                .unwrap();
            }
        }
        is_as_before(name, &printed);
    }
}
