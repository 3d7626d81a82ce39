//! What is typed, as what it must be.

use std::time::Duration;

use super::Within;
use domain::volume::id::{is_label, is_subdomain};

/// A claim as people write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimName {
    pub namespace: String,
    pub name: String,
}

impl std::fmt::Display for ClaimName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Something in a namespace, which may be said elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub namespace: Option<String>,
    pub name: String,
}

impl Named {
    /// By what was typed, or else by what the kubeconfig says.
    pub fn within(&self, flag: &Within, usual: &str) -> Result<ClaimName, String> {
        let namespace = match (&self.namespace, &flag.namespace) {
            (Some(own), Some(flag)) if own != flag => {
                return Err(format!("{own}/{} is in another namespace than --namespace {flag}", self.name));
            }
            (own, flag) => own.as_ref().or(flag.as_ref()).map_or(usual, String::as_str),
        };
        Ok(ClaimName { namespace: namespace.to_owned(), name: self.name.clone() })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Claim,
    Pod,
    Volume,
}

/// Kinds by the words of kubectl.
const KINDS: [(&str, Kind); 8] = [
    ("pvc", Kind::Claim),
    ("persistentvolumeclaim", Kind::Claim),
    ("persistentvolumeclaims", Kind::Claim),
    ("pod", Kind::Pod),
    ("pods", Kind::Pod),
    ("pv", Kind::Volume),
    ("persistentvolume", Kind::Volume),
    ("persistentvolumes", Kind::Volume),
];

/// Something in the host that has to do with volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub kind: Kind,
    pub named: Named,
}

pub(super) fn subject(text: &str) -> Result<Subject, String> {
    let parts = text.split_once('/').map_or((None, text), |(first, name)| (Some(first), name));
    let kind = parts.0.and_then(|first| KINDS.iter().find(|(word, _)| *word == first));
    let (namespace, kind) = match (kind, parts.0) {
        (Some((_, kind)), _) => (None, *kind),
        (None, first) => (first.map(str::to_owned), Kind::Claim),
    };
    if is_subdomain(parts.1) && namespace.as_deref().is_none_or(|namespace| is_label(namespace, 63)) {
        return Ok(Subject { kind, named: Named { namespace, name: parts.1.to_owned() } });
    }
    Err("it must be a claim, a pod or a volume, such as pvc/db, shop/db, pod/db-0 or pv/pvc-7c1e".to_owned())
}

/// A claim of the host.
pub(super) fn claim_of_host(text: &str) -> Result<Named, String> {
    match subject(text) {
        Ok(Subject { kind: Kind::Claim, named }) => Ok(named),
        _ => Err("it must be the name of a claim, such as db, pvc/db or shop/db".to_owned()),
    }
}

/// Whether it stands before a name for what the name is of.
pub fn is_kind(word: &str) -> bool {
    word == "volumemove" || KINDS.iter().any(|(kind, _)| *kind == word)
}

/// Of a move, or of a claim that has one.
pub(super) fn move_of_host(text: &str) -> Result<Named, String> {
    match text.strip_prefix("volumemove/") {
        Some(name) if is_subdomain(name) => Ok(Named { namespace: None, name: name.to_owned() }),
        _ => claim_of_host(text)
            .map_err(|_| "it must be the name of a move or of a claim, such as db or shop/db".to_owned()),
    }
}

pub(super) fn claim(text: &str) -> Result<ClaimName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if is_label(namespace, 63) && is_subdomain(name) => {
            Ok(ClaimName { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("it must be a namespace and the name of a claim, such as shop/db".to_owned()),
    }
}

/// A namespace, and something in it; or a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub within: String,
    pub name: Option<String>,
}

pub(super) fn place(text: &str) -> Result<Place, String> {
    let (within, name) = text.split_once('/').map_or((text, None), |(within, name)| (within, Some(name)));
    let is_named = name.map_or_else(|| is_subdomain(within), |name| is_label(within, 63) && is_subdomain(name));
    if is_named {
        return Ok(Place { within: within.to_owned(), name: name.map(str::to_owned) });
    }
    Err("it must be a namespace, or that and the name of a move or a claim, such as shop/db".to_owned())
}

pub(super) fn kept(text: &str) -> Result<Place, String> {
    match place(text) {
        Ok(Place { within, name: Some(name) }) => Ok(Place { within, name: Some(name) }),
        _ => Err("it must be a member and the name of a volume there, such as cluster38/pvc-7c1e".to_owned()),
    }
}

pub(super) fn object_name(text: &str) -> Result<String, String> {
    if is_subdomain(text) {
        return Ok(text.to_owned());
    }
    Err("it is not the name of an object (lower-case letters, digits, dashes and dots, at most 253)".to_owned())
}

pub(super) fn finding(text: &str) -> Result<String, String> {
    if text.contains(':') {
        return Ok(text.to_owned());
    }
    Err("it must be what doctor prints in the column FINDING, such as leaf:cluster38/shop/db".to_owned())
}

/// As the kind VolumeMove takes it.
pub(super) fn keep_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time.subsec_nanos() != 0 || time.as_secs() / 3600 > 999_999 {
        return Err("it must be whole seconds, and at most 999999h".to_owned());
    }
    Ok(time)
}

/// A cluster grants no token for less.
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if lifetime < Duration::from_mins(10) {
        return Err("a token is good for ten minutes at least".to_owned());
    }
    Ok(lifetime)
}
