//! Who the host is to its members: the cluster that it is, or a former one whose volumes it has taken over.

use kube::{Client, ResourceExt};

use super::{
    pins::{self, ADOPTED, BY_CLUSTER},
    unread,
};
use domain::{
    error::{Error, Result},
    volume::{HostId, id::is_uid},
};

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
        Self::new(cluster, said(ADOPTED), said(BY_CLUSTER))
    }

    /// Names of accounts and of what moves end with it, and admission policies of members go by that: it has one form.
    fn new(cluster: String, adopted: Option<&str>, by: Option<&str>) -> Result<Self> {
        let id = match (adopted, by) {
            (Some(adopted), Some(by)) if by == cluster && !adopted.is_empty() => adopted.to_owned(),
            _ => cluster.clone(),
        };
        for said in [&id, &cluster] {
            if !is_uid(said) {
                return Err(Error::Refused(format!(
                    "the host says that it is {said:?} (UID of its namespace kube-system, or annotation {ADOPTED} of its config map \
                     kosmos-csi-members), which is no UID"
                )));
            }
        }
        Ok(Self { id: HostId(id), cluster })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "0f6b2a4e-1111-4000-8000-000000000001";
    const FORMER: &str = "0f6b2a4e-2222-4000-8000-000000000002";

    #[test]
    fn another_hosts_volumes_are_taken_over_by_the_cluster_that_says_so_alone() {
        for (adopted, by, id) in [
            (None, None, HERE),
            (Some(FORMER), Some(HERE), FORMER),
            (Some(FORMER), Some("elsewhere"), HERE),
            (Some(FORMER), None, HERE),
            (None, Some(HERE), HERE),
            (Some(""), Some(HERE), HERE),
        ] {
            let who = Identity::new(HERE.to_owned(), adopted, by).unwrap();
            assert_eq!((who.id.0.as_str(), who.cluster.as_str()), (id, HERE), "{adopted:?} by {by:?}");
        }
    }

    #[test]
    fn host_that_is_called_as_no_namespace_is_by_its_uid_is_nobody() {
        let ending = format!("x-host-{FORMER}");
        let adopted = Identity::new(HERE.to_owned(), Some(&ending), Some(HERE));
        let own = Identity::new(ending.clone(), None, None);
        for refused in [adopted, own] {
            assert!(refused.unwrap_err().to_string().contains(&ending));
        }
    }
}
