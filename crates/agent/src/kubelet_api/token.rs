//! Who has shown a token instead of a certificate: metrics-server, Prometheus. What the host says of it is believed for a while,
//! as a kubelet does: they ask of every node, every few seconds.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::Instant};

use domain::error::Result;
use host::{Host, access};

/// How long the host's yes and no are believed.
const YES: Duration = Duration::from_mins(1);
const NO: Duration = Duration::from_secs(10);
/// Answers that are remembered.
const KNOWN: usize = 256;
/// Tokens that the host is asked about at a time: everybody can send some.
const ASKING: usize = 4;
/// Those of Kubernetes have some thousand bytes.
const LONGEST: usize = 16 * 1024;

/// What the host says of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Nobody,
    Denied(String),
    Allowed(String),
}

type Question = ([u8; 32], &'static str);

#[derive(Debug)]
pub(super) struct Tokens {
    known: Mutex<HashMap<Question, (Instant, Verdict)>>,
    asking: Semaphore,
}

impl Default for Tokens {
    fn default() -> Self {
        Self { known: Mutex::default(), asking: Semaphore::new(ASKING) }
    }
}

impl Tokens {
    /// Whether its owner may read this of nodes.
    pub(super) async fn judge(&self, host: &Host, token: &str, subresource: &'static str) -> Result<Verdict> {
        let question = (Sha256::digest(token).into(), subresource);
        if let Some(verdict) = self.remembered(&question) {
            return Ok(verdict);
        }
        let place = self.asking.acquire().await;
        // Whoever was before may have asked the same.
        if let Some(verdict) = self.remembered(&question) {
            return Ok(verdict);
        }
        let verdict = match access::owner_of(host, token).await? {
            None => Verdict::Nobody,
            Some(caller) if access::lets_reach_kubelets(host, &caller, "get", subresource).await? => {
                Verdict::Allowed(caller.user)
            }
            Some(caller) => Verdict::Denied(caller.user),
        };
        drop(place);
        self.remember(question, &verdict);
        Ok(verdict)
    }

    fn remembered(&self, question: &Question) -> Option<Verdict> {
        let known = self.lock();
        let (asked, verdict) = known.get(question)?;
        is_believed(*asked, verdict).then(|| verdict.clone())
    }

    /// Who sends many tokens takes no place of one that is good.
    fn remember(&self, question: Question, verdict: &Verdict) {
        let mut known = self.lock();
        known.retain(|_, (asked, verdict)| is_believed(*asked, verdict));
        if known.len() >= KNOWN {
            known.retain(|_, (_, verdict)| matches!(verdict, Verdict::Allowed(_)));
        }
        if known.len() < KNOWN {
            known.insert(question, (Instant::now(), verdict.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Question, (Instant, Verdict)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_believed(asked: Instant, verdict: &Verdict) -> bool {
    asked.elapsed() < if matches!(verdict, Verdict::Allowed(_)) { YES } else { NO }
}

/// The token that came with a request.
pub(super) fn of(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn token_is_what_follows_the_word_bearer() {
        let token = |value: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
            of(&headers).map(str::to_owned)
        };
        assert_eq!(token("Bearer a.b.c").as_deref(), Some("a.b.c"));
        assert_eq!(token("bearer  a.b.c ").as_deref(), Some("a.b.c"));
        for other in ["Basic YTpi", "Bearer", "Bearer ", "a.b.c"] {
            assert_eq!(token(other), None, "{other}");
        }
        assert_eq!(token(&format!("Bearer {}", "a".repeat(LONGEST + 1))), None);
        assert_eq!(of(&HeaderMap::new()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_believed_for_a_while_and_bad_tokens_push_no_good_one_out() {
        let tokens = Tokens::default();
        let question = |number: u16| {
            let mut digest = [0; 32];
            digest[..2].copy_from_slice(&number.to_be_bytes());
            (digest, "metrics")
        };
        tokens.remember(question(0), &Verdict::Allowed("them".to_owned()));
        for number in 1..1000 {
            tokens.remember(question(number), &Verdict::Nobody);
        }
        assert!(tokens.lock().len() <= KNOWN);
        assert_eq!(tokens.remembered(&question(0)), Some(Verdict::Allowed("them".to_owned())));
        assert_eq!(tokens.remembered(&(question(0).0, "stats")), None, "another right");
        assert_eq!(tokens.remembered(&question(999)), Some(Verdict::Nobody));
        tokio::time::advance(NO).await;
        assert_eq!(tokens.remembered(&question(999)), None);
        tokio::time::advance(YES).await;
        assert_eq!(tokens.remembered(&question(0)), None);
    }
}
