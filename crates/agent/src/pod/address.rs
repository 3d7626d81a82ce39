//! Which address of a copy can be one for others at all. Pure.

use std::net::IpAddr;

/// Why the host is not told it. Kubernetes takes such a one as no endpoint of a Service: with one of them among a Service's pods, it writes none of
/// the others any more, wherever they run.
pub(super) fn refusal(address: &str) -> Option<String> {
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Err(_) => Some("its member reports an address that is no IP address".to_owned()),
        Ok(address) if is_for_itself(address) => {
            Some(format!("its member reports the address {address}, at which no other pod can reach it"))
        }
        Ok(_) => None,
    }
}

fn is_for_itself(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    is_link_local || address.is_unspecified() || address.is_loopback() || address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_that_is_no_endpoint_of_a_service_is_none_of_a_pod() {
        for address in ["10.244.0.7", "192.168.0.1", "fd00::7", "2001:db8::1", "::ffff:10.244.0.7"] {
            assert_eq!(refusal(address), None, "{address}");
        }
        let special =
            ["0.0.0.0", "127.0.0.1", "127.1.2.3", "169.254.169.254", "224.0.0.1", "::", "::1", "fe80::1", "ff02::1"];
        for address in special.into_iter().chain(["::ffff:127.0.0.1"]) {
            assert!(refusal(address).is_some_and(|why| why.contains("no other pod can reach it")), "{address}");
        }
        // Kubernetes reads some of these, and as what they are not written.
        for address in ["", "127.000.000.001", "10.0.0.1\u{1b}", "fe80::1%eth0", "localhost"] {
            assert_eq!(
                refusal(address).as_deref(),
                Some("its member reports an address that is no IP address"),
                "{address}"
            );
        }
    }
}
