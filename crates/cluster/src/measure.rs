//! How much a cluster may say: the body of an answer, read in bounds. A member's administrator decides what it answers, and
//! all members are served by one process.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tower::BoxError;

use super::{
    Breaker,
    named::{HEAD, object_in},
};

/// One event of a watch. etcd takes 1.5 MiB of an object, and what an API server makes of that as JSON has six letters for one of some
/// (`<` is `\u003c`): whoever may write an object can have it be of 9 MiB.
const LINE: usize = 10 << 20;
/// All other answers of one cluster that are being read.
const TOGETHER: usize = 64 << 20;
/// Values and names in them. As text one may have four bytes (`"a",`), and decoded it takes sixty and more: whoever may make pods in a member
/// has thirty of them, of which etcd takes each, be a gibibyte. The longest pod is less than half of this: at least one is listed at a time.
const VALUES: usize = 4_000_000;
/// What an object counts for beside its fields: it takes room for eleven of them, however few it has (`{"a":0}` takes 650 bytes).
const OBJECT: usize = 5;
/// In bytes: in shorter answers nobody counts them. Most are shorter.
const UNCOUNTED: usize = 64 << 10;
/// The same where it is only asked who it is.
const IDENTITY: usize = 4 << 20;
/// From when more of an answer is first waited for to its end, or to as much more of it as `MORE`. One that goes on, a byte now and then, would hold
/// up for ever whoever reads it, and with him all that he does for other clusters.
const ENDS_WITHIN: Duration = Duration::from_mins(1);
/// In bytes. Over a slow link a page of nodes or of pods takes some minutes, and would take as long whenever it is asked for again.
const MORE: usize = 1 << 20;

/// Whose answers they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Of one cluster among many that one process serves.
    Bounded,
    /// Of the host, which is trusted.
    OfAnySize,
    /// Of a cluster that a command asks on behalf of a person: of any size too. He waits rather than types it again.
    OfAPerson,
}

/// How an answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As a whole.
    Whole,
    /// Line by line.
    ByLine,
    /// Piece by piece, by somebody who bounds it himself.
    InPieces,
}

/// What is under way of a cluster's answers.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    cluster: Arc<str>,
    together: Arc<AtomicUsize>,
    values: Arc<AtomicUsize>,
    breaker: Option<Breaker>,
    answers: Answers,
    most: usize,
}

impl Measure {
    pub(super) fn new(cluster: &str, answers: Answers, breaker: Option<Breaker>) -> Self {
        let most = if breaker.is_some() { TOGETHER } else { IDENTITY };
        let (together, values) = (Arc::default(), Arc::default());
        Self { cluster: cluster.into(), together, values, breaker, answers, most }
    }

    /// The same of what says nothing of the cluster: too much of it breaks that answer off alone.
    pub(super) fn aside(mut self) -> Self {
        self.breaker = None;
        self
    }

    pub(super) fn of<B>(&self, body: B, read: Reading) -> Measured<B> {
        let read = if self.answers == Answers::Bounded { read } else { Reading::InPieces };
        let (body, values) = (Box::pin(body), Values::default());
        Measured { body, read, held: 0, values, beginning: Vec::new(), late: None, measure: self.clone() }
    }
}

/// The body of one answer.
pub(super) struct Measured<B> {
    body: Pin<Box<B>>,
    read: Reading,
    /// Of it, how much somebody holds in memory.
    held: usize,
    /// Those in that.
    values: Values,
    /// Of the line that is coming, or of an answer all that is not counted.
    beginning: Vec<u8>,
    /// When it is to have come to its end, or on, once that was waited for.
    late: Option<Pin<Box<Sleep>>>,
    measure: Measure,
}

/// Counts the values and the names of an answer as it comes, as far as it is looked through.
#[derive(Debug, Default)]
struct Values {
    count: usize,
    in_text: bool,
    escaped: bool,
    /// The last sign was a bracket, and what that counts for where something is in it.
    opened: Option<usize>,
}

impl Values {
    fn count(&mut self, json: &[u8]) {
        for byte in json {
            if self.in_text {
                self.in_text = self.escaped || *byte != b'"';
                self.escaped = !self.escaped && *byte == b'\\';
            } else if !byte.is_ascii_whitespace() {
                let is_first = !matches!(byte, b']' | b'}');
                self.count += self.opened.filter(|_| is_first).unwrap_or_default();
                self.count += usize::from(matches!(byte, b',' | b':'));
                self.opened = match byte {
                    b'[' => Some(1),
                    b'{' => Some(1 + OBJECT),
                    _ => None,
                };
                self.in_text = *byte == b'"';
            }
        }
    }
}

impl<B> Measured<B> {
    fn admit(&mut self, piece: &[u8]) -> Result<(), String> {
        let reason = match self.read {
            Reading::InPieces => return Ok(()),
            Reading::Whole => match self.hold(piece) {
                Some(reason) => reason,
                None => return Ok(()),
            },
            Reading::ByLine => {
                let mut lines = piece.rsplit(|byte| *byte == b'\n');
                let last = lines.next().map_or(0, <[u8]>::len);
                let before = self.held;
                self.held = if last == piece.len() { before + last } else { last };
                let first = piece.split(|byte| *byte == b'\n').next().unwrap_or_default();
                self.keep_beginning(first);
                if before + first.len() <= LINE {
                    if last < piece.len() {
                        self.beginning.clear();
                        self.keep_beginning(&piece[piece.len() - last..]);
                    }
                    if self.held <= LINE {
                        return Ok(());
                    }
                }
                // The object is named in the log alone: it may belong to nobody whom the host serves.
                let (cluster, object) = (&*self.measure.cluster, object_in(&self.beginning).unwrap_or_default());
                tracing::error!(
                    cluster,
                    object,
                    "an object of the cluster is larger than the driver reads: remove the object there, or make it smaller"
                );
                format!("a line of a watch is longer than {} MiB", LINE >> 20)
            }
        };
        if let Some(breaker) = &self.measure.breaker {
            breaker.said_too_much(&reason);
        }
        Err(reason)
    }

    /// Why it is too much, where it is.
    fn hold(&mut self, piece: &[u8]) -> Option<String> {
        let before = self.values.count;
        if self.held + piece.len() <= UNCOUNTED {
            self.beginning.extend_from_slice(piece);
        } else {
            self.values.count(&std::mem::take(&mut self.beginning));
            self.values.count(piece);
        }
        if (self.held + piece.len()) / MORE > self.held / MORE {
            self.late = None;
        }
        self.held += piece.len();
        let (measure, more) = (&self.measure, self.values.count - before);
        let bytes = measure.together.fetch_add(piece.len(), Ordering::Relaxed) + piece.len();
        let values = measure.values.fetch_add(more, Ordering::Relaxed) + more;
        if bytes > measure.most {
            return Some(format!("what it answers at one time is more than {} MiB", measure.most >> 20));
        }
        (values > VALUES).then(|| format!("what it answers at one time has more than {VALUES} values"))
    }

    /// Why no more is waited for, once that is so: as of a cluster that does not answer.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<String> {
        if self.read != Reading::Whole {
            return Poll::Pending;
        }
        ready!(self.late.get_or_insert_with(|| Box::pin(sleep(ENDS_WITHIN))).as_mut().poll(context));
        let (more, seconds) = (MORE >> 20, ENDS_WITHIN.as_secs());
        let reason = format!("its answer does not end, and less than {more} MiB more of it came within {seconds} s");
        if let Some(breaker) = &self.measure.breaker {
            breaker.failed(&reason);
        }
        Poll::Ready(reason)
    }

    /// Of a line, what tells which object it is about.
    fn keep_beginning(&mut self, more: &[u8]) {
        let room = HEAD.saturating_sub(self.beginning.len());
        self.beginning.extend_from_slice(&more[..more.len().min(room)]);
    }
}

impl<B> Drop for Measured<B> {
    fn drop(&mut self) {
        if self.read == Reading::Whole {
            self.measure.together.fetch_sub(self.held, Ordering::Relaxed);
            self.measure.values.fetch_sub(self.values.count, Ordering::Relaxed);
        }
    }
}

impl<B> Body for Measured<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match self.body.as_mut().poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return self.poll_late(context).map(|reason| Some(Err(reason.into()))),
        };
        let admitted = frame.data_ref().map_or(Ok(()), |piece| self.admit(piece));
        Poll::Ready(Some(admitted.map(|()| frame).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::{BodyExt, Full, StreamBody};
    use tokio::time::{Instant, timeout};

    use super::*;

    async fn read(measure: &Measure, text: &str, read: Reading) -> Result<usize, String> {
        let body = measure.of(Full::new(Bytes::from(text.to_owned())), read);
        body.collect().await.map(|whole| whole.to_bytes().len()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn answers_of_a_cluster_are_read_up_to_a_size_that_they_share() {
        let measure = Measure::new("m", Answers::Bounded, Some(Breaker::default()));
        let half = "x".repeat(TOGETHER / 2 + 1);
        assert_eq!(read(&measure, &half, Reading::Whole).await, Ok(half.len()));
        assert_eq!(read(&measure, &half, Reading::Whole).await, Ok(half.len()), "the one before is done");
        let mut slow = measure.of(Full::new(Bytes::from(half.clone())), Reading::Whole);
        assert!(slow.frame().await.is_some_and(|frame| frame.is_ok()));
        assert!(measure.breaker.as_ref().is_some_and(|breaker| breaker.open().is_none()));
        let told = read(&measure, &half, Reading::Whole).await.unwrap_err();
        assert!(told.contains("64 MiB"), "{told}");
        assert_eq!(measure.breaker.as_ref().and_then(Breaker::open), Some(told));
        assert_eq!(read(&measure, &half, Reading::InPieces).await, Ok(half.len()));
        drop(slow);
        assert_eq!(read(&measure, &half, Reading::Whole).await, Ok(half.len()));
        let twice = half.repeat(2);
        assert_eq!(read(&Measure::new("m", Answers::OfAnySize, None), &twice, Reading::Whole).await, Ok(twice.len()));
    }

    #[tokio::test]
    async fn answers_of_a_cluster_are_read_up_to_a_number_of_values_that_they_share() {
        let measure = Measure::new("m", Answers::Bounded, Some(Breaker::default()));
        let half = r#""",0,"#.repeat(VALUES / 4 + 1);
        assert!(half.len() * 2 < TOGETHER, "it would be too long");
        assert_eq!(read(&measure, &half, Reading::Whole).await, Ok(half.len()));
        let mut slow = measure.of(Full::new(Bytes::from(half.clone())), Reading::Whole);
        assert!(slow.frame().await.is_some_and(|frame| frame.is_ok()), "the one before is done");
        let short = "0,".repeat(UNCOUNTED / 2);
        assert_eq!(read(&measure, &short, Reading::Whole).await, Ok(short.len()));
        let told = read(&measure, &half, Reading::Whole).await.unwrap_err();
        assert!(told.contains("more than 4000000 values"), "{told}");
        assert_eq!(measure.breaker.as_ref().and_then(Breaker::open), Some(told));
        assert_eq!(read(&measure, &half, Reading::InPieces).await, Ok(half.len()));
        drop(slow);
        assert_eq!(read(&measure, &half, Reading::Whole).await, Ok(half.len()));
    }

    #[tokio::test(start_paused = true)]
    async fn answer_that_comes_to_no_end_is_given_up_where_it_is_read_as_a_whole() {
        let measure = Measure::new("m", Answers::Bounded, Some(Breaker::default()));
        let dripping = || {
            StreamBody::new(stream::unfold((), |()| async {
                sleep(ENDS_WITHIN / 20).await;
                Some((Ok::<_, BoxError>(Frame::data(Bytes::from_static(b" "))), ()))
            }))
        };
        for read in [Reading::ByLine, Reading::InPieces] {
            let read_for_long = timeout(ENDS_WITHIN * 2, measure.of(dripping(), read).collect()).await;
            assert!(read_for_long.is_err(), "{read:?}: whoever reads it so bounds it himself");
        }
        assert_eq!(measure.breaker.as_ref().and_then(Breaker::open), None);
        let begun = Instant::now();
        let told = measure.of(dripping(), Reading::Whole).collect().await.unwrap_err().to_string();
        assert!(told.contains("less than 1 MiB more of it came within 60 s"), "{told}");
        assert!((ENDS_WITHIN..ENDS_WITHIN * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!(measure.breaker.as_ref().and_then(Breaker::open), Some(told));
    }

    /// As a page of nodes over a slow link.
    #[tokio::test(start_paused = true)]
    async fn answer_that_goes_on_is_read_to_its_end_however_long_that_takes() {
        let measure = Measure::new("m", Answers::Bounded, Some(Breaker::default()));
        let (begun, pieces) = (Instant::now(), 60_usize);
        let slow = StreamBody::new(stream::unfold(0, move |sent| async move {
            sleep(ENDS_WITHIN / 20).await;
            (sent < pieces).then(|| (Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b' '; MORE / 16]))), sent + 1))
        }));
        let read = measure.of(slow, Reading::Whole).collect().await.map(|whole| whole.to_bytes().len());
        assert_eq!(read.map_err(|error| error.to_string()), Ok(pieces * MORE / 16));
        assert!(begun.elapsed() > ENDS_WITHIN * 3, "{:?}", begun.elapsed());
        assert_eq!(measure.breaker.as_ref().and_then(Breaker::open), None);
    }

    /// Whoever writes signs into a text has no member closed by them.
    #[test]
    fn values_and_names_are_counted_wherever_what_comes_is_cut_and_signs_within_texts_are_not() {
        for (json, count) in [
            ("[]", 0),
            ("[ [], {} , \"\", 1]", 4),
            (r#"{"a":{"b":[null]},"c":"d"}"#, 7 + 2 * OBJECT),
            (r#"[{"a":0},{}]"#, 4 + OBJECT),
            (r#"[",:[{", "\"[,", "\\", 1]"#, 4),
        ] {
            for at in 0..json.len() {
                let mut values = Values::default();
                values.count(&json.as_bytes()[..at]);
                values.count(&json.as_bytes()[at..]);
                assert_eq!(values.count, count, "{json}, cut at {at}");
            }
        }
    }

    #[tokio::test]
    async fn watch_goes_on_for_ever_and_a_line_of_it_does_not() {
        let measure = Measure::new("m", Answers::Bounded, None);
        let line = "x".repeat(LINE - 1) + "\n";
        let mut body = measure.of(Full::new(Bytes::new()), Reading::ByLine);
        for _ in 0..3 {
            for piece in line.as_bytes().chunks(1 << 20) {
                body.admit(piece).unwrap();
            }
        }
        body.admit(&b"x".repeat(LINE / 2)).unwrap();
        let told = body.admit(&b"x".repeat(LINE / 2 + 1)).unwrap_err();
        assert!(told.contains("10 MiB"), "{told}");
        let mut body = measure.of(Full::new(Bytes::new()), Reading::ByLine);
        body.admit(b"x\nxx").unwrap();
        assert!(body.admit(&b"x".repeat(LINE)).is_err(), "what has begun counts");
    }

    /// As long as an API server can make what etcd takes of an object.
    #[tokio::test]
    async fn line_of_the_longest_object_is_read_and_of_a_longer_one_the_beginning_is_known() {
        let measure = Measure::new("m", Answers::Bounded, None);
        let (longest, event) = ((3 << 19) * 6, |name: &str| format!(r#"{{"object":{{"metadata":{{"name":"{name}""#));
        let mut body = measure.of(Full::new(Bytes::new()), Reading::ByLine);
        body.admit(format!("{}{}\n{}", event("a"), "x".repeat(longest), event("b")).as_bytes()).unwrap();
        assert_eq!(object_in(&body.beginning).as_deref(), Some("b"));
        assert!(body.admit(&b"x".repeat(LINE)).is_err());
        assert_eq!(object_in(&body.beginning).as_deref(), Some("b"));
        let mut body = measure.of(Full::new(Bytes::new()), Reading::ByLine);
        body.admit(&event("a").as_bytes()[..20]).unwrap();
        body.admit(&event("a").as_bytes()[20..]).unwrap();
        assert!(body.admit(&[b"x".repeat(LINE).as_slice(), b"\n", event("b").as_bytes()].concat()).is_err());
        assert_eq!(object_in(&body.beginning).as_deref(), Some("a"), "that which is too long");
    }
}
