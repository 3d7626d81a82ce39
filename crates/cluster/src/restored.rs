//! A cluster that was restored from a backup of its etcd begins with lower versions again. A watch that was begun before lies in its
//! future: it is told nothing until the cluster has come there, and nothing of what is otherwise now. So whoever watches has to notice
//! that versions go back, and to list again.

use kube::{
    Client,
    api::{ListParams, ObjectList},
    core::{PartialObjectMeta, Request},
};

/// No object has to be called so.
const ANY_NAME: &str = "kosmos.csi.io";

/// Both are versions of one kind of one cluster, which are numbers that rise, until that is restored from a backup.
pub fn is_before(version: &str, other: &str) -> bool {
    let numbers = (version.parse::<u64>(), other.parse::<u64>());
    matches!(numbers, (Ok(version), Ok(other)) if version < other)
}

/// The version that a list at this path has now. Of one name, which the cluster looks up without going by any others.
pub async fn newest(client: &Client, path: &str) -> Result<String, kube::Error> {
    let wanted = ListParams::default().fields(&format!("metadata.name={ANY_NAME}"));
    let request = Request::new(path).list(&wanted).map_err(kube::Error::BuildRequest)?;
    let list = client.request::<ObjectList<PartialObjectMeta>>(request).await?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Versions of one thing of a cluster, as they are read one after the other.
#[derive(Debug, Default)]
pub struct Versions {
    last: String,
}

impl Versions {
    /// Takes note of the next one. Whether the cluster was restored since the one before.
    pub fn go_back(&mut self, version: &str) -> bool {
        let is_older = is_before(version, &self.last);
        if !version.is_empty() {
            version.clone_into(&mut self.last);
        }
        is_older
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_go_back_are_noticed_once() {
        let mut versions = Versions::default();
        let seen = ["9", "9", "12", "", "3", "4", "no number", "2"].map(|version| versions.go_back(version));
        assert_eq!(seen, [false, false, false, false, true, false, false, false]);
    }
}
