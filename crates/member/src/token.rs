//! What a token says of itself: when to ask for the next one, and of whom that must be. A member may have made it up.

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::json;

use super::kubeconfig;

/// A service account's tokens are at least so long.
const SHORTEST: i64 = 600;
/// A member's admission policy lets no token ask for one that is good for longer.
const LONGEST_LIFE: i64 = 365 * 24 * 3600;
/// One that is asked for again has been in use for so long at most.
const LONGEST_USE: i64 = 15 * 24 * 3600;
/// More than any.
const LONGEST: usize = 16 << 10;
/// One whose life is not known is told of so long before its end.
const BEFORE_THE_END: i64 = 30 * 24 * 3600;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Token {
    #[serde(rename = "exp")]
    pub ends: i64,
    #[serde(rename = "iat")]
    issued: Option<i64>,
    #[serde(rename = "sub", default)]
    subject: String,
    #[serde(rename = "kubernetes.io", default)]
    kubernetes: Kubernetes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Kubernetes {
    secret: Option<Bound>,
}

/// The Secret in the member with which a token ends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Bound {
    pub name: String,
    pub uid: String,
}

impl Token {
    /// That of a kubeconfig's user, where there is one that says when it ends.
    pub fn of(kubeconfig: &str) -> Option<Self> {
        Self::read(&kubeconfig::token(kubeconfig)?)
    }

    /// None: it does not say when it ends.
    pub fn read(token: &str) -> Option<Self> {
        let claims = token.split('.').nth(1)?.replace('-', "+").replace('_', "/");
        let padded = format!("{claims}{}", "=".repeat((4 - claims.len() % 4) % 4));
        let bytes: ByteString = serde_json::from_value(json!(padded)).ok()?;
        serde_json::from_slice(&bytes.0).ok()
    }

    /// Whether a text is a token and nothing that could mean more where it is written.
    pub fn is_plain(text: &str) -> bool {
        let is_of_one = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !text.is_empty() && text.len() <= LONGEST && text.bytes().all(is_of_one)
    }

    pub fn is_the_next_of(&self, former: &Self) -> bool {
        self.subject == former.subject && self.bound() == former.bound()
    }

    /// Namespace and name of the service account that it is of.
    pub fn account(&self) -> Option<(&str, &str)> {
        self.subject.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    pub fn bound(&self) -> Option<&Bound> {
        self.kubernetes.secret.as_ref()
    }

    /// How long the next one is to be good: as long as this one, and a year at most.
    pub fn lifetime(&self) -> i64 {
        self.issued.map_or(SHORTEST, |issued| self.ends.saturating_sub(issued).clamp(SHORTEST, LONGEST_LIFE))
    }

    /// From when on the next one is asked for. None: nobody can ask for it.
    pub fn due(&self) -> Option<i64> {
        self.account()?;
        Some(self.issued?.saturating_add((self.lifetime() / 2).min(LONGEST_USE)))
    }

    /// Whether a person should hear that it ends: it should have been renewed, or cannot be.
    pub fn is_late(&self, now: i64) -> bool {
        let soon = || self.ends.saturating_sub(BEFORE_THE_END);
        now > self.due().map_or_else(soon, |due| due.saturating_add(self.ends.saturating_sub(due) / 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token that claims this, which nobody has signed.
    fn unsigned(claims: &serde_json::Value) -> String {
        let bytes = json!(ByteString(claims.to_string().into_bytes()));
        let claims = bytes.as_str().unwrap().trim_end_matches('=').replace('+', "-").replace('/', "_");
        format!("e30.{claims}.signature")
    }

    fn token(claims: &serde_json::Value) -> Token {
        Token::read(&unsigned(claims)).unwrap()
    }

    #[test]
    fn next_token_is_asked_for_at_half_of_the_life_of_this_one() {
        let day = 24 * 3600;
        for (lives, half) in [(600, 300), (30 * day, 15 * day), (365 * day, 15 * day), (366 * day, 15 * day)] {
            let token = token(&json!({"iat": 1000, "exp": 1000 + lives, "sub": "system:serviceaccount:kosmos-csi:one",
                "kubernetes.io": {"secret": {"name": "host", "uid": "u"}}}));
            assert_eq!((token.due(), token.lifetime()), (Some(1000 + half), lives.min(365 * day)));
            assert_eq!(token.account(), Some(("kosmos-csi", "one")));
            assert_eq!(token.bound().map(|bound| bound.name.as_str()), Some("host"));
            assert!(!token.is_late(1000 + half) && token.is_late(1000 + lives - 1));
        }
    }

    #[test]
    fn token_that_nobody_can_renew_is_told_of_a_month_before_it_ends() {
        let day = 24 * 3600;
        for claims in [json!({"exp": 40 * day}), json!({"exp": 40 * day, "iat": 1, "sub": "jane"})] {
            let token = token(&claims);
            assert_eq!(token.due(), None);
            assert!(!token.is_late(10 * day) && token.is_late(11 * day));
        }
        for (issued, ends) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (i64::MAX, i64::MAX)] {
            let sub = "system:serviceaccount:a:b";
            let absurd = token(&json!({"iat": issued, "exp": ends, "sub": sub}));
            assert!(absurd.due().is_some() && absurd.lifetime() >= SHORTEST);
            let _ = absurd.is_late(0);
        }
        assert!(Token::is_plain("e30.e30.a-_Z9"));
        for text in ["", "a\"b", "a\nb", "a: b", &"a".repeat(LONGEST + 1)] {
            assert!(!Token::is_plain(text), "{text}");
        }
        for text in ["", "a.b", "e30.e30.x", "canary"] {
            assert_eq!(Token::read(text), None, "{text}");
        }
    }
}
