//! What is said of a kubeconfig that cannot be used. Its parser would quote the text around the slip, with the credentials in it.

use kube::config::KubeconfigError;

pub(in crate::run) fn refusal(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => {
            let text = error.to_string();
            format!("it cannot be read: {}", text.split(" (os error").next().unwrap_or_default())
        }
        KubeconfigError::Parse(_) => "it is not the YAML of a kubeconfig".to_owned(),
        other => other.to_string(),
    }
}
