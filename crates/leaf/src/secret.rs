//! Secrets of a member that a leaf driver wants on a node. They are read for the host's Secret alone.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::MemberClient;
use domain::{
    error::{Error, Result},
    volume::secrets::{SecretData, SecretPlace},
};

pub async fn read(client: &MemberClient, place: &SecretPlace) -> Result<SecretData> {
    let secrets = Api::<Secret>::namespaced(client.client.clone(), &place.namespace);
    let found = cluster::read(secrets.get(&place.name).await, &place.name);
    let found = found.map_err(|error| client.outcome(&format!("get secret {place}"), &error))?;
    let secret = found.ok_or_else(|| {
        Error::Refused(format!(
            "member {}: the leaf volume names Secret {place}, which is not there: make it there",
            client.member
        ))
    })?;
    let data = secret.data.unwrap_or_default();
    Ok(SecretData(data.into_iter().map(|(key, value)| (key, value.0)).collect()))
}
