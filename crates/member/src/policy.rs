//! What the host's administrator says of a member, besides how it is reached.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

pub const CORDON: &str = "kosmos.csi.io/cordon";
/// On a member's definition, and on a namespace in the member: up to which Pod Security level pods of the host are run there.
pub const PODS: &str = "kosmos.csi.io/pods";
/// The levels: with nothing said it is the first.
pub const BASELINE: &str = "baseline";
pub const PRIVILEGED: &str = "privileged";
/// On a member's definition: networks in which the addresses of its pods lie, separated by commas.
pub const POD_NETWORKS: &str = "kosmos.csi.io/pod-networks";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// It gets no new volumes.
    pub cordoned: bool,
    /// Pods of the host may ask there for more than the Pod Security level `baseline`, where the member lets them.
    pub privileged_pods: bool,
    pub pod_networks: PodNetworks,
}

impl Policy {
    pub fn annotated(annotations: &BTreeMap<String, String>) -> Self {
        let is = |key, value| annotations.get(key).is_some_and(|said| said == value);
        Self {
            cordoned: is(CORDON, "true"),
            privileged_pods: is(PODS, PRIVILEGED),
            pod_networks: annotations.get(POD_NETWORKS).map_or(PodNetworks::Any, |text| PodNetworks::read(text)),
        }
    }
}

/// Where the addresses lie that the host believes of a member's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodNetworks {
    #[default]
    Any,
    Within(Vec<IpNet>),
    /// What is said cannot be read, so no address is believed.
    Unreadable(String),
}

impl PodNetworks {
    fn read(text: &str) -> Self {
        let networks: Result<Vec<IpNet>, &str> =
            text.split(',').map(str::trim).map(|word| word.parse().map_err(|_| word)).collect();
        match networks {
            Ok(networks) => Self::Within(networks),
            Err(word) => Self::Unreadable(word.to_owned()),
        }
    }

    /// Why the host does not believe an address. What a member calls one may be anything, and is repeated only where it is one.
    pub fn refusal(&self, address: &str) -> Option<String> {
        match (self, address.parse::<IpAddr>()) {
            (Self::Any, _) => None,
            (Self::Unreadable(word), _) => Some(format!(
                "annotation {POD_NETWORKS} of its member says {word:?}, which is no network such as 10.244.0.0/16"
            )),
            (Self::Within(_), Err(_)) => Some("its member reports an address that is no IP address".to_owned()),
            (Self::Within(networks), Ok(address)) => {
                let is_within = networks.iter().any(|network| network.contains(&address));
                (!is_within).then(|| {
                    format!("its member reports the address {address}, which is in no network of {POD_NETWORKS}")
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(key: &str, value: &str) -> Policy {
        Policy::annotated(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn what_is_not_said_holds_nobody_and_allows_nothing() {
        assert_eq!(Policy::annotated(&BTreeMap::new()), Policy::default());
        assert!(said(CORDON, "true").cordoned && said(PODS, "privileged").privileged_pods);
        for policy in [said(CORDON, "false"), said(PODS, "baseline")] {
            assert_eq!(policy, Policy::default());
        }
    }

    #[test]
    fn address_of_a_pod_lies_in_a_network_that_is_named_or_is_not_believed() {
        let both = said(POD_NETWORKS, "10.244.0.0/16, fd00:1::/48").pod_networks;
        for (address, words) in [
            ("10.244.3.7", None),
            ("fd00:1::7", None),
            ("10.245.3.7", Some("in no network")),
            ("169.254.169.254", Some("in no network")),
            ("::ffff:10.96.0.1", Some("in no network")),
            ("", Some("no IP address")),
        ] {
            assert_eq!(PodNetworks::Any.refusal(address), None);
            let refusal = both.refusal(address);
            assert_eq!(refusal.is_some(), words.is_some(), "{address}");
            assert!(words.is_none_or(|words| refusal.unwrap().contains(words)), "{address}");
        }
        for (text, word) in [("10.244.0.0/16,all", "\"all\""), ("10.244.0.0/40", "/40"), ("", "\"\"")] {
            let refusal = said(POD_NETWORKS, text).pod_networks.refusal("10.244.3.7").unwrap();
            assert!(refusal.contains(POD_NETWORKS) && refusal.contains(word), "{refusal}");
        }
    }
}
