//! The first count of a new quota. From then on the API server counts along with what it lets in.

use crate::{Cluster, object::namespace, quota};

pub(super) async fn run(cluster: Cluster) {
    let mut changes = crate::follow::follow(&cluster, &["resourcequotas"]);
    loop {
        let change = changes.next().await;
        quota::begin(&cluster, namespace(&change.object));
    }
}
