//! A JSON patch, written out once: kube's own is made from a tree of all operations, which is made into another one to be looked through.

use http::{HeaderValue, header::CONTENT_TYPE};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
    core::Request,
};
use serde::{Serialize, de::DeserializeOwned};

/// What follows is done only where there is this value; where there is to be none, that is `None`.
pub fn test<V>(path: &str, value: V) -> Operation<'_, V> {
    Operation { op: "test", path, value }
}

pub fn add<V>(path: &str, value: V) -> Operation<'_, V> {
    Operation { op: "add", path, value }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Operation<'a, V> {
    op: &'static str,
    path: &'a str,
    value: V,
}

/// Sends operations, which all are done or none: a list of them, or a tuple where their values are of several types.
pub async fn send<K>(api: Api<K>, name: &str, operations: &impl Serialize) -> Result<K, kube::Error>
where
    K: Resource + DeserializeOwned,
{
    let request = Request::new(api.resource_url()).patch(name, &PatchParams::default(), &as_given(operations));
    let request = of_operations(request.map_err(kube::Error::BuildRequest)?);
    api.into_client().request(request).await
}

/// The same where it does not matter what the object is then.
pub async fn send_unread<K>(api: Api<K>, name: &str, operations: &impl Serialize) -> Result<(), kube::Error>
where
    K: Resource,
{
    let request = Request::new(api.resource_url());
    let request = request.patch_metadata(name, &PatchParams::default(), &as_given(operations));
    let request = of_operations(request.map_err(kube::Error::BuildRequest)?);
    api.into_client().request_text(request).await.map(drop)
}

/// What kube writes out as it is given.
fn as_given<T: Serialize>(operations: T) -> Patch<T> {
    Patch::Merge(operations)
}

fn of_operations(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json-patch+json"));
    request
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, convert::Infallible};

    use http::Response;
    use http_body_util::BodyExt;
    use k8s_openapi::api::core::v1::PersistentVolume;
    use kube::client::{Body, Client};
    use serde_json::{Value, from_slice, json};

    use super::*;

    /// Answers with an object that tells what came.
    async fn told(request: http::Request<Body>) -> Result<Response<Body>, Infallible> {
        let kind = request.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let (method, uri) = (request.method().to_string(), request.uri().to_string());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let annotations = BTreeMap::from([
            ("method", method),
            ("uri", uri),
            ("kind", kind),
            ("body", String::from_utf8(body.to_vec()).unwrap()),
        ]);
        let object = json!({"metadata": {"annotations": annotations}});
        Ok(Response::new(Body::from(object.to_string().into_bytes())))
    }

    #[tokio::test]
    async fn operations_are_sent_as_they_are_written() {
        let client = Client::new(tower::service_fn(told), "default");
        let labels = BTreeMap::from([("a/b", "c")]);
        let uid = test("/spec/claimRef/uid", "u");
        let operations = (uid, test("/metadata/labels", None::<&str>), add("/metadata/labels", &labels));
        let answer = send(Api::<PersistentVolume>::all(client.clone()), "v", &operations).await.unwrap();
        let annotations = answer.metadata.annotations.unwrap();
        assert_eq!(annotations["method"], "PATCH");
        assert_eq!(annotations["uri"].trim_end_matches('?'), "/api/v1/persistentvolumes/v");
        assert_eq!(annotations["kind"], "application/json-patch+json");
        assert_eq!(
            from_slice::<Value>(annotations["body"].as_bytes()).unwrap(),
            json!([
                {"op": "test", "path": "/spec/claimRef/uid", "value": "u"},
                {"op": "test", "path": "/metadata/labels", "value": null},
                {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}},
            ])
        );
        send_unread(Api::<PersistentVolume>::all(client.clone()), "v", &[uid]).await.unwrap();
        let nameless = send(Api::<PersistentVolume>::all(client), "", &[uid]).await;
        assert!(matches!(nameless, Err(kube::Error::BuildRequest(_))), "it would be for all volumes");
    }
}
