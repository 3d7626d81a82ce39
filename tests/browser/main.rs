//! The page as people see it: in a real browser, with the driver of `kosmos-csi dev` behind it.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "its helpers are part of tests")]

mod chromium;
#[path = "../dev/process.rs"]
#[expect(dead_code, reason = "more is asked of the process by its own tests")]
mod process;

use std::{fs, path::Path, time::Duration};

use chromium::{Chromium, Tab};
use process::{Cluster, Dev};
use serde_json::{Value, json};
use tempfile::TempDir;

const PAGES: [&str; 7] = ["overview", "volumes", "waiting", "moves", "capacity", "members", "events"];
const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const MOVES: &str = "/apis/kosmos.csi.io/v1alpha1/namespaces/shop/volumemoves";

/// `kosmos-csi dev`, and where its page is.
struct Shown {
    dev: Dev,
    page: String,
    _folder: TempDir,
}

impl Shown {
    /// With claims that are bound, and one for which no member has the class.
    async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("ui-").tempdir_in("/tmp").unwrap();
        let dev = Dev::start_with(folder.path(), &["--members", "3"]).await;
        let line = dev.report.lines().find_map(|line| line.trim().strip_prefix("page "));
        let page = line.unwrap_or_else(|| panic!("no page in {}", dev.report)).trim().trim_end_matches('/').to_owned();
        let host = dev.cluster("host").await;
        host.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
        for (name, leaf_class) in [("fast", "now"), ("gold", "of-nobody")] {
            let parameters = json!({"member": "cluster38", "leafStorageClass": leaf_class});
            let class = json!({"metadata": {"name": name}, "provisioner": "kosmos.csi.io", "parameters": parameters});
            host.create(CLASSES, &class).await;
        }
        for (claim, class) in [("orders", "fast"), ("customers", "fast"), ("stock", "fast"), ("ledger", "gold")] {
            claimed(&host, claim, class).await;
        }
        for claim in ["orders", "customers", "stock"] {
            let path = format!("{CLAIMS}/{claim}");
            host.until(&path, "bound", |claim| claim["status"]["phase"] == "Bound").await;
        }
        host.create(PODS, &pod("shop-0", "orders")).await;
        host.until(&format!("{PODS}/shop-0"), "running", |pod| pod["status"]["phase"] == "Running").await;
        fs::write(folder.path().join("state/members/cluster40.cordon"), "").unwrap();
        Self { dev, page, _folder: folder }
    }

    fn at(&self, page: &str) -> String {
        let path = if page == "overview" { "" } else { page };
        format!("{}/{path}", self.page)
    }
}

/// What is seen only while something goes on: a move that waits for a pod, and a leaf claim that somebody has deleted.
async fn goes_on(shown: &Shown, tab: &mut Tab) {
    let spec = json!({"claimName": "orders", "to": {"member": "cluster39"}});
    let wanted = json!({"apiVersion": "kosmos.csi.io/v1alpha1", "kind": "VolumeMove",
        "metadata": {"name": "orders-to-cluster39"}, "spec": spec});
    shown.dev.cluster("host").await.create(MOVES, &wanted).await;
    shown.dev.cluster("cluster38").await.delete(&format!("{CLAIMS}/stock")).await;
    for (page, words) in [("moves", "orders-to-cluster39"), ("events", "LeafDeleted")] {
        tab.open(&shown.at(page)).await;
        tab.until(&format!("document.body.innerText.includes({})", Value::from(words))).await;
    }
}

/// It goes wherever its claim's volume is.
fn pod(name: &str, claim: &str) -> Value {
    let toleration = json!({"key": "kosmos.io/node", "operator": "Exists"});
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
    let container = json!({"name": "db", "image": "db", "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let spec = json!({"tolerations": [toleration], "containers": [container], "volumes": [volume]});
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn claimed(host: &Cluster, name: &str, class: &str) {
    let resources = json!({"requests": {"storage": "2Gi"}});
    let spec = json!({"storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": resources});
    host.create(CLAIMS, &json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})).await;
}

/// Where people find the pictures; with KOSMOS_CSI_PICTURES those of the docs as well, which are by day and of one width.
fn keep(name: &str, look: &str, picture: &[u8]) {
    assert!(picture.len() > 5000, "{name}: hardly anything is seen");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{name}-{look}.png")), picture).unwrap();
    if let Some(docs) = std::env::var_os("KOSMOS_CSI_PICTURES").filter(|_| look == "1280-light") {
        fs::write(Path::new(&docs).join(format!("{name}.png")), picture).unwrap();
    }
}

async fn text(tab: &mut Tab) -> String {
    tab.value("document.body.innerText").await.as_str().unwrap().to_owned()
}

/// Nothing is wider than the window but tables, which are scrolled by themselves.
async fn fits(tab: &mut Tab, what: &str) {
    let over = tab.value("document.documentElement.scrollWidth - window.innerWidth").await;
    assert!(over.as_i64().unwrap() <= 0, "{what}: {over} pixels too wide");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_seen_by_day_and_night_on_every_width_and_complain_of_nothing() {
    let (shown, browser) = (Shown::start().await, Chromium::start());
    let mut tab = browser.tab().await;
    tab.open(&shown.at("overview")).await;
    tab.until("document.body.innerText.includes('cordoned')").await;
    tab.open(&shown.at("volumes?q=orders")).await;
    let link = tab.value("document.querySelector('tbody a').getAttribute('href')").await;
    let volume = link.as_str().unwrap().trim_start_matches('/').to_owned();
    goes_on(&shown, &mut tab).await;
    let pages = PAGES.into_iter().map(|page| (page, page.to_owned()));
    for (name, page) in pages.chain([("volume", volume), ("member", "members/cluster38".to_owned())]) {
        for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (1920, "dark")] {
            tab.resize(width, 800).await;
            tab.prefer(scheme).await;
            tab.open(&shown.at(&page)).await;
            fits(&mut tab, &format!("{name} on {width} pixels")).await;
            let picture = tab.picture().await;
            keep(name, &format!("{width}-{scheme}"), &picture);
        }
        let heading = tab.value("document.querySelectorAll('h1').length").await;
        assert_eq!(heading, 1, "{name}");
    }
    assert_eq!(tab.complaints, Vec::<String>::new());
    let _ = shown.dev.end(nix::sys::signal::Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_that_is_open_shows_what_is_new_without_being_opened_again() {
    let (shown, browser) = (Shown::start().await, Chromium::start());
    let mut tab = browser.tab().await;
    tab.open(&shown.at("volumes?q=returns")).await;
    assert!(text(&mut tab).await.contains("There are no such volumes."));
    let host = shown.dev.cluster("host").await;
    claimed(&host, "returns", "fast").await;
    host.until(&format!("{CLAIMS}/returns"), "bound", |claim| claim["status"]["phase"] == "Bound").await;
    let took = tab.until("document.body.innerText.includes('shop/returns')").await;
    assert!(took < Duration::from_secs(12), "{took:?}");
    tab.open(&shown.at("waiting")).await;
    let told = text(&mut tab).await;
    assert!(told.contains("shop/ledger") && told.contains("of-nobody"), "{told}");
    // And it says so when nobody answers any more.
    assert_eq!(tab.value("document.getElementById('stale').hidden").await, true);
    let (status, _) = shown.dev.end(nix::sys::signal::Signal::SIGTERM).await;
    assert!(status.success());
    tab.until("!document.getElementById('stale').hidden").await;
    assert!(text(&mut tab).await.contains("shop/ledger"), "what was seen stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_used_by_the_keyboard_alone() {
    let (shown, browser) = (Shown::start().await, Chromium::start());
    let mut tab = browser.tab().await;
    tab.open(&shown.at("overview")).await;
    focus(&mut tab, "Skip to the content").await;
    assert_ne!(tab.value("getComputedStyle(document.activeElement).outlineStyle").await, "none");
    focus(&mut tab, "Volumes").await;
    follow(&mut tab, "/volumes").await;
    tab.until("document.activeElement === document.body").await;
    for _ in 0..40 {
        tab.press("Tab").await;
        if tab.value("document.activeElement.name").await == "q" {
            break;
        }
    }
    for letter in ["s", "t", "o", "c", "k"] {
        tab.press(letter).await;
    }
    follow(&mut tab, "q=stock").await;
    focus(&mut tab, "shop/stock").await;
    follow(&mut tab, "/shop/stock/").await;
    let told = text(&mut tab).await;
    assert!(told.contains("Leaf claim") && told.contains("shop/stock"), "{told}");
    assert_eq!(tab.complaints, Vec::<String>::new());
}

/// Goes on by the keyboard until a link has the focus.
async fn focus(tab: &mut Tab, words: &str) {
    for _ in 0..40 {
        tab.press("Tab").await;
        if tab.value("document.activeElement.innerText").await == words {
            return;
        }
    }
    panic!("the keyboard does not lead to {words:?}");
}

async fn follow(tab: &mut Tab, part: &str) {
    tab.press("Enter").await;
    let there = format!("location.href.includes({}) && document.readyState === 'complete'", Value::from(part));
    tab.until(&there).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_read_and_filtered_without_scripts() {
    let (shown, browser) = (Shown::start().await, Chromium::start());
    let mut tab = browser.tab().await;
    tab.ask("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    for (page, words) in [
        ("overview", "3 of 3 members are well."),
        ("volumes", "shop/orders"),
        ("volumes?q=orders&state=Bound", "1 volume\n"),
        ("waiting", "shop/ledger"),
        ("moves", "No volume moves"),
        ("capacity", "openebs-hostpath"),
        ("members", "cluster40"),
        ("events", "Events"),
    ] {
        tab.open(&shown.at(page)).await;
        let told = text(&mut tab).await;
        assert!(told.contains(words), "{page}: {words}: {told}");
    }
    assert_eq!(tab.complaints, Vec::<String>::new());
}
