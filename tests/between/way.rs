//! Requests by way of the proxy, over TLS.

use std::{pin::pin, time::Duration};

use cluster::{Answers, Dial, Origin, metrics::Metrics};
use futures::StreamExt;
use http::{Request, header::RETRY_AFTER};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use simulate::Cluster;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy, split},
    net::TcpListener,
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::{
    between::{
        Action, Between, Count, Delivery, GATEWAY_TIMEOUT, INTERNAL_ERROR, NO_SUCH_PAGE, Rule, UNAUTHORIZED, Upstream,
        Watched, Ways, Which, too_many_requests,
    },
    certificates::{Credentials, kubeconfig},
    wait::wait_for,
};

const PATIENCE: Duration = Duration::from_secs(20);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A client that reaches a simulated cluster through the proxy alone.
struct World {
    to: Cluster,
    elsewhere: Cluster,
    between: Between,
    config: Config,
    client: Client,
    _folder: TempDir,
    _serving: JoinSet<()>,
}

impl World {
    async fn start() -> Self {
        let (mut serving, to) = (JoinSet::new(), Cluster::new("to", 1));
        let leads = upstream(&to, &mut serving).await;
        Self::between(to, leads, serving).await
    }

    /// To something else than the cluster.
    async fn leading(to: Upstream) -> Self {
        Self::between(Cluster::new("to", 1), to, JoinSet::new()).await
    }

    async fn between(to: Cluster, leads: Upstream, mut serving: JoinSet<()>) -> Self {
        let elsewhere = Cluster::new("elsewhere", 2);
        let ways = Ways { to: leads, elsewhere: upstream(&elsewhere, &mut serving).await };
        let folder = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let between = Between::start(listener, ways, folder.path()).unwrap();
        let config = through(&between).await;
        let client = Client::try_from(config.clone()).unwrap();
        Self { to, elsewhere, between, config, client, _folder: folder, _serving: serving }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create(&self, name: &str) -> Result<(), kube::Error> {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.maps().create(&PostParams::default(), &map).await.map(drop)
    }

    fn has(&self, name: &str) -> bool {
        self.to.get("configmaps", "default", name).is_some()
    }

    /// One rule for all that it can be for.
    fn play(&self, methods: &'static [&'static str], action: Action) -> Count {
        let rule = Rule { methods, path: "*/configmaps*", which: Which::Every(1), action };
        self.between.play(&[rule]).remove(0)
    }

    fn end(&self) {
        self.between.play(&[]);
    }
}

/// By way of the proxy as it is now.
async fn through(between: &Between) -> Config {
    let direct = kubeconfig("to", "https://nowhere", "", &Credentials::Token("token".to_owned())).unwrap();
    let through = Kubeconfig::from_yaml(&between.kubeconfig(&direct).unwrap()).unwrap();
    let mut config = Config::from_custom_kubeconfig(through, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    config
}

async fn upstream(cluster: &Cluster, serving: &mut JoinSet<()>) -> Upstream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    serving.spawn(simulate::serve(cluster.clone(), listener));
    Upstream::new(Config::new(address.parse().unwrap()), None).unwrap()
}

fn make(cluster: &Cluster, name: &str) {
    cluster.create("configmaps", json!({"metadata": {"name": name, "namespace": "default"}})).unwrap();
}

/// Code and reason.
fn told(error: kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn request_that_no_rule_is_for_passes_and_so_does_its_answer() {
    let world = World::start().await;
    let rule = Rule { methods: &[], path: "*/pods", which: Which::Every(1), action: Action::Answer(INTERNAL_ERROR) };
    let played = world.between.play(&[rule]);
    world.create("a").await.unwrap();
    assert!(world.has("a"));
    assert_eq!(world.maps().get("a").await.unwrap().name_any(), "a");
    assert_eq!(told(world.maps().get("b").await.unwrap_err()), (404, "NotFound".to_owned()));
    assert_eq!((world.between.asked(), played[0].get()), (3, 0));
}

#[tokio::test]
async fn proxy_answers_in_the_place_of_the_api_server() {
    let world = World::start().await;
    let unread = "Failed to parse error data";
    for (answer, code, reason, retry_after) in [
        (INTERNAL_ERROR, 500, "InternalError", None),
        (UNAUTHORIZED, 401, "Unauthorized", None),
        (NO_SUCH_PAGE, 404, unread, None),
        (too_many_requests(None), 429, "TooManyRequests", None),
        (too_many_requests(Some(7)), 429, "TooManyRequests", Some("7")),
    ] {
        let played = world.play(&[], Action::Answer(answer));
        assert_eq!(told(world.create("a").await.unwrap_err()), (code, reason.to_owned()), "{answer:?}");
        let plain = world.client.send(Request::get(MAPS).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(plain.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap()), retry_after, "{answer:?}");
        assert_eq!(played.get(), 2, "{answer:?}");
        assert!(!world.has("a"), "{answer:?}: the API server was asked");
    }
    world.end();
    world.create("a").await.unwrap();
}

#[tokio::test]
async fn write_whose_answer_is_lost_was_carried_out_and_one_that_is_refused_is_told_so() {
    let world = World::start().await;
    let played = world.play(&["POST"], Action::AnswerAfter(GATEWAY_TIMEOUT));
    assert_eq!(told(world.create("a").await.unwrap_err()), (504, "Timeout".to_owned()));
    assert!(world.has("a"));
    assert_eq!(told(world.create("a").await.unwrap_err()), (409, "AlreadyExists".to_owned()));
    assert_eq!(played.get(), 1);
}

#[tokio::test]
async fn write_that_is_held_arrives_after_whoever_sent_it_was_answered() {
    let world = World::start().await;
    let played = world.play(&["POST"], Action::Hold(Duration::from_secs(2), GATEWAY_TIMEOUT));
    assert_eq!(told(world.create("a").await.unwrap_err()), (504, "Timeout".to_owned()));
    assert!(!world.has("a") && played.get() == 0);
    world.end();
    timeout(PATIENCE, world.between.held_are_delivered()).await.unwrap();
    assert!(world.has("a") && played.get() == 1);
}

#[tokio::test]
async fn body_arrives_cut_halved_or_in_drops() {
    let world = World::start().await;
    make(&world.to, "a");
    let played = world.play(&["GET"], Action::Body(Delivery::Half));
    let half = world.maps().get("a").await.unwrap_err();
    assert!(matches!(half, kube::Error::SerdeError(_)), "{half}");
    assert_eq!(played.get(), 1);
    let played = world.play(&["GET"], Action::Body(Delivery::Cut));
    let cut = world.maps().get("a").await.unwrap_err();
    assert!(!matches!(cut, kube::Error::SerdeError(_) | kube::Error::Api(_)), "{cut}");
    assert_eq!(played.get(), 1);
    let drops = Delivery::Drip { piece: 16, pause: Duration::from_millis(1) };
    let played = world.play(&["GET"], Action::Body(drops));
    assert_eq!(world.maps().get("a").await.unwrap().name_any(), "a");
    assert_eq!(played.get(), 1);
}

/// What a watch hears of two objects that are made, until it ends or so many words have come.
async fn heard(world: &World, how: Watched, words: usize) -> (Vec<String>, Count) {
    let played = world.play(&[], Action::Events(how));
    let version = world.maps().list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let maps = world.maps();
    let mut events = pin!(maps.watch(&WatchParams::default(), &version).await.unwrap());
    make(&world.to, "a");
    make(&world.to, "b");
    let mut heard = Vec::new();
    while heard.len() < words
        && let Some(event) = timeout(PATIENCE, events.next()).await.unwrap()
    {
        heard.push(match event {
            Ok(WatchEvent::Added(map)) => map.name_any(),
            Ok(WatchEvent::Error(status)) => status.code.to_string(),
            other => panic!("{other:?}"),
        });
    }
    (heard, played)
}

#[tokio::test]
async fn watch_hears_twice_or_of_before_or_that_it_is_too_old_or_is_cut() {
    for (how, words, expected, times) in [
        (Watched::Twice, 4, vec!["a", "a", "b", "b"], 2),
        (Watched::Back, 3, vec!["a", "b", "a"], 1),
        (Watched::Expired, 2, vec!["410"], 1),
        (Watched::Cut, 2, vec![], 1),
    ] {
        let world = World::start().await;
        let (heard, played) = heard(&world, how, words).await;
        assert_eq!((heard, played.get()), (expected.into_iter().map(str::to_owned).collect(), times), "{how:?}");
    }
}

#[tokio::test]
async fn silent_watch_hears_nothing_and_ends_with_its_rule() {
    let world = World::start().await;
    let version = world.maps().list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let maps = world.maps();
    let mut before = pin!(maps.watch(&WatchParams::default(), &version).await.unwrap());
    let played = world.play(&[], Action::Events(Watched::Silent));
    assert!(timeout(PATIENCE, before.next()).await.unwrap().is_none(), "it is cut as the rule begins");
    let begun = wait_for("a watch begins again", PATIENCE, || async {
        Ok(Some(maps.watch(&WatchParams::default(), &version).await?))
    });
    let mut silent = pin!(begun.await.unwrap());
    make(&world.to, "a");
    make(&world.to, "b");
    wait_for("both are swallowed", PATIENCE, || async { Ok((played.get() == 2).then_some(())) }).await.unwrap();
    world.end();
    assert!(timeout(PATIENCE, silent.next()).await.unwrap().is_none(), "it heard of something");
}

/// A connection that has just been cut may be tried once more.
async fn finds(world: &World, name: &str) {
    let what = format!("{name} is found");
    wait_for(&what, PATIENCE, || async { Ok(Some(world.maps().get(name).await?)) }).await.unwrap();
}

#[tokio::test]
async fn who_connects_is_shown_a_wrong_certificate_for_as_long_as_the_rule_holds() {
    let world = World::start().await;
    make(&world.to, "a");
    finds(&world, "a").await;
    let played = world.play(&[], Action::WrongCertificate);
    wait_for("somebody has connected in vain", PATIENCE, || async {
        let refused = world.maps().get("a").await.is_err();
        Ok((refused && played.get() > 0).then_some(()))
    })
    .await
    .unwrap();
    world.end();
    finds(&world, "a").await;
}

#[tokio::test]
async fn certificate_that_was_replaced_is_known_to_who_has_its_authority_alone() {
    let world = World::start().await;
    make(&world.to, "a");
    finds(&world, "a").await;
    world.between.replace_certificate().unwrap();
    assert!(world.maps().get("a").await.is_err(), "who was connected goes on, or trusts anybody");
    let config = through(&world.between).await;
    let maps = Api::<ConfigMap>::default_namespaced(Client::try_from(config).unwrap());
    assert_eq!(maps.get("a").await.unwrap().name_any(), "a");
    // A rule that has been played and is over brings nothing of before back.
    world.play(&[], Action::WrongCertificate);
    world.end();
    assert!(world.maps().get("a").await.is_err());
}

#[tokio::test]
async fn another_cluster_answers_for_as_long_as_the_rule_holds() {
    let world = World::start().await;
    make(&world.to, "here");
    make(&world.elsewhere, "there");
    finds(&world, "here").await;
    let played = world.play(&[], Action::Elsewhere);
    finds(&world, "there").await;
    assert!(played.get() > 0);
    world.end();
    finds(&world, "here").await;
}

/// Not all requests are: the member says each time who it is.
#[tokio::test]
async fn answer_of_another_cluster_is_not_believed_of_a_member_that_has_said_who_it_is() {
    let world = World::start().await;
    make(&world.to, "here");
    make(&world.elsewhere, "there");
    let line = cluster::connect("m", world.config.clone(), Answers::Bounded, &Dial::Network, &Metrics::new()).unwrap();
    let (identity, origin) = host::identity_and_origin(&line.probe).await.unwrap();
    assert_ne!(origin, Origin::default(), "it passes the proxy");
    line.origins.said_by(&identity, &origin);
    let maps = Api::<ConfigMap>::default_namespaced(line.client.clone());
    maps.get("here").await.unwrap();
    let played = world.play(&[], Action::Elsewhere);
    let closed = wait_for("it is closed", PATIENCE, || async {
        line.breaker.close();
        assert!(maps.get("there").await.is_err());
        Ok(line.breaker.open().filter(|reason| reason.contains("another cluster")))
    });
    closed.await.unwrap();
    assert!(played.get() > 0);
    assert_eq!(host::identity_and_origin(&line.probe).await.unwrap(), (identity, origin));
    world.end();
    let found = wait_for("it is found", PATIENCE, || async {
        line.breaker.close();
        Ok(Some(maps.get("here").await?))
    });
    found.await.unwrap();
}

const FORWARD: &str = "/api/v1/namespaces/default/pods/a/portforward";

/// What a server of another protocol says at first, and then whatever it was told.
const GREETING: &[u8] = b"0123456789";

/// It takes up whatever protocol it is asked for, once.
async fn echo() -> (Upstream, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).await.unwrap();
        }
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(switch).await.unwrap();
        stream.write_all(GREETING).await.unwrap();
        let (mut from, mut to) = split(stream);
        copy(&mut from, &mut to).await.ok();
    });
    (Upstream::new(Config::new(address.parse().unwrap()), None).unwrap(), serving)
}

/// Of an echo, by way of the proxy.
async fn forwarded(world: &World) -> TokioIo<Upgraded> {
    let asked = Request::get(FORWARD).header("connection", "upgrade").header("upgrade", "websocket");
    let answer = world.client.send(asked.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 101);
    TokioIo::new(hyper::upgrade::on(answer).await.unwrap())
}

async fn hears(stream: &mut TokioIo<Upgraded>, expected: &[u8]) {
    let mut heard = vec![0; expected.len()];
    timeout(PATIENCE, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(heard, expected);
}

/// Until the stream ends.
async fn hears_last(mut stream: TokioIo<Upgraded>, expected: &[u8]) {
    let mut heard = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut heard)).await.unwrap().ok();
    assert_eq!(heard, expected);
}

#[tokio::test]
async fn what_becomes_another_protocol_passes_both_ways_until_a_rule_cuts_it() {
    let (to, _serving) = echo().await;
    let world = World::leading(to).await;
    let mut stream = forwarded(&world).await;
    hears(&mut stream, GREETING).await;
    stream.write_all(b"again").await.unwrap();
    hears(&mut stream, b"again").await;
    world.play(&[], Action::Elsewhere);
    hears_last(stream, b"").await;
}

#[tokio::test]
async fn what_has_become_another_protocol_ends_after_as_many_bytes_as_a_rule_lets_pass() {
    let (to, _serving) = echo().await;
    let world = World::leading(to).await;
    let rule = Rule { methods: &[], path: "*/portforward", which: Which::First(1), action: Action::Upgraded(4) };
    let played = world.between.play(&[rule]).remove(0);
    hears_last(forwarded(&world).await, &GREETING[..4]).await;
    wait_for("it is counted", PATIENCE, || async { Ok((played.get() == 1).then_some(())) }).await.unwrap();
}

#[tokio::test]
async fn protocol_that_an_api_server_does_not_take_up_is_refused_in_its_words() {
    let world = World::start().await;
    let asked = Request::get(MAPS).header("connection", "upgrade").header("upgrade", "websocket").body(Body::empty());
    let answer = world.client.send(asked.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let played = world.play(&[], Action::Answer(INTERNAL_ERROR));
    let asked = Request::get(MAPS).header("connection", "upgrade").header("upgrade", "websocket").body(Body::empty());
    let answer = world.client.send(asked.unwrap()).await.unwrap();
    assert_eq!((answer.status().as_u16(), played.get()), (500, 1));
}
