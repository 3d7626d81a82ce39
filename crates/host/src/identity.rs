//! Who the host is to its members: the cluster that it is, or a former one whose volumes it has taken over.

use kube::{Client, ResourceExt};

use super::{
    pins::{self, ADOPTED, BY_CLUSTER},
    unread,
};
use domain::{error::Result, volume::HostId};

/// Who a host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// To its members: whose its volumes are.
    pub id: HostId,
    /// The UID of its own `kube-system` namespace.
    pub cluster: String,
}

impl Identity {
    pub(super) async fn read(client: &Client, namespace: &str) -> Result<Self> {
        let cluster = super::identity(client).await.map_err(|error| unread("get namespace kube-system", &error))?;
        let record = pins::read(client, namespace).await?;
        let said = |key: &str| record.as_ref().and_then(|record| record.annotations().get(key)).map(String::as_str);
        Ok(Self::new(cluster, said(ADOPTED), said(BY_CLUSTER)))
    }

    fn new(cluster: String, adopted: Option<&str>, by: Option<&str>) -> Self {
        let id = match (adopted, by) {
            (Some(adopted), Some(by)) if by == cluster && !adopted.is_empty() => adopted.to_owned(),
            _ => cluster.clone(),
        };
        Self { id: HostId(id), cluster }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_hosts_volumes_are_taken_over_by_the_cluster_that_says_so_alone() {
        for (adopted, by, id) in [
            (None, None, "here"),
            (Some("former"), Some("here"), "former"),
            (Some("former"), Some("elsewhere"), "here"),
            (Some("former"), None, "here"),
            (None, Some("here"), "here"),
            (Some(""), Some("here"), "here"),
        ] {
            let who = Identity::new("here".to_owned(), adopted, by);
            assert_eq!((who.id.0.as_str(), who.cluster.as_str()), (id, "here"), "{adopted:?} by {by:?}");
        }
    }
}
