//! `status`: host, driver, members and volumes on one screen.

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::PodSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::ListParams};

use super::{
    Report, connect,
    get::{self, Pods},
    look::{driver_and_lease, holder},
    member,
    print::patiently,
    volume,
};
use crate::args::operator::Status;
use cluster::{Dial, with_causes};
use host::{Host, moves::stall};
use operator::status::{CHART, Seen, SeenMember, Workload, listing};

pub(super) async fn status(flags: &Status, dial: &Dial) -> anyhow::Result<Report> {
    let host = connect::host(&flags.members.host, dial).await?;
    let seen = patiently("looking at host and members", look(flags, &host, dial)).await?;
    let (listing, well) = listing(&seen);
    Ok(Report::new(listing.print(flags.output.into()), well))
}

async fn look(flags: &Status, host: &Host, dial: &Dial) -> anyhow::Result<Seen> {
    let told = |error: kube::Error| anyhow::anyhow!("the host cannot be looked at: {}", with_causes(&error));
    let (has_driver_object, lease) = driver_and_lease(host).await.map_err(told)?;
    let moves = volume::under_way(&host.client, None).await?;
    Ok(Seen {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        has_driver_object,
        leader: lease.and_then(holder),
        workloads: workloads(host).await.map_err(told)?,
        members: members(flags, host, dial).await?,
        volumes: get::look(&host.client, None, Pods::NotWanted).await?,
        moves_under_way: moves.len(),
        stalled_moves: moves.iter().filter(|of| stall(of).is_some()).count(),
    })
}

async fn members(flags: &Status, host: &Host, dial: &Dial) -> anyhow::Result<Vec<SeenMember>> {
    let rows = member::list::rows(host, &flags.members, dial).await?;
    let named = rows.into_iter().filter(|row| !row.source.is_empty());
    Ok(named.map(|row| SeenMember { name: row.name, cordoned: row.cordoned, problem: row.problem }).collect())
}

/// In whatever namespaces they are; none where somebody has installed it without the chart.
async fn workloads(host: &Host) -> Result<Vec<Workload>, kube::Error> {
    let ours = ListParams::default().labels(CHART);
    let named = |kind: &str, of: &ObjectMeta| {
        format!("{kind} {}/{}", of.namespace.as_deref().unwrap_or_default(), of.name.as_deref().unwrap_or_default())
    };
    let mut found = Vec::new();
    for one in Api::<Deployment>::all(host.client.clone()).list(&ours).await? {
        let (name, spec) = (named("Deployment", &one.metadata), one.spec.unwrap_or_default());
        let ready = one.status.and_then(|status| status.ready_replicas).unwrap_or_default();
        let image = image(spec.template.spec);
        found.push(Workload { name, ready, wanted: spec.replicas.unwrap_or(1), image });
    }
    for one in Api::<DaemonSet>::all(host.client.clone()).list(&ours).await? {
        let (name, status) = (named("DaemonSet", &one.metadata), one.status.unwrap_or_default());
        let image = image(one.spec.unwrap_or_default().template.spec);
        found.push(Workload { name, ready: status.number_ready, wanted: status.desired_number_scheduled, image });
    }
    Ok(found)
}

fn image(pod: Option<PodSpec>) -> String {
    let first = pod.and_then(|pod| pod.containers.into_iter().next());
    first.and_then(|container| container.image).unwrap_or_default()
}
