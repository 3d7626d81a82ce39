//! How full volumes are: a reader in the member says it, and the kubelet's pages of a virtual node have it by the host's claims. The
//! reader is played, down to the port-forward by which it is asked.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agent::usage::Page;
use cluster::{Answers, Dial, Transport, metrics::Metrics};
use futures::{SinkExt, StreamExt};
use http::{HeaderValue, Request, Response, Uri, header::SEC_WEBSOCKET_PROTOCOL};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use kube::{
    Config,
    client::{Body, DynBody},
};
use leaf::stats::{self, NAMESPACE, PORT};
use serde_json::{Value, json};
use simulate::Cluster;
use tokio::{
    io::DuplexStream,
    time::{Instant, sleep},
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{Message, handshake::server},
};
use tower::{BoxError, ServiceExt, service_fn};

use super::{
    SHOP, lock, story, text, until,
    usage::{SHARED, Scraped, value},
    within::within,
};

const USED: &str = "kubelet_volume_stats_used_bytes{namespace=\"shop\",persistentvolumeclaim=\"data\"}";

/// How the reader answers.
#[derive(Clone, Default)]
enum Reader {
    #[default]
    Silent,
    Says(String),
    Endless,
    /// Nobody listens at its port.
    Gone,
}

impl Reader {
    /// Of volumes of pod a, by its UID, their name and the bytes in use.
    fn says(volumes: &[(&str, &str, u64)]) -> Self {
        let all: Vec<Value> = volumes.iter().map(|(uid, volume, used)| of_pod("a", uid, volume, *used)).collect();
        Self::says_all(&all)
    }

    fn says_all(volumes: &[Value]) -> Self {
        Self::Says(format!("{}\n", json!({"volumes": volumes})))
    }

    /// To whom the port is forwarded.
    async fn answer(self, stream: DuplexStream) {
        let mut socket = accept_hdr_async(stream, with_protocol).await.unwrap();
        let [low, high] = PORT.to_le_bytes();
        for channel in [0, 1] {
            socket.send(Message::binary(vec![channel, low, high])).await.unwrap();
        }
        match self {
            Self::Silent => {}
            Self::Says(line) => socket.send(Message::binary([&[0_u8], line.as_bytes()].concat())).await.unwrap(),
            Self::Gone => {
                let fault = Message::binary([&[1_u8], "connection refused".as_bytes()].concat());
                socket.send(fault).await.unwrap();
            }
            Self::Endless => while socket.send(Message::binary(b"\0x".repeat(1 << 15))).await.is_ok() {},
        }
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
    }
}

fn of_pod(pod: &str, uid: &str, volume: &str, used: u64) -> Value {
    json!({"namespace": SHOP, "pod": pod, "podUid": uid, "volume": volume, "usedBytes": used})
}

#[expect(clippy::result_large_err, clippy::unnecessary_wraps, reason = "as the library wants it")]
fn with_protocol(_: &server::Request, mut answer: server::Response) -> Result<server::Response, server::ErrorResponse> {
    answer.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("v4.channel.k8s.io"));
    Ok(answer)
}

/// An API server's answer to a port-forward, and what follows it.
async fn forwarded(request: Request<Body>, reader: Reader) -> Result<Response<Box<DynBody>>, BoxError> {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(reader.answer(theirs));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ours)).await?;
    tokio::spawn(connection.with_upgrades());
    let answer = sender.send_request(request).await?;
    Ok(answer.map(|body| -> Box<DynBody> { Box::new(BodyExt::map_err(body, BoxError::from)) }))
}

/// How readers answer: all in one way, but for those that are named.
#[derive(Default)]
struct Readers {
    all: Reader,
    named: BTreeMap<String, Reader>,
}

impl Readers {
    /// Of the pod that a request is about.
    fn of(&self, path: &str) -> Reader {
        let named = self.named.iter().find(|(pod, _)| path.contains(pod.as_str()));
        named.map_or_else(|| self.all.clone(), |(_, reader)| reader.clone())
    }
}

/// A member with a reader for this host, a pod of the host's with a claim, and somebody who asks the node's kubelet.
struct Told {
    scraped: Scraped,
    readers: Arc<Mutex<Readers>>,
    asked: Arc<AtomicUsize>,
}

impl Told {
    async fn new() -> Self {
        let (readers, asked) = (Arc::<Mutex<Readers>>::default(), Arc::<AtomicUsize>::default());
        let (of_way, counted) = (Arc::clone(&readers), Arc::clone(&asked));
        let scraped = Scraped::by(move |dial| way(dial, of_way, counted)).await;
        scraped.world.claim("data");
        scraped.world.attach();
        scraped.world.run_pod("a", Some("data"));
        until("it runs", || scraped.world.phase("a") == "Running").await;
        scraped.world.member.create("namespaces", json!({"metadata": {"name": NAMESPACE}})).unwrap();
        Self { scraped, readers, asked }
    }

    async fn with_reader() -> Self {
        let told = Self::new().await;
        told.run_reader(&told.own_reader()).await;
        told
    }

    fn own_reader(&self) -> String {
        format!("kosmos-csi-stats-host-{}abcde", self.scraped.world.host_id())
    }

    async fn run_reader(&self, name: &str) {
        let spec = json!({"containers": [{"name": "volume-stats", "image": "i:1"}]});
        let pod = json!({"metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec});
        let member = &self.scraped.world.member;
        member.create("pods", pod).unwrap();
        let phase = || text(&member.get("pods", NAMESPACE, name).unwrap(), "/status/phase").to_owned();
        until("it runs", || phase() == "Running").await;
    }

    fn does(&self, reader: Reader) {
        lock(&self.readers).all = reader;
    }

    fn one_does(&self, name: &str, reader: Reader) {
        lock(&self.readers).named.insert(name.to_owned(), reader);
    }

    fn uid(&self, pod: &str) -> String {
        text(&self.scraped.world.pod(pod).unwrap(), "/metadata/uid").to_owned()
    }

    async fn page(&self, page: Page) -> String {
        self.scraped.page(page, SHARED + 1).await
    }
}

/// To the member as before, but for what is forwarded to a pod.
fn way(dial: Dial, readers: Arc<Mutex<Readers>>, asked: Arc<AtomicUsize>) -> Dial {
    let Dial::Within(open) = dial else { panic!("it is within") };
    Dial::Within(Arc::new(move |address: &Uri| -> Transport {
        let (open, address) = (Arc::clone(&open), address.clone());
        let (readers, asked) = (Arc::clone(&readers), Arc::clone(&asked));
        let serve = move |request: Request<Body>| {
            let reader = lock(&readers).of(request.uri().path());
            let (open, address) = (Arc::clone(&open), address.clone());
            let is_forward = request.uri().path().ends_with("/portforward");
            if is_forward {
                asked.fetch_add(1, Ordering::Relaxed);
            }
            async move { if is_forward { forwarded(request, reader).await } else { open(&address).oneshot(request).await } }
        };
        service_fn(serve).boxed()
    }))
}

#[test]
fn how_full_a_volume_is_in_the_member_is_told_of_the_hosts_claim_and_of_nothing_else() {
    story(1, async {
        let told = Told::with_reader().await;
        let uid = told.uid("a");
        told.does(Reader::says(&[(uid.as_str(), "data", 70), (uid.as_str(), "made-up", 1), ("another", "data", 2)]));
        let page = told.page(Page::Kubelet).await;
        assert!((value(&page, USED) - 70.0).abs() < 0.5, "{page}");
        assert_eq!(page.lines().filter(|line| line.starts_with("kubelet_volume_stats")).count(), 1, "{page}");
        let summary: Value = serde_json::from_str(&told.page(Page::Summary).await).unwrap();
        assert_eq!(summary["pods"].as_array().unwrap().len(), 1, "{summary}");
        let volume = &summary["pods"][0]["volume"][0];
        assert_eq!((&volume["name"], &volume["usedBytes"]), (&json!("data"), &json!(70)));
        assert_eq!(volume["pvcRef"], json!({"name": "data", "namespace": SHOP}));
        assert_eq!(told.asked.load(Ordering::Relaxed), 2);
        told.page(Page::Resource).await;
        told.page(Page::Cadvisor).await;
        assert_eq!(told.asked.load(Ordering::Relaxed), 2, "pages that have nothing of it");
    });
}

/// Whoever makes pods in the member may write any UID on his.
#[test]
fn pod_that_says_it_is_another_copy_of_a_pod_hides_no_figure_of_it() {
    story(1, async {
        let told = Told::with_reader().await;
        let uid = told.uid("a");
        told.does(Reader::says_all(&[of_pod("a", &uid, "data", 70), of_pod("forged", &uid, "data", 1)]));
        let page = told.page(Page::Kubelet).await;
        assert!((value(&page, USED) - 70.0).abs() < 0.5, "{page}");
    });
}

#[test]
fn reader_that_lies_is_silent_or_never_ends_takes_nothing_down_and_the_last_figures_stay() {
    story(1, async {
        let told = Told::with_reader().await;
        told.does(Reader::says(&[(told.uid("a").as_str(), "data", 70)]));
        told.page(Page::Kubelet).await;
        let mut negative = json!({"volumes": [of_pod("a", &told.uid("a"), "data", 0)]});
        negative["volumes"][0]["usedBytes"] = json!(-1);
        for reader in [
            Reader::Silent,
            Reader::Endless,
            Reader::Gone,
            Reader::Says("HTTP/1.1 200 OK\n".to_owned()),
            Reader::Says(format!("{negative}\n")),
        ] {
            told.does(reader);
            let began = Instant::now();
            let page = told.page(Page::Kubelet).await;
            assert!(began.elapsed().as_secs() < 18, "{:?}", began.elapsed());
            assert!((value(&page, USED) - 70.0).abs() < 0.5, "{page}");
        }
        told.does(Reader::says(&[(told.uid("a").as_str(), "data", 71)]));
        assert!((value(&told.page(Page::Kubelet).await, USED) - 71.0).abs() < 0.5);
    });
}

#[test]
fn reader_that_is_dead_is_passed_over_where_another_one_tells() {
    story(1, async {
        let told = Told::with_reader().await;
        let (own, other, uid) = (told.own_reader(), "kosmos-csi-stats-7d9f-x7d2k", told.uid("a"));
        told.run_reader(other).await;
        let says = |used: u64| Reader::says(&[(uid.as_str(), "data", used)]);
        let used = async || value(&told.page(Page::Kubelet).await, USED);
        told.one_does(&own, Reader::Gone);
        told.one_does(other, says(70));
        assert!((used().await - 70.0).abs() < 0.5);
        let unable = json!({"volumes": [], "unread": ["list pods: HTTP 403: no right"]});
        told.one_does(other, Reader::Says(format!("{unable}\n")));
        told.one_does(&own, says(71));
        assert!((used().await - 71.0).abs() < 0.5, "it can tell of nothing");
        told.one_does(&own, Reader::Silent);
        told.one_does(other, says(72));
        assert!((used().await - 71.0).abs() < 0.5, "it was asked first, and the last figures stay");
        let began = Instant::now();
        assert!((used().await - 72.0).abs() < 0.5, "it is asked last");
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    });
}

/// As `member check` does.
#[test]
fn readers_that_are_silent_keep_no_other_from_being_asked_by_who_asks_once() {
    story(1, async {
        let (member, readers, asked) = (Cluster::new("m", 7), Arc::<Mutex<Readers>>::default(), Arc::default());
        let dial = way(within([&member], "check"), Arc::clone(&readers), Arc::clone(&asked));
        let config = Config::new("https://m".parse().unwrap());
        let line = cluster::connect("m", config, Answers::OfAnySize, &dial, &Metrics::new()).unwrap();
        let (client, patience) = (line.unbounded().unwrap(), Duration::from_secs(10));
        let names = ["a", "b", "c"].map(|name| format!("kosmos-csi-stats-{name}"));
        let reason = stats::ask_each(&client, &names, patience).await.unwrap_err();
        assert_eq!(reason, "pod kosmos-csi/kosmos-csi-stats-a: no answer within 10 s");
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        lock(&readers).named.insert(names[2].clone(), Reader::says(&[("u", "data", 70)]));
        let (reader, told) = stats::ask_each(&client, &names, patience).await.unwrap();
        assert_eq!((reader.as_str(), told.volumes.len()), ("kosmos-csi-stats-c", 1));
        let unable = json!({"volumes": [], "unread": ["list pods: HTTP 403: no right"]});
        lock(&readers).named.insert(names[0].clone(), Reader::Says(format!("{unable}\n")));
        let (reader, told) = stats::ask_each(&client, &names, patience).await.unwrap();
        assert_eq!((reader.as_str(), told.volumes.len()), ("kosmos-csi-stats-c", 1), "a is passed over");
        lock(&readers).named.insert(names[2].clone(), Reader::Silent);
        let (reader, told) = stats::ask_each(&client, &names, patience).await.unwrap();
        assert_eq!((reader.as_str(), told.unread.len()), ("kosmos-csi-stats-a", 1), "no other says anything");
    });
}

#[test]
fn page_that_tells_nothing_of_volumes_waits_for_no_reader() {
    story(1, async {
        let told = Told::with_reader().await;
        told.does(Reader::Silent);
        let took = async |page: Page| {
            let began = Instant::now();
            told.page(page).await;
            began.elapsed().as_secs()
        };
        let resource = async {
            sleep(Duration::from_secs(1)).await;
            took(Page::Resource).await
        };
        assert_eq!(tokio::join!(took(Page::Summary), resource), (16, 11), "five of them for the reader");
    });
}

#[test]
fn member_without_a_reader_of_this_hosts_is_asked_nothing_and_all_else_is_told() {
    story(1, async {
        let told = Told::new().await;
        told.run_reader("kosmos-csi-stats-host-anotherabcde").await;
        let page = told.page(Page::Kubelet).await;
        assert!(page.contains("kubelet_node_name") && !page.contains("kubelet_volume_stats"), "{page}");
        told.page(Page::Summary).await;
        assert_eq!(told.asked.load(Ordering::Relaxed), 0);
    });
}
