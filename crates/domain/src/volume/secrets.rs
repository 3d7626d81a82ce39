//! The Secrets that a leaf driver wants on a node: which of the host's stands for which of the member's. Pure.

use std::{collections::BTreeMap, fmt};

use crate::error::{Error, Result};

/// Where a Secret is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretPlace {
    pub namespace: String,
    pub name: String,
}

impl SecretPlace {
    /// None where a reference leaves out one of the two.
    pub fn named(namespace: Option<&str>, name: Option<&str>) -> Option<Self> {
        let (namespace, name) = (namespace.unwrap_or_default().to_owned(), name.unwrap_or_default().to_owned());
        (!namespace.is_empty() && !name.is_empty()).then_some(Self { namespace, name })
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// The Secrets that a volume names, by what for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretRefs {
    pub stage: Option<SecretPlace>,
    pub publish: Option<SecretPlace>,
    pub expand: Option<SecretPlace>,
}

/// What is in a Secret. Nothing of it can be printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretData(pub BTreeMap<String, Vec<u8>>);

impl fmt::Debug for SecretData {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} keys", self.0.len())
    }
}

/// A Secret of the host that is to hold what one of the member's holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub from: SecretPlace,
    pub to: SecretPlace,
}

/// The kubelet hands over what the host volume names, so that must name one wherever the leaf volume does.
pub fn copies(leaf: &SecretRefs, host: &SecretRefs) -> Result<Vec<Copy>> {
    let kinds = [
        ("stage", &leaf.stage, &host.stage),
        ("publish", &leaf.publish, &host.publish),
        ("expand", &leaf.expand, &host.expand),
    ];
    let mut copies: Vec<Copy> = Vec::new();
    for (kind, from, to) in kinds {
        let Some(from) = from else { continue };
        let key = format!("csi.storage.k8s.io/node-{kind}-secret");
        let Some(to) = to else {
            return Err(Error::Refused(format!(
                "the leaf driver needs Secret {from} of its member (node-{kind}), but the host's volume names no \
                 Secret: give the class the parameters {key}-name: ${{pv.name}}-{kind} and {key}-namespace: \
                 kosmos-csi-secrets, and recreate the volume"
            )));
        };
        let copy = Copy { from: from.clone(), to: to.clone() };
        match copies.iter().find(|other| other.to == copy.to) {
            Some(other) if *other == copy => {}
            Some(other) => {
                return Err(Error::Refused(format!(
                    "the host's volume names one Secret, {to}, for two of its member, {} and {from}: give {key}-name of its class \
                     a name of its own, and recreate the volume",
                    other.from
                )));
            }
            None => copies.push(copy),
        }
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Option<SecretPlace> {
        SecretPlace::named(Some("n"), Some(name))
    }

    #[test]
    fn every_secret_of_the_leaf_has_one_in_the_host() {
        let none = SecretRefs::default();
        let leaf = SecretRefs { stage: place("a"), expand: place("a"), ..SecretRefs::default() };
        let host = SecretRefs { stage: place("x"), expand: place("x"), publish: place("y") };
        assert_eq!(copies(&leaf, &host).unwrap().len(), 1, "one Secret for two uses is one copy");
        assert_eq!(copies(&none, &host).unwrap(), []);
        assert_eq!((SecretPlace::named(None, Some("a")), SecretPlace::named(Some("n"), Some(""))), (None, None));
        let error = copies(&leaf, &none).unwrap_err();
        assert!(
            matches!(&error, Error::Refused(text) if text.contains("node-stage-secret-name: ${pv.name}")),
            "{error}"
        );
        let without = SecretRefs { expand: None, ..host.clone() };
        assert!(copies(&leaf, &without).unwrap_err().to_string().contains("node-expand-secret-name"));
    }

    #[test]
    fn one_secret_of_the_host_cannot_stand_for_two() {
        let leaf = SecretRefs { stage: place("a"), publish: place("b"), ..SecretRefs::default() };
        let host = SecretRefs { stage: place("x"), publish: place("x"), ..SecretRefs::default() };
        let error = copies(&leaf, &host).unwrap_err().to_string();
        assert!(error.contains("n/a and n/b") && error.contains("node-publish-secret-name"), "{error}");
    }

    #[test]
    fn what_is_secret_is_never_printed() {
        let data = SecretData(BTreeMap::from([("key".to_owned(), b"hush".to_vec())]));
        assert_eq!(format!("{data:?}"), "1 keys");
    }
}
