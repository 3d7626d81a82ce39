//! The volume-stats role, in a member: it reads what kubelets say of volumes, for the agent of a host.

use std::{net::Ipv4Addr, sync::Arc};

use kube::Config;
use tokio::net::TcpListener;

use super::{Misuse, Signals};
use crate::args::volume_stats::VolumeStats;
use cluster::{Answers, Dial, metrics::Metrics, with_causes};
use domain::volume::HostId;
use leaf::stats::{Kubelets, PORT, Reader, Trust};

pub async fn volume_stats(arguments: VolumeStats) -> anyhow::Result<()> {
    // The first process of a pod is not ended by a signal that it does not listen to.
    let mut signals = Signals::new()?;
    let config = Config::incluster()
        .map_err(|error| Misuse(format!("this is not a pod with a service account of its cluster: {error}")))?;
    let trust = match arguments.kubelet_certificate_authority {
        Some(file) => Trust::Authority(file),
        None if arguments.kubelet_insecure_tls => Trust::Anybody,
        None => Trust::Cluster,
    };
    let kubelets = Kubelets::new(&config, trust, Dial::Network);
    let line = cluster::connect("(member)", config, Answers::OfAnySize, &Dial::Network, &Metrics::new())
        .map_err(|error| Misuse(format!("the service account cannot be used: {}", with_causes(&error))))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))
        .await
        .map_err(|error| Misuse(format!("port {PORT} of the loopback cannot be served: {error}")))?;
    let host = arguments.host.map(HostId);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        host = host.as_ref().map_or("any", |host| host.0.as_str()),
        "kosmos-csi volume-stats tells how full volumes are"
    );
    tokio::select! {
        () = Arc::new(Reader::new(line.probe, kubelets, host)).serve(listener) => {}
        signal = signals.next() => tracing::info!(signal, "kosmos-csi volume-stats has stopped"),
    }
    Ok(())
}
