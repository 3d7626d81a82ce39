//! A kubeconfig is data, never code: what could run a program, read a file or weaken TLS is refused by name.

use kube::config::{Config, Context, KubeConfigOptions, Kubeconfig};
use serde::Deserialize;

use domain::volume::namespaces::{EXTENSION, Namespaces};

/// Who wrote the kubeconfig, and so what it may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeconfigSource {
    /// A file in a folder that belongs to whoever started this process: paths and `http://` are his own.
    Folder,
    /// An object in the host: somebody may have put there what he could not reach himself.
    Object,
}

/// A client configuration, or the sentence that names the field and the fix.
pub async fn parse(text: &str, source: KubeconfigSource) -> Result<Config, String> {
    if text.trim().is_empty() {
        return Err("the kubeconfig is empty".to_owned());
    }
    let kubeconfig = read(text)?;
    check(&kubeconfig, source)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| format!("the kubeconfig cannot be used: {error}"))?;
    config.proxy_url = None; // never one from the environment
    Ok(config)
}

/// The parser's own words quote the text, and with it the credentials.
fn read(text: &str) -> Result<Kubeconfig, String> {
    Kubeconfig::from_yaml(text).map_err(|_| "the kubeconfig is not the YAML of a kubeconfig".to_owned())
}

/// The token by which a kubeconfig's user is known, if that is how.
pub fn token(text: &str) -> Option<String> {
    let kubeconfig = Kubeconfig::from_yaml(text).ok()?;
    let user = current(&kubeconfig)?.user.as_ref()?;
    let user = kubeconfig.auth_infos.iter().find(|named| named.name == *user)?.auth_info.as_ref()?;
    // Its type keeps it from being read in any other way.
    let token = serde_json::to_value(user).ok()?["token"].as_str()?.to_owned();
    (!token.is_empty()).then_some(token)
}

/// Where in the member the account has rights.
pub fn namespaces(text: &str) -> Result<Namespaces, String> {
    let kubeconfig = read(text)?;
    let extensions = current(&kubeconfig).and_then(|context| context.extensions.as_ref());
    let Some(found) = extensions.into_iter().flatten().find(|extension| extension.name == EXTENSION) else {
        return Ok(Namespaces::All);
    };
    let field = format!("the extension {EXTENSION} of the kubeconfig's context");
    match Vec::<String>::deserialize(&found.extension) {
        Ok(names) if !names.is_empty() => {
            Namespaces::named(names.iter().map(String::as_str)).map_err(|reason| format!("{field}: {reason}"))
        }
        _ => Err(format!("{field} is no list of namespaces")),
    }
}

fn current(kubeconfig: &Kubeconfig) -> Option<&Context> {
    let name = kubeconfig.current_context.as_ref()?;
    kubeconfig.contexts.iter().find(|context| context.name == *name)?.context.as_ref()
}

/// The new token, where two kubeconfigs differ in nothing else: it leads to the same cluster, in the same way.
pub fn new_token(before: &str, after: &str) -> Option<String> {
    let (old, new) = (token(before)?, token(after)?);
    (before.replace(&old, "") == after.replace(&new, "")).then_some(new)
}

fn check(kubeconfig: &Kubeconfig, source: KubeconfigSource) -> Result<(), String> {
    if kubeconfig.current_context.as_deref().unwrap_or_default().is_empty() {
        return Err("current-context is missing: it must name the context to use".to_owned());
    }
    for named in &kubeconfig.clusters {
        let field = |field: &str| format!("clusters[{}].cluster.{field}", named.name);
        let Some(cluster) = &named.cluster else {
            continue;
        };
        refuse(
            cluster.insecure_skip_tls_verify == Some(true),
            &field("insecure-skip-tls-verify"),
            "give the CA in certificate-authority-data",
        )?;
        refuse(cluster.proxy_url.is_some(), &field("proxy-url"), "members are reached directly")?;
        if source == KubeconfigSource::Object {
            let server = cluster.server.as_deref().unwrap_or_default();
            refuse(!server.starts_with("https://"), &field("server"), "it must be an https:// address")?;
            refuse(
                cluster.certificate_authority.is_some(),
                &field("certificate-authority"),
                "embed it as certificate-authority-data",
            )?;
        }
    }
    for named in &kubeconfig.auth_infos {
        let field = |field: &str| format!("users[{}].user.{field}", named.name);
        let Some(user) = &named.auth_info else {
            continue;
        };
        refuse(user.exec.is_some(), &field("exec"), "it would run a program; use a token or a client certificate")?;
        refuse(user.auth_provider.is_some(), &field("auth-provider"), "use a token or a client certificate")?;
        refuse(user.impersonate.as_deref() == Some(""), &field("as"), "an empty user is nobody")?;
        if source == KubeconfigSource::Object {
            refuse(user.token_file.is_some(), &field("tokenFile"), "embed it as token")?;
            refuse(
                user.client_certificate.is_some(),
                &field("client-certificate"),
                "embed it as client-certificate-data",
            )?;
            refuse(user.client_key.is_some(), &field("client-key"), "embed it as client-key-data")?;
        }
    }
    if source == KubeconfigSource::Object { has_authorities(kubeconfig) } else { Ok(()) }
}

/// Else whatever the machine trusts would do.
fn has_authorities(kubeconfig: &Kubeconfig) -> Result<(), String> {
    let lacks = kubeconfig.clusters.iter().find(|named| {
        let data = named.cluster.as_ref().and_then(|cluster| cluster.certificate_authority_data.as_deref());
        data.unwrap_or_default().is_empty()
    });
    lacks.map_or(Ok(()), |named| {
        Err(format!(
            "clusters[{}].cluster.certificate-authority-data is missing in a member's kubeconfig: give the authority that signed \
             the API server's certificate there, a public one too",
            named.name
        ))
    })
}

fn refuse(present: bool, field: &str, instead: &str) -> Result<(), String> {
    if present { Err(format!("{field} is refused in a member's kubeconfig: {instead}")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: m, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
        )
    }

    const SERVER: &str = "server: 'https://127.0.0.1:6443', certificate-authority-data: \
        LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

    #[tokio::test]
    async fn token_and_embedded_certificates_are_enough() {
        let config = parse(&kubeconfig(SERVER, "token: secret"), KubeconfigSource::Object).await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://127.0.0.1:6443/");
        assert_eq!(config.proxy_url, None);
    }

    #[tokio::test]
    async fn whatever_runs_reads_or_weakens_is_refused_by_the_name_of_its_field() {
        for (cluster, user, field) in [
            (SERVER, "exec: {apiVersion: client.authentication.k8s.io/v1, command: 'true'}", "exec"),
            (SERVER, "auth-provider: {name: oidc, config: {}}", "auth-provider"),
            (SERVER, "tokenFile: /etc/passwd", "tokenFile"),
            (SERVER, "client-certificate: /etc/passwd", "client-certificate"),
            (SERVER, "client-key: /etc/passwd", "client-key"),
            (SERVER, "as: ''", "as"),
            ("server: 'https://a', certificate-authority: /etc/passwd", "", "certificate-authority"),
            ("server: 'https://a', proxy-url: 'http://b'", "", "proxy-url"),
            ("server: 'https://a', insecure-skip-tls-verify: true", "", "insecure-skip-tls-verify"),
            ("server: 'http://127.0.0.1:80'", "", "server"),
        ] {
            let error = parse(&kubeconfig(cluster, user), KubeconfigSource::Object).await.unwrap_err();
            assert!(error.contains(&format!(".{field} is refused")), "{error}");
        }
    }

    #[tokio::test]
    async fn authority_of_a_member_is_its_kubeconfigs_and_not_what_the_machine_trusts() {
        for cluster in ["server: 'https://a'", "server: 'https://a', certificate-authority-data: ''"] {
            let error = parse(&kubeconfig(cluster, "token: secret"), KubeconfigSource::Object).await.unwrap_err();
            assert!(error.contains(".certificate-authority-data is missing"), "{error}");
            assert!(parse(&kubeconfig("server: 'https://a'", "token: secret"), KubeconfigSource::Folder).await.is_ok());
        }
    }

    #[test]
    fn kubeconfig_may_name_the_namespaces_in_which_its_account_has_rights() {
        let with = |list: &str| {
            let extension = format!("extensions: [{{name: kosmos.csi.io/namespaces, extension: {list}}}]");
            kubeconfig(SERVER, "token: secret").replace("user: u}", &format!("user: u, {extension}}}"))
        };
        assert_eq!(namespaces(&kubeconfig(SERVER, "token: secret")), Ok(Namespaces::All));
        assert_eq!(namespaces(&with("[shop, bank]")), Namespaces::named(["bank", "shop"]));
        for (list, words) in [("[]", "no list"), ("shop", "no list"), ("[5]", "no list"), ("[Shop]", "\"Shop\"")] {
            let reason = namespaces(&with(list)).unwrap_err();
            assert!(reason.contains(EXTENSION) && reason.contains(words), "{list}: {reason}");
        }
        assert!(namespaces("contexts: [").is_err(), "what cannot be read does not say that it is all of them");
        assert_eq!(new_token(&with("[shop]"), &with("[bank]")), None, "that is more than another token");
    }

    #[test]
    fn kubeconfig_that_has_only_another_token_is_told_from_one_that_leads_elsewhere() {
        let with = |cluster: &str, token: &str| kubeconfig(cluster, &format!("token: {token}"));
        let (first, elsewhere) = (with(SERVER, "first"), with("server: 'https://elsewhere'", "second"));
        assert_eq!(new_token(&first, &with(SERVER, "second")).as_deref(), Some("second"));
        assert_eq!(new_token(&first, &elsewhere), None);
        assert_eq!(new_token(&first, &kubeconfig(SERVER, "tokenFile: second")), None);
        for text in ["", "a: [", "current-context: c"] {
            assert_eq!((token(text), new_token(&first, text)), (None, None));
        }
    }

    #[tokio::test]
    async fn whoever_started_the_process_may_use_paths_and_http_but_no_programs() {
        assert!(parse(&kubeconfig("server: 'http://127.0.0.1:80'", ""), KubeconfigSource::Folder).await.is_ok());
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: 'true'}";
        assert!(parse(&kubeconfig(SERVER, exec), KubeconfigSource::Folder).await.is_err());
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_never_quoted() {
        for text in [
            "canary-4711",
            "users: [canary-4711",
            "users:\n- user:\n    token: canary-4711\n   bad: [",
            "a: *canary-4711",
        ] {
            let error = parse(text, KubeconfigSource::Object).await.unwrap_err();
            assert!(!error.contains("canary"), "{error}");
        }
        for user in
            ["client-certificate-data: canary4711", "client-key-data: canary4711, client-certificate-data: YQ=="]
        {
            if let Err(error) = parse(&kubeconfig(SERVER, user), KubeconfigSource::Object).await {
                assert!(!error.contains("canary"), "{error}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_kubeconfig_is_a_sentence_not_a_panic() {
        for text in ["", "  \n", "a: [", "[]", "hello", "apiVersion: v1\nkind: Config\n", "current-context: gone\n"] {
            let error = parse(text, KubeconfigSource::Object).await.unwrap_err();
            assert!(error.len() > 10, "{text:?}: {error}");
        }
    }
}
