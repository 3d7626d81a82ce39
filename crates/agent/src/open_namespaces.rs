//! Namespaces of the host that give members their Secrets.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kube::{Client, api::ListParams};
use tokio::{sync::Mutex, time::Instant};

use super::object::{self, text};

/// On a namespace of the host: its Secrets, and tokens of its accounts, may be given to members.
pub(super) const OPEN: &str = "kosmos.csi.io/secrets";
/// So that all members that ask at about the same time cost one list.
const BELIEVED: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct OpenNamespaces {
    listed: Mutex<Option<(Instant, Arc<BTreeSet<String>>)>>,
}

impl OpenNamespaces {
    /// As they were when somebody asked, a second before this one at most.
    pub(super) async fn list(&self, client: &Client) -> kube::Result<Arc<BTreeSet<String>>> {
        let asked = Instant::now();
        let mut listed = self.listed.lock().await;
        // Whoever has waited for the list of another takes that.
        if let Some((since, open)) = &*listed
            && (*since >= asked || since.elapsed() < BELIEVED)
        {
            return Ok(Arc::clone(open));
        }
        let began = Instant::now();
        let wanted = ListParams::default().labels(&format!("{OPEN}=true"));
        let found = object::listed(client, &object::namespaces(client), &wanted, Some).await?;
        let open: Arc<BTreeSet<_>> =
            Arc::new(found.iter().map(|namespace| text(namespace, "/metadata/name").to_owned()).collect());
        *listed = Some((began, Arc::clone(&open)));
        Ok(open)
    }
}
