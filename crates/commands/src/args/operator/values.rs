//! What is typed, as what it must be.

use std::time::Duration;

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
    if is_label(within, 63) && name.is_none_or(is_subdomain) {
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

/// A cluster grants no token for less.
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if lifetime < Duration::from_mins(10) {
        return Err("a token is good for ten minutes at least".to_owned());
    }
    Ok(lifetime)
}
