//! Objects as a cluster has them, with the fields that are kept.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

use cluster::{unmanaged::Unmanaged, with_causes};
use host::Host;
use operator::bundle::{Bundle, Kind, OF_HOST, Ours};

/// For a long list to arrive whole.
const WHOLE: Duration = Duration::from_mins(1);
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
    let api: Api<Unmanaged<DynamicObject>> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut objects = Vec::new();
    let reading = async {
        let mut wanted = ListParams::default().labels(selector).limit(PAGE);
        for _ in 0..PAGES {
            let page = api.list(&wanted).await.map_err(|error| refusal(&error, kind))?;
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
