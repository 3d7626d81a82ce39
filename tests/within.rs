//! The way to simulated clusters within this process, each at the host that has its name.

use std::{collections::HashMap, sync::Arc};

use cluster::{Dial, Transport};
use http_body_util::BodyExt;
use kube::client::DynBody;
use simulate::Cluster;
use tower::{BoxError, ServiceExt};

/// Their requests are signed with the client's name.
pub(crate) fn within<'a>(clusters: impl IntoIterator<Item = &'a Cluster>, client: &str) -> Dial {
    let clusters: HashMap<String, Cluster> =
        clusters.into_iter().map(|cluster| (cluster.name().to_owned(), cluster.clone())).collect();
    let client = client.to_owned();
    Dial::Within(Arc::new(move |address: &http::Uri| -> Transport {
        let wanted = address.host().and_then(|host| clusters.get(host));
        let service = wanted.unwrap().service(&client);
        let whole = |body| -> Box<DynBody> { Box::new(BodyExt::map_err(body, BoxError::from)) };
        service.map_response(move |answer| answer.map(whole)).map_err(Into::into).boxed()
    }))
}
