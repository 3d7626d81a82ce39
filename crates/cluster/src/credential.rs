//! The token that a cluster is shown with each request.

use std::sync::{Arc, PoisonError, RwLock};

use http::{HeaderValue, Request, header::AUTHORIZATION};
use kube::{Config, client::Body};
use serde_json::Value;
use tower::util::MapRequestLayer;

/// Another may take its place while requests are under way: they have shown theirs.
#[derive(Clone, Default)]
pub(super) struct Credential(Arc<RwLock<Option<HeaderValue>>>);

impl Credential {
    /// Takes the token out of a configuration, whose client would show it for ever.
    pub(super) fn take(config: &mut Config) -> Self {
        let credential = Self::default();
        // Its type keeps it from being read in any other way.
        let user = serde_json::to_value(&config.auth_info).unwrap_or_default();
        if let Some(token) = user.get("token").and_then(Value::as_str)
            && config.auth_info.token_file.is_none()
            && credential.set(token)
        {
            config.auth_info.token = None;
        }
        credential
    }

    /// False: it is not shown here, or no request can carry it.
    pub(super) fn renew(&self, token: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some() && self.set(token)
    }

    fn set(&self, token: &str) -> bool {
        let Ok(mut header) = HeaderValue::try_from(format!("Bearer {token}")) else { return false };
        header.set_sensitive(true);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(header);
        true
    }

    pub(super) fn layer(&self) -> MapRequestLayer<impl Fn(Request<Body>) -> Request<Body> + Clone + Send + 'static> {
        let credential = self.clone();
        MapRequestLayer::new(move |request| credential.shown(request))
    }

    fn shown(&self, mut request: Request<Body>) -> Request<Body> {
        if let Some(header) = &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            request.headers_mut().insert(AUTHORIZATION, header.clone());
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use kube::config::{KubeConfigOptions, Kubeconfig};

    use super::*;

    async fn config(user: &str) -> Config {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: m, cluster: {{server: 'https://m'}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
        );
        Config::from_custom_kubeconfig(Kubeconfig::from_yaml(&text).unwrap(), &KubeConfigOptions::default())
            .await
            .unwrap()
    }

    fn shown(credential: &Credential) -> Option<String> {
        let request = credential.shown(Request::new(Body::empty()));
        request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn each_request_shows_the_token_of_its_moment() {
        let mut config = config("token: first").await;
        let credential = Credential::take(&mut config);
        assert!(config.auth_info.token.is_none(), "the client itself shows none");
        assert_eq!(shown(&credential).as_deref(), Some("Bearer first"));
        assert!(credential.clone().renew("second") && !credential.renew("a\nb"));
        assert_eq!(shown(&credential).as_deref(), Some("Bearer second"));
    }

    #[tokio::test]
    async fn what_is_no_token_is_left_to_the_client() {
        for user in ["username: a, password: b", "tokenFile: /nowhere"] {
            let mut config = config(user).await;
            let before = format!("{:?}", config.auth_info);
            let credential = Credential::take(&mut config);
            assert!(!credential.renew("another"), "the client would show its own");
            assert_eq!(shown(&credential), None, "{user}");
            assert_eq!(format!("{:?}", config.auth_info), before);
        }
    }
}
