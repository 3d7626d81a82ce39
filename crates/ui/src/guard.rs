//! What holds for every answer, whoever asks. Who may reach the address is decided elsewhere: it is the pod's own, and Kubernetes'
//! rights to forward a port of the pod are the login.

use std::net::IpAddr;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Nothing is loaded from elsewhere, nothing is run that is not ours, and nobody frames it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(crate) async fn guard(request: Request, next: Next) -> Response {
    let mut response = match refusal(request.method(), request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refusal(method: &Method, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Some((StatusCode::METHOD_NOT_ALLOWED, "this page is read-only\n"));
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // A stranger's page could give its own name this address, and would read what is shown here in the name of who opened it.
    if !is_this_machine(host) {
        return Some((
            StatusCode::MISDIRECTED_REQUEST,
            "this page answers only under localhost and addresses of this machine: forward a port to it\n",
        ));
    }
    is_of_a_stranger(headers).then_some((StatusCode::FORBIDDEN, "another site requested this page: open it yourself\n"))
}

/// A browser says so where another page asks, and not its reader who follows a link: that page would read nothing, and have this
/// one look at all volumes again and again.
fn is_of_a_stranger(headers: &HeaderMap) -> bool {
    let said = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_followed = said("sec-fetch-mode") == "navigate" && said("sec-fetch-dest") == "document";
    ["cross-site", "same-site"].contains(&said("sec-fetch-site")) && !is_followed
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name == "localhost"
        || address.is_ok_and(|address| address.is_loopback() && address.is_ipv6() == name.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &Method, host: &'static str) -> Option<StatusCode> {
        let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
        refusal(method, &headers).map(|(status, _)| status)
    }

    #[test]
    fn page_is_shown_under_names_of_this_machine_alone() {
        for host in ["localhost", "localhost:9813", "127.0.0.1:1", "[::1]:9813", "[::1]", "127.3.2.1:80"] {
            assert_eq!(asked(&Method::GET, host), None, "{host}");
        }
        for host in
            ["", "evil.example:9813", "localhost.evil.example", "127.0.0.1.evil.example:9813", "10.0.0.1", "::1"]
        {
            assert_eq!(asked(&Method::GET, host), Some(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
        assert_eq!(
            refusal(&Method::GET, &HeaderMap::new()).map(|(status, _)| status),
            Some(StatusCode::MISDIRECTED_REQUEST)
        );
    }

    #[test]
    fn another_page_does_not_have_this_one_work() {
        let asked = |site: &'static str, mode: &'static str, dest: &'static str| {
            let headers =
                [("host", "localhost"), ("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            let headers = headers.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            refusal(&Method::GET, &HeaderMap::from_iter(headers)).map(|(status, _)| status)
        };
        for (site, mode, dest) in [
            ("same-origin", "cors", "empty"),
            ("same-origin", "no-cors", "style"),
            ("none", "navigate", "document"),
            ("cross-site", "navigate", "document"),
        ] {
            assert_eq!(asked(site, mode, dest), None, "{site} {mode} {dest}");
        }
        for (site, mode, dest) in [
            ("cross-site", "no-cors", "image"),
            ("cross-site", "cors", "empty"),
            ("same-site", "no-cors", "script"),
            ("cross-site", "navigate", "iframe"),
            ("same-site", "navigate", "object"),
        ] {
            assert_eq!(asked(site, mode, dest), Some(StatusCode::FORBIDDEN), "{site} {mode} {dest}");
        }
    }

    #[test]
    fn page_changes_nothing() {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            assert_eq!(asked(&method, "localhost"), Some(StatusCode::METHOD_NOT_ALLOWED));
        }
        assert_eq!(asked(&Method::HEAD, "localhost"), None);
    }
}
