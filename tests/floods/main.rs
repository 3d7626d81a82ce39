//! A member that says more than a process could hold: it is closed with the reason, and memory stays what it is allowed to be.

#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

mod among_ten;
#[path = "../bench/leaves.rs"]
#[expect(dead_code, reason = "volumes are the benchmark's")]
mod leaves;
#[path = "../memory/resident.rs"]
mod resident;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cluster::{Answers, Connection, Dial, Transport, connect, metrics::Metrics, unmanaged::Unmanaged};
use domain::volume::{Claim, HostId};
use futures::stream;
use host::{Host, moves::Moves};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::{
    api::core::v1::Pod,
    serde_json::{Value, from_value, json},
};
use kube::{
    Api, Config,
    api::{ApiResource, DynamicObject, ListParams},
    client::{Body, DynBody},
};
use leaf::MemberClient;
use resident::resident;
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, ServiceExt, service_fn};

/// Of what the chart gives the controller, what a flood may take.
const ALLOWED: u64 = 384 << 20;
/// What tells one leaf from another.
const EVERY: [&str; 3] = ["/metadata/name", "/metadata/uid", "/metadata/labels/kosmos.csi.io~1volume"];
const PIECE: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_mins(2);

fn host() -> HostId {
    HostId("6a2f8d1e-5f0c-4f0a-9c57-3f3c0d4c5b1a".to_owned())
}

/// What is measured is the whole process's: one test at a time.
fn alone(test: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// What follows one another until nobody listens.
type Texts = Box<dyn Iterator<Item = String> + Send>;
/// What a member answers.
type Answer = Arc<dyn Fn(&Uri) -> (u16, Texts) + Send + Sync>;

/// A way to a member that says what it likes.
fn member(answer: Answer) -> Connection {
    cluster(answer, Answers::Bounded)
}

fn cluster(answer: Answer, answers: Answers) -> Connection {
    let dial = move |_: &Uri| -> Transport {
        let answer = Arc::clone(&answer);
        let serve = move |request: Request<Body>| {
            let (status, texts) = answer(request.uri());
            let frames = stream::iter(texts.map(|text| Ok::<_, BoxError>(Frame::data(Bytes::from(text)))));
            let body: Box<DynBody> = Box::new(BodyExt::map_err(StreamBody::new(frames), BoxError::from));
            std::future::ready(Ok::<_, BoxError>(Response::builder().status(status).body(body).unwrap()))
        };
        service_fn(serve).boxed()
    };
    let config = Config::new("https://m".parse().unwrap());
    connect("m", config, answers, &Dial::Within(Arc::new(dial)), &Metrics::new()).unwrap()
}

fn endless(text: &str) -> impl Iterator<Item = String> + use<> {
    std::iter::repeat(text.repeat(PIECE / text.len()))
}

fn empty_list() -> (u16, Texts) {
    said(std::iter::once(json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string()))
}

fn said(texts: impl Iterator<Item = String> + Send + 'static) -> (u16, Texts) {
    (200, Box::new(texts))
}

/// A claim, and the same under other names as often as that is wanted.
fn like(claim: &Value, differs: &'static [&'static str]) -> impl Fn(u32) -> String + Send + Sync + use<> {
    let text = claim.to_string();
    let words: Vec<String> =
        differs.iter().map(|path| claim.pointer(path).and_then(Value::as_str).unwrap().to_owned()).collect();
    move |number| words.iter().fold(text.clone(), |text, word| text.replace(word.as_str(), &format!("{number:032x}")))
}

/// Claims without end, each of them as it is said.
fn claims(of: impl Fn(u32) -> String + Send + Sync + 'static) -> Answer {
    let of = Arc::new(of);
    Arc::new(move |uri| {
        if !uri.path().ends_with("/persistentvolumeclaims") {
            return empty_list();
        }
        let (first, of) = (r#"{"metadata":{"resourceVersion":"1"},"items":["#.to_owned(), Arc::clone(&of));
        said(std::iter::once(first).chain((0..).map(move |number| format!("{},", of(number)))))
    })
}

/// The member is closed, with these words, and memory is what it was but for what is allowed.
async fn is_closed(answer: Answer, words: &str) {
    let before = resident();
    let line = member(answer);
    let cluster = MemberClient::new("m", host(), line.client.clone());
    let closed = async {
        let begun = Instant::now();
        loop {
            let reason = cluster.rows.obstacle().or_else(|| line.breaker.open());
            if let Some(reason) = reason.filter(|reason| reason.contains(words)) {
                return reason;
            }
            assert!(begun.elapsed() < PATIENCE, "it is not closed: {words}");
            sleep(Duration::from_millis(20)).await;
        }
    };
    let reason = tokio::select! {
        reason = closed => reason,
        () = leaf::watch::keep(&cluster) => panic!("it is listed again at once"),
    };
    let taken = resident().saturating_sub(before);
    assert!(taken < ALLOWED, "{reason}: {} MiB were taken", taken >> 20);
    assert!(cluster.rows.page(None, 10, |_| true).len() < 10, "what is not believed is kept");
}

#[test]
fn member_with_a_million_labelled_claims_is_closed_with_the_reason() {
    alone(async {
        let mut claim = leaves::claim(&host(), 7);
        claim.as_object_mut().unwrap().retain(|part, _| part == "metadata");
        claim["metadata"]["annotations"] = Value::Null;
        is_closed(claims(like(&claim, &EVERY)), "200000 objects of a kind carry this host's labels").await;
    });
}

#[test]
fn member_with_a_thousand_copies_of_one_leaf_is_closed_with_the_reason() {
    alone(async {
        let copy = like(&leaves::claim(&host(), 7), &["/metadata/name", "/metadata/uid"]);
        is_closed(claims(copy), "the labels of one leaf").await;
    });
}

#[test]
fn member_whose_claims_say_a_mebibyte_each_is_closed_with_the_reason() {
    alone(async {
        let mut claim = leaves::claim(&host(), 7);
        claim["metadata"]["annotations"]["kosmos.csi.io/former"] = json!("x".repeat(1 << 20));
        is_closed(claims(like(&claim, &EVERY)), "labels have more than 64 MiB").await;
    });
}

#[test]
fn list_whose_object_never_ends_is_not_read_to_its_end() {
    alone(async {
        let answer = |uri: &Uri| -> (u16, Texts) {
            if !uri.path().ends_with("/persistentvolumes") {
                return empty_list();
            }
            said(std::iter::once(r#"{"items":[{"a":""#.to_owned()).chain(endless("x")))
        };
        is_closed(Arc::new(answer), "longer than 10 MiB").await;
    });
}

#[test]
fn watch_whose_line_never_ends_is_broken_off() {
    alone(async {
        let answer = |uri: &Uri| -> (u16, Texts) {
            if uri.query().unwrap_or_default().contains("watch=true") { said(endless("x")) } else { empty_list() }
        };
        is_closed(Arc::new(answer), "a line of a watch is longer than 10 MiB").await;
    });
}

/// Whoever reads a list or a watch piece by piece reads a refusal as a whole.
#[test]
fn refusal_that_never_ends_is_not_read_to_its_end() {
    for is_of_watch in [false, true] {
        alone(async {
            let answer = move |uri: &Uri| -> (u16, Texts) {
                let watches = uri.query().unwrap_or_default().contains("watch=true");
                if watches == is_of_watch { (500, Box::new(endless("x\n"))) } else { empty_list() }
            };
            is_closed(Arc::new(answer), "more than 64 MiB").await;
        });
    }
}

#[test]
fn list_that_has_always_another_page_is_not_read_to_its_end() {
    alone(async {
        let page = json!({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}).to_string();
        is_closed(Arc::new(move |_| said(std::iter::once(page.clone()))), "more than 200000 objects").await;
    });
}

#[test]
fn list_of_nothing_that_never_ends_is_not_read_to_its_end() {
    alone(async {
        let answer = |_: &Uri| said(std::iter::once(r#"{"items":["#.to_owned()).chain(endless(" ")));
        is_closed(Arc::new(answer), "a part of a list of it is longer than 10 MiB").await;
    });
}

#[test]
fn answer_that_never_ends_is_not_read_to_its_end() {
    alone(async {
        let before = resident();
        let line = member(Arc::new(|_| said(std::iter::once(r#"{"a":""#.to_owned()).chain(endless("x")))));
        let asked = (0..8).map(|_| host::identity(&line.client));
        for answer in futures::future::join_all(asked).await {
            assert!(answer.is_err());
        }
        assert!(line.breaker.open().is_some_and(|reason| reason.contains("64 MiB")));
        let taken = resident().saturating_sub(before);
        assert!(taken < ALLOWED, "{} MiB were taken", taken >> 20);
    });
}

/// As whoever may make pods in one namespace there may make thirty, of which etcd takes each, or five.
#[test]
fn list_of_pods_with_values_without_number_is_not_decoded() {
    alone(async {
        let arguments = json!({"name": "c", "args": vec!["a"; 500_000]});
        let variables = json!({"name": "c", "env": vec![json!({"name": "a"}); 220_000]});
        for (number, container) in [(30, arguments), (5, variables)] {
            let before = resident();
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}}).to_string();
            let line = member(Arc::new(move |_| {
                let (first, pod) = (r#"{"metadata":{"resourceVersion":"1"},"items":["#.to_owned(), pod.clone());
                let pods = (0..number).map(move |number| format!("{}{pod}", if number == 0 { "" } else { "," }));
                said(std::iter::once(first).chain(pods).chain(std::iter::once("]}".to_owned())))
            }));
            let pods = Api::<Unmanaged<DynamicObject>>::all_with(line.client.clone(), &ApiResource::erase::<Pod>(&()));
            let listed = pods.list(&ListParams::default()).await.map(|list| list.items.len());
            assert!(listed.is_err(), "{listed:?} were decoded");
            assert!(line.breaker.open().is_some_and(|reason| reason.contains("more than 4000000 values")));
            let taken = resident().saturating_sub(before);
            assert!(taken < ALLOWED, "{} MiB were taken", taken >> 20);
        }
    });
}

/// A tenant of the host makes them as long as he likes.
#[test]
fn pods_of_a_namespace_are_read_one_by_one_to_find_the_one_that_uses_a_claim() {
    alone(async {
        let pod = |claim: &str| {
            let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
            let container = json!({"name": "c", "args": ["x".repeat(4 << 20)]});
            json!({"metadata": {"name": claim}, "spec": {"containers": [container], "volumes": volumes}}).to_string()
        };
        let (others, last, most) = (pod("other") + ",", pod("data") + "]}", Arc::new(AtomicU64::new(0)));
        let (before, seen) = (resident(), Arc::clone(&most));
        let answer = move |uri: &Uri| -> (u16, Texts) {
            if !uri.path().ends_with("/pods") {
                return said(std::iter::once(json!({"metadata": {"name": "a", "uid": host().0}}).to_string()));
            }
            let (first, others, seen) = (r#"{"metadata":{},"items":["#.to_owned(), others.clone(), Arc::clone(&seen));
            let others = (0..50).map(move |_| {
                seen.fetch_max(resident(), Ordering::Relaxed);
                others.clone()
            });
            said(std::iter::once(first).chain(others).chain(std::iter::once(last.clone())))
        };
        let line = cluster(Arc::new(answer), Answers::OfAnySize);
        let there = Host::connect(line.client.clone(), "kosmos-csi".to_owned()).await.unwrap();
        let claim = Claim { namespace: "shop".to_owned(), name: "data".to_owned() };
        let user = host::pod::of(&there, &claim).await.unwrap().unwrap();
        assert_eq!((user.claims, user.spec.containers[0].args.as_ref()), (vec!["data".to_owned()], None));
        let taken = most.load(Ordering::Relaxed).saturating_sub(before);
        assert!(taken < 128 << 20, "{} MiB of 200 were taken", taken >> 20);
    });
}

/// Of which he may make many that use one claim.
#[test]
fn pods_that_use_a_claim_take_no_memory_for_what_they_mount_besides() {
    alone(async {
        let mut volumes = vec![json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}})];
        volumes.extend((0..20_000).map(|number| json!({"name": format!("v{number}"), "emptyDir": {}})));
        let spec = json!({"containers": [{"name": "c"}], "nodeName": "n", "volumes": volumes});
        let user = json!({"metadata": {"name": "p"}, "spec": spec}).to_string();
        let (before, most) = (resident(), Arc::new(AtomicU64::new(0)));
        let seen = Arc::clone(&most);
        let answer = move |uri: &Uri| -> (u16, Texts) {
            if !uri.path().ends_with("/pods") {
                return said(std::iter::once(json!({"metadata": {"name": "a", "uid": host().0}}).to_string()));
            }
            let (first, user, seen) = (r#"{"metadata":{},"items":["#.to_owned(), user.clone(), Arc::clone(&seen));
            let users = (0..20).map(move |number| {
                seen.fetch_max(resident(), Ordering::Relaxed);
                format!("{}{user}", if number == 0 { "" } else { "," })
            });
            said(std::iter::once(first).chain(users).chain(std::iter::once("]}".to_owned())))
        };
        let line = cluster(Arc::new(answer), Answers::OfAnySize);
        let there = Host::connect(line.client.clone(), "kosmos-csi".to_owned()).await.unwrap();
        let claim = Claim { namespace: "shop".to_owned(), name: "data".to_owned() };
        assert!(host::pod::has_user(&there, &claim, "n").await.unwrap());
        assert!(host::pod::of(&there, &claim).await.unwrap().is_some_and(|user| user.claims == ["data"]));
        let taken = most.load(Ordering::Relaxed).saturating_sub(before);
        assert!(taken < 128 << 20, "{} MiB were taken", taken >> 20);
    });
}

/// Whoever may write claims and moves in a namespace writes labels and annotations as long as an API server takes.
#[test]
fn claims_and_moves_of_the_host_are_read_one_by_one_and_nothing_is_kept_that_may_have_any_length() {
    const MANY: usize = 60;
    alone(async {
        let long = "x".repeat(2 << 20);
        let metadata = json!({"name": "a", "namespace": "shop", "uid": "its-uid", "labels": {"a": long}, "annotations": {"b": long}});
        let spec = json!({"volumeName": "v", "claimName": "data", "to": {"member": "m1"}});
        let object = json!({"apiVersion": "v1", "kind": "Any", "metadata": metadata, "spec": spec}).to_string();
        let most = Arc::new(AtomicU64::new(0));
        let (before, seen) = (resident(), Arc::clone(&most));
        let answer = move |uri: &Uri| -> (u16, Texts) {
            let kinds = ["/persistentvolumeclaims", "/volumemoves"];
            if !kinds.iter().any(|kind| uri.path().ends_with(kind)) {
                return said(std::iter::once(json!({"metadata": {"name": "a", "uid": host().0}}).to_string()));
            }
            if uri.query().is_some_and(|query| query.contains("watch=")) {
                let refusal = json!({"kind": "Status", "code": 403, "reason": "Forbidden"}).to_string();
                return (403, Box::new(std::iter::once(refusal)));
            }
            let first = r#"{"metadata":{"resourceVersion":"1"},"items":["#.to_owned();
            let (object, seen) = (object.clone(), Arc::clone(&seen));
            let objects = (0..MANY).map(move |number| {
                seen.fetch_max(resident(), Ordering::Relaxed);
                let object = object.replace("its-uid", &number.to_string());
                if number == 0 { object } else { format!(",{object}") }
            });
            said(std::iter::once(first).chain(objects).chain(std::iter::once("]}".to_owned())))
        };
        let line = cluster(Arc::new(answer), Answers::OfAnySize);
        let there = Host::connect(line.client.clone(), "kosmos-csi".to_owned()).await.unwrap();
        let (claims, moves) = (AtomicU64::new(0), Moves::default());
        let told = async {
            while claims.load(Ordering::Relaxed) < MANY as u64 || moves.all().len() < MANY {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let told = timeout(PATIENCE, told);
        let count = |_| {
            claims.fetch_add(1, Ordering::Relaxed);
        };
        tokio::select! {
            told = told => told.unwrap(),
            () = host::owners::follow_claims(&there, count) => {}
            () = host::moves::keep(&there, &moves) => {}
        }
        assert_eq!(host::moves::list(&there).await.map(|all| all.len()), Ok(MANY));
        let taken = most.load(Ordering::Relaxed).saturating_sub(before);
        // The allocator keeps some of what the tests before have given back, in pieces.
        assert!(taken < 224 << 20, "{} MiB of 240 for each were taken", taken >> 20);
    });
}

#[test]
fn member_of_a_usual_size_is_not_closed() {
    alone(async {
        let rows = leaf::Rows::new(host());
        (0..10_000).for_each(|number| rows.put_claim(&from_value(leaves::claim(&host(), number)).unwrap()));
        assert_eq!(rows.too_much(), None);
    });
}
