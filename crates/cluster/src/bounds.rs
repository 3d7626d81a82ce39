//! The layer that keeps a cluster's requests within bounds: each has a place among those under way and a time limit, and a write
//! that was begun is carried to its end.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Request, Response, Uri};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use kube::client::Body;
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tower::{BoxError, Layer, Service, ServiceExt};
use tracing::Instrument;

use super::{
    Breaker,
    measure::{Answers, Measure, Measured, Reading},
    origin::{Origins, WhoAnswers, use_no_more},
    subject::{sort_of, subject_of, watches},
    traces, with_causes, writes,
};
use crate::metrics::{
    Metrics,
    requests::{Requests, Subject},
};

/// Until the answer's head is there; a watch may then stay open.
pub(super) const ANSWER: Duration = Duration::from_secs(4);
/// The same where a command asks.
const ANSWER_TO_A_PERSON: Duration = Duration::from_secs(30);
/// A caller who gave up after this long without an answer has met a cluster that does not answer.
const IMPATIENCE: Duration = Duration::from_secs(2);
pub(super) const UNDER_WAY: usize = 32;
/// Of these, how many may begin something. What ends something, or only looks, is not to wait behind all of them.
const BEGINNING: usize = 24;
/// Until there is a place. That a cluster does not answer is noticed sooner, and ends all waiting.
const PLACE: Duration = Duration::from_secs(30);
/// From the beginning of a watch to that of the next one on the same path. One that ends without an error is begun again
/// at once, and a cluster that ends every watch at once would be asked in circles.
const BETWEEN_WATCHES: Duration = Duration::from_secs(1);

/// The layer that keeps a cluster's requests within bounds.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    cluster: Arc<str>,
    breaker: Option<Breaker>,
    /// None where it is asked who it is.
    origins: Option<Origins>,
    measure: Measure,
    answer: Duration,
    places: Arc<Semaphore>,
    beginning: Arc<Semaphore>,
    /// When the last watch on each path, or on a single object, was begun.
    watches: Arc<Mutex<HashMap<String, Instant>>>,
    requests: Requests,
}

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner: Arc::new(tokio::sync::Mutex::new(inner)), bounds: Arc::new(self.clone()) }
    }
}

/// The service that does so. The inner one is locked only while a request is handed over, never while it is answered.
#[derive(Clone, Debug)]
pub(super) struct Bounded<S> {
    inner: Arc<tokio::sync::Mutex<S>>,
    bounds: Arc<Bounds>,
}

type Answer<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

impl<S, B> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<Measured<B>>;
    type Error = BoxError;
    type Future = Answer<Measured<B>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer<Measured<B>> {
        let (inner, bounds) = (Arc::clone(&self.inner), Arc::clone(&self.bounds));
        let subject = subject_of(&request);
        let span = traces::request(&bounds.cluster, subject.verb, &subject.resource);
        let told = span.clone();
        let answer = async move {
            let (measure, read) = (bounds.measure.clone(), how(&request));
            let measure = if request.extensions().get::<Aside>().is_some() { measure.aside() } else { measure };
            let answer = bounds.send(inner, request, subject).await;
            traces::answered(&told, &answer);
            let answer = answer?;
            // Whoever would read a list in pieces, or a watch by line, reads a refusal as a whole.
            let read = if answer.status().is_success() { read } else { Reading::Whole };
            Ok(answer.map(|body| measure.of(body, read)))
        };
        Box::pin(answer.instrument(span))
    }
}

/// On a request whose answer says nothing of whether the cluster answers: something behind its API server has it, or there is much to write.
#[derive(Clone, Copy, Debug)]
pub struct Aside;

/// Room for one request.
type Place = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

impl Bounds {
    /// Without a breaker, it is asked in any case.
    pub(super) fn new(
        cluster: &str,
        answers: Answers,
        breaker: Option<Breaker>,
        places: Arc<Semaphore>,
        metrics: &Metrics,
    ) -> Self {
        Self {
            cluster: cluster.into(),
            measure: Measure::new(cluster, answers, breaker.clone()),
            answer: begins_within(answers),
            breaker,
            origins: None,
            places,
            beginning: Arc::new(Semaphore::new(BEGINNING)),
            watches: Arc::default(),
            requests: metrics.requests(),
        }
    }

    /// Believes no answer that may be another cluster's.
    pub(super) fn believing(self, origins: &Origins) -> Self {
        Self { origins: Some(origins.clone()), ..self }
    }

    /// When a watch may begin; none for other requests.
    fn turn(&self, address: &Uri) -> Option<Instant> {
        if !watches(address) {
            return None;
        }
        // Watches on single objects of one kind do not wait for each other.
        let object = address.query().unwrap_or_default().split('&').find(|part| part.starts_with("fieldSelector="));
        let subject = format!("{}?{}", address.path(), object.unwrap_or_default());
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        watches.retain(|_, before| *before + BETWEEN_WATCHES > now);
        let turn = watches.get(&subject).map_or(now, |before| now.max(*before + BETWEEN_WATCHES));
        watches.insert(subject, turn);
        Some(turn)
    }

    /// A place among the requests under way, and for what begins something one among those first.
    async fn place(&self, method: &Method) -> Result<Place, AcquireError> {
        let acquire = |places: &Arc<Semaphore>| Arc::clone(places).acquire_owned();
        let beginning = if *method == Method::POST { Some(acquire(&self.beginning).await?) } else { None };
        Ok((beginning, acquire(&self.places).await?))
    }

    async fn send<S, B>(
        self: Arc<Self>,
        inner: Arc<tokio::sync::Mutex<S>>,
        request: Request<Body>,
        subject: Subject,
    ) -> Result<Response<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: Send + 'static,
    {
        if let Some(reason) = self.breaker.as_ref().and_then(Breaker::open) {
            return Err(reason.into());
        }
        if let Some(turn) = self.turn(request.uri()) {
            tokio::time::sleep_until(turn).await;
        }
        // Waiting for a place says nothing about the cluster.
        let place = tokio::time::timeout(PLACE, self.place(request.method())).await;
        let place = place.map_err(|_| format!("{UNDER_WAY} requests to it are under way already"))??;
        if let Some(reason) = self.breaker.as_ref().and_then(Breaker::open) {
            return Err(reason.into());
        }
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return self.carry(place, inner, request, subject).await;
        }
        let request = writes::within(request, self.answer)?;
        writes::carry(self.carry(place, inner, request, subject)).await?
    }

    async fn carry<S, B>(
        self: Arc<Self>,
        _place: Place,
        inner: Arc<tokio::sync::Mutex<S>>,
        mut request: Request<Body>,
        subject: Subject,
    ) -> Result<Response<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>>,
        S::Error: Into<BoxError>,
    {
        let connection = capture_connection(&mut request);
        let time = self.answer;
        let asked = Asked::begin(self, &request, subject);
        let answer = tokio::time::timeout(time, async {
            let answering = inner.lock().await.ready().await.map_err(Into::into)?.call(request);
            answering.await.map_err(Into::into)
        });
        let answer = answer.await.unwrap_or_else(|_| Err(format!("no answer within {} s", time.as_secs()).into()));
        let answer = answer.and_then(|answer| asked.believed(answer, &connection));
        asked.told(&answer);
        answer
    }
}

/// A request under way. One that is given up counts like one that failed, if it had waited long.
struct Asked {
    bounds: Arc<Bounds>,
    subject: Subject,
    address: Uri,
    who_answers: Option<WhoAnswers>,
    is_aside: bool,
    since: Instant,
    answered: bool,
}

impl Asked {
    fn begin(bounds: Arc<Bounds>, request: &Request<Body>, subject: Subject) -> Self {
        let is_aside = request.extensions().get::<Aside>().is_some();
        let (address, who_answers) = (request.uri().clone(), request.extensions().get::<WhoAnswers>().cloned());
        Self { bounds, subject, address, who_answers, is_aside, since: Instant::now(), answered: false }
    }

    /// What may be another cluster's is no answer, and nothing more is asked until this one has said who it is.
    fn believed<B>(&self, answer: Response<B>, connection: &CaptureConnection) -> Result<Response<B>, BoxError> {
        if let Some(who_answers) = &self.who_answers {
            who_answers.hear(answer.headers());
            use_no_more(connection);
        }
        let (path, verb) = (self.address.path(), self.subject.verb);
        let doubt =
            self.bounds.origins.as_ref().and_then(|known| known.doubt(answer.headers(), || sort_of(verb, path)));
        let Some(reason) = doubt else { return Ok(answer) };
        use_no_more(connection);
        if let Some(breaker) = &self.bounds.breaker {
            breaker.failed(&reason);
        }
        let (cluster, status) = (&*self.bounds.cluster, answer.status().as_u16());
        tracing::warn!(cluster, verb, path, status, reason, "another cluster may carry out this request");
        Err(reason.into())
    }

    fn told<B>(mut self, answer: &Result<Response<B>, BoxError>) {
        self.answered = true;
        match answer {
            Ok(response) => {
                let status = response.status();
                // A code that HTTP knows: what stands before a cluster may send any number.
                self.count(if status.canonical_reason().is_some() { status.as_str() } else { "other" });
            }
            Err(error) => {
                self.count("no answer");
                self.bounds.requests.unanswered(&self.bounds.cluster);
                self.has_failed(&with_causes(error.as_ref()));
            }
        }
    }

    fn count(&self, code: &str) {
        self.bounds.requests.ended(&self.bounds.cluster, &self.subject, code, self.since.elapsed());
    }

    fn has_failed(&self, reason: &str) {
        if let Some(breaker) = self.bounds.breaker.as_ref().filter(|_| !self.is_aside) {
            breaker.failed(reason);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.count("given up");
        if self.since.elapsed() > IMPATIENCE {
            self.has_failed("no answer before the caller gave up");
        }
    }
}

pub(super) fn begins_within(answers: Answers) -> Duration {
    if answers == Answers::OfAPerson { ANSWER_TO_A_PERSON } else { ANSWER }
}

/// How the answer will be read; whoever takes it piece by piece says so.
fn how(request: &Request<Body>) -> Reading {
    let usual = if watches(request.uri()) { Reading::ByLine } else { Reading::Whole };
    request.extensions().get::<Reading>().copied().unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn request(method: Method) -> Request<Body> {
        Request::builder().method(method).uri("/api/v1/persistentvolumes").body(Body::empty()).unwrap()
    }

    fn bounds() -> Bounds {
        bounds_of(Answers::Bounded)
    }

    fn bounds_of(answers: Answers) -> Bounds {
        Bounds::new("a", answers, Some(Breaker::default()), Arc::new(Semaphore::new(UNDER_WAY)), &Metrics::new())
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_a_place_is_heard_at_the_end_of_something_and_of_the_cluster() {
        let mut cluster = bounds().layer(tower::service_fn(async |request: Request<Body>| {
            if request.method() == Method::POST {
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(Response::new(()))
        }));
        let mut creations = tokio::task::JoinSet::new();
        for _ in 0..2 * UNDER_WAY {
            creations.spawn(cluster.call(request(Method::POST)));
        }
        tokio::task::yield_now().await;
        let begun = Instant::now();
        assert!(cluster.call(request(Method::PATCH)).await.is_ok());
        assert_eq!(begun.elapsed(), Duration::ZERO, "it waited behind those that begin something");
        while let Some(ended) = creations.join_next().await {
            assert!(ended.unwrap().is_err());
        }
        assert!(begun.elapsed() < ANSWER * 2, "what waited for a place asked a cluster that was known to be silent");
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_that_is_slow_answers_a_person_and_is_silent_for_all_others() {
        for answers in [Answers::Bounded, Answers::OfAnySize, Answers::OfAPerson] {
            let mut cluster = bounds_of(answers).layer(tower::service_fn(|_| async {
                tokio::time::sleep(Duration::from_secs(20)).await;
                Ok::<_, BoxError>(Response::new(()))
            }));
            let answered = cluster.call(request(Method::PATCH)).await.is_ok();
            assert_eq!(answered, answers == Answers::OfAPerson, "{answers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn write_is_carried_to_its_end_and_a_read_ends_with_who_asked() {
        let done = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&done);
        let mut cluster = bounds().layer(tower::service_fn(move |_| {
            let done = Arc::clone(&counted);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                done.fetch_add(1, Ordering::Relaxed);
                Ok::<_, BoxError>(Response::new(()))
            }
        }));
        for (method, expected) in [(Method::GET, 0), (Method::POST, 1), (Method::PATCH, 2), (Method::DELETE, 3)] {
            let given_up = tokio::time::timeout(Duration::from_millis(1), cluster.call(request(method.clone()))).await;
            assert!(given_up.is_err());
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(done.load(Ordering::Relaxed), expected, "{method}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_is_asked_to_drop_what_is_late_of_writes_alone() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let mut cluster = bounds().layer(tower::service_fn(move |request: Request<Body>| {
            told.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
            async { Ok::<_, BoxError>(Response::new(())) }
        }));
        for method in [Method::GET, Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
            cluster.call(request(method)).await.unwrap();
        }
        assert_eq!(*seen.lock().unwrap(), ["", "timeout=4s", "timeout=4s", "timeout=4s", "timeout=4s"]);
    }
}
