//! What the host's API server asks a kubelet for, and the same in the words of a member's API server. Pure.

use domain::volume::id::{is_label, is_subdomain};

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Logs,
    Exec,
    Attach,
    PortForward,
}

impl What {
    fn of_kubelet(word: &str) -> Option<Self> {
        Some(match word {
            "containerLogs" => Self::Logs,
            "exec" => Self::Exec,
            "attach" => Self::Attach,
            "portForward" => Self::PortForward,
            _ => return None,
        })
    }

    fn subresource(self) -> &'static str {
        match self {
            Self::Logs => "log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portforward",
        }
    }

    /// The kubelet's word for each parameter, and the API server's. Others are not passed on.
    fn parameters(self) -> &'static [(&'static str, &'static str)] {
        const LOGS: &[(&str, &str)] = &[
            ("follow", "follow"),
            ("limitBytes", "limitBytes"),
            ("previous", "previous"),
            ("sinceSeconds", "sinceSeconds"),
            ("sinceTime", "sinceTime"),
            ("stream", "stream"),
            ("tailLines", "tailLines"),
            ("timestamps", "timestamps"),
        ];
        const STREAMS: &[(&str, &str)] =
            &[("input", "stdin"), ("output", "stdout"), ("error", "stderr"), ("tty", "tty"), ("command", "command")];
        match self {
            Self::Logs => LOGS,
            Self::Exec => STREAMS,
            Self::Attach => &STREAMS[..4],
            Self::PortForward => &[("port", "ports")],
        }
    }

    /// A conversation over a connection that is no longer HTTP.
    pub(super) fn upgrades(self) -> bool {
        self != Self::Logs
    }
}

/// A pod, one of its containers, and what is wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) what: What,
    pub(super) namespace: String,
    pub(super) pod: String,
    container: Option<String>,
}

impl Asked {
    /// Nothing, where it is none of the paths that are served.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let (word, namespace, pod, container) = match parts.as_slice() {
            [word, namespace, pod, container] => (word, namespace, pod, Some(*container)),
            [word, namespace, pod] => (word, namespace, pod, None),
            _ => return None,
        };
        let what = What::of_kubelet(word)?;
        let named = is_label(namespace, 63) && is_subdomain(pod) && container.is_none_or(|name| is_label(name, 63));
        let whole = container.is_some() != (what == What::PortForward);
        (named && whole).then(|| Self {
            what,
            namespace: (*namespace).to_owned(),
            pod: (*pod).to_owned(),
            container: container.map(str::to_owned),
        })
    }

    /// The same request to a member's API server. Values go as they came, still encoded.
    pub(super) fn target(&self, query: &str) -> String {
        let container = self.container.iter().map(|name| format!("container={name}"));
        let known = query.split('&').filter_map(|parameter| {
            let (key, value) = parameter.split_once('=')?;
            let (_, name) = self.what.parameters().iter().find(|(kubelets, _)| *kubelets == key)?;
            Some(format!("{name}={value}"))
        });
        let parameters = container.chain(known).collect::<Vec<_>>().join("&");
        format!("/api/v1/namespaces/{}/pods/{}/{}?{parameters}", self.namespace, self.pod, self.what.subresource())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str, query: &str) -> String {
        Asked::parse(path).unwrap().target(query)
    }

    #[test]
    fn request_to_a_kubelet_is_said_in_the_api_servers_words() {
        for (path, query, wanted) in [
            (
                "/containerLogs/shop/db-0/main",
                "follow=true&tailLines=10&sinceTime=2026-01-02T03%3A04%3A05Z&x=y",
                "log?container=main&follow=true&tailLines=10&sinceTime=2026-01-02T03%3A04%3A05Z",
            ),
            ("/containerLogs/shop/db-0/main", "", "log?container=main"),
            (
                "/exec/shop/db-0/main",
                "command=sh&command=-c&command=a%26b&input=1&output=1&error=1&tty=0",
                "exec?container=main&command=sh&command=-c&command=a%26b&stdin=1&stdout=1&stderr=1&tty=0",
            ),
            ("/attach/shop/db-0/main", "output=1&command=sh", "attach?container=main&stdout=1"),
            ("/portForward/shop/db-0", "port=80&port=81", "portforward?ports=80&ports=81"),
        ] {
            assert_eq!(target(path, query), format!("/api/v1/namespaces/shop/pods/db-0/{wanted}"), "{path}?{query}");
        }
    }

    #[test]
    fn parameters_of_other_requests_and_a_second_container_are_not_passed_on() {
        assert!(!target("/exec/shop/db-0/main", "follow=true&container=other&stdin=1").contains("follow"));
        assert_eq!(target("/exec/shop/db-0/main", "container=other").matches("container=").count(), 1);
    }

    #[test]
    fn whatever_else_a_kubelet_serves_is_not_served() {
        for path in [
            "",
            "/",
            "/pods",
            "/metrics",
            "/run/shop/db-0/main",
            "/exec/shop/db-0",
            "/exec/shop/db-0/uid/main",
            "/exec/shop//main",
            "/exec/shop/../main",
            "/exec/shop/db-0/a%2Fb",
            "/exec/Shop/db-0/main",
            "/portForward/shop/db-0/main",
            "/containerLogs/shop/db-0/main/",
            "containerLogs/shop/db-0/main",
        ] {
            assert_eq!(Asked::parse(path), None, "{path}");
        }
    }
}
