//! Objects as a cluster has them, with the fields that are kept.

use std::time::Duration;

use kube::{
    Client, Resource,
    api::{DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind, ObjectList, Request},
};
use serde_json::Value;

use cluster::{Aside, unmanaged::Unmanaged, with_causes};
use host::Host;
use operator::bundle::{Bundle, Kind, OF_HOST, Ours};

/// For a long list to arrive whole. It is shorter than an answer of a member may stand still: the list is what people are told of.
const WHOLE: Duration = Duration::from_secs(50);
const PAGE: u32 = 1_000;
/// Whoever may write events writes as many as he likes.
const PAGES: usize = 100;

/// Puts all of the host there, and hands on the pods among them.
pub(super) async fn of_host(host: &Host, namespaces: &[&str], bundle: &mut Bundle) -> Vec<Value> {
    let (mut ours, mut pods) = (Ours::new(namespaces), Vec::new());
    for kind in &OF_HOST {
        let taken = take(&host.client, kind, None, kind.selector, &mut ours).await;
        bundle.add_objects(&format!("host/{}.json", kind.plural), &taken.objects, taken.problem.as_deref());
        if kind.plural == "pods" {
            pods = taken.objects;
        }
    }
    pods
}

#[derive(Default)]
pub(super) struct Taken {
    pub(super) objects: Vec<Value>,
    /// Why these are not all.
    pub(super) problem: Option<String>,
}

/// What is ours of a list, of which no more is held at once than a page.
pub(super) async fn take(
    client: &Client,
    kind: &Kind,
    namespace: Option<&str>,
    selector: &str,
    ours: &mut Ours,
) -> Taken {
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(kind.group, kind.version, kind.kind), kind.plural);
    let path = DynamicObject::url_path(&resource, namespace);
    let mut objects = Vec::new();
    let reading = async {
        let mut wanted = ListParams::default().labels(selector).limit(PAGE);
        for _ in 0..PAGES {
            let request = Request::new(path.as_str()).list(&wanted);
            let mut request = request.map_err(|error| error.to_string())?;
            // One list that cannot be had says nothing of the others, and nobody here would close a breaker again.
            request.extensions_mut().insert(Aside);
            let page = client.request::<ObjectList<Unmanaged<DynamicObject>>>(request).await;
            let page = page.map_err(|error| refusal(&error, kind))?;
            let items: Result<Vec<Value>, _> = page.items.into_iter().map(serde_json::to_value).collect();
            objects.append(&mut ours.take(kind, &items.map_err(|error| error.to_string())?));
            match page.metadata.continue_ {
                Some(next) if !next.is_empty() => wanted.continue_token = Some(next),
                _ => return Ok(()),
            }
        }
        Err(format!("there are more than {}", u64::from(PAGE) * PAGES as u64))
    };
    let read = tokio::time::timeout(WHOLE, reading).await.unwrap_or_else(|_| Err("the list does not end".to_owned()));
    Taken { objects, problem: read.err() }
}

fn refusal(error: &kube::Error, kind: &Kind) -> String {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            format!("{} are not served there in version {}", kind.plural, kind.version)
        }
        error => with_causes(error),
    }
}
