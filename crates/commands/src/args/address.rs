//! Addresses as they are typed.

use std::net::SocketAddr;

/// Host and port of an address; the port may be left out.
pub(super) fn https_address(text: &str) -> Result<(String, u16), String> {
    let wrong = || "it must be https://HOST or https://HOST:PORT, such as https://api.example.org:6443".to_owned();
    let rest = text.strip_prefix("https://").ok_or_else(wrong)?.trim_end_matches('/');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
        _ => (rest, 443),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.contains(['/', '?', '@']) {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

/// Also with an IPv6 address without its brackets, as Kubernetes puts a pod's own one into a flag.
pub(super) fn address_and_port(text: &str) -> Result<SocketAddr, String> {
    let bare = || {
        let (address, port) = text.rsplit_once(':')?;
        Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
    };
    text.parse().ok().or_else(bare).ok_or_else(|| "it must be ADDRESS:PORT, such as 0.0.0.0:10250".to_owned())
}

/// Nobody else's: what is served there has no other lock.
pub(super) fn loopback_and_port(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
    address.ok_or_else(|| "it must be an address of this machine alone, such as 127.0.0.1:9813".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_the_host_is_its_name_and_port() {
        let address = |text| https_address(text).map(|(host, port)| format!("{host} {port}"));
        assert_eq!(address("https://api.example.org:6443").as_deref(), Ok("api.example.org 6443"));
        assert_eq!(address("https://10.0.0.1/").as_deref(), Ok("10.0.0.1 443"));
        assert_eq!(address("https://[fd00::1]:6443").as_deref(), Ok("fd00::1 6443"));
        assert_eq!(address("https://[fd00::1]").as_deref(), Ok("fd00::1 443"));
        for text in ["", "http://a", "https://", "https://a:b", "https://a/path", "https://me@a"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn page_is_served_on_an_address_of_this_machine_alone() {
        for text in ["127.0.0.1:9813", "[::1]:0", "127.3.2.1:80"] {
            assert_eq!(loopback_and_port(text), Ok(text.parse().unwrap()));
        }
        for text in ["0.0.0.0:9813", "[::]:9813", "10.0.0.1:9813", "localhost:9813", "9813", ""] {
            assert!(loopback_and_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn address_of_a_pod_is_taken_with_and_without_brackets() {
        for (text, address) in [
            ("10.244.0.7:10250", "10.244.0.7:10250"),
            ("fd00::5:10250", "[fd00::5]:10250"),
            ("[fd00::5]:10250", "[fd00::5]:10250"),
            (":::10250", "[::]:10250"),
        ] {
            assert_eq!(address_and_port(text), Ok(address.parse().unwrap()), "{text}");
        }
        for text in ["", "10250", "10.244.0.7", ":10250", "pod:10250", "10.244.0.7:x", "fd00::5:102500"] {
            assert!(address_and_port(text).is_err(), "{text}");
        }
    }
}
