//! The reader in a member: which kubelets it asks, and what of their words it tells. The kubelets are played.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use cluster::{Answers, Dial, Transport, metrics::Metrics};
use domain::volume::HostId;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::{
    Config,
    client::{Body, DynBody},
};
use leaf::stats::{Kubelets, Reader, ReaderAnswer, Trust, VolumeStats};
use serde_json::{Value, json};
use simulate::Cluster;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};
use tower::{BoxError, ServiceExt, service_fn};

use super::{lock, story, text, within::within};

/// How a kubelet answers.
#[derive(Clone)]
enum Kubelet {
    Says(String),
    /// After a while.
    Slow(Duration, String),
    Refuses,
    Silent,
    Endless,
}

/// A member's API server, and its kubelets by their addresses.
struct Member {
    cluster: Cluster,
    kubelets: Arc<Mutex<BTreeMap<String, Kubelet>>>,
    asked: Arc<Mutex<Vec<String>>>,
    /// For each pod that a list of them may have.
    list_takes: Arc<Mutex<Duration>>,
}

impl Member {
    fn new() -> Self {
        let cluster = Cluster::new("m", 7);
        cluster.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
        Self { cluster, kubelets: Arc::default(), asked: Arc::default(), list_takes: Arc::default() }
    }

    fn node(&self, name: &str, address: &str, kubelet: Kubelet) {
        let status = json!({"addresses": [{"type": "InternalIP", "address": address}]});
        self.cluster.create("nodes", json!({"metadata": {"name": name}, "status": status})).unwrap();
        lock(&self.kubelets).insert(address.to_owned(), kubelet);
    }

    fn silent(&self, count: usize) {
        for number in 0..count {
            let (node, address) = (format!("a{number:02}"), format!("10.0.1.{number}"));
            self.pod(&format!("p{number}"), &node, Some("h"), Some("leaf"));
            self.node(&node, &address, Kubelet::Silent);
        }
    }

    /// A pod with one volume of a claim, or none, and its UID.
    fn pod(&self, name: &str, node: &str, host: Option<&str>, claim: Option<&str>) -> String {
        let labels =
            host.map(|host| json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": host}));
        let of = host.map(|host| json!({"kosmos.csi.io/pod-uid": format!("{name}-of-{host}")}));
        let volume = claim.map(|claim| json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]));
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i:1"}], "volumes": volume.unwrap_or(json!([]))});
        let metadata = json!({"namespace": "shop", "name": name, "labels": labels, "annotations": of});
        let made = self.cluster.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
        self.is(name, "Running");
        text(&made, "/metadata/uid").to_owned()
    }

    /// As its kubelet says, which runs it.
    fn is(&self, pod: &str, phase: &str) {
        self.cluster.change("pods", "shop", pod, |pod| pod["status"]["phase"] = json!(phase)).unwrap();
    }

    fn dial(&self) -> Dial {
        let Dial::Within(api) = within([&self.cluster], "reader") else { panic!("it is within") };
        let (kubelets, asked) = (Arc::clone(&self.kubelets), Arc::clone(&self.asked));
        let list_takes = Arc::clone(&self.list_takes);
        Dial::Within(Arc::new(move |address: &Uri| -> Transport {
            let host = address.host().unwrap_or_default().to_owned();
            if host == "m" {
                let (api, address, list_takes) = (Arc::clone(&api), address.clone(), Arc::clone(&list_takes));
                let serve = move |request: Request<Body>| {
                    let (served, pause) = (api(&address), *lock(&list_takes) * limit(request.uri()));
                    async move {
                        sleep(pause).await;
                        served.oneshot(request).await
                    }
                };
                return service_fn(serve).boxed();
            }
            let (kubelets, asked) = (Arc::clone(&kubelets), Arc::clone(&asked));
            let answer = move |request: Request<Body>| {
                assert_eq!(request.uri().path(), "/stats/summary");
                lock(&asked).push(host.clone());
                let kubelet = lock(&kubelets).get(&host).cloned();
                async move { kubelet.ok_or("connection refused")?.answer().await }
            };
            service_fn(answer).boxed()
        }))
    }

    fn reader(&self, host: Option<&str>) -> Arc<Reader> {
        let config = Config::new("https://m".parse().unwrap());
        let kubelets = Kubelets::new(&config, Trust::Cluster, self.dial());
        let line = cluster::connect("m", config, Answers::OfAnySize, &self.dial(), &Metrics::new()).unwrap();
        Arc::new(Reader::new(line.probe, kubelets, host.map(|host| HostId(host.to_owned()))))
    }

    fn times_asked(&self, address: &str) -> usize {
        lock(&self.asked).iter().filter(|asked| *asked == address).count()
    }
}

impl Kubelet {
    /// Of these pods, by UID, each with one volume of a claim that has so many bytes in use.
    fn says(pods: &[(&str, u64)]) -> Self {
        Self::Says(page(pods))
    }

    fn slowly_says(pods: &[(&str, u64)]) -> Self {
        Self::Slow(Duration::from_millis(900), page(pods))
    }

    async fn answer(self) -> Result<Response<Box<DynBody>>, BoxError> {
        let whole = |text: String| -> Box<DynBody> {
            Box::new(BodyExt::map_err(Body::from(text.into_bytes()), BoxError::from))
        };
        match self {
            Self::Says(text) => Ok(Response::new(whole(text))),
            Self::Slow(pause, text) => {
                sleep(pause).await;
                Ok(Response::new(whole(text)))
            }
            Self::Refuses => Ok(Response::builder().status(403).body(whole("Forbidden (nodes/stats)".to_owned()))?),
            Self::Silent => std::future::pending().await,
            Self::Endless => {
                let piece = || Ok::<_, BoxError>(Frame::data(Bytes::from("x".repeat(1 << 16))));
                let body: Box<DynBody> = Box::new(StreamBody::new(futures::stream::repeat_with(piece)));
                Ok(Response::new(body))
            }
        }
    }
}

/// Objects that a list may have; none, where a request says nothing of it.
fn limit(request: &Uri) -> u32 {
    let mut query = request.query().unwrap_or_default().split('&');
    query.find_map(|one| one.strip_prefix("limit=")?.parse().ok()).unwrap_or_default()
}

/// What a kubelet says of these pods.
fn page(pods: &[(&str, u64)]) -> String {
    let of_pod = |(uid, used): &(&str, u64)| {
        let volume = json!({"name": "data", "usedBytes": used, "time": "2026-01-02T03:04:05Z",
            "pvcRef": {"name": "leaf", "namespace": "shop"}});
        json!({"podRef": {"name": "x", "namespace": "shop", "uid": uid}, "volume": [volume]})
    };
    let pods: Vec<Value> = pods.iter().map(of_pod).collect();
    json!({"node": {"nodeName": "n"}, "pods": pods}).to_string()
}

async fn told(reader: &Reader) -> ReaderAnswer {
    serde_json::from_slice(&reader.line().await).unwrap()
}

/// For whose pods, and how many bytes.
fn figures(volumes: &[VolumeStats]) -> Vec<(&str, Option<u64>)> {
    let mut all: Vec<_> = volumes.iter().map(|one| (one.pod_uid.as_str(), one.figures.used_bytes)).collect();
    all.sort_unstable();
    all
}

#[test]
fn reader_tells_of_its_own_hosts_copies_alone_and_asks_only_the_kubelets_that_have_some() {
    story(1, async {
        let member = Member::new();
        let (ours, theirs) =
            (member.pod("db", "n1", Some("h"), Some("leaf")), member.pod("web", "n1", Some("other"), Some("leaf")));
        let peoples = member.pod("own", "n2", None, Some("theirs"));
        member.pod("bare", "n3", Some("h"), None);
        member.node("n1", "10.0.0.1", Kubelet::says(&[(&ours, 1), (&theirs, 2), ("made-up", 3)]));
        member.node("n2", "10.0.0.2", Kubelet::says(&[(&peoples, 4), (&ours, 5)]));
        member.node("n3", "10.0.0.3", Kubelet::says(&[]));
        let said = told(&member.reader(Some("h"))).await;
        assert_eq!((figures(&said.volumes), said.unread), (vec![("db-of-h", Some(1))], vec![]));
        assert_eq!(*lock(&member.asked), ["10.0.0.1"]);
        assert!(said.volumes[0].time == "2026-01-02T03:04:05Z" && said.volumes[0].volume == "data");
        assert_eq!((said.volumes[0].namespace.as_str(), said.volumes[0].pod.as_str()), ("shop", "db"));
        let of_any = told(&member.reader(None)).await;
        assert_eq!(figures(&of_any.volumes), [("db-of-h", Some(1)), ("web-of-other", Some(2))]);
    });
}

#[test]
fn silent_kubelets_keep_nobody_waiting_and_are_asked_again_after_a_while() {
    story(1, async {
        let member = Member::new();
        member.silent(20);
        let ours = member.pod("db", "z", Some("h"), Some("leaf"));
        member.node("z", "10.0.0.1", Kubelet::says(&[(&ours, 1)]));
        let (reader, began) = (member.reader(Some("h")), Instant::now());
        let said = told(&reader).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(figures(&said.volumes), [("db-of-h", Some(1))]);
        assert!(said.unread.len() == 5 && said.unread[0] == "node a00: no answer within 3 s", "{:?}", said.unread);
        sleep(Duration::from_secs(6)).await;
        let began = Instant::now();
        assert_eq!(figures(&told(&reader).await.volumes).len(), 1);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!((member.times_asked("10.0.1.0"), member.times_asked("10.0.0.1")), (1, 2));
        lock(&member.kubelets).insert("10.0.1.0".to_owned(), Kubelet::says(&[]));
        sleep(Duration::from_secs(31)).await;
        told(&reader).await;
        assert_eq!(member.times_asked("10.0.1.0"), 2);
    });
}

#[test]
fn kubelet_that_there_was_no_time_to_ask_is_asked_first_at_the_next_look() {
    story(1, async {
        let member = Member::new();
        member.silent(40);
        let ours = member.pod("db", "z", Some("h"), Some("leaf"));
        member.node("z", "10.0.0.1", Kubelet::says(&[(&ours, 1)]));
        let reader = member.reader(Some("h"));
        let said = told(&reader).await;
        assert_eq!((member.times_asked("10.0.1.0"), member.times_asked("10.0.0.1")), (1, 0));
        assert!(said.unread.last().is_some_and(|last| last.contains("no time to ask")), "{:?}", said.unread);
        sleep(Duration::from_secs(6)).await;
        assert_eq!(figures(&told(&reader).await.volumes), [("db-of-h", Some(1))]);
    });
}

#[test]
fn every_kubelet_has_its_turn_where_there_is_not_time_for_all_at_one_look() {
    story(1, async {
        let member = Member::new();
        for number in 0..100 {
            let node = format!("a{number:02}");
            let pod = member.pod(&format!("p{number}"), &node, Some("h"), Some("leaf"));
            member.node(&node, &format!("10.0.1.{number}"), Kubelet::slowly_says(&[(&pod, 1)]));
        }
        let ours = member.pod("db", "z", Some("h"), Some("leaf"));
        member.node("z", "10.0.0.1", Kubelet::says(&[(&ours, 1)]));
        let (reader, mut seen) = (member.reader(Some("h")), BTreeSet::new());
        for look in 0..10 {
            seen.extend(told(&reader).await.volumes.into_iter().map(|one| one.pod_uid));
            assert_eq!(look > 0, seen.contains("db-of-h"), "after {look}");
            sleep(Duration::from_secs(6)).await;
        }
        assert_eq!(seen.len(), 101, "{seen:?}");
    });
}

/// Whoever makes pods in the member writes on them which node they are for, and our marks.
#[test]
fn pod_that_no_kubelet_runs_has_none_asked() {
    story(1, async {
        let member = Member::new();
        let ours = member.pod("db", "z", Some("h"), Some("leaf"));
        member.node("z", "10.0.0.1", Kubelet::says(&[(&ours, 1)]));
        member.silent(1);
        for number in 1..1500 {
            member.pod(&format!("forged-{number}"), &format!("made-up-{number}"), Some("h"), Some("leaf"));
            member.is(&format!("forged-{number}"), "Pending");
        }
        member.is("p0", "Succeeded");
        let said = told(&member.reader(Some("h"))).await;
        assert_eq!((figures(&said.volumes), said.unread), (vec![("db-of-h", Some(1))], vec![]));
        assert_eq!(*lock(&member.asked), ["10.0.0.1"]);
    });
}

/// Whoever makes pods in the member makes them as long as he likes.
#[test]
fn list_for_which_there_is_no_time_goes_on_at_the_next_look_and_what_is_known_is_told_meanwhile() {
    story(1, async {
        let member = Member::new();
        let ours = member.pod("db", "z", Some("h"), Some("leaf"));
        for number in 0..30 {
            member.pod(&format!("a-{number}"), "z", Some("h"), Some("leaf"));
        }
        member.node("z", "10.0.0.1", Kubelet::says(&[(&ours, 1)]));
        let reader = member.reader(Some("h"));
        assert_eq!(figures(&told(&reader).await.volumes), [("db-of-h", Some(1))]);
        let new = member.pod("new", "z", Some("h"), Some("leaf"));
        lock(&member.kubelets).insert("10.0.0.1".to_owned(), Kubelet::says(&[(&ours, 1), (&new, 2)]));
        *lock(&member.list_takes) = Duration::from_millis(80);
        for _ in 0..2 {
            sleep(Duration::from_secs(6)).await;
            let said = told(&reader).await;
            assert_eq!(figures(&said.volumes), [("db-of-h", Some(1))]);
            let words = "list pods: no end of the list within 2 s";
            assert!(said.unread[0].starts_with(words), "{:?}", said.unread);
        }
        sleep(Duration::from_secs(6)).await;
        let said = told(&reader).await;
        assert_eq!((figures(&said.volumes), said.unread), (vec![("db-of-h", Some(1)), ("new-of-h", Some(2))], vec![]));
    });
}

/// After some minutes, and there may be more than that between two looks.
#[test]
fn list_goes_on_also_where_the_api_server_has_forgotten_what_was_there_when_it_began() {
    story(1, async {
        let member = Member::new();
        for number in 0..30 {
            member.pod(&format!("a-{number}"), "z", Some("h"), Some("leaf"));
        }
        let ours = member.pod("db", "z", Some("h"), Some("leaf"));
        member.node("z", "10.0.0.1", Kubelet::says(&[(&ours, 1)]));
        *lock(&member.list_takes) = Duration::from_millis(80);
        let reader = member.reader(Some("h"));
        for look in 0..5 {
            told(&reader).await;
            sleep(Duration::from_mins(6)).await;
            member.pod(&format!("new-{look}"), "z", None, None);
            member.cluster.compact();
        }
        let said = told(&reader).await;
        assert_eq!(figures(&said.volumes), [("db-of-h", Some(1))], "{:?}", said.unread);
    });
}

#[test]
fn pod_that_is_too_long_takes_no_other_along() {
    story(1, async {
        let member = Member::new();
        member.pod("a", "z", Some("h"), Some("leaf"));
        let lengthen = |pod: &mut Value| pod["metadata"]["annotations"]["long"] = json!("x".repeat(11 << 20));
        member.cluster.change("pods", "shop", "a", lengthen).unwrap();
        let ours = member.pod("db", "z", Some("h"), Some("leaf"));
        member.node("z", "10.0.0.1", Kubelet::says(&[(&ours, 1)]));
        let said = told(&member.reader(Some("h"))).await;
        assert_eq!((figures(&said.volumes), said.unread), (vec![("db-of-h", Some(1))], vec![]));
    });
}

#[test]
fn kubelet_that_cannot_be_read_is_named_with_the_reason() {
    story(1, async {
        let member = Member::new();
        for (node, address, kubelet) in [
            ("a", "10.0.0.1", Kubelet::Refuses),
            ("b", "10.0.0.2", Kubelet::Endless),
            ("c", "10.0.0.3", Kubelet::Says("404 page not found".to_owned())),
        ] {
            member.pod(node, node, Some("h"), Some("leaf"));
            member.node(node, address, kubelet);
        }
        member.pod("lost", "gone", Some("h"), Some("leaf"));
        let said = told(&member.reader(Some("h"))).await;
        assert!(said.volumes.is_empty());
        let words = [
            "node a: get its /stats/summary: HTTP 403",
            "node b: get its /stats/summary: it says more than 4 MiB",
            "node c: get its /stats/summary: it cannot be read",
            "node gone: get node gone: HTTP 404",
        ];
        assert!(said.unread.len() == 4, "{:?}", said.unread);
        for (told, words) in said.unread.iter().zip(words) {
            assert!(told.starts_with(words), "{told}");
        }
    });
}

#[test]
fn figures_are_read_again_only_after_some_seconds_and_only_for_who_asks() {
    story(1, async {
        let member = Member::new();
        let ours = member.pod("db", "n1", Some("h"), Some("leaf"));
        member.node("n1", "10.0.0.1", Kubelet::says(&[(&ours, 1)]));
        let reader = member.reader(Some("h"));
        sleep(Duration::from_mins(5)).await;
        assert_eq!(member.times_asked("10.0.0.1"), 0);
        for _ in 0..10 {
            told(&reader).await;
        }
        assert_eq!(member.times_asked("10.0.0.1"), 1);
        sleep(Duration::from_secs(5)).await;
        told(&reader).await;
        assert_eq!(member.times_asked("10.0.0.1"), 2);
    });
}

#[tokio::test]
async fn whoever_connects_is_told_in_one_line_and_need_not_ask() {
    let member = Member::new();
    let ours = member.pod("db", "n1", Some("h"), Some("leaf"));
    member.node("n1", "10.0.0.1", Kubelet::says(&[(&ours, 1)]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(member.reader(Some("h")).serve(listener));
    let mut said = String::new();
    TcpStream::connect(address).await.unwrap().read_to_string(&mut said).await.unwrap();
    assert!(said.ends_with('\n') && said.lines().count() == 1, "{said}");
    assert_eq!(figures(&serde_json::from_str::<ReaderAnswer>(&said).unwrap().volumes), [("db-of-h", Some(1))]);
    serving.abort();
}
