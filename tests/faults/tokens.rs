//! Members whose API servers take only tokens that they have given and that have not ended: the driver renews its own, in time
//! and without anybody noticing, and writes nothing else into the Secret that it was given.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cluster::Transport;
use csi::v1::{GetCapacityRequest, controller_server::Controller as _};
use futures::stream;
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::ByteString;
use kube::client::{Body, DynBody};
use serde_json::{Value, json};
use simulate::{faults::Action, service::Service, text};
use tokio::time::{Instant, sleep};
use tower::{BoxError, ServiceExt, service_fn};

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, lock, with_deadline},
    fixture, virtual_time,
};

const ACCOUNT: &str = "system:serviceaccount:kosmos-csi:kosmos-csi";
/// The shortest life that an API server grants.
const LIFE: u64 = 600;
const SECRET: &str = "of-the-host";

/// What stands in front of one member.
pub struct Doorman {
    member: String,
    began: (Instant, SystemTime),
    /// Until when each token is good.
    good: Mutex<BTreeMap<String, Instant>>,
    refused: AtomicUsize,
    /// What is answered instead of a token.
    lie: Mutex<Option<String>>,
    /// Of what is answered instead of a token nothing comes but the head.
    is_endless: AtomicBool,
}

impl Doorman {
    fn new(member: &str) -> Arc<Self> {
        Arc::new(Self {
            member: member.to_owned(),
            began: (Instant::now(), SystemTime::now()),
            good: Mutex::default(),
            refused: AtomicUsize::default(),
            lie: Mutex::default(),
            is_endless: AtomicBool::default(),
        })
    }

    fn token(&self, subject: &str) -> String {
        let since = (self.began.1 + self.began.0.elapsed()).duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut good = lock(&self.good);
        let claims = json!({
            "iat": since, "exp": since + LIFE, "sub": subject, "jti": good.len(),
            "kubernetes.io": {"namespace": "kosmos-csi", "secret": {"name": SECRET, "uid": "u"}},
        });
        let claims = json!(ByteString(claims.to_string().into_bytes()));
        let claims = claims.as_str().unwrap().trim_end_matches('=').replace('+', "-").replace('/', "_");
        let token = format!("e30.{claims}.signed");
        good.insert(token.clone(), Instant::now() + Duration::from_secs(LIFE));
        token
    }

    fn given(&self) -> usize {
        lock(&self.good).len()
    }

    /// The request, if whoever sent it is known and asks for no token.
    async fn meets(&self, request: Request<Body>) -> Result<Request<Body>, Response<Box<DynBody>>> {
        let shown = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let shown = shown.strip_prefix("Bearer ").unwrap_or_default();
        if lock(&self.good).get(shown).is_none_or(|end| *end <= Instant::now()) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401});
            return Err(answer(StatusCode::UNAUTHORIZED, &status));
        }
        if !request.uri().path().ends_with("/serviceaccounts/kosmos-csi/token") {
            return Ok(request);
        }
        let asked = request.into_body().collect().await.unwrap().to_bytes();
        let asked: Value = serde_json::from_slice(&asked).unwrap();
        assert_eq!(asked["spec"]["expirationSeconds"], LIFE, "as long as the one before");
        assert_eq!(asked["spec"]["boundObjectRef"]["name"], SECRET, "it ends with the same Secret: {asked}");
        if self.is_endless.load(Ordering::Relaxed) {
            let endless = whole(StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()));
            return Err(Response::builder().status(StatusCode::CREATED).body(endless).unwrap());
        }
        let token = lock(&self.lie).clone().unwrap_or_else(|| self.token(ACCOUNT));
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": asked["spec"],
            "status": {"token": token, "expirationTimestamp": "2100-01-01T00:00:00Z"},
        });
        Err(answer(StatusCode::CREATED, &review))
    }

    /// As the member's own API server.
    pub fn before(self: Arc<Self>, service: Service) -> Transport {
        let serve = move |request: Request<Body>| {
            let (doorman, service) = (Arc::clone(&self), service.clone());
            async move {
                match doorman.meets(request).await {
                    Ok(request) => {
                        let answer = service.oneshot(request).await.map_err(BoxError::from)?;
                        Ok::<_, BoxError>(answer.map(whole))
                    }
                    Err(answer) => Ok(answer),
                }
            }
        };
        service_fn(serve).boxed()
    }

    pub fn is_before(&self, member: &str) -> bool {
        self.member == member
    }
}

pub fn whole<B>(body: B) -> Box<DynBody>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    BoxError: From<B::Error>,
{
    Box::new(BodyExt::map_err(body, BoxError::from))
}

fn answer(code: StatusCode, object: &Value) -> Response<Box<DynBody>> {
    let body = whole(Body::from(object.to_string().into_bytes()));
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

/// One member with a doorman, and a driver that has been given a token.
async fn guarded() -> (Arc<Bench>, Arc<Doorman>) {
    let bench = Bench::new(1, 1, &fixture::moody()).await;
    let doorman = Doorman::new("m0");
    *lock(&bench.doorman) = Some(Arc::clone(&doorman));
    give(&bench, &doorman);
    bench.start();
    bench.serves().await;
    sleep(Duration::from_secs(10)).await;
    (bench, doorman)
}

fn data(doorman: &Doorman) -> Value {
    let token = doorman.token(ACCOUNT);
    let text = fixture::kubeconfig_text("https://m0").replace("token: t", &format!("token: {token}"));
    json!({"kubeconfig": ByteString(text.into_bytes())})
}

/// As `member add` does.
fn give(bench: &Bench, doorman: &Doorman) {
    let data = data(doorman);
    bench.host.change("secrets", DRIVER_NAMESPACE, "m0", |secret| secret["data"] = data.clone()).unwrap();
}

fn secret(bench: &Bench, member: &str) -> String {
    text(&bench.host.get("secrets", DRIVER_NAMESPACE, member).unwrap(), "/data/kubeconfig").to_owned()
}

fn is_up(bench: &Bench) -> bool {
    bench.metrics().contains("kosmos_csi_member_up{member=\"m0\"} 1")
}

#[test]
fn token_of_ten_minutes_is_renewed_through_five_lives_without_a_failed_call() {
    virtual_time::run(1, async {
        let (bench, doorman) = guarded().await;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5 * LIFE) {
            let asked = GetCapacityRequest::default();
            let told = bench.call(|driver| async move { driver.get_capacity(with_deadline(asked)).await }).await;
            assert!(told.is_ok() && is_up(&bench), "after {:?}: {told:?}", began.elapsed());
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(doorman.refused.load(Ordering::Relaxed), 0);
        // Each at half of its life, or at the look after that.
        assert!((9..=11).contains(&doorman.given()), "{} tokens", doorman.given());
        let renewals = doorman.given() - 1;
        let asked = |words: &str| bench.guard.trace().iter().filter(|line| line.contains(words)).count();
        for verb in ["Get", "Patch"] {
            assert_eq!(asked(&format!("{verb} secrets {DRIVER_NAMESPACE}/m0 in host")), renewals, "{verb}");
        }
        assert!(bench.metrics().contains("kosmos_csi_member_token_end_timestamp_seconds{member=\"m0\"}"));
    });
}

#[test]
fn member_whose_token_ended_while_the_host_was_off_says_so_and_goes_on_with_a_new_one() {
    virtual_time::run(1, async {
        let (bench, doorman) = guarded().await;
        bench.kill();
        sleep(Duration::from_secs(LIFE)).await;
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(10)).await;
        let asked = GetCapacityRequest::default();
        let told = bench.call(|driver| async move { driver.get_capacity(with_deadline(asked)).await }).await;
        assert!(!is_up(&bench) && doorman.refused.load(Ordering::Relaxed) > 0, "{told:?}");
        give(&bench, &doorman);
        sleep(Duration::from_secs(10)).await;
        assert!(is_up(&bench), "nobody had to restart anything");
    });
}

/// Whatever a member answers goes into an object of the host.
#[test]
fn member_writes_nothing_but_its_own_next_token_into_the_host() {
    virtual_time::run(1, async {
        let (bench, doorman) = guarded().await;
        let before = secret(&bench, "m0");
        let other = doorman.token("system:serviceaccount:kube-system:root");
        let more = format!("{}}}, {{exec: {{command: id}}}}", doorman.token(ACCOUNT));
        for lie in [String::new(), "canary".to_owned(), other, more] {
            *lock(&doorman.lie) = Some(lie.clone());
            sleep(Duration::from_secs(LIFE / 10)).await;
            assert_eq!(secret(&bench, "m0"), before, "{lie}");
        }
        *lock(&doorman.lie) = None;
        sleep(Duration::from_secs(LIFE / 4)).await;
        assert!(secret(&bench, "m0") != before && is_up(&bench));
    });
}

/// One task renews the tokens of all members, and a member's administrator decides what is answered.
#[test]
fn answer_about_a_token_that_comes_to_no_end_keeps_none_from_being_renewed() {
    virtual_time::run(1, async {
        let (bench, doorman) = guarded().await;
        let before = secret(&bench, "m0");
        doorman.is_endless.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(LIFE / 2 + LIFE / 10)).await;
        assert_eq!(secret(&bench, "m0"), before, "it is asked for by now");
        doorman.is_endless.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(LIFE / 2)).await;
        assert!(secret(&bench, "m0") != before && is_up(&bench), "{}", bench.guard.trace().join("\n"));
        assert_eq!(doorman.refused.load(Ordering::Relaxed), 0);
    });
}

/// Volumes of the host are known by that name too.
#[test]
fn token_of_a_second_name_of_a_member_is_renewed_as_well() {
    virtual_time::run(1, async {
        let (bench, doorman) = guarded().await;
        let mut alias = fixture::kubeconfig("alias");
        alias["data"] = data(&doorman);
        bench.host.create("secrets", alias).unwrap();
        let first = secret(&bench, "alias");
        sleep(Duration::from_secs(2 * LIFE)).await;
        assert!(secret(&bench, "alias") != first);
        assert_eq!(doorman.refused.load(Ordering::Relaxed), 0, "each is renewed in time");
    });
}

#[test]
fn token_of_a_second_name_is_renewed_also_after_the_member_did_not_answer_when_it_was_asked_for() {
    virtual_time::run(1, async {
        let (bench, doorman) = guarded().await;
        let mut alias = fixture::kubeconfig("alias");
        alias["data"] = data(&doorman);
        bench.host.create("secrets", alias).unwrap();
        let first = secret(&bench, "alias");
        doorman.is_endless.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(LIFE / 2 + LIFE / 4)).await;
        assert_eq!(secret(&bench, "alias"), first, "it is asked for by now");
        doorman.is_endless.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(LIFE / 4)).await;
        assert!(secret(&bench, "alias") != first, "{}", bench.guard.trace().join("\n"));
    });
}

/// Whoever gives the rights back finds a member that takes the driver's token.
#[test]
fn token_of_a_member_that_cannot_be_read_is_renewed_as_well() {
    virtual_time::run(1, async {
        let (bench, doorman) = guarded().await;
        bench.guard.set_fate(|_, at, asked| {
            let is_denied = at == 1 && asked.resource == "storageclasses.storage.k8s.io";
            if is_denied { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(2 * LIFE)).await;
        let is = |state: &str| {
            bench.metrics().contains(&format!("kosmos_csi_member_state{{member=\"m0\",state=\"{state}\"}} 1"))
        };
        assert!(is("unreadable"), "{}", bench.metrics());
        bench.guard.heal();
        sleep(Duration::from_secs(20)).await;
        assert!(is("ok"), "{}", bench.metrics());
        assert_eq!(doorman.refused.load(Ordering::Relaxed), 0, "each is renewed in time");
    });
}
