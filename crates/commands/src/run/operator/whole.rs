//! Lists that are believed only as a whole: what is not in them is judged to be missing.

use std::{fmt::Debug, time::Duration};

use kube::{Api, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use cluster::{unmanaged::Unmanaged, with_causes};

/// For a long list to arrive whole.
const WHOLE: Duration = Duration::from_mins(1);

/// A list that is known to be complete. Whoever may write one object of it is not to decide whether the others can be read.
pub(super) async fn whole<K>(api: Api<Unmanaged<K>>) -> Result<Vec<K>, String>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    whole_of(api, &ListParams::default()).await
}

/// The same of some.
pub(super) async fn whole_of<K>(api: Api<Unmanaged<K>>, wanted: &ListParams) -> Result<Vec<K>, String>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let listed = tokio::time::timeout(WHOLE, api.list(wanted)).await;
    let listed = listed.map_err(|_| "a list does not end".to_owned())?.map_err(|error| with_causes(&error))?;
    match listed.metadata.continue_.as_deref().unwrap_or_default() {
        "" => Ok(listed.items.into_iter().map(Unmanaged::into_object).collect()),
        _ => Err("a list was cut short".to_owned()),
    }
}
