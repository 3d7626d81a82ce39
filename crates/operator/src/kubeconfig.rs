//! The kubeconfig that a member is known by: how it is made, and what can be read of it without asking anybody.

use serde_json::{Value, json};

use super::objects::word;
use domain::volume::namespaces::{EXTENSION, Namespaces};
use member::token::Token;

const DAY: i64 = 24 * HOUR;
const HOUR: i64 = 60 * MINUTE;
const MINUTE: i64 = 60;

/// How a cluster is reached, and what is known of it besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    pub server: String,
    /// In base64, as kubeconfigs have it.
    pub authority: Option<String>,
    pub server_name: Option<String>,
    pub insecure: bool,
    /// Where the account has rights.
    pub namespaces: Namespaces,
}

/// A kubeconfig with a token, as JSON, which is YAML too.
pub fn text(member: &str, reach: &Reach, token: &str) -> String {
    let mut cluster = json!({"server": reach.server});
    if let Some(authority) = &reach.authority {
        cluster["certificate-authority-data"] = json!(authority);
    }
    if let Some(name) = &reach.server_name {
        cluster["tls-server-name"] = json!(name);
    }
    if reach.insecure {
        cluster["insecure-skip-tls-verify"] = json!(true);
    }
    let mut context = json!({"cluster": member, "user": member});
    if let Namespaces::Only(names) = &reach.namespaces {
        context["extensions"] = json!([{"name": EXTENSION, "extension": names}]);
    }
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": member,
        "clusters": [{"name": member, "cluster": cluster}],
        "users": [{"name": member, "user": {"token": token}}],
        "contexts": [{"name": member, "context": context}],
    })
    .to_string()
}

/// An address without the user and the password that people write before the host.
pub fn without_user(server: &str) -> String {
    let (scheme, rest) = server.split_at(server.find("://").map_or(0, |at| at + "://".len()));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}{host}{path}")
}

/// Whether an address means another machine to each who uses it.
pub fn is_loopback(server: &str) -> bool {
    let server = without_user(server);
    let rest = server.split_once("://").map_or(server.as_str(), |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let address: Option<core::net::IpAddr> = host.parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback() || address.is_unspecified())
}

/// What may be shown of a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeconfigSummary {
    pub server: String,
    /// What its token says of itself.
    pub token: Option<Token>,
}

/// Reads what may be shown; the token itself is not among it.
pub fn read(text: &str) -> KubeconfigSummary {
    let Some(cluster) = cluster(text) else { return KubeconfigSummary::default() };
    KubeconfigSummary { server: without_user(word(&cluster, "/cluster/server")), token: Token::of(text) }
}

/// How its cluster is reached, where it says that; in which namespaces is not looked at.
pub fn reach(text: &str) -> Option<Reach> {
    let cluster = cluster(text)?;
    let said = |path: &str| Some(word(&cluster, path).to_owned()).filter(|said| !said.is_empty());
    Some(Reach {
        server: said("/cluster/server")?,
        authority: said("/cluster/certificate-authority-data"),
        server_name: said("/cluster/tls-server-name"),
        insecure: cluster["cluster"]["insecure-skip-tls-verify"] == true,
        ..Reach::default()
    })
}

/// The cluster of its current context.
fn cluster(text: &str) -> Option<Value> {
    let kubeconfig: Value = serde_saphyr::from_str(text).ok()?;
    let named = |list: &str, name: &str| {
        let entries = kubeconfig[list].as_array().into_iter().flatten();
        entries.into_iter().find(|entry| word(entry, "/name") == name).cloned().unwrap_or_default()
    };
    let context = named("contexts", word(&kubeconfig, "/current-context"));
    Some(named("clusters", word(&context, "/context/cluster")))
}

/// The time from now to then, in words.
pub fn until(then: i64, now: i64) -> String {
    let left = then.saturating_sub(now);
    let span = span(left.saturating_abs());
    if left > 0 { span } else { format!("expired {span} ago") }
}

/// So many seconds, in the unit that fits.
pub fn span(seconds: i64) -> String {
    match seconds {
        long if long >= 2 * DAY => format!("{}d", long / DAY),
        some if some >= 2 * HOUR => format!("{}h", some / HOUR),
        short if short >= 2 * MINUTE => format!("{}m", short / MINUTE),
        // Clocks differ.
        moment => format!("{}s", moment.max(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its claims are `{"exp":1800000000}`, without padding.
    const TOKEN: &str = "e30.eyJleHAiOjE4MDAwMDAwMDB9.c2ln";

    #[test]
    fn what_is_made_can_be_read_and_tells_no_token() {
        let reach = Reach { server: "https://10.0.0.1:6443".to_owned(), ..Reach::default() };
        let told = read(&text("cluster38", &reach, TOKEN));
        assert_eq!(told.server, "https://10.0.0.1:6443");
        assert_eq!(told.token.as_ref().map(|token| token.ends), Some(1_800_000_000));
        assert!(!format!("{told:?}").contains("eyJ"));
        assert_eq!(read("this is no kubeconfig"), KubeconfigSummary::default());
        for token in ["", "a", "a.b.c", "a.%%%.c", "e30.e30.e30"] {
            assert_eq!(read(&text("cluster38", &reach, token)).token, None, "{token}");
        }
    }

    #[test]
    fn way_to_a_cluster_is_read_as_it_was_written() {
        let bare = Reach { server: "https://10.0.0.1:6443".to_owned(), ..Reach::default() };
        let (authority, server_name) = (Some("QQ==".to_owned()), Some("api".to_owned()));
        let whole = Reach { authority, server_name, insecure: true, ..bare.clone() };
        for way in [bare, whole] {
            assert_eq!(reach(&text("cluster38", &way, TOKEN)), Some(way));
        }
        assert_eq!((reach("this is no kubeconfig"), reach("{}")), (None, None));
    }

    #[test]
    fn address_of_this_machine_is_known() {
        for server in ["https://127.0.0.1:6443", "https://localhost", "https://[::1]:6443/", "https://0.0.0.0:1"] {
            assert!(is_loopback(server), "{server}");
            assert!(is_loopback(&server.replace("://", "://ann:secret@")), "{server}");
        }
        for server in ["https://10.0.0.1:6443", "https://api.example.org:6443/x", "https://[fd00::1]:6443", ""] {
            assert!(!is_loopback(server), "{server}");
        }
    }

    #[test]
    fn no_password_is_told_with_an_address() {
        for (server, told) in [
            ("https://ann:secret@10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("https://ann:sec@ret@api.example.org/a@b", "https://api.example.org/a@b"),
            ("ann:secret@[fd00::1]:6443/", "[fd00::1]:6443/"),
            ("https://api.example.org?a@b", "https://api.example.org?a@b"),
            ("", ""),
        ] {
            assert_eq!(without_user(server), told);
            let reach = Reach { server: server.to_owned(), ..Reach::default() };
            assert_eq!(read(&text("cluster38", &reach, TOKEN)).server, told);
        }
    }

    #[test]
    fn time_is_told_in_the_unit_that_fits() {
        for (left, told) in [(400 * DAY, "400d"), (2 * DAY, "2d"), (47 * HOUR, "47h"), (90 * 60, "90m"), (90, "90s")] {
            assert_eq!(until(1000 + left, 1000), told);
            assert_eq!(until(1000 - left, 1000), format!("expired {told} ago"));
        }
    }
}
