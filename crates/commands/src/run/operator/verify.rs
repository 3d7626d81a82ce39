//! `verify`: the driver by what the host alone shows of it, until that is well or the time is over.

use std::{collections::BTreeMap, time::Duration};

use anyhow::anyhow;
use k8s_openapi::api::{
    coordination::v1::Lease,
    storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass},
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::time::{Instant, sleep};

use super::{Report, connect, look::holder, print::patiently};
use crate::args::operator::Verify;
use cluster::{Dial, lease, with_causes};
use domain::volume::{DRIVER, MEMBER_KEY, Parameters, quantity};
use operator::{
    status::Holder,
    verify::{Class, DriverObject, Room, Seen, listing},
};

/// The leases of csi-provisioner and csi-attacher, which call them after the driver.
const PROVISIONER: &str = "kosmos-csi-io";
const ATTACHER: &str = "external-attacher-leader-kosmos-csi-io";
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn verify(flags: &Verify, dial: &Dial) -> anyhow::Result<Report> {
    let client = connect::user(&flags.access, dial).await?;
    patiently("looking at the host", until_well(flags, &client)).await
}

async fn until_well(flags: &Verify, client: &Client) -> anyhow::Result<Report> {
    let begin = Instant::now();
    loop {
        let is_last = begin.elapsed() >= flags.wait;
        match look(client, flags).await {
            Ok(seen) => {
                let (listing, well) = listing(&seen);
                if well || is_last {
                    return Ok(Report::new(listing.print(flags.output.into()), well));
                }
            }
            Err(error) if is_last => {
                return Err(anyhow!("the host cannot be looked at: {}", with_causes(&error)));
            }
            // What was given to the account a moment ago may not be known everywhere yet.
            Err(_) => {}
        }
        sleep(PAUSE).await;
    }
}

async fn look(client: &Client, flags: &Verify) -> Result<Seen, kube::Error> {
    let namespace = &flags.members_namespace;
    let driver = cluster::read(Api::<CSIDriver>::all(client.clone()).get(DRIVER).await, DRIVER)?;
    let driver = driver.map(|driver| DriverObject {
        tells_room: driver.spec.storage_capacity == Some(true),
        attaches: driver.spec.attach_required != Some(false),
    });
    let classes = Api::<StorageClass>::all(client.clone()).list(&ListParams::default()).await?;
    let classes = classes.items.iter().filter(|class| class.provisioner == DRIVER).map(class).collect();
    let rooms = match driver {
        Some(DriverObject { tells_room: true, .. }) => rooms(client, namespace).await?,
        _ => Vec::new(),
    };
    Ok(Seen {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        driver,
        leader: held(client, namespace, lease::CONTROLLER).await?,
        without_provisioner: flags.without_provisioner,
        provisioner: held(client, namespace, PROVISIONER).await?,
        attacher: held(client, namespace, ATTACHER).await?,
        classes,
        rooms,
    })
}

fn class(class: &StorageClass) -> Class {
    let parameters: BTreeMap<String, String> = class.parameters.clone().unwrap_or_default();
    Class {
        name: class.name_any(),
        refused: Parameters::parse(&parameters).err().map(|error| error.to_string()),
        waits_for_pod: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
    }
}

/// What csi-provisioner has been told by the driver, beside which it runs.
async fn rooms(client: &Client, namespace: &str) -> Result<Vec<Room>, kube::Error> {
    let ours = ListParams::default().labels(&format!("csi.storage.k8s.io/drivername={DRIVER}"));
    let all = Api::<CSIStorageCapacity>::namespaced(client.clone(), namespace).list(&ours).await?;
    let room = |capacity: CSIStorageCapacity| {
        let place = capacity.node_topology?.match_labels?;
        Some(Room {
            class: capacity.storage_class_name,
            member: place.get(MEMBER_KEY)?.clone(),
            free: capacity.capacity.and_then(|size| quantity::parse(&size.0)).unwrap_or_default(),
        })
    };
    Ok(all.items.into_iter().filter_map(room).collect())
}

async fn held(client: &Client, namespace: &str, name: &str) -> Result<Option<Holder>, kube::Error> {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let lease = cluster::read(leases.get(name).await, name)?;
    Ok(lease.and_then(|lease| lease.spec).and_then(holder))
}
