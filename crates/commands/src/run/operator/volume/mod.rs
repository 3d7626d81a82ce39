//! `volume`: a claim's volume moves to another member, as its user asks for it. All but `discard` go by his rights in his namespace.

mod ask;
mod discard;
mod follow;
mod status;

use anyhow::{anyhow, bail};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::Report;
use crate::args::operator::{ClaimName, Volume};
use cluster::{Dial, says_what_is_missing, unmanaged::Unmanaged, with_causes};
use host::moves::{self, VolumeMove};

pub(super) async fn volume(command: &Volume, dial: &Dial) -> anyhow::Result<Report> {
    match command {
        Volume::Move(flags) => ask::move_volume(flags, dial).await,
        Volume::Status(flags) => status::status(flags, dial).await,
        Volume::Approve(flags) => ask::approve(flags, dial).await,
        Volume::Cancel(flags) => ask::cancel(flags, dial).await,
        Volume::Discard(flags) => discard::discard(flags, dial).await,
    }
}

fn moves_in(client: &Client, namespace: &str) -> Api<VolumeMove> {
    Api::namespaced_with(client.clone(), namespace, &moves::resource())
}

/// All in a namespace, or all; none where the host does not know the kind.
pub(super) async fn list_known(client: &Client, namespace: Option<&str>) -> anyhow::Result<Option<Vec<VolumeMove>>> {
    let api: Api<Unmanaged<VolumeMove>> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &moves::resource()),
        None => Api::all_with(client.clone(), &moves::resource()),
    };
    let mut found: Vec<VolumeMove> = match api.list(&ListParams::default()).await {
        Ok(listed) => listed.items.into_iter().map(Unmanaged::into_object).collect(),
        Err(error) if is_unknown_kind(&error) => return Ok(None),
        Err(error) => return Err(refusal("list volumemoves of the host", &error)),
    };
    found.sort_by_key(|of| (of.namespace(), of.creation_timestamp().map(|made| made.0), of.name_any()));
    Ok(Some(found))
}

/// How far one is.
pub(super) fn phase_in_words(of: &VolumeMove) -> String {
    moves::phase_of(of).map_or_else(|| "New".to_owned(), |phase| format!("{phase:?}"))
}

/// Those that are not over.
pub(super) async fn under_way(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<VolumeMove>> {
    let mut found = list_known(client, namespace).await?.unwrap_or_default();
    found.retain(|of| !moves::is_over(of));
    Ok(found)
}

async fn list(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<VolumeMove>> {
    list_known(client, namespace).await?.ok_or_else(unknown_kind)
}

/// By its own name, or by that of its claim: the one that is under way, or else the newest.
async fn find(client: &Client, which: &ClaimName) -> anyhow::Result<VolumeMove> {
    let named = cluster::read(moves_in(client, &which.namespace).get(&which.name).await, &which.name);
    if let Some(found) = named.map_err(|error| refusal(&format!("get volumemove {which}"), &error))? {
        return Ok(found);
    }
    let listed = list(client, Some(&which.namespace)).await?;
    let of_claim: Vec<VolumeMove> = listed.into_iter().filter(|of| of.spec.claim_name == which.name).collect();
    let under_way = of_claim.iter().find(|of| !moves::is_over(of));
    match under_way.or_else(|| of_claim.last()) {
        Some(found) => Ok(found.clone()),
        None => bail!(
            "namespace {} has no move called {}, and none of a claim of that name: `kosmos-csi volume status {}` lists all moves \
             there",
            which.namespace,
            which.name,
            which.namespace
        ),
    }
}

fn is_unknown_kind(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && !says_what_is_missing(status))
}

fn unknown_kind() -> anyhow::Error {
    anyhow!(
        "the host does not know the kind VolumeMove: to move volumes, set moves.enabled in the chart's values (docs/moving.md)"
    )
}

fn refusal(doing: &str, error: &kube::Error) -> anyhow::Error {
    if is_unknown_kind(error) { unknown_kind() } else { anyhow!("{doing}: {}", with_causes(error)) }
}
