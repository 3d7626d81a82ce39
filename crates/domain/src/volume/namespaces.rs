//! The namespaces of a member in which a host may have something.

use super::id::is_label;

/// An extension of a kubeconfig's context: a list of them.
pub const EXTENSION: &str = "kosmos.csi.io/namespaces";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    #[default]
    All,
    /// One or more: the account has no rights in others.
    Only(Vec<String>),
}

impl Namespaces {
    /// As people name them; all, where nobody names one.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut only: Vec<String> = names.into_iter().map(str::to_owned).collect();
        only.sort_unstable();
        only.dedup();
        match only.iter().find(|name| !is_label(name, 63)) {
            Some(odd) => Err(format!("{odd:?} is no namespace")),
            None if only.is_empty() => Ok(Self::All),
            None => Ok(Self::Only(only)),
        }
    }

    pub fn has(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| name == namespace),
        }
    }

    /// What a list or a watch of all has to ask for: each of them, or every namespace at once.
    pub fn each(&self) -> Vec<Option<&str>> {
        match self {
            Self::All => vec![None],
            Self::Only(names) => names.iter().map(|name| Some(name.as_str())).collect(),
        }
    }
}

impl std::fmt::Display for Namespaces {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => out.write_str("all"),
            Self::Only(names) => out.write_str(&names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_those_that_are_named_or_all() {
        assert_eq!(Namespaces::named([]), Ok(Namespaces::All));
        let both = Namespaces::named(["shop", "bank", "shop"]).unwrap();
        assert_eq!(both.to_string(), "bank, shop");
        assert_eq!(both.each(), [Some("bank"), Some("shop")]);
        assert!(both.has("bank") && !both.has("ban") && Namespaces::All.has("ban"));
        assert_eq!(Namespaces::All.each(), [None]);
        for odd in ["", "Shop", "shop/db", "a,b"] {
            assert!(Namespaces::named(["shop", odd]).unwrap_err().contains(&format!("{odd:?}")));
        }
    }
}
